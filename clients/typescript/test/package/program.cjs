// A program of CommonJS.
const { Problem, Tally, isRefused } = require("tally-client");

async function main() {
    const tally = new Tally(process.env.TALLY_BASE);
    const { id } = await tally.items.create({ name: "From CommonJS" });
    const { vote_count } = await tally.vote(id, { voter_id: "ada" });
    const [refused] = await tally.castMany([{ item_id: 999_999 }]);
    const problem = await tally.items.get(999_999).catch((error) => error);
    const stop = new AbortController();
    let watched;
    await tally.watch({ items: [id] }, ({ items }) => {
        watched = items[0]?.vote_count;
        stop.abort();
    }, { signal: stop.signal });
    console.log(JSON.stringify([vote_count, isRefused(refused), problem instanceof Problem && problem.slug, watched]));
}
main();
