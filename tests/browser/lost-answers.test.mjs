// What elements do when an answer does not come: a read fails once, a stream brings nothing, a file hangs. And how often
// they ask.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Server, close, count, eventually, hears, heard, heldBack, host, hostElements, isPressed, open, person, tally } from "./harness.mjs";

before(open);
after(close);

// What the page asks of this kind.
function asked(page, path) {
  const all = [];
  page.on("request", (request) => new URL(request.url()).pathname === path && all.push(request.url()));
  return all;
}

// The first request for this address fails.
async function failsOnce(page, address) {
  let isFirst = true;
  await page.route(address, (route) => {
    const fails = isFirst;
    isFirst = false;
    return fails ? route.abort() : route.continue();
  });
}

// The page's clock runs on until this is so.
const inTime = (page, check) => eventually(async () => {
  await page.clock.runFor(5000);
  return check();
});

const shown = (page, element = "tally-vote") => page.locator(element).locator('[part="count"]').allTextContents();
const voterIs = (page, id) => page.addInitScript((id) => localStorage.setItem("tally-voter", JSON.stringify({ id, own: false })), id);

test("an unknown key is shown though the first question for it failed, and the page hears of that", async () => {
  const server = await Server.start({ TALLY_CREATE_ITEMS: "likes" });
  const page = await person();
  await hears(page, "tally-error");
  await page.clock.install();
  await failsOnce(page, "**/v1/items?ids=*");
  await page.goto(hostElements("unknown-once", '<tally-vote item="key:unknown-once" likes></tally-vote>', { server }));
  await inTime(page, async () => (await shown(page))[0] === "0");
  assert.equal((await heard(page, "tally-error")).length, 1);
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a voter's vote is shown though the first question for it failed", async () => {
  const item = await tally.newItem({ name: "Held" });
  await tally.vote(item, "guest7");
  const page = await person();
  await voterIs(page, "guest7");
  await page.clock.install();
  await failsOnce(page, "**/v1/votes?*");
  await page.goto(hostElements("held-once", `<tally-vote item="${item}"></tally-vote>`));
  await count(page, "1");
  await inTime(page, () => page.getByRole("button", { name: "Vote up: Held", pressed: true }).isVisible());
  assert.deepEqual(page.errors, []);
});

test("whichever module configures the elements, and adds some, a page has one stream and asks once what its voter holds", async () => {
  const items = [await tally.newItem({ name: "One" }), await tally.newItem({ name: "Two" })];
  await tally.vote(items[0], "guest7");
  const [one, two] = items.map((item) => `<tally-vote item="${item}"></tally-vote>`);
  const script = `<script type="module" src="${tally.base}/embed.js"></script>`;
  const module = (text) => `<script type="module">${text}</script>`;
  const configure = "configure({ token: () => null });";
  const pages = {
    "script, then a module": [script + module(`import { configure } from "${tally.base}/embed.js"; ${configure}`), one + two],
    "a module that waits for it": [module(`const { configure } = await import("${tally.base}/embed.js"); ${configure}`), one + two],
    "an element of DOMContentLoaded": [script + `<script>document.addEventListener("DOMContentLoaded", () => document.querySelector("main").insertAdjacentHTML("beforeend", '${two}'))</script>`, one],
    "an element of a later module": [script, one + module(`document.querySelector("main").insertAdjacentHTML("beforeend", '${two}')`)],
  };
  for (const [name, [head, body]] of Object.entries(pages)) {
    const page = await person();
    await voterIs(page, "guest7");
    const [streams, votes] = [asked(page, "/v1/stream"), asked(page, "/v1/votes")];
    await page.goto(host(`once-${Object.keys(pages).indexOf(name)}`, `<!doctype html><html lang="en"><head><title>Once</title>${head}</head><body><main>${body}</main></body></html>`));
    await eventually(async () => (await shown(page)).join() === "1,0");
    await isPressed(page.getByRole("button", { name: "Vote up: One" }));
    assert.deepEqual([streams.length, votes.length], [1, 1], `${name}: ${streams} ${votes}`);
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("elements that are added one after the other are shown while more come, and the page has few streams", async () => {
  const items = [];
  for (let at = 0; at < 60; at++) items.push(await tally.newItem({ name: `Item ${at}` }));
  const page = await person();
  const streams = asked(page, "/v1/stream");
  await page.goto(hostElements("one-by-one", `<tally-count item="${items[0]}"></tally-count>`));
  await page.evaluate((items) => {
    globalThis.added = 0;
    globalThis.adding = setInterval(() => {
      const one = document.createElement("tally-count");
      one.setAttribute("item", items[++globalThis.added % items.length]);
      document.querySelector("main").append(one);
    }, 20);
  }, items);
  // None of them waits for the last one, which never comes.
  await eventually(async () => (await shown(page, "tally-count")).filter((text) => text === "0").length > 50);
  const added = await page.evaluate(() => {
    clearInterval(globalThis.adding);
    return globalThis.added;
  });
  assert.ok(streams.length < added / 3, `${streams.length} streams for ${added} elements`);
  await eventually(async () => (await shown(page, "tally-count")).every((text) => text === "0"));
});

test("where a stream brings nothing, as behind a proxy that holds it back, counts are read without it", async () => {
  const item = await tally.newItem({ name: "Silent" });
  await tally.vote(item, "bob");
  const page = await person();
  await page.clock.install();
  const { asked: stream, cut } = await heldBack(page, "**/v1/stream?*");
  await page.goto(hostElements("silent", `<tally-vote item="${item}"></tally-vote>`));
  await stream;
  await inTime(page, async () => (await shown(page))[0] === "1");
  cut();
});

test("where a language's file hangs, elements speak English after a while", async () => {
  const item = await tally.newItem({ name: "Hangs" });
  const page = await person();
  await page.clock.install();
  const { asked: file, cut } = await heldBack(page, "**/assets/words-de*");
  await page.goto(hostElements("file-hangs", `<tally-vote item="${item}"></tally-vote>`, { html: 'lang="de"' }));
  await file;
  await inTime(page, () => page.getByRole("button", { name: "Vote up: Hangs" }).isVisible());
  cut();
});

test("an address of the script with a slash behind its question mark is the same script", async () => {
  const item = await tally.newItem({ name: "Slash" });
  const page = await person();
  for (const end of ["?v=a/b", "#/x", "?v=1"]) {
    await page.goto(host("slash", `<!doctype html><html lang="en"><title>Slash</title><script type="module" src="${tally.base}/embed.js${end}"></script><tally-vote item="${item}"></tally-vote></html>`));
    await count(page, "0");
  }
});

test("a page that asks for other digits gets them for small numbers too", async () => {
  const item = await tally.newItem({ name: "Digits" });
  await tally.votes(["a", "b", "c"].map((voter_id) => ({ item_id: item, voter_id })));
  const page = await person();
  for (const [lang, text] of [["en-u-nu-arab", "٣"], ["en", "3"], ["en-IN", "3"]]) {
    await page.goto(hostElements("digits", `<tally-vote item="${item}"></tally-vote>`, { html: `lang="${lang}"` }));
    await count(page, text);
  }
});

test("a page hears of a vote whose element it has removed meanwhile", async () => {
  const item = await tally.newItem({ name: "Removed" });
  const page = await person();
  await hears(page, "tally-vote");
  await page.goto(hostElements("removed", `<tally-vote item="${item}"></tally-vote>`));
  const { asked: vote, release } = await heldBack(page, "**/v1/items/*/votes/*", "PUT");
  await page.getByRole("button", { name: "Vote up: Removed" }).click();
  await vote;
  await page.evaluate(() => document.querySelector("tally-vote").remove());
  release();
  await eventually(async () => (await heard(page, "tally-vote")).length === 1);
});
