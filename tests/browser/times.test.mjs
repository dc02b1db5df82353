// What elements say of places and times, and how they show polls in which voters hold several choices.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, eventually, faults, hostElements, isPressed, open, person, refused, shows, tally } from "./harness.mjs";

before(open);
after(close);

const inSeconds = (seconds) => new Date(Date.now() + seconds * 1000).toISOString();
const isDisabled = (locator) => locator.and(locator.page().locator('[aria-disabled="true"]')).waitFor();
const isEnabled = (locator) => locator.and(locator.page().locator('[aria-disabled="false"]')).waitFor();
const up = (page, name) => page.getByRole("button", { name: `Vote up: ${name}` });
const note = (page, of) => page.locator(of).locator('[part="note"]');

test("full, closed and not yet open are attributes of the element, and its controls are disabled but can be reached", async () => {
  const full = await tally.newItem({ name: "One seat", max_votes: 1 });
  await tally.vote(full, "bob");
  const [closed, early] = [await tally.newItem({ name: "Over", closes_at: inSeconds(-60) }), await tally.newItem({ name: "Early", opens_at: "2040-01-01T00:00:00Z" })];
  const poll = await tally.newPoll({ title: "Over?", closes_at: inSeconds(-60) });
  const page = await person();
  await page.goto(hostElements("states", `${[full, closed, early].map((item) => `<tally-vote item="${item}"></tally-vote>`).join("")}<tally-poll poll="${poll.id}"></tally-poll>`));
  for (const [name, state, text] of [["One seat", "full", "All places are taken."], ["Over", "closed", "This is closed."], ["Early", "not-open", "This is not open yet."]]) {
    await page.locator(`tally-vote[${state}]`).waitFor();
    await isDisabled(up(page, name));
    await up(page, name).press("Enter");
    await refused(page).filter({ hasText: text }).waitFor();
    assert.ok(await up(page, name).evaluate((one) => one.matches(":focus")), name);
  }
  await page.locator("tally-poll[closed]").waitFor();
  await isDisabled(page.getByRole("button", { name: /^Soup/ }));
  assert.deepEqual(await faults(page), []);
  // A place that is free again.
  await tally.call("DELETE", `/v1/items/${full}/votes/bob`);
  await page.locator("tally-vote[full]").waitFor({ state: "detached" });
  await isEnabled(up(page, "One seat"));
  await up(page, "One seat").click();
  await isPressed(up(page, "One seat"));
  // Whoever has a place may give it back.
  await page.locator("tally-vote[full]").waitFor();
  await isEnabled(up(page, "One seat"));
  assert.deepEqual(page.errors, []);
});

test("the last hour is shown in minutes, the last five minutes in seconds, and at its end an element closes by itself", async () => {
  const [minutes, seconds, soon] = [
    await tally.newItem({ name: "Minutes", closes_at: inSeconds(40 * 60) }),
    await tally.newItem({ name: "Seconds", opens_at: inSeconds(280) }),
    await tally.newPoll({ title: "Soon?", closes_at: inSeconds(12), results_before_close: false }),
  ];
  await tally.choose(soon, "bob", 0);
  const page = await person();
  await page.goto(hostElements("ends", `<tally-vote id="a" item="${minutes}"></tally-vote><tally-vote id="b" item="${seconds}"></tally-vote><tally-poll poll="${soon.id}"></tally-poll>`));
  await note(page, "#a").filter({ hasText: /^Closes in (40|39|38) minutes\.$/ }).waitFor();
  await note(page, "#b").filter({ hasText: /^Opens in 4:[0-5][0-9]\.$/ }).waitFor();
  await note(page, "tally-poll").filter({ hasText: /Closes in 0:(1[0-2]|0[0-9])\. Results show when it closes\./ }).waitFor();
  const first = await note(page, "#b").textContent();
  await eventually(async () => (await note(page, "#b").textContent()) !== first);
  // Nobody tells the page that the poll has closed: the element knows, and then the results come.
  await page.locator("tally-poll[closed]").waitFor();
  await isDisabled(page.getByRole("button", { name: /^Soup/ }));
  await page.getByText("100%").waitFor();
  assert.deepEqual(page.errors, []);
});

test("an item closes by itself, though no stream says that it does", async () => {
  const item = await tally.newItem({ name: "Ends", closes_at: inSeconds(8) });
  const page = await person();
  await page.goto(hostElements("item-ends", `<tally-vote item="${item}"></tally-vote>`));
  await up(page, "Ends").click();
  await isPressed(up(page, "Ends"));
  assert.equal(await page.locator("tally-vote[closed]").count(), 0);
  await page.locator("tally-vote[closed]").waitFor();
  await isDisabled(up(page, "Ends"));
  await note(page, "tally-vote").filter({ hasText: /^Closed / }).waitFor();
});

test("a browser whose clock is wrong shows the time left by the server's clock", async () => {
  const item = await tally.newItem({ name: "Clocks", closes_at: inSeconds(30 * 60) });
  const page = await person();
  await page.clock.install({ time: Date.now() + 7_200_000 });
  await page.goto(hostElements("clocks", `<tally-vote item="${item}"></tally-vote>`));
  await note(page, "tally-vote").filter({ hasText: /^Closes in (30|29|28) minutes\.$/ }).waitFor();
  await isEnabled(up(page, "Clocks"));
  assert.equal(await page.locator("tally-vote[closed]").count(), 0);
});

test("a poll of several choices shows shares of votes or of voters, and says which", async () => {
  const poll = await tally.newPoll({ title: "Several?", choices: ["Ant", "Bee", "Cat"], max_choices: 3 });
  await tally.choose(poll, "ada", 0, 1);
  await tally.choose(poll, "bob", 0);
  await tally.choose(poll, "eve", 0, 1);
  await tally.choose(poll, "joe", 1);
  const page = await person();
  await page.goto(hostElements("several", `<tally-poll poll="${poll.id}"></tally-poll><tally-poll poll="${poll.id}" share-of="voters"></tally-poll>`));
  const shares = (at) => page.locator("tally-poll").nth(at).locator('[part="share"]').allTextContents();
  await shows(page, "4 voters. Percentages are of votes. Choose up to 3.");
  await shows(page, "4 voters. Percentages are of voters. Choose up to 3.");
  assert.deepEqual(await shares(0), ["50%", "50%", "0%"]);
  assert.deepEqual(await shares(1), ["75%", "75%", "0%"]);
  const bar = page.locator("tally-poll").nth(1).locator('[part="bar"]').first();
  assert.equal(await bar.evaluate((one) => one.style.getPropertyValue("--share")), "0.75");
});

test("a title has the level that its page gives it, and counts are numbers alone where the page wants no words", async () => {
  const poll = await tally.newPoll({ title: "A level?" });
  await tally.choose(poll, "bob", 0);
  const page = await person();
  await page.goto(hostElements("levels", `<tally-poll poll="${poll.id}"></tally-poll>`));
  const heading = (level) => page.getByRole("heading", { name: "A level?", level }).waitFor();
  const set = (name, value) => page.locator("tally-poll").evaluate((one, [name, value]) => one.setAttribute(name, value), [name, value]);
  await heading(3);
  for (const level of [2, 6]) {
    await set("heading-level", String(level));
    await heading(level);
  }
  for (const wrong of ["0", "1", "7", "x"]) {
    await set("heading-level", wrong);
    await heading(3);
  }
  const soup = page.getByRole("button", { name: /^Soup/ });
  const seen = async () => (await soup.evaluate((one) => one.querySelector('[part="count"]').innerText)).trim();
  assert.equal(await seen(), "1 vote");
  await set("no-words", "");
  assert.equal(await soup.locator('[aria-hidden="true"]', { hasText: /^1$/ }).count(), 1);
  await page.getByRole("button", { name: /^Soup 1 vote/ }).waitFor();
  assert.deepEqual(await faults(page), []);
});

test("what closes within a day is read again at its own address, for the server's time", async () => {
  const closes_at = new Date(Date.now() + 3_600_000).toISOString();
  const poll = await tally.newPoll({ title: "Read again?", key: "read/again", closes_at });
  const page = await person();
  const answers = [];
  page.on("response", (answer) => /\/v1\/(polls|items)\//.test(answer.url()) && answers.push([answer.status(), answer.url().replace(/.*\/v1/, "")]));
  for (const [shown, address] of [[poll.id, `/polls/${poll.id}`], ["key:read/again", "/polls/key:?key=read%2Fagain"]]) {
    answers.length = 0;
    await page.goto(hostElements("read-again", `<tally-poll poll="${shown}"></tally-poll>`));
    await eventually(() => answers.length > 0);
    assert.deepEqual(answers, [[200, address]]);
  }
});
