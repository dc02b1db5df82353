// What a page of a poll says to visitors without script is what it says to all others.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { browser, close, eventually, open, person, tally } from "./harness.mjs";

before(open);
after(close);

// The words, without what belongs to the language of the browser: how a time is written.
const plain = (text) =>
  text
    .replace(/\s+/g, " ")
    .replace(/\b(Closes|Closed|Opens|Final since) .*?(?=\.( |$))/g, "$1 TIME")
    .trim();

// What a poll of this page shows, without script and with it.
async function words(page, path) {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const plainPage = await context.newPage();
  await plainPage.goto(tally.base + path);
  const before = await plainPage.locator("tally-poll").innerText();
  const title = await plainPage.locator("h1").innerText();
  await context.close();
  await page.goto(tally.base + path);
  await page.locator("tally-poll button").first().waitFor();
  // The ballot's field is nothing to read.
  const shown = () => page.locator("tally-poll").evaluate((poll) =>
    [...poll.shadowRoot.children].filter((one) => !one.querySelector("input") && one.getClientRects().length > 0).map((one) => one.innerText ?? "").join(" "));
  return { title, titleThen: await page.locator("h1").innerText(), before: plain(before), shown: async () => plain(await shown()) };
}

test("a poll has the same title, choices, counts, shares and notes with script and without", async () => {
  const later = "2030-01-31T18:00:00Z";
  const page = await person();
  for (const [fields, votes, says] of [
    [{ title: "New" }, [], "0 voters."],
    [{ title: "One of two" }, [["ada", 0], ["bob", 0], ["cy", 1]], "2 votes 67%"],
    [{ title: "Two of three", choices: ["Soup", "Salad", "Stew"], max_choices: 2, closes_at: later }, [["ada", 0, 2]], "Closes TIME. Choose up to 2."],
    [{ title: "Any", max_choices: 0 }, [["ada", 0, 1]], "1 voter. Percentages are of votes. Choose as many as you like."],
    [{ title: "Hidden", results_before_close: false, closes_at: later }, [["ada", 1]], "Soup Salad Closes TIME. Results show when it closes."],
    [{ title: "Early", opens_at: later, results_before_close: false, closes_at: "2031-01-01T00:00:00Z" }, [], "Opens TIME. Results show when it closes."],
    [{ title: "Over", closes_at: "2020-01-01T00:00:00Z", max_choices: 2 }, [], "0 voters. Final since TIME."],
    [{ title: "Board", by_ballot: true }, [], "0 voters."],
  ]) {
    const poll = await tally.newPoll(fields);
    for (const [voter, ...choices] of votes) await tally.choose(poll, voter, ...choices);
    const { title, titleThen, before, shown } = await words(page, `/polls/${poll.id}`);
    assert.deepEqual([title, titleThen], [fields.title, fields.title]);
    assert.ok(before.includes(says), `${fields.title}: ${before}`);
    await eventually(async () => (await shown()) === before).catch(async () => assert.equal(await shown(), before, fields.title));
  }
  assert.deepEqual(page.errors, []);
});
