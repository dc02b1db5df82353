// Everything by keyboard alone. Each control on the way shows that it has the focus.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, count, eventually, focusIsShown, isPressed, isReleased, open, person, shows, tabTo, tally } from "./harness.mjs";

before(open);
after(close);

const copies = { permissions: ["clipboard-read", "clipboard-write"] };
const copied = (page) => page.evaluate(() => navigator.clipboard.readText());

async function press(page, key) {
  await page.keyboard.press(key);
  await focusIsShown(page);
}

test("a voter searches, votes up and down, and takes the vote back", async () => {
  const item = await tally.newItem({ name: "Harpsichord" });
  await tally.newItem({ name: "Tambourine" });
  const page = await person();
  await page.goto(tally.base);
  await tabTo(page, page.getByRole("searchbox"));
  await page.keyboard.type("harpsi");
  // The search takes the place of the list.
  await page.getByRole("link", { name: "Tambourine" }).waitFor({ state: "detached" });
  const [up, down] = ["up", "down"].map((way) => page.getByRole("button", { name: `Vote ${way}: Harpsichord` }));
  await tabTo(page, up);
  await press(page, "Enter");
  await shows(page, "Your vote counts.");
  await count(page, "1");
  await press(page, "Tab");
  await press(page, "Space");
  await isPressed(down);
  await count(page, "-1");
  await tabTo(page, up, "Shift+Tab");
  await tabTo(page, down);
  await press(page, "Enter");
  await shows(page, "Your vote is taken back.");
  await isReleased(down);
  await count(page, "0");
  await tabTo(page, page.getByRole("link", { name: "Harpsichord" }), "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${tally.base}/items/${item}`);
  assert.deepEqual(page.errors, []);
});

test("a voter loads more of a list, opens a poll, chooses another choice, takes it back, and copies the address", async () => {
  await tally.newItem({ name: "Glockenspiel" });
  for (let at = 0; at < 12; at++) await tally.newPoll({ title: `Zither ${at}` });
  const page = await person(copies);
  await page.goto(tally.base);
  await tabTo(page, page.getByRole("searchbox"));
  await page.keyboard.type("zither");
  await page.getByRole("link", { name: "Glockenspiel" }).waitFor({ state: "detached" });
  await shows(page, "Zither 11");
  await page.getByText("Zither 1", { exact: true }).waitFor({ state: "detached" });
  await tabTo(page, page.getByText("Show more"));
  await page.keyboard.press("Enter");
  // The focus goes to the first new item.
  const link = page.getByRole("link", { name: "Open and share: Zither 1", exact: true });
  await link.and(page.locator(":focus")).waitFor();
  await focusIsShown(page);
  await tabTo(page, page.getByRole("link", { name: "Open and share: Zither 0", exact: true }));
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/polls\/\d+$/);
  await page.getByRole("heading", { name: "Zither 0" }).waitFor();
  const choice = (name) => page.getByRole("button", { name: new RegExp(`^${name}`) });
  const note = (text) => page.locator('[part="note"]').filter({ hasText: text });
  await tabTo(page, choice("Soup"));
  await press(page, "Enter");
  await isPressed(choice("Soup"));
  await press(page, "Tab");
  await press(page, "Space");
  await isPressed(choice("Salad"));
  await isReleased(choice("Soup"));
  await note("1 voter.").waitFor();
  await press(page, "Space");
  await shows(page, "Your vote is taken back.");
  await isReleased(choice("Salad"));
  await note("0 voters.").waitFor();
  await tabTo(page, page.getByRole("button", { name: "Copy the address" }));
  await press(page, "Enter");
  await shows(page, "Copied.");
  assert.equal(await copied(page), page.url());
  assert.deepEqual(page.errors, []);
});

test("an author of another page chooses an element and copies its snippet", async () => {
  const item = await tally.newItem({ name: "Snippet" });
  const page = await person(copies);
  await page.goto(`${tally.base}/embed`);
  await tabTo(page, page.getByLabel("Element"));
  await press(page, "ArrowDown");
  await tabTo(page, page.getByLabel("The id, or key: followed by your own key"));
  await press(page, "Control+A");
  await page.keyboard.type(String(item));
  await tabTo(page, page.getByRole("button", { name: "Vote up: Snippet" }));
  await tabTo(page, page.getByRole("button", { name: "Copy", exact: true }), "Shift+Tab");
  await press(page, "Enter");
  await shows(page, "Copied.");
  assert.equal(await copied(page), `<script type="module" src="${tally.base}/embed.js"></script>\n<tally-vote item="${item}"></tally-vote>`);
  assert.deepEqual(page.errors, []);
});

// Answers a dialog's question with yes. The focus is at first on the button that changes nothing.
async function agree(page, question) {
  await page.getByRole("dialog").filter({ hasText: question }).waitFor();
  await page.getByRole("button", { name: "Cancel" }).and(page.locator(":focus")).waitFor();
  await focusIsShown(page);
  await tabTo(page, page.locator("#ask-yes"));
  await press(page, "Enter");
  await page.locator("#ask").waitFor({ state: "hidden" });
}

async function write(form, label, text) {
  await tabTo(form.page(), form.getByLabel(label));
  await form.page().keyboard.type(text);
}

test("an operator voids votes after a dry run, and undoes it", async () => {
  const item = await tally.newItem({ name: "Bots" });
  await tally.vote(item, "a-bot");
  const voteCount = async () => (await tally.call("GET", `/v1/items/${item}`)).vote_count;
  const page = await person();
  await page.goto(`${tally.base}/ops`);
  await tabTo(page, page.locator("summary", { hasText: "Void votes" }));
  await press(page, "Enter");
  const form = page.locator("#new-voiding");
  await write(form, "Voter", "nobody");
  await write(form, "Reason (stored with the voiding)", "a bot");
  await tabTo(page, form.getByRole("button", { name: "Dry run…" }));
  await press(page, "Enter");
  await shows(page, "The dry run found 0 votes.");
  await tabTo(page, form.getByLabel("Voter"), "Shift+Tab");
  await press(page, "Control+A");
  await page.keyboard.type("a-bot");
  await tabTo(page, form.locator("button:not([aria-disabled])", { hasText: "Dry run…" }));
  await press(page, "Enter");
  await page.getByRole("dialog").filter({ hasText: "1 vote will be taken back" }).waitFor();
  // Escape leaves the dialog.
  await page.keyboard.press("Escape");
  await page.locator("#ask").waitFor({ state: "hidden" });
  await focusIsShown(page);
  // Until the dry run has ended, its button takes no second one.
  await form.locator("button:not([aria-disabled])", { hasText: "Dry run…" }).waitFor();
  assert.equal(await voteCount(), 1);
  await press(page, "Enter");
  await agree(page, "1 vote will be taken back");
  await eventually(async () => (await voteCount()) === 0);
  await tabTo(page, page.locator("#voidings").getByRole("button", { name: /^Undo/ }));
  await press(page, "Enter");
  await agree(page, "1 vote will be cast again.");
  await eventually(async () => (await voteCount()) === 1);
  assert.deepEqual(page.errors, []);
});

test("an operator creates an item and a poll", async () => {
  const page = await person();
  await page.goto(`${tally.base}/ops`);
  await tabTo(page, page.locator("summary", { hasText: "Create an item" }));
  await press(page, "Space");
  const [item, poll] = ["#new-item", "#new-poll"].map((id) => page.locator(id));
  await write(item, "Name", "Trumpets");
  await write(item, "Your own key (optional)", "brass");
  await tabTo(page, item.getByLabel("Takes down-votes"));
  await press(page, "Space");
  await tabTo(page, page.getByRole("button", { name: "Create the item…" }));
  await press(page, "Enter");
  await agree(page, "The item “Trumpets” will be created, with the key brass.");
  await page.getByText(/^Item \d+, Trumpets, was created\.$/).waitFor();
  const made = await tally.call("GET", "/v1/items/key:brass");
  assert.deepEqual([made.name, made.down_votes], ["Trumpets", false]);

  await tabTo(page, page.locator("summary", { hasText: /^Create a poll$/ }));
  await press(page, "Enter");
  await write(poll, "Title", "Which brass?");
  await tabTo(page, poll.getByLabel("Choices, one on each line"));
  await page.keyboard.type("Horn");
  await page.keyboard.press("Enter");
  await page.keyboard.type("Tuba");
  await tabTo(page, poll.getByLabel("Most choices of one voter"));
  await press(page, "ArrowUp");
  await tabTo(page, page.getByRole("button", { name: "Create the poll…" }));
  await press(page, "Enter");
  await agree(page, "The poll “Which brass?” will be created with 2 choices. A voter may hold 2:");
  await page.getByText(/^Poll \d+, Which brass\?, was created\.$/).waitFor();
  const [{ title, max_choices, choices }] = (await tally.call("GET", "/v1/polls?search=brass")).polls;
  assert.deepEqual([title, max_choices, ...choices.map((one) => one.name)], ["Which brass?", 2, "Horn", "Tuba"]);
  assert.deepEqual(page.errors, []);
});
