// The pages and elements in Chromium, on a `tally dev` of their own with a private Postgres and Redis. Whoever waits
// here waits for what a person would see, never for a time.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createServer as createSocket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const program = process.env.BROWSER_TEST_PROGRAM;
const WAIT_MS = 30_000; // how long something may take that is waited for
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const pictures = process.env.PICTURES ? new URL("../../docs/pictures/", import.meta.url).pathname : null;

const KEPT = new Set([
  "home-light-desktop", "home-dark-phone", "poll-light-phone", "poll-dark-desktop", "item-light-phone", "embed-dark-desktop",
  "ops-light-desktop", "ops-dark-phone", "docs-light-desktop",
]);

let folder, tally, base, browser, ports, pages;

async function freePort() {
  const socket = createSocket().listen(0, "127.0.0.1");
  await once(socket, "listening");
  const { port } = socket.address();
  socket.close();
  await once(socket, "close");
  return port;
}

async function startTally() {
  const env = { ...process.env, TALLY_LISTEN: `127.0.0.1:${ports.tally}`, TALLY_ORIGINS: `http://127.0.0.1:${ports.allowed}` };
  for (const name of ["DATABASE_URL", "REDIS_URL"]) delete env[name];
  tally = spawn(program, ["dev"], { cwd: folder, env, stdio: "ignore" });
  await eventually(async () => (await fetch(`${base}/health/ready`)).ok);
}

async function stopTally() {
  const exit = once(tally, "exit");
  tally.kill("SIGTERM");
  await exit;
}

async function eventually(check) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    if (await Promise.resolve().then(check).catch(() => false)) return;
    if (Date.now() > end) throw new Error(`never came true: ${check}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function call(method, path, body) {
  const answer = await fetch(base + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const read = await answer.json();
  assert.ok(answer.ok, JSON.stringify(read));
  return read;
}
const newItem = async (fields) => (await call("POST", "/v1/items", { name: "An item", ...fields })).id;
const newPoll = (fields) => call("POST", "/v1/polls", { title: "Lunch?", choices: ["Soup", "Salad"], ...fields });
const path = (item, voter) => `/v1/items/${item}/votes/${voter}`;

// A window with a storage of its own: another person.
async function person(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy/.test(message.text())) page.errors.push(message.text());
  });
  return page;
}
const shows = (page, text) => page.getByText(text, { exact: true }).first().waitFor();
const count = (page, text) => page.locator("tally-vote").locator('[part="count"]', { hasText: new RegExp(`^${text}$`) }).waitFor();
const isPressed = (locator) => locator.and(locator.page().locator('[aria-pressed="true"]')).waitFor();

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "tally-browser-"));
  ports = { tally: await freePort(), allowed: await freePort(), foreign: await freePort() };
  base = `http://127.0.0.1:${ports.tally}`;
  await startTally();
  const root = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: [...root, "--disable-gpu", "--disable-quic"] });
  // The pages of others, each under both origins.
  pages = new Map();
  for (const port of [ports.allowed, ports.foreign]) {
    const host = createServer((request, answer) => {
      answer.setHeader("content-type", "text/html; charset=utf-8");
      answer.end(pages.get(request.url) ?? "");
    });
    host.listen(port, "127.0.0.1").unref();
    await once(host, "listening");
  }
});

after(async () => {
  await browser?.close();
  if (tally?.exitCode === null) await stopTally();
  if (folder) await rm(folder, { recursive: true, force: true });
});

test("a vote moves the count in a second window, is changed, is taken back, and is still held after a reload", async () => {
  const item = await newItem({ name: "Bicycles" });
  const [ada, bob] = [await person(), await person()];
  await Promise.all([ada.goto(`${base}/items/${item}`), bob.goto(`${base}/items/${item}`)]);
  await count(bob, "0");
  await ada.getByRole("button", { name: "Vote up: Bicycles" }).click();
  await shows(ada, "Your vote counts.");
  await count(bob, "1");
  await ada.reload();
  await isPressed(ada.getByRole("button", { name: "Vote up: Bicycles" }));
  await ada.getByRole("button", { name: "Vote down: Bicycles" }).click();
  await count(bob, "-1");
  await ada.getByRole("button", { name: "Vote down: Bicycles" }).click();
  await shows(ada, "Your vote is taken back.");
  await count(bob, "0");
  assert.deepEqual([...ada.errors, ...bob.errors], []);
});

test("in a poll another choice moves the vote, and by the keyboard alone", async () => {
  const poll = await newPoll({ title: "Which way?" });
  const page = await person();
  await page.goto(`${base}/polls/${poll.id}`);
  const choice = (name) => page.getByRole("button", { name: new RegExp(`^${name}`) });
  await choice("Soup").waitFor();
  const focused = () => page.evaluate(() => {
    let one = document.activeElement;
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    return one?.textContent ?? "";
  });
  await eventually(async () => {
    await page.keyboard.press("Tab");
    return (await focused()).startsWith("Soup");
  });
  await page.keyboard.press("Enter");
  await isPressed(choice("Soup"));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Space");
  await isPressed(choice("Salad"));
  await eventually(async () => {
    const { choices, voter_count } = await call("GET", `/v1/polls/${poll.id}`);
    return voter_count === 1 && choices[0].vote_count === 0 && choices[1].vote_count === 1;
  });
  assert.equal(await choice("Soup").getAttribute("aria-pressed"), "false");
  assert.deepEqual(page.errors, []);
});

test("what takes no vote says why: a closed poll, a full item, a ballot that is spent", async () => {
  const closed = await newPoll({ title: "Over", closes_at: "2020-01-01T00:00:00Z" });
  const page = await person();
  await page.goto(`${base}/polls/${closed.id}`);
  await page.getByRole("button", { name: /^Soup/ }).click({ force: true });
  await shows(page, "This poll is closed.");

  const full = await newItem({ name: "One seat", max_votes: 1 });
  await call("PUT", path(full, "bob"), { value: 1 });
  await page.goto(`${base}/items/${full}`);
  await page.getByRole("button", { name: "Vote up: One seat" }).click();
  await page.locator('[part="message"].bad').waitFor();

  const board = await newPoll({ title: "Board", by_ballot: true });
  const { ballots } = await call("POST", `/v1/polls/${board.id}/ballots`, { count: 1 });
  await page.goto(`${base}/polls/${board.id}`);
  for (const [choice, expected] of [[/^Salad/, "Your vote counts. The ballot is spent."], [/^Soup/, null]]) {
    await page.getByLabel("Your ballot").fill(ballots[0]);
    await page.getByRole("button", { name: choice }).click();
    await (expected ? page.getByText(expected) : page.locator('[part="message"].bad')).waitFor();
  }
  assert.deepEqual(page.errors, []);
});

test("while a page is hidden it has no stream, and is current again when it is shown", async () => {
  const item = await newItem({ name: "Hidden" });
  const page = await person();
  await page.goto(`${base}/items/${item}`);
  await count(page, "0");
  const streams = async () => Number(/^tally_streams(?:\{[^}]*\})? (\d+)/m.exec(await (await fetch(`${base}/metrics`)).text())?.[1]);
  await eventually(async () => (await streams()) >= 1);
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  for (const context of browser.contexts()) if (context !== page.context()) await context.close();
  await hide(true);
  await eventually(async () => (await streams()) === 0);
  await call("PUT", path(item, "eve"), { value: 1 });
  await hide(false);
  await count(page, "1");
});

test("a page says that the server is unavailable, and goes on by itself when it is back", async () => {
  const item = await newItem({ name: "Lasting" });
  const page = await person();
  await page.goto(`${base}/items/${item}`);
  await page.getByRole("button", { name: "Vote up: Lasting" }).click();
  await count(page, "1");
  await stopTally();
  await page.getByText("Trying again").waitFor();
  await startTally();
  await page.getByText("Connected again.").waitFor();
  await call("PUT", path(item, "eve"), { value: 1 });
  await count(page, "2");
  await page.getByRole("button", { name: "Vote up: Lasting" }).click();
  await shows(page, "Your vote is taken back.");
});

test("the ten lines of docs/EMBED.md are a live poll on an allowed origin, and say on another that it is not allowed", async () => {
  const poll = await newPoll({ title: "Embedded?" });
  const text = await readFile(new URL("../../docs/EMBED.md", import.meta.url), "utf8");
  const html = /```html\n(.*?)```/s.exec(text)[1];
  assert.ok(html.trimEnd().split("\n").length <= 11, html);
  pages.set("/poll.html", html.replace("http://127.0.0.1:8080", base).replace('poll="1"', `poll="${poll.id}"`));
  const page = await person();
  await page.goto(`http://127.0.0.1:${ports.allowed}/poll.html`);
  await page.getByRole("button", { name: /^Soup/ }).click();
  await shows(page, "Your vote counts.");
  await page.getByText("100%").waitFor();
  await call("PUT", `/v1/polls/${poll.id}/votes/bob`, { items: [poll.choices[1].item_id] });
  await page.getByText("50%").first().waitFor();

  const foreign = await person();
  const said = foreign.waitForEvent("console", { predicate: (message) => message.text().startsWith("connection:") });
  await foreign.addInitScript(() => addEventListener("DOMContentLoaded", () =>
    document.addEventListener("tally-connection", ({ detail }) => console.log(`connection: ${detail.connected} ${detail.reason}`))));
  await foreign.goto(`http://127.0.0.1:${ports.foreign}/poll.html`);
  assert.match((await said).text(), /false .*origin is not allowed/);
});

test("elements of a page share one stream, take its looks, and tell it what happens", async () => {
  const item = await newItem({ name: "Shared", key: "shared" });
  pages.set("/many.html", `<!doctype html><title>x</title><script type="module" src="${base}/embed.js"></script>
    <p>It has <tally-count item="key:shared"></tally-count> votes.</p>
    <tally-vote item="${item}" style="--tally-accent: rgb(200, 0, 0)"></tally-vote><tally-count item="999999"></tally-count>`);
  const page = await person();
  const opened = [];
  page.on("request", (request) => request.url().includes("/v1/stream") && opened.push(request.url()));
  await page.addInitScript(() => {
    globalThis.seen = [];
    for (const name of ["tally-vote", "tally-error"]) addEventListener(name, (event) => globalThis.seen.push([name, event.detail.value ?? event.detail.message]));
  });
  await page.goto(`http://127.0.0.1:${ports.allowed}/many.html`);
  await eventually(() => page.evaluate(() => globalThis.seen.some(([name, what]) => name === "tally-error" && what.includes("999999"))));
  await page.getByRole("button", { name: "Vote up: Shared" }).click();
  await page.getByText("It has 1 votes.").waitFor();
  const up = page.getByRole("button", { name: "Vote up: Shared" });
  await eventually(async () => (await up.evaluate((one) => getComputedStyle(one).backgroundColor)) === "rgb(200, 0, 0)");
  assert.ok(await page.evaluate(() => globalThis.seen.some(([name, what]) => name === "tally-vote" && what === 1)));
  // The first was refused for the item that is not there; the second has all others.
  assert.equal(new Set(opened).size, 2, opened.join("\n"));
});

test("a search finds items and polls, and a name that is markup, wide or right-to-left is text", async () => {
  const name = "Markup <script>document.title = 'taken'</script> <img src=x onerror=\"document.title = 'taken'\">";
  const item = await newItem({ name });
  await newItem({ name: "\u202eتصويت " + "漢".repeat(150) });
  await newPoll({ title: "<b>Zebra</b> poll", choices: ["<i>a</i>"] });
  const page = await person();
  await page.goto(base);
  await page.getByRole("searchbox").fill("zebr");
  await shows(page, "<b>Zebra</b> poll");
  await page.getByRole("searchbox").fill("mark");
  await shows(page, name);
  await page.goto(`${base}/items/${item}`);
  await count(page, "0");
  assert.equal(await page.title(), name);
  await page.goto(`${base}/items/9999999`);
  await page.locator('[part="message"].bad', { hasText: "There is no item 9999999." }).waitFor();
  assert.deepEqual(page.errors, []);
});

test("an operator voids votes after a dry run and undoes it", async () => {
  const item = await newItem({ name: "Bots" });
  await call("PUT", path(item, "a-bot"), { value: 1 });
  const page = await person();
  await page.goto(`${base}/ops`);
  await page.locator("details", { has: page.locator("#new-voiding") }).locator("summary").first().press("Enter");
  await page.locator("#void-voter").fill("a-bot");
  await page.locator("#void-reason").fill("a bot");
  await page.locator("#new-voiding").getByRole("button").first().press("Enter");
  await page.locator("#ask[open]").waitFor();
  assert.match(await page.locator("#ask-text").innerText(), /1 vote/);
  await page.locator("#ask-yes").press("Enter");
  await eventually(async () => (await call("GET", `/v1/items/${item}`)).vote_count === 0);
  await page.locator("#voidings").getByRole("button", { name: /Undo/ }).first().click();
  await page.locator("#ask[open]").waitFor();
  await page.locator("#ask-yes").press("Enter");
  await eventually(async () => (await call("GET", `/v1/items/${item}`)).vote_count === 1);
  assert.deepEqual(page.errors, []);
});

test("axe finds no fault on any page in either scheme, and no page is wider than a window of 320 pixels", async () => {
  const poll = await newPoll({ title: "Where shall we eat on Friday?", choices: ["The noodle bar", "Pizza by the river", "Something new"] });
  for (let voter = 0; voter < 19; voter++) {
    await call("PUT", `/v1/polls/${poll.id}/votes/v${voter}`, { items: [poll.choices[voter < 9 ? 0 : voter < 15 ? 1 : 2].item_id] });
  }
  const all = { home: "/", poll: `/polls/${poll.id}`, item: "/items/1", embed: "/embed", ops: "/ops", docs: "/docs" };
  for (const [name, address] of Object.entries(all)) {
    for (const colorScheme of ["light", "dark"]) {
      for (const [device, viewport] of Object.entries({ desktop: { width: 1000, height: 720 }, phone: { width: 390, height: 720 }, narrow: { width: 320, height: 256 } })) {
        const page = await person({ viewport, colorScheme });
        await page.goto(base + address);
        if (["home", "poll"].includes(name)) await page.getByRole("button", { name: /^The noodle bar/ }).first().waitFor();
        const { violations } = await page.evaluate(`${axe}; axe.run()`);
        const faults = violations.map((one) => [one.id, ...one.nodes.map((node) => node.target.flat().join(" "))].join(" "));
        assert.deepEqual(faults, [], `${name} ${colorScheme} ${device}`);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wider <= 0, `${name} ${device}: ${wider} pixels too wide`);
        assert.deepEqual(page.errors, [], name);
        if (pictures && KEPT.has(`${name}-${colorScheme}-${device}`)) await page.screenshot({ path: `${pictures}${name}-${colorScheme}-${device}.png` });
        await page.context().close();
      }
    }
  }
});
