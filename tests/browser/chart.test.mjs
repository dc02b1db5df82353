// The chart of <tally-history>: what it draws of votes that a worker has summed, and of those that it has not.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, eventually, hostElements, open, person, promised, tally } from "./harness.mjs";

before(open);
after(close);

const says = (page, text) => page.locator("tally-history").getByRole("img", { name: text }).waitFor();
const history = (item) => tally.call("GET", `/v1/items/${item}/history?over=hour`);
const cast = (item, name, votes) => tally.votes(Array.from({ length: votes }, (_, at) => ({ item_id: item, voter_id: `${name}-${at}` })));

test("votes of this minute are in the chart's change, before and after a worker sums them", async () => {
  const item = await tally.newItem({ name: "Fresh" });
  // Something has been summed, so that there is a history at all.
  await eventually(async () => (await history(item)).as_of !== null);
  const page = await person();
  // The server's answers, as they were before and after the sum.
  const before = await history(item);
  await cast(item, "first", 50);
  let answer = before;
  await page.route("**/v1/items/*/history?*", (route) => route.fulfill({ json: answer, headers: { "access-control-allow-origin": new URL(page.url()).origin, "access-control-allow-credentials": "true" } }));
  const address = hostElements("fresh", `<tally-history item="${item}" over="hour"></tally-history>`);
  await page.goto(address);
  await says(page, "Over the last hour. Fresh: from 0 to 50.");
  await eventually(async () => (answer = await history(item)).total.vote_count === 50);
  assert.equal(answer.spans.reduce((sum, span) => sum + span.change.vote_count, 0), 50);
  await page.reload();
  await says(page, "Over the last hour. Fresh: from 0 to 50.");
  // Further votes, which are not in that sum.
  await cast(item, "second", 7);
  await page.reload();
  await says(page, "Over the last hour. Fresh: from 0 to 57.");
  const heights = await page.locator("tally-history").evaluate((one) => one.shadowRoot.querySelector("polyline").getAttribute("points").split(" ").map((point) => Number(point.split(",")[1])));
  assert.ok(heights.every((height, at) => at === 0 || height <= heights[at - 1]), `the line falls: ${heights}`);
  assert.deepEqual([heights[0], heights.at(-1)], [40, 0]);
});

test("a chart without votes has a line at 0, and says 0", async () => {
  const poll = await tally.newPoll({ title: "Unvoted?" });
  const page = await person();
  await page.goto(hostElements("unvoted", `<tally-history poll="${poll.id}"></tally-history>`));
  await says(page, "Over the last day. Soup: from 0 to 0; Salad: from 0 to 0.");
  await page.getByText("high 0", { exact: true }).waitFor();
  const lines = await page.locator("tally-history").evaluate((one) => [...one.shadowRoot.querySelectorAll("svg[role=img] polyline")].map((line) => line.getAttribute("points").split(" ").map((point) => Number(point.split(",")[1]))));
  assert.ok(lines.length === 2 && lines.flat().every((height) => height === 40), JSON.stringify(lines));
});

test("a poll's chart tells each choice's change, and its script comes only to pages that have a chart", async () => {
  const poll = await tally.newPoll({ title: "Charted?" });
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(poll, voter, voter === "eve" ? 1 : 0);
  const scripts = async (elements) => {
    const page = await person();
    const loaded = [];
    page.on("request", (request) => /\.js$/.test(new URL(request.url()).pathname) && loaded.push(new URL(request.url()).pathname));
    await page.goto(hostElements("charted", elements));
    return { page, loaded };
  };
  const chart = await scripts(`<tally-history poll="${poll.id}"></tally-history><tally-history poll="${poll.id}" over="hour"></tally-history>`);
  await says(chart.page, "Over the last day. Soup: from 0 to 2; Salad: from 0 to 1.");
  await says(chart.page, "Over the last hour. Soup: from 0 to 2; Salad: from 0 to 1.");
  assert.equal(chart.loaded.filter((path) => /^\/assets\/chart-/.test(path)).length, 1, chart.loaded.join());
  assert.equal(chart.loaded.filter((path) => path.includes("embed")).length, 1, chart.loaded.join());
  const plain = await scripts(`<tally-poll poll="${poll.id}"></tally-poll>`);
  await plain.page.getByText("67%").waitFor();
  assert.deepEqual(plain.loaded, ["/embed.js"]);
});

test("a chart whose script does not come says so to the page, and this chart and the next one ask for it again", async () => {
  const poll = await tally.newPoll({ title: "Cut off?" });
  const page = await person();
  let isCut = true;
  await page.route("**/assets/chart-*.js", (route) => (isCut ? route.abort() : route.continue()));
  await page.addInitScript(() => document.addEventListener("tally-error", ({ detail }) => (globalThis.heard = detail)));
  await page.clock.install();
  await page.goto(hostElements("cut-off", `<tally-history poll="${poll.id}">The chart follows.</tally-history>`));
  await page.waitForFunction(() => globalThis.heard !== undefined);
  const heard = await page.evaluate(() => globalThis.heard);
  assert.equal(heard.problem, null);
  assert.match(heard.message, /chart/);
  await page.getByText("The chart follows.").waitFor();
  isCut = false;
  await page.evaluate((id) => {
    const next = document.createElement("tally-history");
    next.setAttribute("poll", id);
    document.body.append(next);
  }, poll.id);
  const charts = page.locator("tally-history").getByRole("img", { name: "Over the last day. Soup: from 0 to 0; Salad: from 0 to 0." });
  await charts.first().waitFor();
  await eventually(async () => {
    await page.clock.runFor(5000);
    return (await charts.count()) === 2;
  });
});

test("a chart that is asked for while its element shows something else, or nothing, is not drawn", async () => {
  const poll = await tally.newPoll({ title: "Left?" });
  const page = await person();
  let [asked, released] = [];
  await page.route("**/history?*", async (route) => {
    asked.resolve();
    await released.promise;
    await route.continue();
  });
  await page.addInitScript(() => {
    globalThis.heard = [];
    document.addEventListener("tally-error", ({ detail }) => heard.push(detail.message));
  });
  for (const [change, errors] of [[(one) => one.removeAttribute("poll"), 0], [(one) => one.setAttribute("poll", "nonsense"), 1]]) {
    [asked, released] = [promised(), promised()];
    await page.goto(hostElements("left", `<tally-history poll="${poll.id}">Nothing to draw.</tally-history>`));
    await asked.promise;
    await page.locator("tally-history").evaluate(change);
    const answered = page.waitForResponse((answer) => answer.url().includes("/history?"));
    released.resolve();
    await (await answered).finished();
    await page.evaluate(() => new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume))));
    assert.equal(await page.getByRole("img").count(), 0);
    await page.getByText("Nothing to draw.").waitFor();
    assert.equal((await page.evaluate(() => heard)).length, errors);
  }
});

test("a chart of a page that was opened in the background is drawn when the page is first seen", async () => {
  const poll = await tally.newPoll({ title: "Behind?" });
  const page = await person();
  const asked = [];
  page.on("request", (request) => request.url().includes("/history?") && asked.push(request.url()));
  await page.addInitScript(() => {
    globalThis.isHidden = true;
    Object.defineProperty(Document.prototype, "hidden", { get: () => globalThis.isHidden });
  });
  // Time stands still but for this: the chart waits for no timer.
  await page.clock.install();
  const fetched = page.waitForResponse((answer) => answer.url().includes("/assets/chart-"));
  await page.goto(hostElements("behind", `<tally-history poll="${poll.id}"></tally-history>`));
  await (await fetched).finished();
  for (const over of ["hour", "day"]) await page.locator("tally-history").evaluate((one, over) => one.setAttribute("over", over), over);
  await page.clock.runFor(120_000);
  assert.deepEqual(asked, []);
  await page.clock.pauseAt(Date.now() + 3_600_000);
  await page.evaluate(() => {
    globalThis.isHidden = false;
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await says(page, "Over the last day. Soup: from 0 to 0; Salad: from 0 to 0.");
  assert.equal(asked.length, 1);
});

test("a chart of hidden results is read each minute, and a choice that was added meanwhile is no fault", async () => {
  const hidden = await tally.newPoll({ title: "Hidden?", results_before_close: false, closes_at: new Date(Date.now() + 3_600_000).toISOString() });
  const page = await person();
  const asked = [];
  page.on("request", (request) => request.url().includes("/history?") && asked.push(request.url()));
  await page.clock.install();
  await page.goto(hostElements("hidden-chart", `<tally-history poll="${hidden.id}"></tally-history>`));
  await eventually(() => asked.length === 1);
  await page.clock.runFor(9000);
  await page.clock.runFor(9000);
  assert.equal(asked.length, 1);

  const poll = await tally.newPoll({ title: "Grows?" });
  await tally.choose(poll, "ada", 0);
  // The answer of before the choice was added.
  const before = await tally.call("GET", `/v1/polls/${poll.id}`);
  await page.route(`**/v1/polls/${poll.id}`, (route) => route.fulfill({ json: { ...before, choices: before.choices.slice(0, 1) }, headers: { "access-control-allow-origin": new URL(page.url()).origin, "access-control-allow-credentials": "true" } }));
  await page.goto(hostElements("grows", `<tally-history poll="${poll.id}"></tally-history>`));
  await says(page, /^Over the last day. Soup: from 0 to 1/);
  assert.deepEqual(page.errors, []);
});
