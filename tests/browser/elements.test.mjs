// The elements on pages of other origins, and what docs/embed.md says about them.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Server, close, count, eventually, host, hostElements, isPressed, isReleased, open, person, refused, shows, tally } from "./harness.mjs";

before(open);
after(close);

const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");

test("the ten lines of docs/embed.md show a live poll on an allowed origin, and say on another one that it is not allowed", async () => {
  const poll = await tally.newPoll({ title: "Embedded?" });
  const html = /```html\n(.*?)```/s.exec(guide)[1];
  assert.ok(html.trimEnd().split("\n").length <= 11, html);
  const own = html.replace("http://127.0.0.1:8080", tally.base).replace('poll="1"', `poll="${poll.id}"`);
  const page = await person();
  await page.goto(host("poll", own));
  await page.getByRole("button", { name: /^Soup/ }).click();
  await shows(page, "Your vote counts.");
  await page.getByText("100%").waitFor();
  await tally.choose(poll, "bob", 1);
  await page.getByText("50%").first().waitFor();

  const foreign = await person();
  const said = foreign.waitForEvent("console", { predicate: (message) => message.text().startsWith("connection:") });
  await foreign.addInitScript(() => addEventListener("DOMContentLoaded", () =>
    document.addEventListener("tally-connection", ({ detail }) => console.log(`connection: ${detail.connected} ${detail.reason}`))));
  await foreign.goto(host("poll", own, "foreign"));
  assert.match((await said).text(), /false .*origin is not allowed/);
});

test("elements of a page share one stream, take its looks, and tell it what happens", async () => {
  const item = await tally.newItem({ name: "Shared", key: "shared" });
  const address = hostElements("many", `<p>It has <tally-count item="key:shared"></tally-count> votes.</p>
    <tally-vote item="${item}" style="--tally-accent: rgb(200, 0, 0)"></tally-vote><tally-count item="999999"></tally-count>`);
  const page = await person();
  const opened = [];
  page.on("request", (request) => request.url().includes("/v1/stream") && opened.push(request.url()));
  await page.addInitScript(() => {
    globalThis.seen = [];
    for (const name of ["tally-vote", "tally-error"]) addEventListener(name, (event) => globalThis.seen.push([name, event.detail.value ?? event.detail.message]));
  });
  await page.goto(address);
  await eventually(() => page.evaluate(() => globalThis.seen.some(([name, what]) => name === "tally-error" && what.includes("999999"))));
  await page.getByRole("button", { name: "Vote up: Shared" }).click();
  await page.getByText("It has 1 votes.").waitFor();
  const up = page.getByRole("button", { name: "Vote up: Shared" });
  await eventually(async () => (await up.evaluate((one) => getComputedStyle(one).backgroundColor)) === "rgb(200, 0, 0)");
  assert.ok(await page.evaluate(() => globalThis.seen.some(([name, what]) => name === "tally-vote" && what === 1)));
  // The stream leaves out the item that does not exist, and shows all the others.
  assert.equal(new Set(opened).size, 1, opened.join("\n"));
});

test("while the connection is lost, each element keeps its counts and is stale, also one that is added meanwhile", async () => {
  const item = await tally.newItem({ name: "Stale" });
  const poll = await tally.newPoll({ title: "Stale?" });
  await tally.vote(item, "bob");
  await tally.choose(poll, "bob", 0);
  const page = await person();
  await page.goto(hostElements("stale", `<tally-vote item="${item}"></tally-vote><p>It has <tally-count item="${item}"></tally-count> votes.</p>
    <tally-poll poll="${poll.id}"></tally-poll>`));
  await page.evaluate(() => document.addEventListener("tally-connection", ({ detail }) => (globalThis.said = [detail.connected, detail.reason])));
  await page.getByText("It has 1 votes.").waitFor();
  await page.getByText("100%").waitFor();
  const stale = page.locator(":is(tally-vote, tally-count, tally-poll)[stale]");
  assert.equal(await stale.count(), 0);
  await tally.whileStopped(async () => {
    await eventually(async () => (await stale.count()) === 3);
    const [connected, reason] = await page.evaluate(() => globalThis.said);
    assert.equal(connected, false);
    assert.ok(reason, "no reason");
    await page.getByText("It has 1 votes.").waitFor();
    await page.getByText("100%").waitFor();
    await page.evaluate((item) => {
      const late = document.createElement("tally-count");
      late.setAttribute("item", item);
      document.body.append(late);
    }, item);
    await eventually(async () => (await stale.count()) === 4);
  });
  await eventually(async () => (await stale.count()) === 0);
  assert.deepEqual(await page.evaluate(() => globalThis.said), [true, ""]);
  await tally.vote(item, "eve");
  await page.getByText("It has 2 votes.").waitFor();
});

test("a page with more items and polls than a stream takes shows all counts, and keeps them current", async () => {
  const items = [];
  for (let at = 0; at < 130; at++) items.push(await tally.newItem({ name: `Many ${at}` }));
  const polls = [];
  for (let at = 0; at < 12; at++) polls.push(await tally.newPoll({ title: `Many ${at}` }));
  await tally.votes(items.map((item) => ({ item_id: item, voter_id: "bob" })));
  for (const poll of polls) await tally.choose(poll, "bob", 1);
  const page = await person();
  await page.goto(hostElements("beyond", items.map((item) => `<tally-count item="${item}"></tally-count> `).join("") +
    polls.map((poll) => `<tally-poll poll="${poll.id}"></tally-poll>`).join("")));
  const ones = page.locator("tally-count").locator('[part="count"]', { hasText: /^1$/ });
  await eventually(async () => (await ones.count()) === items.length);
  await eventually(async () => (await page.getByText("100%").count()) === polls.length);
  await tally.votes([items[0], items.at(-1)].map((item) => ({ item_id: item, voter_id: "eve" })));
  await tally.choose(polls.at(-1), "eve", 0);
  for (const item of [items[0], items.at(-1)]) await page.locator(`tally-count[item="${item}"]`).getByText("2", { exact: true }).waitFor();
  await page.locator(`tally-poll[poll="${polls.at(-1).id}"]`).getByText("50%").first().waitFor();
  assert.deepEqual(page.errors, []);
});

test("a vote with a token is the vote of the voter whom it names; each anonymous vote is one more", async () => {
  const secret = "a-secret-of-these-tests-and-of-nothing-else";
  const claims = { TALLY_JWT_SECRET: secret, TALLY_JWT_AUDIENCE: "votes", TALLY_JWT_ISSUER: "news" };
  const server = await Server.start({ TALLY_OPEN: "admin", ...claims });
  const item = await server.newItem({ name: "Named" });
  const poll = await server.newPoll({ title: "Named?" });
  const free = await server.newItem({ name: "Free" });
  await server.call("PUT", `/v1/items/${free}/access`, { open: ["anonymous"] });
  const written = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");
  const signed = `${written({ alg: "HS256", typ: "JWT" })}.${written({ sub: "ada", aud: "votes", iss: "news", exp: Math.floor(Date.now() / 1000) + 3600 })}`;
  const token = `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
  const elements = `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll><tally-vote item="${free}"></tally-vote>`;
  const plain = hostElements("nobody", elements, { server });
  // The guide's own script.
  const script = /```html\n(<script type="module">\nimport.*?)```/s.exec(guide)[1];
  const configured = script.replace("https://votes.example.org", server.base).replace('await fetch("/my-token")', `{ ok: true, text: () => ${JSON.stringify(token)} }`);
  assert.ok(configured.includes(server.base) && configured.includes(token), configured);
  const named = hostElements("somebody", elements, { server, head: configured });
  const up = (page, name) => page.getByRole("button", { name: `Vote up: ${name}` });

  const nobody = await person();
  await nobody.goto(plain);
  await up(nobody, "Named").click();
  await nobody.getByText("Sign in to vote.").waitFor();
  for (const expected of ["1", "2"]) {
    await up(nobody, "Free").click();
    await nobody.locator(`tally-vote[item="${free}"]`).locator('[part="count"]', { hasText: new RegExp(`^${expected}$`) }).waitFor();
    await isReleased(up(nobody, "Free"));
  }

  const ada = await person();
  await ada.goto(named);
  await up(ada, "Named").click();
  await isPressed(up(ada, "Named"));
  const soup = (page) => page.getByRole("button", { name: /^Soup/ });
  await soup(ada).click();
  await isPressed(soup(ada));
  const authorization = { authorization: `Bearer ${token}` };
  const held = await server.call("GET", `/v1/votes?voter_id=ada&items=${item}&polls=${poll.id}`, undefined, authorization);
  assert.deepEqual(held.votes.map((vote) => vote.item_id).sort((a, b) => a - b), [item, poll.choices[0].item_id].sort((a, b) => a - b));

  // Another device of the same voter, and a page that learns only later who the voter is.
  const again = await person();
  await again.goto(named);
  await isPressed(up(again, "Named"));
  await isPressed(soup(again));
  const later = await person();
  await later.goto(plain);
  await count(later, "1");
  await later.evaluate(async ([script, token]) => (await import(script)).configure({ token: () => token }), [`${server.base}/embed.js`, token]);
  await isPressed(up(later, "Named"));
  await server.end();
});

test("the text between an element's tags shows until its counts come, and without script", async () => {
  const item = await tally.newItem({ name: "Between" });
  const poll = await tally.newPoll({ title: "Between?" });
  const address = hostElements("between", `<tally-vote item="${item}"><span>Vote at news.example.org.</span></tally-vote>
    <tally-poll poll="${poll.id}"><b>A poll comes.</b></tally-poll><p>Votes: <tally-count item="${item}"><i>some</i></tally-count>.</p>`);
  const page = await person();
  const between = ["Vote at news.example.org.", "A poll comes.", "some"];
  let release;
  const released = new Promise((resolve) => (release = resolve));
  await page.route("**/v1/stream?*", async (route) => {
    await released;
    await route.continue();
  });
  await page.goto(address);
  await page.locator("tally-poll:defined").waitFor();
  for (const text of between) await shows(page, text);
  assert.equal(await page.getByRole("button").count(), 0, "controls stand beside what is between the tags");
  release();
  await page.locator("tally-count").getByText("0", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Vote up: Between" }).waitFor();
  for (const text of between) await page.getByText(text, { exact: true }).waitFor({ state: "hidden" });

  const bare = await person({ javaScriptEnabled: false });
  await bare.goto(address);
  for (const text of between) await shows(bare, text);
});

test("every part and every event that the guide names exists", async () => {
  const parts = [...(/^Parts for .*$/m.exec(guide)[0]).matchAll(/`([a-z-]+)`/g)].map(([, name]) => name);
  const events = [...guide.slice(guide.indexOf("## Events")).matchAll(/^\| `(tally-[a-z-]+)`/gm)].map(([, name]) => name);
  assert.ok(parts.length >= 17 && events.length === 5, `${parts} ${events}`);
  const server = await Server.start({ TALLY_OPEN: "admin" });
  const item = await server.newItem({ name: "Parts", closes_at: "2040-01-01T00:00:00Z" });
  await server.call("PUT", `/v1/items/${item}/access`, { open: ["voters"] });
  const closed = await server.newItem({ name: "For some" });
  const poll = await server.newPoll({ title: "Parts?", by_ballot: true });
  const { ballots } = await server.call("POST", `/v1/polls/${poll.id}/ballots`, { count: 1 });
  await server.call("POST", `/v1/items/${poll.choices[0].item_id}/votes`, { ballot: ballots[0] });
  const page = await person();
  await page.addInitScript((events) => {
    globalThis.seen = {};
    for (const name of events) document.addEventListener(name, ({ detail }) => (globalThis.seen[name] = detail));
  }, events);
  const css = parts.map((name) => `tally-vote::part(${name}), tally-poll::part(${name}) { --${name}: yes; }`).join("\n");
  const elements = `<tally-vote item="${item}"></tally-vote><tally-vote item="${closed}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll>`;
  await page.goto(hostElements("parts", elements, { server, head: `<style>${css}</style>` }));
  await page.getByRole("button", { name: "Vote up: Parts" }).click();
  await shows(page, "Your vote counts.");
  await page.getByRole("button", { name: "Vote up: For some" }).click();
  await shows(page, "Sign in to vote.");
  await page.locator("tally-poll").getByLabel("Your ballot").fill(ballots[0]);
  await page.getByRole("button", { name: /^Salad/ }).click();
  await page.getByRole("button", { name: "Vote", exact: true }).click();
  await refused(page).waitFor();
  await page.getByRole("button", { name: /^Salad/ }).click();
  await page.getByRole("alertdialog").waitFor();
  const named = await page.evaluate(() => {
    const all = new Set();
    for (const host of document.querySelectorAll("tally-vote, tally-poll")) {
      for (const one of host.shadowRoot.querySelectorAll("[part]")) {
        if (one.getClientRects().length === 0) continue;
        for (const name of one.part) if (getComputedStyle(one).getPropertyValue(`--${name}`) === "yes") all.add(name);
      }
    }
    return [...all];
  });
  assert.deepEqual(parts.filter((name) => !named.includes(name)), []);
  await server.end();
  await eventually(() => page.evaluate((events) => events.every((name) => globalThis.seen[name]), events));
  const seen = await page.evaluate(() => globalThis.seen);
  assert.ok("vote_count" in seen["tally-counts"] || "choices" in seen["tally-counts"]);
  assert.deepEqual([seen["tally-vote"].item_id, seen["tally-vote"].value], [item, 1]);
  assert.ok(seen["tally-error"].message && seen["tally-error"].problem.type.startsWith("/problems/"), JSON.stringify(seen["tally-error"]));
  assert.equal(seen["tally-sign-in"].problem.type, "/problems/credential-missing");
  assert.equal(seen["tally-connection"].connected, false);
});
