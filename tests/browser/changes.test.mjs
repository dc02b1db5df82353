// What may go wrong with an element's reference, and with several elements of one voter.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, count, eventually, heard, hears, hostElements, isPressed, isReleased, open, person, shows, siteAround, tally } from "./harness.mjs";

before(open);
after(close);

test("an element whose reference stands for nothing tells its page and shows nothing, and the others of the page are shown", async () => {
  const item = await tally.newItem({ name: "Good" });
  const comma = await tally.newItem({ name: "Comma", key: "a,b" });
  const bad = ["abc", "0", "-1", "01", "1.5", "9223372036854775808", "key:", `key:${"x".repeat(201)}`, "../../ops"];
  const page = await person();
  await hears(page, "tally-error");
  await page.goto(hostElements("bad", `<tally-vote item="${item}"></tally-vote><tally-vote item="key:a,b"></tally-vote>
    ${bad.map((reference) => `<tally-vote item="${reference}"></tally-vote>`).join("")}`));
  await tally.vote(item, "bob");
  await tally.vote(comma, "bob");
  for (const name of ["Good", "Comma"]) await page.getByRole("button", { name: `Vote up: ${name}` }).waitFor();
  await page.locator("tally-vote").first().locator('[part="count"]', { hasText: /^1$/ }).waitFor();
  const errors = await heard(page, "tally-error");
  for (const reference of bad) assert.ok(errors.some((one) => one.message.includes(`“${reference}”`) && one.problem === null), reference);
  assert.equal(await page.getByRole("button", { name: /^Vote up/ }).count(), 2);
  assert.deepEqual(page.errors, []);
});

test("an element that gets another reference shows only what that names", async () => {
  const [first, second] = [await tally.newPoll({ title: "First?" }), await tally.newPoll({ title: "Second?", choices: ["Tea", "Coffee"] })];
  const page = await person();
  await hears(page, "tally-error");
  await page.goto(hostElements("another", `<tally-poll poll="${first.id}"></tally-poll>`));
  const choices = page.locator("tally-poll").getByRole("button");
  await choices.filter({ hasText: "Soup" }).click();
  await shows(page, "Your vote counts.");
  const set = (value) => page.locator("tally-poll").evaluate((one, value) => (value ? one.setAttribute("poll", value) : one.removeAttribute("poll")), value);
  await set(String(second.id));
  assert.equal(await choices.count(), 0, "nothing of the other poll can be pressed");
  await choices.filter({ hasText: "Tea" }).waitFor();
  assert.equal(await choices.count(), 2);
  await set("nothing");
  await eventually(async () => (await heard(page, "tally-error")).some((one) => one.message.includes("“nothing”")));
  assert.equal(await choices.count(), 0);
  await set(String(first.id));
  await isPressed(choices.filter({ hasText: "Soup" }));
  await set(null);
  await eventually(async () => (await choices.count()) === 0);
});

test("controls name nothing that is not shown any more", async () => {
  const item = await tally.newItem({ name: "Known" });
  const page = await person();
  await page.goto(hostElements("unnamed", `<tally-vote item="${item}"></tally-vote>`));
  const element = page.locator("tally-vote");
  await element.getByRole("group", { name: "Known" }).getByRole("button", { name: "Vote up: Known" }).waitFor();
  await element.evaluate((one) => one.removeAttribute("item"));
  for (const name of ["Vote up", "Vote down"]) await element.getByRole("button", { name, exact: true }).waitFor();
  assert.equal(await element.getByRole("group", { name: "Known" }).count(), 0);
});

test("elements that are pressed at once, also in two tabs, vote as one voter and show the same vote", async () => {
  const item = await tally.newItem({ name: "Once", key: "once" });
  const page = await person();
  const address = hostElements("once", `<tally-vote item="key:once"></tally-vote><tally-vote item="${item}"></tally-vote>`);
  const tab = await page.context().newPage();
  await Promise.all([page.goto(address), tab.goto(address)]);
  const ups = (of) => of.getByRole("button", { name: "Vote up: Once" });
  for (const of of [page, tab]) for (const at of [0, 1]) await ups(of).nth(at).waitFor();
  const press = (of) => of.evaluate(() => document.querySelectorAll("tally-vote").forEach((one) => one.root.querySelector('[part="up"]').click()));
  await Promise.all([press(page), press(tab)]);
  for (const of of [page, tab]) for (const at of [0, 1]) await isPressed(ups(of).nth(at));
  assert.equal((await tally.call("GET", `/v1/items/${item}`)).vote_count, 1);
  await page.reload();
  for (const at of [0, 1]) await isPressed(ups(page).nth(at));
  await ups(page).first().click();
  for (const of of [page, tab]) for (const at of [0, 1]) await isReleased(ups(of).nth(at));
  await eventually(async () => (await tally.call("GET", `/v1/items/${item}`)).vote_count === 0);
});

test("an element whose item is created later shows it soon after", async () => {
  const page = await person();
  await hears(page, "tally-error");
  await page.clock.install();
  await page.goto(hostElements("later", '<tally-vote item="key:later"><b>Votes come later.</b></tally-vote>'));
  await page.clock.runFor(2000);
  await eventually(async () => (await heard(page, "tally-error")).length > 0);
  const [{ message, problem }] = await heard(page, "tally-error");
  assert.deepEqual([message, problem.type, problem.status], ["There is no item key:later.", "/problems/unknown-item", 404]);
  await shows(page, "Votes come later.");
  await tally.newItem({ name: "Later", key: "later" });
  await eventually(async () => {
    await page.clock.runFor(5000);
    return page.getByRole("button", { name: "Vote up: Later" }).isVisible();
  });
  await count(page, "0");
});

test("the snippet on /embed is HTML that works without a change", async () => {
  const item = await tally.newItem({ name: 'Quoted "&amp;', key: 'k"<b>&amp;' });
  const page = await person();
  await page.goto(`${tally.base}/embed`);
  await page.locator("#kind").selectOption("tally-vote");
  await page.locator("#reference").fill('key:k"<b>&amp;');
  await page.locator("#accent").fill("#aa0000");
  const snippet = await page.locator("#snippet").innerText();
  const other = await person();
  await other.goto(hostElements("snippet", `${snippet}<p>After.</p>`));
  await other.getByRole("button", { name: /^Vote up: Quoted/ }).click();
  await shows(other, "Your vote counts.");
  await shows(other, "After.");
  assert.equal((await tally.call("GET", `/v1/items/${item}`)).vote_count, 1);
});

test("elements work below a path of the page's own host", async () => {
  const poll = await tally.newPoll({ title: "Below?" });
  const html = `<!doctype html><title>x</title><script type="module" src="/tally/embed.js"></script><tally-poll poll="${poll.id}"></tally-poll>`;
  const page = await person();
  await page.goto(await siteAround(html));
  await page.getByRole("button", { name: /^Soup/ }).click();
  await shows(page, "Your vote counts.");
  await tally.choose(poll, "bob", 1);
  await page.getByText("50%").first().waitFor();
});

test("in a poll of several choices, a choice takes no other back, even before the page knows what is held", async () => {
  const poll = await tally.newPoll({ title: "Several?", choices: ["Ant", "Bee", "Cat"], max_choices: 3 });
  const page = await person();
  await page.goto(`${tally.base}/polls/${poll.id}`);
  const choice = (name) => page.getByRole("button", { name: new RegExp(`^${name}`) });
  for (const name of ["Ant", "Bee"]) {
    await choice(name).click();
    await isPressed(choice(name));
  }
  await page.route(/\/v1\/votes\?/, () => {}); // never answered
  await page.reload();
  await isReleased(choice("Ant"));
  await choice("Cat").click();
  await isPressed(choice("Cat"));
  const held = async () => (await tally.call("GET", `/v1/polls/${poll.id}`)).choices.map((one) => one.vote_count).join();
  await eventually(async () => (await held()) === "1,1,1");
  await choice("Cat").click();
  await isReleased(choice("Cat"));
  await eventually(async () => (await held()) === "1,1,0");
});
