// A program in TypeScript, which is compiled as an ES module and as CommonJS.
import { type Counts, type Item, Problem, Tally, isRefused } from "tally-client";

async function main(): Promise<void> {
    const tally = new Tally(String(process.env["TALLY_BASE"]));
    const item: Item = await tally.items.create({ name: "From TypeScript" });
    const { vote_count } = await tally.vote(item.id, { voter_id: "ada" });
    const [refused] = await tally.castMany([{ item_id: 999_999 }]);
    const problem: unknown = await tally.items.get(999_999).catch((error: unknown) => error);
    const stop = new AbortController();
    let watched: number | null | undefined;
    const onCounts = ({ items }: Counts) => {
        watched = items[0]?.vote_count;
        stop.abort();
    };
    await tally.watch({ items: [item.id] }, onCounts, { signal: stop.signal });
    const isRight = refused !== undefined && isRefused(refused);
    // @ts-expect-error: the package has its types
    item.votes;
    console.log(JSON.stringify([vote_count, isRight, problem instanceof Problem && problem.slug, watched]));
}
void main();
