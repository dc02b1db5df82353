// Runs against two real servers on the same stores.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Counts, NoAnswer, Problem, Tally, type Unknown, isRefused } from "tally-client";
import { LossyProxy, RealServer, eventually } from "./servers.js";

let servers: RealServer[];
let tally: Tally;
let other: Tally;
before(async () => {
    servers = await Promise.all([RealServer.start(), RealServer.start()]);
    [tally, other] = servers.map((server) => new Tally(server.base)) as [Tally, Tally];
});
after(async () => {
    await Promise.all(servers.map((server) => server.stop()));
});

/** Returns the error with which a promise rejects. */
const problem = async (call: Promise<unknown>) => {
    const thrown = await call.then(() => undefined, (error: unknown) => error);
    assert.ok(thrown instanceof Problem, String(thrown));
    return thrown;
};

test("items are created, read, listed and voted on; votes are changed and taken back", async () => {
    const made = await tally.items.create({ name: "Tea", key: "tea/1" });
    assert.equal((await tally.items.create({ name: "Tea", key: "tea/1" })).id, made.id);
    const vote = await tally.vote("key:tea/1", { voter_id: "ada/ü" });
    assert.deepEqual([vote.value, vote.vote_count, vote.repeated], [1, 1, undefined]);
    assert.equal((await tally.vote(made.id, { voter_id: "ada/ü" })).repeated, true);
    assert.equal((await tally.setVote(made.id, "ada/ü", -1)).vote_count, -1);
    assert.equal((await tally.held(made.id, "ada/ü")).value, -1);
    assert.equal((await tally.vote(made.id)).vote_count, 0);
    assert.equal((await tally.takeBack(made.id, "ada/ü")).vote_count, 1);
    assert.equal((await problem(tally.held(made.id, "ada/ü"))).slug, "no-vote");
    assert.equal((await tally.items.get(made.id)).vote_count, 1);
    assert.deepEqual((await tally.items.list({ ids: [made.id, "key:tea/1"] })).items.map(({ name }) => name), ["Tea", "Tea"]);
    assert.ok((await tally.items.top({ by: "up", limit: 5 })).items.length <= 5);
    assert.deepEqual((await tally.heldMany("ada/ü", { items: [made.id] })).votes, []);
    assert.deepEqual(await tally.items.list({ ids: [] }), { items: [], next_after: null });
    assert.ok(["stored", "counted", "saved"].includes((await tally.receipt(Number(vote.vote_id))).state));
});

test("polls are created; selections are set and taken back; batches are answered vote by vote", async () => {
    const poll = await tally.polls.create({ title: "Lunch?", choices: ["soup", "salad"] });
    const [soup, salad] = poll.choices.map((choice) => choice.item_id) as [number, number];
    assert.deepEqual((await tally.polls.select(poll.id, "ada", [soup])).items, [soup]);
    assert.deepEqual((await tally.polls.select(poll.id, "ada", [salad])).items, [salad]);
    assert.deepEqual((await tally.polls.selected(poll.id, "ada")).items, [salad]);
    assert.equal((await tally.polls.get(poll.id)).voter_count, 1);
    assert.deepEqual((await tally.polls.takeBack(poll.id, "ada")).items, []);
    const { id } = await tally.items.create({ name: "Batch" });
    const [cast, refused] = await tally.castMany([{ item_id: id, voter_id: "ada" }, { item_id: 999_999 }]);
    assert.ok(cast && !isRefused(cast) && cast.vote_count === 1);
    assert.ok(refused && isRefused(refused) && refused.type === "/problems/unknown-item");
});

test("a read with the tag of the last answer returns only what is new", async () => {
    const { id } = await tally.items.create({ name: "Tagged" });
    const first = await tally.items.get(id, { ifNoneMatch: null });
    assert.ok(first.modified && first.etag !== undefined);
    assert.equal(first.value.vote_count, 0);
    assert.deepEqual(await tally.items.get(id, { ifNoneMatch: first.etag }), { modified: false, etag: first.etag });
    await tally.vote(id);
    const second = await tally.items.get(id, { ifNoneMatch: first.etag });
    assert.ok(second.modified && second.etag !== first.etag && second.value.vote_count === 1);
});

test("a list is read page after page, as JSON and as CSV", async () => {
    const made = [];
    for (const at of [1, 2, 3, 4, 5]) made.push((await tally.items.create({ name: "Paged", key: `paged-${at}` })).id);
    const listed = [];
    for await (const item of tally.items.each({ name: "Paged", limit: 2 })) listed.push(item.id);
    assert.deepEqual(listed, made);
    const csv = [];
    for (let after: number | null | undefined = undefined; after !== null; ) {
        const page = await tally.items.csv({ name: "Paged", limit: 2, after });
        csv.push(...page.text.trimEnd().split("\r\n").slice(1).map((line) => Number(line.split(",")[0])));
        after = page.next_after;
    }
    assert.deepEqual(csv, made);
    const titles = new Set<string>();
    for (const at of [1, 2, 3]) await tally.polls.create({ title: `Paged ${at}`, choices: ["a"] });
    for await (const poll of tally.polls.each({ search: "Paged", limit: 1 })) titles.add(poll.title);
    assert.deepEqual([...titles], ["Paged 3", "Paged 2", "Paged 1"]);
});

test("a ballot buys one vote", async () => {
    const { id } = await tally.items.create({ name: "By ballot", by_ballot: true });
    const [ballot] = (await tally.ballots.create({ item: id }, { count: 1 })).ballots as [string];
    assert.equal((await tally.vote(id, { ballot })).vote_count, 1);
    assert.equal((await tally.vote(id, { ballot })).repeated, true);
    assert.equal((await problem(tally.vote(id, { ballot, value: -1 }))).slug, "ballot-not-valid");
});

test("what has no method is a request with the same errors", async () => {
    const { id } = await tally.items.create({ name: "Requested" });
    const answer = await tally.request<{ name: string }>({ method: "GET", path: `/v1/items/${id}` });
    assert.deepEqual([answer.status, answer.body.name, answer.headers.get("content-type")], [200, "Requested", "application/json"]);
    assert.equal((await tally.request<string>({ method: "GET", path: "/embed.js", accept: "text/javascript" })).status, 200);
    assert.equal((await problem(tally.request({ method: "POST", path: "/v1/items", body: {} }))).slug, "malformed");
});

test("a refusal is a Problem with its type, status and detail", async () => {
    const refused = await problem(tally.items.get(999_999));
    assert.deepEqual([refused.slug, refused.status, refused.type, refused.tries], ["unknown-item", 404, "/problems/unknown-item", 1]);
    assert.match(refused.detail, /There is no item 999999/);
    const wrong = await problem(tally.items.create({ name: "" }));
    assert.deepEqual([wrong.slug, wrong.field], ["invalid-value", "name"]);
});

test("a vote with a voter or a key is retried when its answer is lost, and counts once", async () => {
    const { id } = await tally.items.create({ name: "Lost" });
    const proxy = await LossyProxy.start(String(servers[0]?.base));
    const through = new Tally(proxy.base);
    let total = 0;
    for (const loss of ["unconfirmed", "connection", "bad-gateway"] as const) {
        for (const [vote, options] of [[{ voter_id: loss }, {}], [{}, { idempotencyKey: `key-${loss}` }]] as const) {
            proxy.losses = [loss];
            const before = proxy.requests.length;
            const cast = await through.vote(id, vote, options);
            total += 1;
            assert.deepEqual([cast.repeated, cast.vote_count], [true, total], loss);
            assert.equal(proxy.requests.length - before, 2, loss);
        }
    }
    // Nobody knows whether an anonymous vote is stored, so the caller must decide.
    for (const [loss, thrown] of [["unconfirmed", Problem], ["connection", NoAnswer]] as const) {
        proxy.losses = [loss];
        const before = proxy.requests.length;
        await assert.rejects(through.vote(id), (error) => error instanceof thrown && error.tries === 1);
        total += 1;
        assert.equal(proxy.requests.length - before, 1, loss);
    }
    // An hour is too long to wait.
    proxy.losses = ["throttled"];
    const throttled = await problem(through.items.get(id));
    assert.deepEqual([throttled.slug, throttled.retryAfterMs, throttled.tries], ["throttled", 3_600_000, 1]);
    assert.equal((await tally.items.get(id)).vote_count, total);
    proxy.stop();
});

/** Watches, and keeps the last counts. */
function watching(watched: Parameters<Tally["watch"]>[0], of = tally) {
    const stop = new AbortController();
    const shown = new Map<number, number | null>();
    const polls = new Map<number, number | null>();
    const seen = { opened: 0, lost: 0, events: 0, unknown: [] as Unknown[] };
    const onCounts = (counts: Counts) => {
        seen.events += 1;
        for (const item of counts.items) shown.set(item.id, item.vote_count);
        for (const poll of counts.polls) polls.set(poll.id, poll.voter_count);
    };
    const ended = of.watch(watched, onCounts, {
        signal: stop.signal,
        onOpen: () => (seen.opened += 1),
        onLost: () => (seen.lost += 1),
        onUnknown: (unknown) => seen.unknown.push(unknown),
    });
    return { stop, shown, polls, seen, ended };
}

test("a stream shows votes through the other server, until it is aborted", async () => {
    const [one, two] = await Promise.all([tally.items.create({ name: "1", key: "one,1" }), tally.items.create({ name: "2", key: "two" })]);
    const poll = await tally.polls.create({ title: "P", choices: ["a", "b"] });
    const some = watching({ items: [one.id, "key:two"], polls: [poll.id] });
    const single = watching({ items: ["key:one,1"] });
    const ofPoll = watching({ polls: [poll.id] });
    const all = [some, single, ofPoll];
    await eventually("all is shown at first", () => some.shown.size === 2 && single.shown.size === 1 && ofPoll.polls.size === 1);
    await other.vote(one.id);
    await other.vote(two.id, { voter_id: "ada", value: -1 });
    await other.polls.select(poll.id, "ada", [Number(poll.choices[0]?.item_id)]);
    await eventually("the votes are shown", () => some.shown.get(one.id) === 1 && some.shown.get(two.id) === -1);
    await eventually("the others show theirs", () => single.shown.get(one.id) === 1 && ofPoll.polls.get(poll.id) === 1);
    for (const { stop } of all) stop.abort();
    await Promise.all(all.map(({ ended }) => ended));
    const events = some.seen.events;
    await other.vote(one.id);
    assert.deepEqual([some.seen.events, some.seen.opened, some.seen.lost], [events, 1, 0]);
});

test("a stream that is refused is given up, and so is a stream whose reader fails", async () => {
    const { id } = await tally.items.create({ name: "x" });
    for (const watched of [{ items: [id, "x"] }, { items: [] }, { items: Array.from({ length: 101 }, (_, at) => at + 1) }]) {
        const refused = await problem(watching(watched).ended);
        assert.ok([400, 422].includes(refused.status), refused.message);
    }
    await assert.rejects(tally.watch({ items: [id] }, () => { throw new Error("broken"); }), /broken/);
});

test("an unknown item or poll is looked for again until it exists, and until the watch is aborted", async () => {
    const later = watching({ items: ["key:made later"] });
    const never = watching({ polls: [999_999] });
    const several = watching({ items: ["key:made-later", 999_999] });
    await eventually("all are unknown", () => [later, never, several].every(({ seen }) => seen.unknown.length > 0));
    assert.deepEqual(later.seen.unknown[0], { items: ["key:made later"], polls: [] });
    assert.deepEqual(never.seen.unknown[0], { items: [], polls: [999_999] });
    const one = await tally.items.create({ name: "Later", key: "made later" });
    const two = await tally.items.create({ name: "Later", key: "made-later" });
    await eventually("the new ones are shown", () => later.shown.get(one.id) === 0 && several.shown.get(two.id) === 0);
    await other.vote(one.id);
    await eventually("their votes are shown", () => later.shown.get(one.id) === 1);
    for (const { stop } of [later, never, several]) stop.abort();
    await Promise.all([later, never, several].map(({ ended }) => ended));
    assert.deepEqual([later.seen.lost, never.seen.lost, several.seen.lost], [0, 0, 0]);
});

test("a stream survives a server that is stopped and started, and shows what it missed", async () => {
    const server = await RealServer.start();
    const { id } = await tally.items.create({ name: "Restart" });
    const quiet = await tally.items.create({ name: "Quiet" });
    const counts: Counts[] = [];
    const stop = new AbortController();
    const seen = { opened: 0, lost: [] as (Problem | NoAnswer)[] };
    const ended = new Tally(server.base).watch({ items: [id, quiet.id] }, (shown) => counts.push(shown), {
        signal: stop.signal,
        onOpen: () => (seen.opened += 1),
        onLost: (why) => seen.lost.push(why),
    });
    const shows = (count: number) => counts.some(({ items }) => items.some((item) => item.id === id && item.vote_count === count));
    await eventually("it is shown", () => shows(0));
    await server.stop();
    await eventually("the loss is noticed", () => seen.lost.length > 0);
    assert.ok(seen.lost[0] instanceof NoAnswer);
    await other.vote(id);
    assert.ok(!shows(1));
    await server.startAgain();
    await eventually("what was missed is shown", () => shows(1));
    assert.equal(seen.opened, 2);
    // The server knew by Last-Event-ID what it need not send again.
    assert.deepEqual(counts.at(-1)?.items.map((item) => item.id), [id]);
    stop.abort();
    await ended;
    await server.stop();
});
