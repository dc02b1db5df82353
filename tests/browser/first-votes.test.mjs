// Items that are only a key until someone votes: the likes of a page whose posts nobody has registered.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Server, close, eventually, heard, hears, hostElements, isPressed, isReleased, open, person, shows, tally } from "./harness.mjs";

before(open);
after(close);

const shown = (page, element, text) => page.locator(element).locator('[part="count"]', { hasText: new RegExp(`^${text}$`) }).waitFor();

test("where a first vote creates items, an unknown key shows 0, takes votes up and back, and shows those of others", async () => {
  for (const key of ["post-42", "2030/a post?"]) {
    const server = await Server.start({ TALLY_CREATE_ITEMS: "true" });
    const page = await person();
    await hears(page, "tally-error");
    await hears(page, "tally-vote");
    const refused = []; // browsers write each into the console, where it looks like a mistake of the page
    page.on("response", (answer) => answer.status() >= 400 && refused.push(answer.url()));
    await page.goto(hostElements("first", `<tally-vote item="key:${key}" likes no-name><b>Like it at example.org</b></tally-vote>
      <p>It has <tally-count item="key:${key}"><i>some</i></tally-count> likes.</p>`, { server }));
    await shown(page, "tally-vote", "0");
    await shown(page, "tally-count", "0");
    assert.equal((await server.call("GET", "/v1/items")).items.some((item) => item.key === key), false, "a reader created the item");
    assert.deepEqual(refused, []);
    const up = page.getByRole("button", { name: `Vote up: ${key}` });
    assert.equal(await page.getByRole("button").count(), 1, "a like button has one button");
    await up.click();
    await shows(page, "Your vote counts.");
    await isPressed(up);
    for (const element of ["tally-vote", "tally-count"]) await shown(page, element, "1");
    const [{ item_id }] = await heard(page, "tally-vote");
    // The page follows the item from now on.
    await server.vote(item_id, "bob");
    for (const element of ["tally-vote", "tally-count"]) await shown(page, element, "2");
    await up.click();
    await isReleased(up);
    await shown(page, "tally-count", "1");
    await page.reload();
    await shown(page, "tally-vote", "1");
    await isReleased(up);
    assert.deepEqual(await heard(page, "tally-error"), []);
    assert.deepEqual(page.errors, []);
    await server.end();
  }
});

test("items that first votes create for likes alone take no down-votes, also before the first vote", async () => {
  const server = await Server.start({ TALLY_CREATE_ITEMS: "likes" });
  const page = await person();
  // The like button of the guide, without the attribute that hides the other button.
  const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");
  const button = /<tally-vote item="key:post-42" likes no-name><\/tally-vote>/.exec(guide)[0];
  await page.goto(hostElements("likes", button.replace(" likes", "").replace("post-42", "post-7"), { server }));
  const up = page.getByRole("button", { name: "Vote up: post-7" });
  await up.waitFor();
  assert.equal(await page.getByRole("button").count(), 1);
  await up.click();
  await isPressed(up);
  const item = await server.call("GET", "/v1/items/key:post-7");
  assert.deepEqual([item.down_votes, item.vote_count], [false, 1]);
  await server.end();
});

test("where nothing creates items, what is between the tags of an unknown key stays, and the page hears why", async () => {
  const page = await person();
  await hears(page, "tally-error");
  await page.goto(hostElements("none", `<tally-vote item="key:nowhere"><b>Like it at example.org</b></tally-vote><tally-vote item="key:nothing"></tally-vote>
    <p>It has <tally-count item="key:nowhere"><i>12</i></tally-count> likes.</p><tally-poll poll="key:nowhere"><i>A poll comes.</i></tally-poll>
    <tally-history item="key:nowhere"><u>A chart comes.</u></tally-history>`));
  await eventually(async () => (await heard(page, "tally-error")).length >= 5);
  for (const text of ["Like it at example.org", "12", "A poll comes.", "A chart comes."]) await shows(page, text);
  assert.equal(await page.getByRole("button").count(), 0, "a button without an item");
  const said = (await heard(page, "tally-error")).map(({ message, problem }) => [message, problem.type, problem.status]);
  for (const name of ["item", "poll"]) assert.ok(said.some(([message, type, status]) => message.includes(`no ${name} key:nowhere`) && type === `/problems/unknown-${name}` && status === 404), JSON.stringify(said));
  assert.deepEqual(page.errors, []);
});

test("while the server answers nothing, what is between the tags stays, and the page hears that there was no answer", async () => {
  const item = await tally.newItem({ name: "Absent" });
  const page = await person();
  await hears(page, "tally-error");
  await page.route(`${tally.base}/v1/**`, (route) => route.abort());
  await page.goto(hostElements("absent", `<tally-vote item="${item}"><b>Vote later.</b></tally-vote><p>It has <tally-count item="${item}"><i>12</i></tally-count> votes.</p>`));
  await eventually(async () => (await heard(page, "tally-error")).length >= 2);
  for (const text of ["Vote later.", "12"]) await shows(page, text);
  assert.ok((await heard(page, "tally-error")).every(({ message, problem }) => message && problem === null));
  await page.unroute(`${tally.base}/v1/**`);
  await page.getByRole("button", { name: "Vote up: Absent" }).waitFor();
});

test("the page that makes snippets says what an element cannot show", async () => {
  const page = await person();
  await page.goto(`${tally.base}/embed`);
  await page.locator("#kind").selectOption("tally-vote");
  await page.locator("#reference").fill("key:missing");
  await shows(page, "There is no item key:missing.");
  await page.locator("#reference").fill("0");
  await page.getByText("it takes an id, or key: and a key").waitFor();
  await tally.newItem({ name: "Found", key: "found" });
  await page.locator("#reference").fill("key:found");
  await page.getByRole("button", { name: "Vote up: Found" }).waitFor();
  await eventually(async () => (await page.locator("#problem").textContent()) === "");
});
