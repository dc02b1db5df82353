// What a page has before its script runs: for readers without script, and for previews.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, open, person, shows, tally } from "./harness.mjs";

before(open);
after(close);

const bare = () => person({ javaScriptEnabled: false });
const source = async (address) => (await fetch(tally.base + address)).text();

test("without script, pages show names, counts and shares, and search and next page are plain links", async () => {
  const item = await tally.newItem({ name: "Quill & Ink" });
  await tally.votes(["ada", "bob", "eve"].map((voter) => ({ item_id: item, voter_id: voter })));
  const single = await tally.newItem({ name: "Inkwell" });
  await tally.vote(single, "ada");
  const polls = [];
  for (let at = 0; at < 12; at++) polls.push(await tally.newPoll({ title: `Quill & paper ${at}` }));
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(polls[11], voter, 0);
  await tally.choose(polls[11], "joe", 1);
  const page = await bare();
  const hasResults = async () => {
    const poll = page.locator(`tally-poll[poll="${polls[11].id}"]`);
    for (const text of ["Soup", "3 votes", "75%", "Salad", "1 vote", "25%"]) await poll.getByText(text, { exact: true }).waitFor();
    await poll.getByText("4 voters.").waitFor();
  };
  const hasCount = (text = "3 votes", of = item) => page.locator(`tally-vote[item="${of}"]`).getByText(text, { exact: true }).waitFor();
  await page.goto(tally.base);
  await shows(page, "To vote, this page needs JavaScript.");
  await hasResults();
  await page.getByRole("link", { name: "Quill & Ink" }).waitFor();
  await hasCount();

  await page.getByRole("searchbox").fill("quill &");
  await page.getByRole("searchbox").press("Enter");
  await page.waitForURL(/\?search=quill/);
  assert.equal(await page.getByRole("searchbox").inputValue(), "quill &");
  await hasResults();
  await hasCount();
  await page.getByRole("link", { name: "Show more" }).click();
  await page.waitForURL(/\?before=/);
  await shows(page, "Quill & paper 1");
  await shows(page, "Quill & paper 0");
  assert.equal(await page.locator("tally-poll").count(), 2);
  assert.equal(await page.locator("tally-vote").count(), 0);
  await page.goBack();
  await page.getByRole("link", { name: "Open and share: Quill & paper 11" }).click();
  await page.waitForURL(/\/polls\//);
  await page.getByRole("heading", { name: "Quill & paper 11" }).waitFor();
  await hasResults();
  await page.goto(`${tally.base}/items/${item}`);
  await page.getByRole("heading", { name: "Quill & Ink" }).waitFor();
  await hasCount();
  await page.goto(`${tally.base}/items/${single}`);
  await hasCount("1 vote", single);
  await page.goto(`${tally.base}/?search=zzzz`);
  await shows(page, "Nothing has “zzzz” in its name.");
});

const meta = (html) => Object.fromEntries([...html.matchAll(/<meta (?:name|property)="([^"]*)" content="([^"]*)">/g)].map(([, name, content]) => [name, content]));

test("a poll's preview has its title and its results", async () => {
  const poll = await tally.newPoll({ title: "Tea & \"cake\"?", choices: ["Tea", "<Cake>"] });
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(poll, voter, 0);
  await tally.choose(poll, "joe", 1);
  const html = await source(`/polls/${poll.id}`);
  const said = meta(html);
  const results = "Tea 75%, &lt;Cake&gt; 25%. 4 voters.";
  assert.match(html, /<title>Tea &amp; &quot;cake&quot;\?<\/title>/);
  assert.equal(said["og:title"], "Tea &amp; &quot;cake&quot;?");
  assert.equal(said.description, results);
  assert.equal(said["og:description"], results);
  const picture = await fetch(said["og:image"]);
  assert.deepEqual([picture.status, picture.headers.get("content-type")], [200, "image/png"]);
});

test("hidden results are nowhere in a page before the close, and are in the preview after it", async () => {
  const close = { closes_at: "2040-01-01T00:00:00Z", results_before_close: false };
  // Two polls that differ only in their votes.
  const polls = [];
  for (const _ of [0, 1]) polls.push(await tally.newPoll({ title: "Secret?", ...close }));
  for (let voter = 0; voter < 7; voter++) await tally.choose(polls[1], `v${voter}`, voter < 5 ? 0 : 1);
  const pages = await Promise.all(polls.map((poll) => source(`/polls/${poll.id}`)));
  const [plain, voted] = polls.map((poll, at) => pages[at].replaceAll(new RegExp(`(polls/|poll=")${poll.id}\\b`, "g"), "$1N"));
  assert.equal(voted, plain);
  assert.match(plain, /Results show when it closes\./);
  const choices = await Promise.all(polls.map(async ({ choices: [{ item_id }] }) => (await source(`/items/${item_id}`)).replaceAll(`item="${item_id}"`, "")));
  assert.equal(choices[1], choices[0]);
  const cards = (await source("/?search=Secret")).split("<li>").filter((part) => part.includes("<tally-poll"));
  assert.equal(cards.length, 2);
  for (const html of await Promise.all(["/", "/?search=Secret"].map(source))) assert.doesNotMatch(html, /71 ?%|29 ?%|71\.4|28\.6|7 voters|5 votes/);

  await tally.call("PATCH", `/v1/polls/${polls[1].id}`, { closes_at: new Date().toISOString() });
  await shows(await bare().then(async (page) => (await page.goto(`${tally.base}/polls/${polls[1].id}`), page)), "71%");
  assert.equal(meta(await source(`/polls/${polls[1].id}`)).description, "Soup 71%, Salad 29%. 7 voters.");
});
