// Tests that need no server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import {
    EVENT_LIMIT_CHARACTERS,
    EventReader,
    FIRST_PAUSE_MS,
    NoAnswer,
    PAUSE_LIMIT_MS,
    Problem,
    STREAM_PAUSE_LIMIT_MS,
    Tally,
    type Token,
    TRIES_LIMIT,
    type Unknown,
    againMs,
    isRefused,
    pauseMs,
} from "tally-client";

test("pauses double, differ between clients, and have a limit", () => {
    for (let failures = 1; failures < 2_000; failures++) {
        const span = Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), PAUSE_LIMIT_MS);
        assert.equal(pauseMs(failures, PAUSE_LIMIT_MS, FIRST_PAUSE_MS, () => 0), span / 2);
        assert.equal(pauseMs(failures, PAUSE_LIMIT_MS, FIRST_PAUSE_MS, () => 1), span);
    }
    const drawn = new Set(Array.from({ length: 100 }, () => pauseMs(3, PAUSE_LIMIT_MS)));
    assert.ok(drawn.size > 90, `${drawn.size} different pauses of 100`);
});

test("a stream is not opened again before the server allows it, nor after the limit", () => {
    assert.equal(againMs(1, 3_127, undefined, () => 0), 3_127);
    assert.equal(againMs(2, 3_127, undefined, () => 0), 6_254);
    assert.ok(againMs(1, 1_000, 5_000, () => 0) >= 5_000);
    for (const [failures, retryMs, retryAfterMs] of [[1, 1e12, undefined], [1, 1_000, 1e12], [1_000, 1_000, undefined]] as const) {
        assert.ok(againMs(failures, retryMs, retryAfterMs, () => 1) <= STREAM_PAUSE_LIMIT_MS);
    }
});

const STREAM = [
    ":\n", "retry: 3127\r\n\r\n", "event: counts\ndata: {\"a\":\ndata: \"ü\"}\nid: 7\n\n", "data:x\r\rid: no\0\ndata\n\n",
    "retry: soon\nevent: left out\n\n", ": a comment\nunknown: y\ndata: last\n\n", "data: cut off",
];
const EVENTS = [
    { type: "counts", data: "{\"a\":\n\"ü\"}", id: "7" },
    { type: "message", data: "x", id: "7" },
    { type: "message", data: "", id: "7" },
    { type: "message", data: "last", id: "7" },
];

test("events are the same wherever the text is cut", () => {
    const text = STREAM.join("");
    for (let size = 1; size <= text.length; size++) {
        const reader = new EventReader();
        const events = [];
        for (let at = 0; at < text.length; at += size) events.push(...reader.read(text.slice(at, at + size)));
        assert.deepEqual(events, EVENTS, `in pieces of ${size}`);
        assert.equal(reader.retryMs, 3127);
    }
});

test("an event that never ends is not kept", () => {
    for (const piece of ["x".repeat(1_000_000), `data: ${"x".repeat(1_000_000)}\n`]) {
        const reader = new EventReader();
        assert.throws(() => {
            for (let read = 0; read < 2 * EVENT_LIMIT_CHARACTERS; read += piece.length) [...reader.read(piece)];
        }, RangeError);
    }
});

/** A fetch that gives these answers in turn, the last one for ever, and notes the requests. */
function answering(...answers: (Response | Error)[]) {
    return answeringTo("t", ...answers);
}
/** The same, with this token. */
function answeringTo(token: Token, ...answers: (Response | Error)[]) {
    const asked: { url: string; headers: Headers }[] = [];
    const fetch = async (url: string | URL | Request, init?: RequestInit) => {
        asked.push({ url: String(url), headers: new Headers(init?.headers) });
        const answer = answers[Math.min(asked.length, answers.length) - 1];
        if (answer instanceof Error) throw answer;
        return answer?.clone() ?? Response.error();
    };
    return { asked, tally: new Tally("http://x/", { fetch: fetch as typeof globalThis.fetch, token }) };
}
const json = (status: number, body: unknown, headers: Record<string, string> = {}) =>
    new Response(JSON.stringify(body), { status, headers: { "content-type": "application/problem+json", ...headers } });

test("after the limit of tries the last failure is thrown, with the number of tries", async () => {
    const { asked, tally } = answering(new TypeError("fetch failed"));
    const failure = await tally.items.get(1).catch((error: unknown) => error);
    assert.ok(failure instanceof NoAnswer);
    assert.deepEqual([failure.tries, asked.length], [TRIES_LIMIT, TRIES_LIMIT]);
    assert.ok(failure.cause instanceof TypeError);
});

test("a request that a retry cannot help is sent once", async () => {
    for (const answer of [json(404, { type: "/problems/unknown-item" }), json(429, {}, { "retry-after": "31" }),
        json(503, {}, { "retry-after": new Date(Date.now() + 3_600_000).toUTCString() }), json(500, {})]) {
        const { asked, tally } = answering(answer);
        await assert.rejects(tally.items.get(1), Problem);
        assert.equal(asked.length, 1);
    }
});

test("writes are retried only where they count once", async () => {
    const failing = () => answering(json(503, { stored: "no" }), json(200, {}));
    const again: [string, (tally: Tally) => Promise<unknown>][] = [
        ["a voter", (tally) => tally.vote(1, { voter_id: "ada" })],
        ["a ballot", (tally) => tally.vote(1, { ballot: "b" })],
        ["an Idempotency-Key", (tally) => tally.vote(1, {}, { idempotencyKey: "k" })],
        ["an own key", (tally) => tally.items.create({ name: "x", key: "x" })],
        ["a batch of voters", (tally) => tally.castMany([{ item_id: 1, voter_id: "ada" }, { item_id: 1, ballot: "b" }])],
        ["a change", (tally) => tally.setVote(1, "ada", -1)],
        ["a retraction", (tally) => tally.polls.takeBack(1, "ada")],
    ];
    const once: [string, (tally: Tally) => Promise<unknown>][] = [
        ["an anonymous vote", (tally) => tally.vote(1)],
        ["a voter that is null", (tally) => tally.vote(1, { voter_id: null })],
        ["an item without a key", (tally) => tally.items.create({ name: "x" })],
        ["a poll without a key", (tally) => tally.polls.create({ title: "x", choices: ["y"] })],
        ["a batch with an anonymous vote", (tally) => tally.castMany([{ item_id: 1, voter_id: "ada" }, { item_id: 1 }])],
    ];
    await Promise.all(again.map(async ([what, call]) => {
        const { asked, tally } = failing();
        await call(tally);
        assert.equal(asked.length, 2, what);
    }));
    await Promise.all(once.map(async ([what, call]) => {
        const { asked, tally } = failing();
        await assert.rejects(call(tally), { name: "Problem", stored: "no", tries: 1 }, what);
        assert.equal(asked.length, 1, what);
    }));
});

const sentTokens = (asked: { headers: Headers }[]) => asked.map(({ headers }) => headers.get("authorization"));
const refusal = () => json(401, { type: "/problems/token-expired" });

test("a token that a function returns is asked for each time, and once more after 401", async () => {
    const refused: (string | undefined)[] = [];
    const tokens = ["old", "new", "newest"];
    const { asked, tally } = answeringTo((old) => (refused.push(old), String(tokens.shift())), refusal(), json(200, {}));
    // Nothing was done, so a vote that might count twice is sent again, too.
    await tally.vote(1);
    await tally.items.get(1);
    assert.deepEqual(sentTokens(asked), ["Bearer old", "Bearer new", "Bearer newest"]);
    assert.deepEqual(refused, [undefined, "old", undefined]);
});

test("a 401 is thrown if there is no other token, or if the other one is refused, too", async () => {
    let count = 0;
    for (const [token, sent] of [["t", 1], [() => "same", 1], [() => undefined, 1], [async () => `${(count += 1)}`, 2]] as const) {
        const { asked, tally } = answeringTo(token, refusal());
        await assert.rejects(tally.items.get(1), { name: "Problem", slug: "token-expired", tries: 1 });
        assert.equal(asked.length, sent);
    }
});

test("what a token's function throws is thrown, and a call that is aborted does not wait for it", async () => {
    const { asked, tally } = answeringTo(() => { throw new Error("signed out"); }, json(200, {}));
    await assert.rejects(tally.items.get(1), /signed out/);
    const stop = new AbortController();
    const waiting = answeringTo(() => new Promise(() => undefined), json(200, {}));
    const call = waiting.tally.items.get(1, { signal: stop.signal });
    stop.abort(new Error("enough"));
    await assert.rejects(call, /enough/);
    assert.deepEqual([asked.length, waiting.asked.length], [0, 0]);
});

test("an address without http and a token that no header takes are named at once, and no error shows the token", async () => {
    for (const base of ["localhost:8080", "votes.example.org", "ftp://x", "https:x", " "]) {
        assert.throws(() => new Tally(base), { name: "TypeError", message: /begins with https:/ }, base);
    }
    for (const base of ["", "/tally", "HTTP://x", "https://x:1/tally/"]) assert.ok(new Tally(base));
    for (const token of ["secret\nsecret", () => "secret\u2028"]) {
        const { asked, tally } = answeringTo(token, json(200, {}));
        const failure = await tally.items.get(1).catch((error: unknown) => error);
        assert.ok(failure instanceof TypeError && /the token has characters/.test(failure.message));
        assert.doesNotMatch(inspect(failure), /secret/);
        assert.equal(asked.length, 0);
    }
});

test("a problem has the hint that the server gives to programs", async () => {
    const { tally } = answering(json(401, { type: "/problems/credential-not-valid", hint: "Its aud is a; this server takes b." }));
    await assert.rejects(tally.items.get(1), { name: "Problem", hint: "Its aud is a; this server takes b." });
});

test("health is asked once", async () => {
    const { asked, tally } = answering(json(503, { type: "/problems/not-ready" }));
    await assert.rejects(tally.health.ready(), { slug: "not-ready" });
    assert.equal(asked.length, 1);
});

/** The answer of a stream that has these events and ends, or stays open until it is aborted. */
function stream(signal: AbortSignal | null | undefined, unknown: unknown, counts: unknown) {
    const write = (type: string, data: unknown) => (data === undefined ? "" : `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`);
    const text = `retry: 1\n\n${write("unknown", unknown)}id: 7\n${write("counts", counts)}`;
    const body = new ReadableStream<Uint8Array>({
        start(controller) {
            controller.enqueue(new TextEncoder().encode(text));
            if (signal == null) controller.close();
            else signal.addEventListener("abort", () => controller.error(signal.reason));
        },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
}

test("a stream that stays open is opened again for what it does not know, until it knows all", async () => {
    const unknown = { items: ["key:x"], polls: [], creates_items: true };
    const known = [[1], [1], [1, 2]];
    const shown: number[][] = [];
    const missing: Unknown[] = [];
    const ids: (string | null)[] = [];
    const stop = new AbortController();
    let lost = 0;
    const fetch = async (_: unknown, init?: RequestInit) => {
        ids.push(new Headers(init?.headers).get("last-event-id"));
        const items = known.shift()?.map((id) => ({ id }));
        return stream(init?.signal, items?.length === 2 ? undefined : unknown, { items, polls: [] });
    };
    const tally = new Tally("http://x", { fetch: fetch as typeof globalThis.fetch });
    await tally.watch({ items: [1, "key:x"] }, ({ items }) => {
        shown.push(items.map(({ id }) => id));
        if (items.length === 2) stop.abort();
    }, { signal: stop.signal, onUnknown: (one) => missing.push(one), onLost: () => (lost += 1) });
    assert.deepEqual(shown, [[1], [1], [1, 2]]);
    assert.deepEqual(missing, [unknown, unknown]);
    assert.deepEqual([ids, lost], [[null, "7", "7"], 0]);
});

test("what does not exist at all is looked for again, and the watch ends when it is aborted", async () => {
    const stop = new AbortController();
    const { asked, tally } = answering(json(404, { type: "/problems/unknown-item" }));
    let misses = 0;
    await tally.watch({ items: [1], polls: ["key:x"] }, () => undefined, {
        signal: stop.signal,
        onUnknown: ({ items, polls }) => {
            assert.deepEqual([items, polls], [[1], ["key:x"]]);
            misses += 1;
            stop.abort();
        },
    });
    assert.deepEqual([misses, asked.length], [1, 1]);
});

test("a token that cannot be had now does not end a watch", async () => {
    const stop = new AbortController();
    let asks = 0;
    const { tally } = answeringTo(() => {
        asks += 1;
        if (asks === 1) throw new Error("offline");
        return "t";
    }, stream(undefined, undefined, { items: [{ id: 1 }], polls: [] }));
    const lost: unknown[] = [];
    await tally.watch({ items: [1] }, () => stop.abort(), { signal: stop.signal, onLost: (why) => lost.push(why.cause) });
    assert.match(String(lost), /offline/);
});

test("a voter's next write waits for the retried one, and another voter's write does not", async () => {
    const { asked, tally } = answering(json(503, {}), json(200, {}));
    const done: string[] = [];
    await Promise.all([
        tally.vote(1, { voter_id: "ada" }).then(() => done.push("vote")),
        tally.takeBack(1, "ada").then(() => done.push("take back")),
        tally.takeBack(1, "bob").then(() => done.push("bob")),
    ]);
    assert.deepEqual(done, ["bob", "vote", "take back"]);
    assert.deepEqual(asked.map(({ url }) => url.slice(-3)), ["tes", "bob", "tes", "ada"]);
});

test("a name that a proxy might change in a path is in the query, and an empty name is refused", async () => {
    const { asked, tally } = answering(json(200, {}));
    await tally.setVote("key:a/b", "ä?c", 1);
    assert.equal(asked[0]?.url, "http://x/v1/items/key:/votes?key=a%2Fb&voter_id=%C3%A4%3Fc");
    assert.equal(asked[0]?.headers.get("authorization"), "Bearer t");
    await tally.held("key:post-42", "..");
    assert.equal(asked[1]?.url, "http://x/v1/items/key:post-42/votes?voter_id=..");
    await tally.polls.get("key:a b");
    assert.equal(asked[2]?.url, "http://x/v1/polls/key:?key=a+b");
    assert.throws(() => tally.held(1, ""), RangeError);
    assert.throws(() => tally.items.get("key:"), RangeError);
    await assert.rejects(tally.watch({ items: ["key:a,b", 2] }, () => undefined), RangeError);
    await assert.rejects(tally.items.list({ ids: ["key:a,b"] }), RangeError);
});

test("a signal that is aborted ends the pause between two tries", async () => {
    const { asked, tally } = answering(json(503, {}, { "retry-after": "30" }));
    const stop = new AbortController();
    const call = tally.items.get(1, { signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 50);
    await assert.rejects(call, /enough/);
    assert.equal(asked.length, 1);
});

test("a result of a batch is a vote or a problem", () => {
    assert.ok(isRefused({ type: "/problems/full", title: "Full", status: 409, detail: "" }));
});
