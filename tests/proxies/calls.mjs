// The calls that each proxy must pass on: what the documents have browsers and backends send. The list stands here
// and nowhere else; docs/operating/proxy.md says what a proxy must do for them.
import assert from "node:assert/strict";

export const OTHER_ORIGIN = "https://other.example.org"; // in TALLY_ORIGINS
const TRACING = "baggage,if-none-match,traceparent,tracestate";

const json = (value) => ({ body: JSON.stringify(value), headers: { "content-type": "application/json" } });

// Names that a proxy decodes, shortens or refuses in a path.
const NAMES = ["a/b", "https://example.org//a/../b?c=d#e", "..", "a;b+c d", "100%2F", "<\"|\\^`{}>", "ä&ö=ü"];

const asQuery = (query) => new URLSearchParams(query).toString();

// Asks with the tag of the answer before until it is 304. Meanwhile the worker may save the item, once or twice, which
// makes another answer, with another tag.
async function unchanged(ask, path, answer) {
  for (let tries = 0; tries < 5; tries++) {
    const again = await ask("GET", path, { headers: { "if-none-match": answer.headers.etag } });
    if (again.status === 304) return;
    assert.ok(again.status === 200 && again.headers.etag !== answer.headers.etag, "an unchanged answer was sent again");
    answer = again;
  }
  assert.fail(`${path} never stays unchanged`);
}

// Each call gets the proxy (proxies.test.mjs). `own` makes a name that no other call uses.
export const CALLS = {
  async "an item is made, found by its plain key, edited and listed"({ ask, own }) {
    const key = own("post");
    const made = await ask("POST", "/v1/items", json({ name: key, key }), 201);
    assert.match(made.headers.location, /^\/v1\/items\/\d+$/);
    const item = await ask("GET", `/v1/items/key:${key}`, {}, 200);
    assert.equal(item.json.id, made.json.id);
    const renamed = await ask("PATCH", `/v1/items/${item.json.id}`, json({ name: `${key} renamed` }), 200);
    assert.equal(renamed.json.name, `${key} renamed`);
    const list = await ask("GET", `/v1/items?ids=key:${key}`, {}, 200);
    assert.deepEqual(list.json.items.map((one) => one.id), [item.json.id]);
    const csv = await ask("GET", `/v1/items?ids=${item.json.id}`, { headers: { accept: "text/csv" } }, 200);
    assert.match(csv.text, /^\ufeffid,name,key/);
  },
  async "a key and a voter with any letters are named in the query"({ ask, own }) {
    for (const name of NAMES) {
      const key = `${own("name")} ${name}`;
      const made = await ask("POST", "/v1/items", json({ name: "x", key }), 201);
      const item = await ask("GET", `/v1/items/key:?${asQuery({ key })}`, {}, 200);
      assert.equal(item.json.id, made.json.id, name);
      const voted = await ask("POST", `/v1/items/key:/votes?${asQuery({ key })}`, json({ voter_id: name }), 201);
      assert.equal(voted.json.item_id, made.json.id, name);
      const query = asQuery({ key, voter_id: name });
      const changed = await ask("PUT", `/v1/items/key:/votes?${query}`, json({ value: -1 }), 200);
      assert.deepEqual([changed.json.voter_id, changed.json.vote_count], [name, -1]);
      await ask("GET", `/v1/items/${made.json.id}/votes?${asQuery({ voter_id: name })}`, {}, 200);
      const back = await ask("DELETE", `/v1/items/${made.json.id}/votes?${asQuery({ voter_id: name })}`, {}, 200);
      assert.equal(back.json.vote_count, 0);
      const list = await ask("GET", `/v1/items?${asQuery({ ids: `key:${key}` })}`, {}, 200);
      assert.equal(list.json.items[0].id, made.json.id, name);
    }
  },
  async "a key with a slash in the path is found, or is nothing: it never names another item"({ ask, own }) {
    const key = `${own("path")}/a//b`;
    const { id } = (await ask("POST", "/v1/items", json({ name: "x", key }), 201)).json;
    const shorter = (await ask("POST", "/v1/items", json({ name: "x", key: key.replace("//", "/") }), 201)).json;
    const voted = await ask("POST", `/v1/items/key:${encodeURIComponent(key)}/votes`, json({ voter_id: "ada" }));
    assert.ok(voted.status === 404 || (voted.status === 201 && voted.json.item_id === id), `${voted.status} ${voted.text}`);
    assert.equal((await ask("GET", `/v1/items/${shorter.id}`, {}, 200)).json.vote_count, 0);
  },
  async "votes: one voter, again, changed, taken back, with an idempotency key, in a batch"({ ask, own, item }) {
    const id = await item();
    const votes = `/v1/items/${id}/votes`;
    assert.equal((await ask("POST", votes, json({ voter_id: "ada" }), 201)).json.vote_count, 1);
    assert.equal((await ask("POST", votes, json({ voter_id: "ada" }), 200)).json.repeated, true);
    assert.equal((await ask("PUT", `${votes}/ada`, json({ value: -1 }), 200)).json.vote_count, -1);
    assert.equal((await ask("GET", `${votes}/ada`, {}, 200)).json.value, -1);
    assert.equal((await ask("DELETE", `${votes}/ada`, {}, 200)).json.vote_count, 0);
    const once = json({});
    once.headers["idempotency-key"] = own("once");
    const first = await ask("POST", votes, once, 201);
    assert.equal((await ask("POST", votes, once, 201)).json.vote_id, first.json.vote_id);
    // As large as a request may be.
    const batch = Array.from({ length: 1000 }, (_, at) => ({ item_id: id, voter_id: `voter ${at} ${"x".repeat(40)}` }));
    const { results } = (await ask("POST", "/v1/votes", json({ votes: batch }), 200)).json;
    assert.ok(results.every((one) => one.status === 201), JSON.stringify(results[0]));
    await ask("GET", `/v1/votes/${first.json.vote_id}`, {}, 200);
    const held = await ask("GET", `/v1/votes?${asQuery({ voter_id: batch[0].voter_id, items: id })}`, {}, 200);
    assert.equal(held.json.votes.length, 1);
    assert.equal((await ask("GET", `/v1/items/${id}`, {}, 200)).json.vote_count, 1001);
  },
  async "a poll is made, chosen from, and shows its results"({ ask, own }) {
    const key = own("poll");
    const poll = (await ask("POST", "/v1/polls", json({ title: "Lunch?", choices: ["Soup", "Salad"], key }), 201)).json;
    const items = [poll.choices[1].item_id];
    const chosen = await ask("PUT", `/v1/polls/key:${key}/votes/ada`, json({ items }), 200);
    assert.deepEqual(chosen.json.items, items);
    assert.equal((await ask("GET", `/v1/polls/${poll.id}`, {}, 200)).json.choices[1].vote_count, 1);
    await ask("GET", `/v1/polls/${poll.id}/history?over=hour`, {}, 200);
    await ask("GET", `/v1/items/top?poll=${poll.id}`, {}, 200);
  },
  async "no cache keeps what changes: a missing item, a count, an unchanged answer"({ ask, own, item }) {
    const key = own("late");
    await ask("GET", `/v1/items/key:${key}`, {}, 404);
    const { id } = (await ask("POST", "/v1/items", json({ name: "x", key }), 201)).json;
    await ask("GET", `/v1/items/key:${key}`, {}, 200);
    const first = await ask("GET", `/v1/items/${id}`, {}, 200);
    await unchanged(ask, `/v1/items/${id}`, first);
    await ask("POST", `/v1/items/${id}/votes`, json({ voter_id: "ada" }), 201);
    const now = await ask("GET", `/v1/items/${id}`, { headers: { "if-none-match": first.headers.etag } }, 200);
    assert.equal(now.json.vote_count, 1);
    assert.equal((await ask("GET", `/v1/items/${id}`, {}, 200)).json.vote_count, 1);
  },
  async "errors arrive as they were sent"({ ask, item }) {
    const id = await item();
    for (const [method, path, options, status, slug] of [
      ["GET", "/v1/items/999999999", {}, 404, "unknown-item"],
      ["GET", "/v1/nowhere", {}, 404, "not-found"],
      ["POST", `/v1/items/${id}/votes`, { ...json({}), body: "{" }, 400, "malformed"],
      ["POST", `/v1/items/${id}/votes`, json({ value: 2 }), 422, "invalid-value"],
      ["DELETE", `/v1/items/${id}/access`, {}, 405, "method-not-allowed"],
      ["POST", `/v1/items/${id}/votes`, json({ voter_id: "x".repeat(20_000) }), 413, "body-too-large"],
    ]) {
      const answer = await ask(method, path, options, status);
      assert.match(answer.headers["content-type"], /^application\/problem\+json/);
      assert.equal(answer.json.type, `/problems/${slug}`);
      assert.ok(answer.headers["x-request-id"] && answer.headers["cache-control"] === "no-store", path);
    }
  },
  async "HEAD, a chunked body, Expect, and an offered upgrade on a connection that stays open"({ ask, item, keepAlive }) {
    const id = await item();
    const head = await ask("HEAD", `/v1/items/${id}`, {}, 200);
    assert.equal(head.text, "");
    const chunked = json({ voter_id: "ada" });
    chunked.headers["transfer-encoding"] = "chunked";
    await ask("POST", `/v1/items/${id}/votes`, chunked, 201);
    const expecting = json({ voter_id: "bob" });
    expecting.headers.expect = "100-continue";
    await ask("POST", `/v1/items/${id}/votes`, expecting, 201);
    const connection = keepAlive();
    for (const voter of ["eve", "fay", "gil"]) {
      // As Java's HttpClient has it.
      const offering = { ...json({ voter_id: voter }), agent: connection.agent };
      Object.assign(offering.headers, { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "http2-settings": "AAEAAEAAAAIAAAAA" });
      await ask("POST", `/v1/items/${id}/votes`, offering, 201);
      await ask("GET", `/v1/items/${id}`, { agent: connection.agent }, 200);
    }
    connection.end();
    assert.equal((await ask("GET", `/v1/items/${id}`, {}, 200)).json.vote_count, 5);
  },
  async "a stream shows each vote at once"({ ask, item, stream }) {
    const id = await item();
    for (const path of [`/v1/stream?items=${id},key:none`, `/v1/items/${id}/stream`]) {
      const before = (await ask("GET", `/v1/items/${id}`, {}, 200)).json.vote_count;
      const events = await stream(path, { "accept-encoding": "gzip" });
      assert.equal((await events.next()).items[0].vote_count, before);
      for (let votes = 1; votes <= 2; votes++) {
        await ask("POST", `/v1/items/${id}/votes`, json({}), 201);
        assert.equal((await events.next()).items[0].vote_count, before + votes);
      }
      events.close();
    }
  },
  async "a page's own writes are taken, and those of foreign pages are refused"({ ask, item, origin, passesHost }) {
    const id = await item();
    const write = (headers, status) => ask("POST", `/v1/items/${id}/votes`, { ...json({}), headers: { ...json({}).headers, ...headers } }, status);
    // Browsers tell over https and to localhost that a page is the server's own.
    await write({ origin, "sec-fetch-site": "same-origin" }, 201);
    await write({ origin }, passesHost ? 201 : 403);
    await write({}, 201);
    await write({ origin: OTHER_ORIGIN, "sec-fetch-site": "cross-site" }, 201);
    await write({ origin: "https://evil.example", "sec-fetch-site": "cross-site" }, 403);
    await write({ origin: "https://evil.example" }, 403);
    await write({ origin: "https://evil.example", "x-forwarded-host": "evil.example" }, 403);
    await write({ origin: "null" }, 403);
  },
  async "preflights of listed origins are answered, and their pages may read the headers"({ ask, item }) {
    const id = await item();
    const headers = { origin: OTHER_ORIGIN, "access-control-request-method": "GET", "access-control-request-headers": TRACING };
    const preflight = await ask("OPTIONS", `/v1/items/${id}`, { headers }, 204);
    assert.ok(preflight.headers["access-control-allow-headers"].endsWith(TRACING));
    assert.equal(preflight.headers["access-control-allow-origin"], OTHER_ORIGIN);
    const answer = await ask("GET", `/v1/items/${id}`, { headers: { origin: OTHER_ORIGIN } }, 200);
    assert.match(answer.headers["access-control-expose-headers"], /etag/);
    await ask("OPTIONS", `/v1/items/${id}`, { headers: { ...headers, origin: "https://evil.example" } }, 403);
    // What a cache keeps for one origin is not for another.
    const other = await ask("GET", `/v1/items/${id}`, {}, 200);
    assert.equal(other.headers["access-control-allow-origin"], undefined);
  },
  async "a voter's cookie arrives, and comes back"({ ask, item }) {
    const given = await ask("POST", "/v1/voter", json({}), 201);
    const cookie = given.headers["set-cookie"][0];
    assert.match(cookie, /^__Host-voter=[^;]+;.*Path=\//i);
    const id = await item();
    const vote = { ...json({}), headers: { ...json({}).headers, cookie: cookie.split(";")[0] } };
    assert.equal((await ask("POST", `/v1/items/${id}/votes`, vote, 201)).json.voter_id, given.json.voter_id);
    assert.equal((await ask("GET", "/v1/voter", { headers: { cookie: cookie.split(";")[0] } }, 200)).json.voter_id, given.json.voter_id);
    await ask("GET", "/v1/voter", {}, 404);
  },
  async "the client's address arrives where the proxy adds it"({ ask, own, addsAddress }) {
    const name = own("from");
    // Whatever a client says of itself is not believed.
    const headers = { "content-type": "application/json", "x-forwarded-for": "192.0.2.1" };
    const made = await ask("POST", "/v1/items", { body: JSON.stringify({ name }), headers, localAddress: "127.0.1.1" }, 201);
    const { acts } = (await ask("GET", "/v1/trail?limit=100", {}, 200)).json;
    const { address } = acts.find((one) => one.target === `item:${made.json.id}`);
    // A proxy that passes the header on as it is lets clients make up their address: it must not be in TALLY_PROXIES.
    assert.equal(address, addsAddress ? "127.0.1.1" : "192.0.2.1");
  },
  async "the elements' script is sent whole, and in gzip to who takes it"({ ask }) {
    const plain = await ask("GET", "/embed.js", {}, 200);
    assert.match(plain.text, /customElements\.define/);
    const small = await ask("GET", "/embed.js", { headers: { "accept-encoding": "gzip" } }, 200);
    assert.equal(small.headers["content-encoding"], "gzip");
    assert.equal(small.text, plain.text);
    await ask("GET", "/embed.js", { headers: { "if-none-match": plain.headers.etag } }, 304);
    await ask("GET", "/health/ready", {}, 200);
    await ask("GET", "/openapi.json", {}, 200);
  },
  async "pages and their files"({ ask, item, prefix, own }) {
    if (prefix) return; // pages need a host of their own
    const id = await item();
    const key = `${own("page")}/a`;
    await ask("POST", "/v1/items", json({ name: "x", key }), 201);
    for (const path of ["/", `/items/${id}`, `/items/key:?${asQuery({ key })}`, "/embed", "/ops", "/docs", "/problems/full"]) {
      const page = await ask("GET", path, {}, 200);
      assert.ok(page.headers["content-security-policy"], path);
      const files = [...page.text.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, file]) => file);
      assert.ok(files.length > 0 || path.startsWith("/problems"), path);
      for (const file of files) await ask("GET", file, {}, 200);
    }
    const missing = await ask("GET", "/items/999999999", {}, 404);
    assert.match(missing.headers["content-type"], /^text\/html/);
  },
};
