// What pages cost in a browser, as rows of a table: FIGURES=1 make test-browser. The machine also runs the stores, the
// workers and the browser. EMBED_BEFORE names the embed.js of an earlier version: then only the time until counts are
// shown is measured, with the earlier script and the present one in turns.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { close, count, hostElements, open, person, tally } from "./harness.mjs";

const VISITS = 3;
const LOADS = 11;
const LOADS_IN_TURNS = 81; // with fewer, medians of the same script differ by 5% and more
const ITEMS = 100;
const POLLS = 10;
const WATCHED_MS = 10_000;
const QUIET_MS = 1500; // a page has loaded when nothing came for this long; /ops asks every 2 s
const ROUND_MS = 1000;
const VOTES = 20;

const row = (...cells) => console.log(`| ${cells.join(" | ")} |`);
const figures = (values, digits = 0) => values.map((value) => value.toFixed(digits)).join(" · ");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function prepare() {
  const items = [];
  for (let at = 0; at < ITEMS; at++) items.push(await tally.newItem({ name: `Item ${at}` }));
  const polls = [];
  for (let at = 0; at < POLLS; at++) polls.push(await tally.newPoll({ title: `Poll ${at}`, choices: ["Soup", "Salad", "Bread"] }));
  for (const poll of polls) await tally.choose(poll, "bob", 0);
  return { items, polls };
}

// The first visit of a new browser: what it loads until only the stream is left, and how the page looked meanwhile.
async function visit(path) {
  const page = await person();
  await page.addInitScript(() => {
    globalThis.figures = { shifts: [] };
    new PerformanceObserver((list) => globalThis.figures.shifts.push(...list.getEntries().map((one) => [one.startTime, one.value])))
      .observe({ type: "layout-shift", buffered: true });
  });
  const network = await page.context().newCDPSession(page);
  await network.send("Network.enable");
  const loaded = { bytes: 0, requests: 0, streams: new Set(), streamed: 0, at: 0 };
  network.on("Network.requestWillBeSent", ({ requestId, request }) => {
    loaded.requests++;
    loaded.at = Date.now();
    if (request.url.includes("/stream")) loaded.streams.add(requestId);
  });
  // Headers and bodies of every answer that ends. The stream does not end.
  network.on("Network.loadingFinished", ({ encodedDataLength }) => (loaded.bytes += encodedDataLength));
  network.on("Network.dataReceived", ({ requestId, encodedDataLength }) => {
    if (loaded.streams.has(requestId)) loaded.streamed += encodedDataLength;
    loaded.at = Date.now();
  });
  await page.goto(tally.base + path);
  while (Date.now() < loaded.at + QUIET_MS || (loaded.streams.size > 0 && loaded.streamed === 0)) await pause(100);
  const seen = await page.evaluate(() => ({
    paint: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN,
    shifts: globalThis.figures.shifts,
  }));
  await page.context().close();
  return { paint: seen.paint, shift: largestWindow(seen.shifts), bytes: loaded.bytes, streamed: loaded.streamed, requests: loaded.requests };
}

// The cumulative layout shift: the largest sum of shifts within 5 s that are less than 1 s apart.
function largestWindow(shifts) {
  let [largest, sum, first, last] = [0, 0, -Infinity, -Infinity];
  for (const [at, value] of shifts) {
    if (at - last >= 1000 || at - first >= 5000) [sum, first] = [0, at];
    [sum, last] = [sum + value, at];
    largest = Math.max(largest, sum);
  }
  return largest;
}

// A first visit to a page of another site with this many elements: how long after it began the first of them shows its
// count, and how long until all do. `script`: in the place of the server's embed.js.
async function elements(items, script = null) {
  const address = hostElements("many", items.map((item) => `<tally-vote item="${item}"></tally-vote>`).join(""));
  const page = await person();
  await page.addInitScript(() => {
    const shown = (globalThis.shown = { first: null, all: null });
    const look = () => {
      const all = [...document.querySelectorAll("tally-vote")];
      const counts = all.filter((one) => /\d/.test(one.shadowRoot?.querySelector('[part="count"]')?.textContent ?? ""));
      if (counts.length > 0) shown.first ??= performance.now();
      if (all.length > 0 && counts.length === all.length) shown.all ??= performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  if (script !== null) await page.route("**/embed.js", async (route) => route.fulfill({ response: await route.fetch(), body: script }));
  await page.goto(address);
  await page.waitForFunction(() => globalThis.shown.all !== null);
  const shown = await page.evaluate(() => globalThis.shown);
  await page.context().close();
  return shown;
}

// The same with two scripts in turns, both put in the same way.
async function elementsInTurns(items, before) {
  const scripts = { before, now: await (await fetch(`${tally.base}/embed.js`)).text() };
  const times = { before: [], now: [] };
  for (let at = 0; at < LOADS_IN_TURNS; at++) {
    for (const which of at % 2 ? ["before", "now"] : ["now", "before"]) times[which].push((await elements(items, scripts[which])).all);
  }
  for (const [which, all] of Object.entries(times)) {
    all.sort((a, b) => a - b);
    row(`until the last one shows its count, ms, median and most of ${LOADS_IN_TURNS}`, `${ITEMS} elements, the script ${which}`, figures([all[Math.floor(LOADS_IN_TURNS / 2)], all.at(-1)]));
  }
}

async function longTasks() {
  const page = await person();
  await page.goto(tally.base);
  await page.locator("tally-vote").first().getByRole("button").first().waitFor();
  const items = await page.locator("tally-vote").evaluateAll((all) => all.map((one) => Number(one.getAttribute("item"))));
  assert.equal(items.length, ITEMS);
  await pause(QUIET_MS);
  await page.evaluate(() => {
    globalThis.tasks = [];
    globalThis.changed = 0;
    new PerformanceObserver((list) => globalThis.tasks.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask" });
    document.addEventListener("tally-counts", () => globalThis.changed++);
  });
  const end = Date.now() + WATCHED_MS;
  let rounds = 0;
  for (let next = Date.now(); next < end; next += ROUND_MS) {
    await pause(Math.max(0, next - Date.now()));
    await tally.votes(items.map((item) => ({ item_id: item, voter_id: `round-${rounds}` })));
    rounds++;
  }
  for (const item of [items[0], items.at(-1)]) {
    await page.locator(`tally-vote[item="${item}"]`).locator('[part="count"]', { hasText: new RegExp(`^${rounds}$`) }).waitFor();
  }
  const seen = await page.evaluate(() => ({ tasks: globalThis.tasks, changed: globalThis.changed }));
  await page.context().close();
  return { ...seen, rounds };
}

// The time from the answer in one window until the other shows the count. Both windows share a clock.
async function spreads() {
  const item = await tally.newItem({ name: "Spread" });
  const [ada, bob] = [await person(), await person()];
  await ada.goto(`${tally.base}/items/${item}`);
  await bob.goto(`${tally.base}/items/${item}`);
  for (const page of [ada, bob]) await count(page, "0");
  await ada.evaluate(() => document.addEventListener("tally-vote", () => (globalThis.at = performance.timeOrigin + performance.now())));
  await bob.evaluate(() => document.addEventListener("tally-counts", ({ detail }) => {
    // Measures when the count is painted, not when the page knows it.
    requestAnimationFrame(() => requestAnimationFrame(() => (globalThis.seen = { at: performance.timeOrigin + performance.now(), count: detail.vote_count })));
  }));
  const times = [];
  for (let vote = 0; vote < VOTES; vote++) {
    const expected = vote % 2 === 0 ? 1 : 0;
    await ada.evaluate(() => (globalThis.at = null));
    await ada.getByRole("button", { name: "Vote up: Spread" }).click();
    await bob.waitForFunction((expected) => globalThis.seen?.count === expected, expected);
    const [from, until] = [await ada.waitForFunction(() => globalThis.at).then((one) => one.jsonValue()), await bob.evaluate(() => globalThis.seen.at)];
    times.push(Math.max(0, until - from));
  }
  return times.sort((a, b) => a - b);
}

async function measure() {
  const { items, polls } = await prepare();
  row("figure", "of", "value");
  row("---", "---", "---");
  const before = process.env.EMBED_BEFORE;
  if (before) return elementsInTurns(items, await readFile(before, "utf8"));
  for (const path of ["/", `/polls/${polls[0].id}`, "/embed", "/ops"]) {
    const visits = [];
    for (let at = 0; at < VISITS; at++) visits.push(await visit(path));
    assert.ok(visits.every((one) => one.bytes > 0 && one.requests > 0));
    row("first contentful paint, ms", path, figures(visits.map((one) => one.paint)));
    row("layout shift, largest sum", path, figures(visits.map((one) => one.shift), 4));
    row("bytes over the wire, without the stream", path, figures(visits.map((one) => one.bytes)));
    row("bytes of the stream", path, figures(visits.map((one) => one.streamed)));
    row("requests", path, figures(visits.map((one) => one.requests)));
  }
  const loads = [];
  for (let at = 0; at < LOADS; at++) loads.push(await elements(items));
  for (const which of ["first", "all"]) {
    const times = loads.map((one) => one[which]).sort((a, b) => a - b);
    row(`until the ${which === "first" ? "first element shows its count" : "last one does"}, ms, median and most of ${LOADS}`, `${ITEMS} elements in another site's page`, figures([times[Math.floor(LOADS / 2)], times.at(-1)]));
  }
  const { tasks, changed, rounds } = await longTasks();
  row(`tasks longer than 50 ms in ${WATCHED_MS / 1000} s`, `/, ${ITEMS} counts change each second (${rounds} times, ${changed} changes shown)`, tasks.length ? `${tasks.length}: ${figures(tasks)} ms` : "none");
  const times = await spreads();
  row("from a vote's answer to a second window, ms", `${VOTES} votes`, `median ${((times[VOTES / 2 - 1] + times[VOTES / 2]) / 2).toFixed(0)}, most ${times.at(-1).toFixed(0)}`);
}

await open();
try {
  await measure();
} finally {
  await close();
}
