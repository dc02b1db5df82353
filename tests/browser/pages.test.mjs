// What voters see and do on the pages of a server.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Server, browser, close, count, eventually, isPressed, isReleased, open, person, refused, shows, tally } from "./harness.mjs";

before(open);
after(close);

test("a vote moves the count in a second window, is changed, is taken back, and is still held after a reload", async () => {
  const item = await tally.newItem({ name: "Bicycles" });
  const [ada, bob] = [await person(), await person()];
  await Promise.all([ada.goto(`${tally.base}/items/${item}`), bob.goto(`${tally.base}/items/${item}`)]);
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

test("a closed poll, a full item and a spent ballot say why they take no vote", async () => {
  const closed = await tally.newPoll({ title: "Over", closes_at: "2020-01-01T00:00:00Z" });
  const page = await person();
  await page.goto(`${tally.base}/polls/${closed.id}`);
  await page.getByRole("button", { name: /^Soup/ }).click({ force: true });
  await shows(page, "This is closed.");

  const full = await tally.newItem({ name: "One seat", max_votes: 1 });
  await tally.vote(full, "bob");
  await page.goto(`${tally.base}/items/${full}`);
  await page.getByRole("button", { name: "Vote up: One seat" }).click({ force: true });
  await refused(page).filter({ hasText: "All places are taken." }).waitFor();

  const board = await tally.newPoll({ title: "Board", by_ballot: true });
  const { ballots } = await tally.call("POST", `/v1/polls/${board.id}/ballots`, { count: 1 });
  await page.goto(`${tally.base}/polls/${board.id}`);
  for (const [choice, expected] of [[/^Salad/, "Your vote counts. The ballot is spent."], [/^Soup/, null]]) {
    await page.getByLabel("Your ballot").fill(ballots[0]);
    await page.getByRole("button", { name: choice }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Vote", exact: true }).click();
    await (expected ? page.getByText(expected) : page.locator('[part="message"].bad')).waitFor();
  }
  assert.deepEqual(page.errors, []);
});

test("a voter who is rate limited is asked to wait, and votes again when the time is over", async () => {
  const server = await Server.start({ TALLY_THROTTLE: "voter:2/12s" });
  const item = await server.newItem({ name: "Rush" });
  const page = await person();
  await page.goto(`${server.base}/items/${item}`);
  const up = page.getByRole("button", { name: "Vote up: Rush" });
  await up.click();
  await isPressed(up);
  await up.click();
  await isReleased(up);
  await up.click();
  await refused(page).filter({ hasText: "Wait a little." }).waitFor();
  await isReleased(up);
  await count(page, "0");
  await eventually(async () => {
    const answer = page.waitForResponse(/\/votes\//);
    await up.click();
    return (await answer).ok();
  });
  await shows(page, "Your vote counts.");
  await count(page, "1");
  assert.deepEqual(page.errors, []);
  await server.end();
});

test("a vote that is cast before the page knows the held one still stands once it does", async () => {
  const item = await tally.newItem({ name: "Early" });
  const page = await person();
  await page.goto(`${tally.base}/items/${item}`);
  const [up, down] = ["up", "down"].map((way) => page.getByRole("button", { name: `Vote ${way}: Early` }));
  await up.click();
  await isPressed(up);
  let release;
  const released = new Promise((resolve) => (release = resolve));
  const asked = [];
  await page.route("**/v1/votes?*", async (route) => {
    const response = await route.fetch();
    asked.push(await response.json());
    if (asked.length === 1) await released;
    await route.fulfill({ response });
  });
  await page.reload();
  await eventually(() => asked.length === 1);
  assert.equal(asked[0].votes[0].value, 1);
  await down.click();
  await isPressed(down);
  const old = page.waitForResponse(/\/v1\/votes\?/);
  release();
  await (await old).finished();
  await page.evaluate(() => new Promise(requestAnimationFrame));
  await isPressed(down);
  await isReleased(up);
  await count(page, "-1");
  await down.click();
  await shows(page, "Your vote is taken back.");
});

test("a hidden page has no stream, and is current again when it is shown", async () => {
  const item = await tally.newItem({ name: "Hidden" });
  const page = await person();
  await page.goto(`${tally.base}/items/${item}`);
  await count(page, "0");
  const streams = async () => Number(/^tally_streams(?:\{[^}]*\})? (\d+)/m.exec(await (await fetch(`${tally.base}/metrics`)).text())?.[1]);
  await eventually(async () => (await streams()) >= 1);
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  for (const context of browser.contexts()) if (context !== page.context()) await context.close();
  await hide(true);
  await eventually(async () => (await streams()) === 0);
  await tally.vote(item, "eve");
  await hide(false);
  await count(page, "1");
});

test("a page says that the server is unavailable, and continues by itself when the server is back", async () => {
  const item = await tally.newItem({ name: "Lasting" });
  const page = await person();
  await page.goto(`${tally.base}/items/${item}`);
  await page.getByRole("button", { name: "Vote up: Lasting" }).click();
  await count(page, "1");
  await tally.whileStopped(() => page.getByText("Trying again").waitFor());
  await page.getByText("Connected again.").waitFor();
  await tally.vote(item, "eve");
  await count(page, "2");
  await page.getByRole("button", { name: "Vote up: Lasting" }).click();
  await shows(page, "Your vote is taken back.");
});

test("a search finds items and polls, and a name that is markup, wide or right-to-left is text", async () => {
  const name = "Markup <script>document.title = 'taken'</script> <img src=x onerror=\"document.title = 'taken'\">";
  const item = await tally.newItem({ name });
  await tally.newItem({ name: "\u202eتصويت " + "漢".repeat(150) });
  await tally.newPoll({ title: "<b>Zebra</b> poll", choices: ["<i>a</i>"] });
  const page = await person();
  await page.goto(tally.base);
  await page.getByRole("searchbox").fill("zebr");
  await shows(page, "<b>Zebra</b> poll");
  await page.getByRole("searchbox").fill("mark");
  await shows(page, name);
  await page.goto(`${tally.base}/items/${item}`);
  await count(page, "0");
  assert.equal(await page.title(), name);
  assert.equal((await page.goto(`${tally.base}/items/9999999`)).status(), 404);
  await shows(page, "There is no such item.");
  assert.deepEqual(page.errors, []);
});
