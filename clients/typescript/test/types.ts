// This is only compiled. Each line below a @ts-expect-error must be an error.
import { type Counts, Problem, Tally } from "tally-client";

export async function typed(tally: Tally): Promise<void> {
    const item = await tally.items.get("key:post-42");
    const count: number | null = item.vote_count;
    void count;
    // @ts-expect-error: a count may be null, for example while results are hidden
    const certain: number = item.vote_count;
    void certain;
    // @ts-expect-error: there is no such field
    void item.votes;
    // @ts-expect-error: 2 is no vote
    await tally.setVote(1, "ada", 2);
    // @ts-expect-error: an item has a name
    await tally.items.create({ key: "x" });
    // @ts-expect-error: no such rule
    await tally.items.create({ name: "x", max_vote: 1 });
    // @ts-expect-error: no such order
    await tally.items.top({ by: "down" });
    await tally.items.top({ poll: "key:lunch", by: "up", limit: 5 });
    // @ts-expect-error: a poll's choices are names
    await tally.polls.create({ title: "Lunch?", choices: [1, 2] });
    // @ts-expect-error: each vote names its item
    await tally.castMany([{ voter_id: "ada" }]);
    // @ts-expect-error: a vote with a ballot has no voter
    await tally.vote(1, { voter_id: "ada", ballot: "b" });
    // @ts-expect-error: nor has one in a batch
    await tally.castMany([{ item_id: 1, voter_id: "ada", ballot: "b" }]);
    await tally.vote(1, { ballot: "b", voter_id: null });
    // @ts-expect-error: ids have no pages
    await tally.items.list({ ids: [1], after: 5 });
    // @ts-expect-error: items have their ids or a name
    await tally.items.list({ ids: [1], name: "x" });
    // @ts-expect-error: a name is no search
    await tally.items.list({ name: "x", search: "x" });
    // @ts-expect-error: a name finds choices, too
    await tally.items.list({ name: "x", choices: false });
    // @ts-expect-error: ids are not read page after page
    tally.items.each({ ids: [1] });
    // @ts-expect-error: no such parameter
    await tally.items.list({ sort: "name" });
    await tally.items.list({ search: "x", choices: false, after: undefined, limit: 5 });
    // @ts-expect-error: of an item or of a poll
    await tally.ballots.create({ item: 1, poll: 1 }, { count: 1 });
    // @ts-expect-error: of one of them
    await tally.access.get({});
    // @ts-expect-error: what is watched is named
    await tally.watch({}, () => undefined);
    // @ts-expect-error: a voter holds votes on something
    await tally.heldMany("ada", {});
    // @ts-expect-error: a secret poll is by ballot
    await tally.polls.create({ title: "x", choices: ["a"], secret: true });
    // @ts-expect-error: a ballot buys one choice
    await tally.polls.create({ title: "x", choices: ["a"], by_ballot: true, max_choices: 2 });
    await tally.polls.create({ title: "x", choices: ["a"], by_ballot: Math.random() < 0.5 });
    // @ts-expect-error: a voiding says which votes
    await tally.voidings.create({ reason: "x" });
    // @ts-expect-error: only a dry run continues
    await tally.voidings.create({ voter_id: "ada", reason: "x", after: 5 });
    // @ts-expect-error: a dry run is a call of its own
    await tally.voidings.create({ voter_id: "ada", reason: "x", dry_run: true });
    // @ts-expect-error: a merge has another voter
    await tally.voterEdits.create({ kind: "merge", voter_id: "ada" });
    // @ts-expect-error: an erased voter has none
    await tally.voterEdits.create({ kind: "erase", voter_id: "ada", to_voter_id: "bob" });
    const tagged = await tally.items.get(1, { ifNoneMatch: null });
    // @ts-expect-error: there may be nothing new
    void tagged.value.vote_count;
    if (tagged.modified) void tagged.value.vote_count;
    else void (tagged.etag satisfies string);
    // @ts-expect-error: an answer without a tag has no tag
    void (await tally.items.get(1)).etag;
    new Tally("", { token: () => undefined });
    new Tally("", { token: async (refused) => `${refused}` });
    // @ts-expect-error: a token is text
    new Tally("", { token: () => 5 });
    await tally.watch({ items: [1] }, (counts: Counts) => {
        // @ts-expect-error: a poll has no such count
        void counts.polls[0]?.vote_count;
    });
    try {
        await tally.vote(1);
    } catch (error) {
        if (!(error instanceof Problem)) throw error;
        // @ts-expect-error: there is no such problem
        if (error.slug === "fully") return;
        // @ts-expect-error: there are only "no" and "unknown"
        if (error.stored === "yes") return;
    }
}
