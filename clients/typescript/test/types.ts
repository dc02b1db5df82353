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
    // @ts-expect-error: a poll's choices are names
    await tally.polls.create({ title: "Lunch?", choices: [1, 2] });
    // @ts-expect-error: each vote names its item
    await tally.castMany([{ voter_id: "ada" }]);
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
