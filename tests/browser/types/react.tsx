// Uses in TSX of React. It is only compiled: each line below a @ts-expect-error must be an error.
import type {} from "tally-client/elements/react";

export const right = (
    <>
        <tally-poll poll={4} no-title heading-level={2} class="wide" lang="de" style={{ margin: "1rem" }} ontally-vote={({ detail }) => void ("items" in detail)} />
        <tally-poll poll="key:lunch" no-words share-of="voters" id="lunch">
            <p>Lunch?</p>
        </tally-poll>
        <tally-vote item="key:post-42" no-name likes ontally-error={({ detail }) => void detail.message.length} />
        <tally-count item={13} show="up">
            12
        </tally-count>
        <tally-history poll={4} over="hour" />
        <tally-history item={13} hidden />
        <tally-reactions to="post-42" emoji="👍 ❤️ 😂" single />
        <tally-reactions poll={5} />
        <tally-vote item={13} ref={(element) => element?.addEventListener("tally-counts", ({ detail }) => void detail.id)} />
    </>
);
export const wrong = (
    <>
        {/* @ts-expect-error: which poll? */}
        <tally-poll />
        {/* @ts-expect-error: a poll has no item */}
        <tally-poll item={13} />
        {/* @ts-expect-error: there is no such level */}
        <tally-poll poll={4} heading-level={7} />
        {/* @ts-expect-error: React 18 would write "false", which is there */}
        <tally-poll poll={4} no-title={false} />
        {/* @ts-expect-error: of an item or of a poll, not of both */}
        <tally-history item={13} poll={4} />
        {/* @ts-expect-error: which emoji? */}
        <tally-reactions to="post-42" />
        {/* @ts-expect-error: there is no such time */}
        <tally-history item={13} over="week" />
        {/* @ts-expect-error: a count has up-votes and down-votes */}
        <tally-count item={13} show="net" />
        {/* @ts-expect-error: the answer has no such field */}
        <tally-vote item={13} ontally-vote={({ detail }) => void detail.count} />
        {/* @ts-expect-error: there is no such element */}
        <tally-votes item={13} />
    </>
);
