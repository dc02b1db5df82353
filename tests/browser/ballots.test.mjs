// Votes with ballots, which cannot be changed: nothing is sent before the voter has said so twice.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, eventually, faults, focusIsShown, hasFocus, heldBack, hostElements, isPressed, isReleased, open, person, refused, shows, tally } from "./harness.mjs";

before(open);
after(close);

const field = (page) => page.getByLabel("Your ballot");
const choice = (page, name) => page.getByRole("button", { name: new RegExp(`^${name}`) });
const question = (page) => page.getByRole("alertdialog");
const votesOf = async (poll) => (await tally.call("GET", `/v1/polls/${poll.id}`)).choices.map((one) => one.vote_count);

async function board(name, fields = {}) {
  const poll = await tally.newPoll({ title: `${name}?`, by_ballot: true, ...fields });
  const { ballots } = await tally.call("POST", `/v1/polls/${poll.id}/ballots`, { count: 3 });
  const page = await person();
  page.votes = [];
  page.on("request", (request) => request.method() === "POST" && page.votes.push(request.url()));
  await page.goto(hostElements(name, `<tally-poll poll="${poll.id}"></tally-poll>`));
  await field(page).waitFor();
  return { poll, ballots, page };
}

test("an empty ballot is not sent: the field gets the focus, and Enter there asks about the marked choice", async () => {
  const { poll, ballots, page } = await board("empty");
  for (const nothing of ["", " - "]) {
    await field(page).fill(nothing);
    await choice(page, "Soup").click();
    await shows(page, "Enter your ballot first.");
    await eventually(() => hasFocus(field(page)));
    await isPressed(choice(page, "Soup"));
  }
  await field(page).fill(ballots[0]);
  await page.keyboard.press("Enter");
  await question(page).getByText("Vote for Soup? A ballot votes once.").waitFor();
  await eventually(() => hasFocus(question(page)));
  await focusIsShown(page);
  assert.deepEqual(await faults(page), []);
  // Enter again changes nothing: the voter goes to a button.
  await page.keyboard.press("Enter");
  assert.deepEqual(page.votes, []);
  await page.keyboard.press("Tab");
  await focusIsShown(page);
  await page.keyboard.press("Enter");
  await shows(page, "Your vote counts. The ballot is spent.");
  await eventually(() => hasFocus(choice(page, "Soup")));
  await isReleased(choice(page, "Soup"));
  assert.equal(await field(page).inputValue(), "");
  assert.deepEqual([await votesOf(poll), page.votes.length], [[1, 0], 1]);
  assert.deepEqual(page.errors, []);
});

test("an element makes the field for a ballot when it first shows something that takes one, in the element's language", async () => {
  const plain = await tally.newPoll({ title: "Without ballots?" });
  const byBallot = await tally.newPoll({ title: "By ballot?", by_ballot: true });
  const page = await person();
  await page.goto(hostElements("made-late", `<div lang="de"><tally-poll poll="${plain.id}"></tally-poll></div>`));
  const element = page.locator("tally-poll");
  const parts = () => element.evaluate((one) => [...one.shadowRoot.children].map((part) => [part.getAttribute("part") ?? part.className, part.lang]));
  await choice(page, "Soup").waitFor();
  assert.deepEqual(await parts(), [["title", "de"], ["choices", "de"], ["foot", "de"]]);
  await element.evaluate((one, id) => one.setAttribute("poll", id), byBallot.id);
  await page.getByLabel("Dein Stimmcode").waitFor();
  assert.deepEqual(await parts(), [["title", "de"], ["ballot", "de"], ["choices", "de"], ["sure", "de"], ["foot", "de"]]);
  await element.evaluate((one, id) => one.setAttribute("poll", id), plain.id);
  await page.getByText("Without ballots?").waitFor();
  await page.getByLabel("Dein Stimmcode").waitFor({ state: "hidden" });
  assert.deepEqual(page.errors, []);
});

test("a poll that closes while it asks takes the question away, and the choice keeps the focus", async () => {
  const { ballots, page } = await board("closing", { closes_at: new Date(Date.now() + 8000).toISOString() });
  await field(page).fill(ballots[0]);
  await choice(page, "Soup").click();
  await question(page).waitFor();
  await eventually(() => hasFocus(question(page)));
  await page.locator("tally-poll[closed]").waitFor();
  await question(page).waitFor({ state: "hidden" });
  await field(page).waitFor({ state: "hidden" });
  await isReleased(choice(page, "Soup"));
  await eventually(() => hasFocus(choice(page, "Soup")));
  assert.deepEqual([page.votes, page.errors], [[], []]);
});

test("while a ballot is on its way nothing else is asked or marked, and then the next ballot votes for what is pressed next", async () => {
  const { poll, ballots, page } = await board("on-its-way");
  await field(page).fill(ballots[0]);
  await choice(page, "Soup").click();
  const { asked, release } = await heldBack(page, "**/votes", "POST");
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await asked;
  await field(page).press("End");
  await field(page).pressSequentially("another");
  await field(page).press("Enter");
  await choice(page, "Salad").click();
  assert.equal(await question(page).count(), 0);
  assert.equal(await field(page).inputValue(), ballots[0]);
  await isReleased(choice(page, "Salad"));
  release();
  await shows(page, "Your vote counts. The ballot is spent.");
  await isReleased(choice(page, "Soup"));
  assert.equal(await field(page).inputValue(), "");
  await field(page).fill(ballots[1]);
  await choice(page, "Salad").click();
  await question(page).getByText("Vote for Salad?").waitFor();
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await eventually(async () => (await votesOf(poll)).join() === "1,1");
  assert.deepEqual([page.votes.length, page.errors], [2, []]);
});

test("an element that shows another item while a ballot is on its way votes on that item, and the outcome disturbs nobody", async () => {
  const [first, second] = [await tally.newItem({ name: "First", by_ballot: true }), await tally.newItem({ name: "Second", by_ballot: true })];
  const { ballots: [good] } = await tally.call("POST", `/v1/items/${first}/ballots`, { count: 1 });
  const page = await person();
  await page.goto(hostElements("other-item", `<tally-vote item="${first}"></tally-vote>`));
  for (const ballot of ["no-ballot", good]) {
    await page.locator("tally-vote").evaluate((one, item) => one.setAttribute("item", item), String(first));
    await page.getByText("First", { exact: true }).waitFor();
    const up = page.getByRole("button", { name: /^Vote up/ });
    await field(page).fill(ballot);
    await up.click();
    const { asked, release } = await heldBack(page, "**/votes", "POST");
    await question(page).getByRole("button", { name: "Vote", exact: true }).click();
    await asked;
    await page.locator("tally-vote").evaluate((one, item) => one.setAttribute("item", item), String(second));
    await page.getByText("Second", { exact: true }).waitFor();
    await field(page).fill("for the second");
    await up.click();
    await question(page).getByText("Vote for Second?").waitFor();
    const answered = page.waitForResponse((answer) => answer.url().endsWith(`/v1/items/${first}/votes`));
    release();
    await (await answered).finished();
    await page.evaluate(() => new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume))));
    await page.unroute("**/votes");
    await question(page).getByText("Vote for Second?").waitFor();
    assert.equal(await hasFocus(question(page)), true);
    assert.equal(await field(page).inputValue(), "for the second");
    assert.equal(await page.locator('[part="message"]').textContent(), "");
    await question(page).getByRole("button", { name: "Vote", exact: true }).click();
    await refused(page).waitFor();
  }
  const counts = await tally.call("GET", `/v1/items?ids=${first},${second}`);
  assert.deepEqual(counts.items.map((one) => one.vote_count), [1, 0]);
  assert.deepEqual(page.errors, []);
});

test("a question names what is asked about now, and an earlier ballot's outcome is not said of the next ballot", async () => {
  const { poll, ballots, page } = await board("renamed");
  const element = page.locator("tally-poll");
  const message = element.locator('[part="message"]');
  await field(page).fill(ballots[0]);
  await choice(page, "Soup").click();
  await question(page).getByText("Vote for Soup?").waitFor();
  await tally.call("PATCH", `/v1/items/${poll.choices[0].item_id}`, { name: "Broth" });
  await question(page).getByText("Vote for Broth?").waitFor();
  const { asked, release } = await heldBack(page, "**/votes", "POST");
  await field(page).fill("no-ballot");
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await asked;
  // The same poll again, as when a page shows one poll after another.
  for (const shown of ["key:none", String(poll.id)]) await element.evaluate((one, shown) => one.setAttribute("poll", shown), shown);
  await field(page).fill(ballots[0]);
  await choice(page, "Salad").click();
  await question(page).getByText("Vote for Salad?").waitFor();
  const answered = page.waitForResponse((answer) => answer.request().method() === "POST");
  release();
  await (await answered).finished();
  await page.evaluate(() => new Promise((resume) => requestAnimationFrame(() => requestAnimationFrame(resume))));
  assert.equal(await message.textContent(), "");
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await shows(page, "Your vote counts. The ballot is spent.");
  assert.deepEqual([await votesOf(poll), page.errors], [[0, 1], []]);
});

test("an item whose places are all taken asks for no ballot", async () => {
  const item = await tally.newItem({ name: "One place", by_ballot: true, max_votes: 1 });
  const { ballots } = await tally.call("POST", `/v1/items/${item}/ballots`, { count: 1 });
  const page = await person();
  await page.goto(hostElements("one-place", `<tally-vote item="${item}"></tally-vote>`));
  await field(page).fill(ballots[0]);
  await page.getByRole("button", { name: "Vote up: One place" }).click();
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await shows(page, "Your vote counts. The ballot is spent.");
  await page.locator("tally-vote[full]").waitFor();
  await field(page).waitFor({ state: "hidden" });
  assert.deepEqual(page.errors, []);
});

test("Enter in the field before a choice is marked asks for one", async () => {
  const { ballots, page } = await board("enter");
  await field(page).fill(ballots[0]);
  await field(page).press("Enter");
  await shows(page, "Choose an answer first.");
  assert.equal(await question(page).count(), 0);
  assert.deepEqual(page.votes, []);
});

test("a voter who cancels has voted for nothing, and may choose another choice with the same ballot", async () => {
  const { poll, ballots, page } = await board("cancel");
  await field(page).fill(ballots[0]);
  await choice(page, "Soup").click();
  await page.keyboard.press("Escape");
  await question(page).waitFor({ state: "hidden" });
  await eventually(() => hasFocus(choice(page, "Soup")));
  await choice(page, "Salad").click();
  await question(page).getByText("Vote for Salad?").waitFor();
  await isReleased(choice(page, "Soup"));
  await question(page).getByRole("button", { name: "Cancel" }).click();
  await eventually(() => hasFocus(choice(page, "Salad")));
  assert.deepEqual([await votesOf(poll), page.votes.length], [[0, 0], 0]);
  await choice(page, "Salad").click();
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await shows(page, "Your vote counts. The ballot is spent.");
  assert.deepEqual(await votesOf(poll), [0, 1]);
});

test("a ballot is taken with capitals, dashes and blanks, and one that is spent is said and can be mended", async () => {
  const { poll, ballots, page } = await board("typed");
  const typed = ballots.map((ballot) => ballot.match(/.{8}/g));
  const written = [typed[0].join("-").toUpperCase(), ` ${typed[1].join(" ")} `, typed[2].join(" – ").replaceAll("0", "O")];
  for (const text of written) {
    await field(page).fill(text);
    await choice(page, "Soup").click();
    await question(page).getByRole("button", { name: "Vote", exact: true }).click();
    await eventually(async () => (await field(page).inputValue()) === "");
  }
  assert.deepEqual(await votesOf(poll), [3, 0]);
  await field(page).fill(written[0]);
  await choice(page, "Salad").click();
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await refused(page).filter({ hasText: "This ballot is not valid, or it was used already." }).waitFor();
  await eventually(() => hasFocus(field(page)));
  assert.equal(await field(page).inputValue(), written[0]);
  // The choice is still marked, and is offered again with what is typed now.
  await question(page).waitFor({ state: "hidden" });
  const [another] = (await tally.call("POST", `/v1/polls/${poll.id}/ballots`, { count: 1 })).ballots;
  await field(page).fill(another);
  await question(page).getByText("Vote for Salad?").waitFor();
  assert.ok(await hasFocus(field(page)));
  await field(page).fill(" - ");
  await question(page).waitFor({ state: "hidden" });
  await field(page).fill(another);
  await question(page).getByRole("button", { name: "Vote", exact: true }).click();
  await eventually(async () => (await votesOf(poll))[1] === 1);
});

test("an item by ballot asks before it votes up or down", async () => {
  const item = await tally.newItem({ name: "A motion", by_ballot: true });
  const { ballots } = await tally.call("POST", `/v1/items/${item}/ballots`, { count: 2 });
  const page = await person();
  await page.goto(hostElements("motion", `<tally-vote item="${item}"></tally-vote>`));
  for (const [at, way, asked] of [[0, "up", "Vote for A motion?"], [1, "down", "Vote against A motion?"]]) {
    await field(page).fill(ballots[at]);
    await page.getByRole("button", { name: `Vote ${way}: A motion` }).click();
    await question(page).getByText(asked).waitFor();
    await question(page).getByRole("button", { name: "Vote", exact: true }).click();
    await eventually(async () => (await field(page).inputValue()) === "");
  }
  const counts = await tally.call("GET", `/v1/items/${item}`);
  assert.deepEqual([counts.up_count, counts.down_count], [1, 1]);
});
