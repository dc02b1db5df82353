// Servers that take votes from known voters alone, on pages that do not know the voter yet.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Server, close, eventually, heard, hears, heldBack, hostElements, isPressed, isReleased, open, person, promised, shows } from "./harness.mjs";

before(open);
after(close);

const secret = "a-secret-of-these-tests-and-of-nothing-else";
const closed = { TALLY_OPEN: "admin", TALLY_JWT_SECRET: secret, TALLY_JWT_AUDIENCE: "votes", TALLY_JWT_ISSUER: "news" };
const encoded = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");
function tokenOf(sub, lastsSeconds = 3600) {
  const signed = `${encoded({ alg: "HS256", typ: "JWT" })}.${encoded({ sub, aud: "votes", iss: "news", exp: Math.floor(Date.now() / 1000) + lastsSeconds })}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}
const needsSignIn = (page) => page.locator(":is(tally-vote, tally-poll)[sign-in]");

test("a press by an unknown voter asks to sign in, tells the page, and votes once the page has a token", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Members" });
  const poll = await server.newPoll({ title: "Members?" });
  const page = await person();
  await hears(page, "tally-sign-in");
  await hears(page, "tally-error");
  await page.goto(hostElements("members", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll>`, { server }));
  const up = page.getByRole("button", { name: "Vote up: Members" });
  const soup = page.getByRole("button", { name: /^Soup/ });
  await up.click();
  await page.locator("tally-vote[sign-in]").getByText("Sign in to vote.").waitFor();
  await soup.click();
  await page.locator("tally-poll[sign-in]").getByText("Sign in to vote.").waitFor();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await up.click();
  await eventually(async () => (await heard(page, "tally-sign-in")).length === 3);
  const problems = (await heard(page, "tally-sign-in")).map(({ problem }) => problem?.type ?? null);
  assert.deepEqual(problems, ["/problems/credential-missing", "/problems/credential-missing", null]);
  assert.deepEqual(asked.filter((url) => url.includes("/votes")), [], "a press that can only be refused was sent");
  assert.deepEqual(await heard(page, "tally-error"), []);
  await isReleased(up);

  await page.evaluate(async ([script, token]) => (await import(script)).configure({ token: () => token }), [`${server.base}/embed.js`, tokenOf("ada")]);
  await eventually(async () => (await needsSignIn(page).count()) === 0);
  assert.equal(await page.getByText("Sign in to vote.").count(), 0);
  await up.click();
  await isPressed(up);
  await soup.click();
  await isPressed(soup);
  const held = await server.call("GET", `/v1/votes?voter_id=ada&items=${item}&polls=${poll.id}`, undefined, { authorization: `Bearer ${tokenOf("ada")}` });
  assert.equal(held.votes.length, 2);
  await server.end();
});

test("a guest of a page whose function gives no token stays the voter of the cookie, also after a reload and a login", async () => {
  const server = await Server.start({ ...closed, TALLY_OPEN: "visitors,admin", TALLY_COOKIE_KEYS: "ab".repeat(32) });
  const item = await server.newItem({ name: "Guests" });
  const page = await person();
  const address = hostElements("guests", `<tally-vote item="${item}"></tally-vote>`, {
    server,
    head: `<script type="module">import { configure } from "${server.base}/embed.js"; globalThis.token = ""; configure({ token: () => globalThis.token });</script>`,
  });
  const up = page.getByRole("button", { name: "Vote up: Guests" });
  await page.goto(address);
  await up.click();
  await isPressed(up);
  await page.reload();
  await isPressed(up);
  const say = (token) => page.evaluate(async ([script, token]) => {
    globalThis.token = token;
    (await import(script)).configure({ token: () => globalThis.token });
  }, [`${server.base}/embed.js`, token]);
  await say(tokenOf("ada"));
  await isReleased(up);
  await say("");
  await isPressed(up);
  await up.click();
  await isReleased(up);
  assert.equal((await server.call("GET", `/v1/items/${item}`)).vote_count, 0);
  await server.end();
});

test("the script of docs/embed.md signs a voter in at the first press, and the next one votes", async () => {
  const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");
  const script = /```html\n(<script type="module">\nimport [^`]*tally-sign-in.*?)```/s.exec(guide)[1];
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Guide" });
  const page = await person();
  await page.route("**/login", (route) => route.fulfill({ body: tokenOf("ada") }));
  await page.goto(hostElements("guide", `<tally-vote item="${item}"></tally-vote>`, { server, head: script.replace("https://votes.example.org", server.base) }));
  const up = page.getByRole("button", { name: "Vote up: Guide" });
  const login = page.waitForResponse("**/login");
  await up.click();
  await login;
  await eventually(async () => (await needsSignIn(page).count()) === 0);
  await up.click();
  await isPressed(up);
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a page whose function has no token yet, or one that has expired, votes as soon as it has a good one", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Session" });
  const page = await person();
  await hears(page, "tally-sign-in");
  const head = `<script type="module">import { configure } from "${server.base}/embed.js"; globalThis.session = null; configure({ token: async () => globalThis.session });</script>`;
  await page.goto(hostElements("session", `<tally-vote item="${item}"></tally-vote>`, { server, head }));
  const up = page.getByRole("button", { name: "Vote up: Session" });
  for (const [session, times] of [[null, 1], [tokenOf("ada", -3600), 2]]) {
    await page.evaluate((session) => (globalThis.session = session), session);
    await up.click();
    await eventually(async () => (await heard(page, "tally-sign-in")).length === times);
    await page.locator("tally-vote[sign-in]").getByText("Sign in to vote.").waitFor();
  }
  await page.evaluate((session) => (globalThis.session = session), tokenOf("ada"));
  await up.click();
  await shows(page, "Your vote counts.");
  await isPressed(up);
  assert.equal(await needsSignIn(page).count(), 0);
  await server.end();
});

test("a vote that is on its way while another voter signs in is not shown as that voter's", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Shared" });
  const poll = await server.newPoll({ title: "Shared?" });
  const page = await person();
  const configure = (token) => page.evaluate(async ([script, token]) => (await import(script)).configure({ token: () => token }), [`${server.base}/embed.js`, token]);
  await page.goto(hostElements("shared", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll><div></div>`, { server }));
  const [up, soup] = [page.getByRole("button", { name: "Vote up: Shared" }), page.getByRole("button", { name: /^Soup/ })];
  await up.waitFor();
  await configure(tokenOf("bob"));
  const [asked, released] = [[], promised()];
  await page.route("**/votes/**", async (route) => {
    if (route.request().method() !== "PUT") return route.continue();
    asked.push(route.request().url());
    await released.promise;
    await route.continue();
  });
  await up.click();
  await soup.click();
  await eventually(() => asked.length === 2);
  const held = page.waitForResponse((answer) => answer.url().includes("voter_id=carl"));
  await configure(tokenOf("carl"));
  await held;
  const answers = asked.map((url) => page.waitForResponse((answer) => answer.url() === url && answer.request().method() === "PUT"));
  released.resolve();
  for (const answer of answers) await (await answer).finished();
  await page.locator("tally-vote").locator('[part="count"]', { hasText: /^1$/ }).waitFor();
  for (const one of [up, soup]) assert.equal(await one.getAttribute("aria-pressed"), "false");
  assert.deepEqual(await page.locator('[part="message"]').allTextContents(), ["", ""]);
  await up.click();
  await isPressed(up);
  assert.equal((await server.call("GET", `/v1/items/${item}`)).vote_count, 2);

  // An element that was out of the page meanwhile, too.
  await page.evaluate(() => {
    globalThis.away = document.querySelector("tally-vote");
    away.remove();
  });
  await configure(tokenOf("eve"));
  await page.evaluate(() => document.querySelector("div").append(away));
  await isReleased(up);
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("an element that asks to sign in asks no more when it shows another item or is back in the page", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Members" });
  const byBallot = await server.newItem({ name: "By ballot", by_ballot: true });
  const { ballots } = await server.call("POST", `/v1/items/${byBallot}/ballots`, { count: 1 });
  const page = await person();
  await page.goto(hostElements("asks-no-more", `<tally-vote item="${item}"></tally-vote>`, { server }));
  const element = page.locator("tally-vote");
  for (const change of [
    (one) => one.parentElement.append(one),
    (one, id) => one.setAttribute("item", id),
  ]) {
    await page.getByRole("button", { name: "Vote up: Members" }).click();
    await page.locator("tally-vote[sign-in]").getByText("Sign in to vote.").waitFor();
    await element.evaluate(change, String(byBallot));
    await page.locator("tally-vote:not([sign-in])").waitFor();
    assert.equal(await page.getByText("Sign in to vote.").count(), 0);
  }
  await page.getByLabel("Your ballot").fill(ballots[0]);
  await page.getByRole("button", { name: "Vote up: By ballot" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Vote", exact: true }).click();
  await shows(page, "Your vote counts. The ballot is spent.");
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a function for tokens that never answers, or gives no token, keeps nobody from voting once there is a good one", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Dialog" });
  const page = await person();
  await hears(page, "tally-error");
  const configure = (text) => page.evaluate(async ([script, text]) => (await import(script)).configure({ token: new Function(`return ${text}`)() }), [`${server.base}/embed.js`, text]);
  await page.goto(hostElements("dialog", `<tally-vote item="${item}"></tally-vote>`, { server }));
  const up = page.getByRole("button", { name: "Vote up: Dialog" });
  await up.waitFor();
  // A login page in place of a token.
  await configure('() => "<!doctype html>\\n<title>Log in</title>"');
  await up.click();
  await eventually(async () => (await heard(page, "tally-error")).length > 0);
  assert.doesNotMatch((await heard(page, "tally-error"))[0].message, /does not answer/);
  await configure("() => new Promise(() => {})");
  assert.equal(await page.locator('[part="message"]').textContent(), "", "what was said is of the earlier voter");
  await up.click();
  await configure(`() => ${JSON.stringify(tokenOf("ada"))}`);
  await up.click();
  await isPressed(up);
  assert.equal((await server.call("GET", `/v1/items/${item}`)).vote_count, 1);
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a function for tokens that never answers keeps nobody from voting later, though it has the turn between tabs", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Turn" });
  const page = await person();
  const configure = (text) => page.evaluate(async ([script, text]) => (await import(script)).configure({ token: new Function(`return ${text}`)() }), [`${server.base}/embed.js`, text]);
  await page.goto(hostElements("turn", `<tally-vote item="${item}"></tally-vote>`, { server }));
  const up = page.getByRole("button", { name: "Vote up: Turn" });
  await up.waitFor();
  // Another tab has the turn.
  await page.evaluate(() => new Promise((held) => {
    navigator.locks.request("tally-voter", () => new Promise((end) => {
      window.endTurn = end;
      held();
    }));
  }));
  const locks = () => page.evaluate(async () => {
    const { held, pending } = await navigator.locks.query();
    return [held.length, pending.length].join();
  });
  await configure('() => "no token"');
  await up.click();
  await eventually(async () => (await locks()) === "1,1");
  await configure("() => new Promise(() => {})");
  await page.evaluate(() => window.endTurn());
  await eventually(async () => (await locks()) === "1,0");
  await configure(`() => ${JSON.stringify(tokenOf("ada"))}`);
  await up.click();
  await isPressed(up);
  assert.equal((await server.call("GET", `/v1/items/${item}`)).vote_count, 1);
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a ballot's outcome is said whoever signs in while it is on its way", async () => {
  const server = await Server.start(closed);
  const item = await server.newItem({ name: "Spent", by_ballot: true });
  const { ballots } = await server.call("POST", `/v1/items/${item}/ballots`, { count: 1 });
  const page = await person();
  await page.goto(hostElements("spent", `<tally-vote item="${item}"></tally-vote>`, { server }));
  const { asked, release } = await heldBack(page, "**/votes", "POST");
  await page.getByLabel("Your ballot").fill(ballots[0]);
  await page.getByRole("button", { name: "Vote up: Spent" }).click();
  await page.getByRole("alertdialog").getByRole("button", { name: "Vote", exact: true }).click();
  await asked;
  await page.evaluate(async ([script, token]) => (await import(script)).configure({ token: () => token }), [`${server.base}/embed.js`, tokenOf("ada")]);
  release();
  await shows(page, "Your vote counts. The ballot is spent.");
  assert.equal(await page.getByLabel("Your ballot").inputValue(), "");
  assert.deepEqual(page.errors, []);
  await server.end();
});
