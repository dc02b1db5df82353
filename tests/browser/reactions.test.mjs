// <tally-reactions>: emoji on a key of the page's own, or of a poll.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Server, close, eventually, faults, heard, hears, heldBack, hostElements, isPressed, isReleased, open, person, refused, tabTo, tally } from "./harness.mjs";

let creating; // a server that creates items with their first vote
before(async () => {
  await open();
  creating = await Server.start({ TALLY_CREATE_ITEMS: "true" });
});
after(close);

const chip = (page, emoji) => page.locator("tally-reactions").getByRole("button", { name: new RegExp(`^${emoji}`) });
const has = (page, emoji, votes) => page.locator("tally-reactions").getByRole("button", { name: `${emoji}: ${votes}`, exact: true }).waitFor();
const hosted = (name, elements, server = creating) => hostElements(name, elements, { server });
const countOf = async (key, server = creating) => (await server.call("GET", `/v1/items?ids=${encodeURIComponent(`key:${key}`)}`)).items[0]?.vote_count ?? null;

test("an emoji that nobody has pressed shows 0, and the first press makes its item", async () => {
  const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");
  const snippet = /```html\n(<tally-reactions.*?)```/s.exec(guide)[1];
  const address = hosted("first", snippet.replace("post-42", "post-1"));
  const [ada, bob] = [await person(), await person()];
  for (const page of [ada, bob]) {
    await page.goto(address);
    for (const emoji of ["👍", "❤️", "😂"]) await has(page, emoji, "0 votes");
  }
  assert.equal(await countOf("post-1:👍"), null, "showing an emoji has made an item");
  await chip(ada, "👍").click();
  await isPressed(chip(ada, "👍"));
  await has(ada, "👍", "1 vote");
  assert.equal(await countOf("post-1:👍"), 1);
  assert.equal(await countOf("post-1:❤️"), null, "pressing one emoji has made another");
  // Another page learns of it, and votes on the same item.
  await chip(bob, "👍").click();
  for (const page of [ada, bob]) await has(page, "👍", "2 votes");
  await chip(ada, "❤️").click();
  await has(ada, "❤️", "1 vote");
  await isPressed(chip(ada, "👍"));
  await chip(ada, "👍").click();
  await isReleased(chip(ada, "👍"));
  for (const page of [ada, bob]) await has(page, "👍", "1 vote");
  // A later visit shows what the voter holds.
  await ada.reload();
  await isPressed(chip(ada, "❤️"));
  await isReleased(chip(ada, "👍"));
  for (const page of [ada, bob]) assert.deepEqual(page.errors, []);
});

test("with single, a voter holds one emoji: the new one first, then the old one is taken back", async () => {
  const page = await person();
  await page.goto(hosted("single", '<tally-reactions to="post-2" emoji="👍 ❤️" single></tally-reactions>'));
  await has(page, "👍", "0 votes");
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  // Also on a visit that has not yet asked what the voter holds.
  await page.reload();
  await chip(page, "❤️").click();
  await has(page, "❤️", "1 vote");
  await has(page, "👍", "0 votes");
  await isReleased(chip(page, "👍"));
  // The old one stays where the new one is refused.
  await page.route("**/votes**", (route) => (route.request().method() === "PUT" ? route.abort() : route.continue()));
  await chip(page, "👍").click();
  await page.locator('tally-reactions [part="message"].bad').waitFor();
  await isPressed(chip(page, "❤️"));
  assert.equal(await countOf("post-2:❤️"), 1);
  await page.unroute("**/votes**");
  await chip(page, "❤️").click();
  await has(page, "❤️", "0 votes");
  assert.deepEqual(page.errors, []);
});

test("of a poll, the emoji are its choices, and the server holds a voter to one", async () => {
  const poll = await creating.newPoll({ title: "Emoji", key: "post-3", choices: ["👍", "🎉"] });
  const page = await person();
  await page.goto(hosted("poll", '<tally-reactions poll="key:post-3"></tally-reactions>'));
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  await chip(page, "🎉").click();
  await has(page, "🎉", "1 vote");
  await has(page, "👍", "0 votes");
  await isReleased(chip(page, "👍"));
  assert.equal((await creating.call("GET", `/v1/polls/${poll.id}`)).voter_count, 1);
  await creating.choose(poll, "bob", 0);
  await has(page, "👍", "1 vote");
  await creating.call("PATCH", `/v1/polls/${poll.id}`, { closes_at: new Date().toISOString() });
  await page.locator("tally-reactions").locator('[aria-disabled="true"]').first().waitFor();
  await chip(page, "👍").press("Enter");
  await page.locator('tally-reactions [part="message"].bad').waitFor();
  await isPressed(chip(page, "🎉"));
  assert.deepEqual(page.errors, []);
});

test("all emoji of a page share one stream, one script and one request for what the voter holds", async () => {
  const page = await person();
  const asked = [];
  page.on("request", (request) => asked.push(request));
  const of = (post) => `<tally-reactions to="${post}" emoji="👍 ❤️"></tally-reactions>`;
  const address = hosted("shared", `${of("post-4")}${of("post-5")}`);
  await page.goto(address);
  const post = (at) => page.locator("tally-reactions").nth(at).getByRole("button", { name: /^👍/ });
  for (const at of [0, 1]) {
    await post(at).click();
    await isPressed(post(at));
  }
  // The page before asks for nothing any more.
  await page.goto("about:blank");
  asked.length = 0;
  await page.goto(address);
  for (const at of [0, 1]) await isPressed(post(at));
  const paths = asked.map((request) => new URL(request.url()).pathname);
  const times = (wanted) => paths.filter((path) => wanted.test(path)).length;
  assert.equal(new Set(asked.map((request) => request.url()).filter((url) => url.includes("/v1/stream"))).size, 1, paths.join("\n"));
  assert.equal(times(/^\/v1\/votes$/), 1, paths.join("\n"));
  assert.ok(times(/embed[^/]*\.js$/) <= 1 && times(/reactions[^/]*\.js$/) <= 1, paths.join("\n"));
});

test("without one of these elements, their script is not fetched", async () => {
  const page = await person();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(hosted("none", '<tally-vote item="key:post-6"></tally-vote>'));
  await page.getByRole("button", { name: /^Vote up/ }).waitFor();
  assert.deepEqual(asked.filter((url) => url.includes("reactions")), []);
  await page.evaluate(() => document.body.insertAdjacentHTML("beforeend", '<tally-reactions to="post-6" emoji="👍"></tally-reactions>'));
  await has(page, "👍", "0 votes");
  assert.equal(asked.filter((url) => url.includes("reactions")).length, 1);
});

test("where nothing creates items, what exists is shown, and otherwise what stands between the tags", async () => {
  await tally.newItem({ name: "A thumb", key: "post-7:👍" });
  const page = await person();
  const errors = [];
  await page.exposeFunction("noted", (message) => errors.push(message));
  await page.addInitScript(() => addEventListener("tally-error", ({ detail }) => globalThis.noted(detail.message)));
  await page.goto(hosted("existing", `<tally-reactions to="post-7" emoji="👍 ❤️"><span>Reactions come.</span></tally-reactions>
    <tally-reactions to="post-8" emoji="👍"><span>No reactions yet.</span></tally-reactions>`, tally));
  await has(page, "👍", "0 votes");
  await eventually(() => errors.some((message) => message.includes("post-8:👍")));
  assert.equal(await page.locator("tally-reactions").getByRole("button").count(), 1);
  await page.getByText("No reactions yet.").waitFor();
  assert.equal(await page.getByText("Reactions come.").isVisible(), false);
  // It shows one that is created later.
  await chip(page, "👍").click();
  await isPressed(chip(page, "👍"));
  assert.deepEqual(page.errors, []);
});

test("attributes that name nothing are said to the page, in words that say what would be right", async () => {
  const many = Array.from({ length: 21 }, (_, at) => String.fromCodePoint(0x1f600 + at)).join(" ");
  for (const [attributes, said] of [
    ['to="post-9"', 'to="post-42" emoji="👍 ❤️"'],
    ['emoji="👍"', 'to="post-42" emoji="👍 ❤️"'],
    ['to="key:post-9" emoji="👍"', "“post-9”"],
    [`to="post-9" emoji="${many}"`, "at most 20"],
    ['poll="x"', "it takes an id, or key: and a key"],
  ]) {
    const page = await person();
    await page.addInitScript(() => addEventListener("tally-error", ({ detail }) => (globalThis.said = detail.message)));
    await page.goto(hosted("wrong", `<tally-reactions ${attributes}>Between.</tally-reactions>`));
    await eventually(async () => (await page.evaluate(() => globalThis.said))?.includes(said));
    await page.getByText("Between.").waitFor();
    // Right ones help at once.
    await page.locator("tally-reactions").evaluate((one) => {
      one.removeAttribute("poll");
      one.setAttribute("to", "post-9");
      one.setAttribute("emoji", "👍");
    });
    await has(page, "👍", "0 votes");
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("by keyboard alone, and moved within the page, reactions work and stay", async () => {
  const page = await person({ viewport: { width: 320, height: 256 } });
  await page.goto(hosted("keyboard", '<tally-reactions to="post-10" emoji="👍 ❤️ 😂 🎉 😮 😢 🙏 🚀 👀 💯"></tally-reactions><div id="there"></div>'));
  await has(page, "💯", "0 votes");
  await tabTo(page, chip(page, "❤️"));
  await page.keyboard.press("Space");
  await isPressed(chip(page, "❤️"));
  await has(page, "❤️", "1 vote");
  assert.deepEqual(await faults(page), []);
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `${wider} pixels too wide`);
  await page.evaluate(() => document.querySelector("#there").append(document.querySelector("tally-reactions")));
  await isPressed(chip(page, "❤️"));
  await chip(page, "❤️").click();
  await has(page, "❤️", "0 votes");
  await page.evaluate(() => document.documentElement.setAttribute("lang", "de"));
  await page.getByRole("group", { name: "Reaktionen" }).waitFor();
  await has(page, "❤️", "0 Stimmen");
  assert.deepEqual(page.errors, []);
});

test("reactions that show something else in another language have nothing of what they showed before", async () => {
  const poll = await creating.newPoll({ title: "Before", key: "post-11", choices: ["👍", "🎉"] });
  await creating.choose(poll, "ada", 0);
  const page = await person();
  await hears(page, "tally-error");
  await page.goto(hosted("replaced", '<tally-reactions poll="key:post-11"></tally-reactions>'));
  await has(page, "👍", "1 vote");
  const labels = () => page.locator("tally-reactions").getByRole("button").evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  const words = await page.evaluate(async (base) => {
    const { configure } = await import(`${base}/embed.js`);
    globalThis.configure = configure;
  }, creating.base);
  assert.equal(words, undefined);
  for (const [change, name] of [
    [() => document.documentElement.setAttribute("lang", "en-GB"), "language"],
    [() => globalThis.configure({ words: { en: { counted: "Thanks." } } }), "own-words"],
  ]) {
    await page.locator("tally-reactions").evaluate((one) => one.setAttribute("poll", "key:post-11"));
    await has(page, "👍", "1 vote");
    await page.evaluate(([change, name]) => {
      const one = document.querySelector("tally-reactions");
      // One by one, as frameworks set them.
      one.removeAttribute("poll");
      one.setAttribute("to", name);
      one.setAttribute("emoji", "😂 🚀");
      new Function(`return ${change}`)()();
    }, [String(change), name]);
    await has(page, "🚀", "0 votes");
    assert.deepEqual(await labels(), ["😂: 0 votes", "🚀: 0 votes"]);
    await chip(page, "😂").click();
    await has(page, "😂", "1 vote");
    assert.deepEqual(await labels(), ["😂: 1 vote", "🚀: 0 votes"]);
  }
  assert.deepEqual([await heard(page, "tally-error"), page.errors], [[], []]);
});

test("what became of a press is said only while the reactions show what was pressed", async () => {
  const page = await person();
  await page.goto(hosted("messages", '<tally-reactions to="post-12" emoji="👍"></tally-reactions>'));
  await has(page, "👍", "0 votes");
  const show = (to) => page.locator("tally-reactions").evaluate((one, to) => one.setAttribute("to", to), to);
  const message = page.locator('tally-reactions [part="message"]');
  const { asked, cut } = await heldBack(page, "**/votes**", "PUT");
  await chip(page, "👍").click();
  await asked;
  await show("post-13");
  await has(page, "👍", "0 votes");
  const failed = page.waitForEvent("requestfailed");
  cut();
  await failed;
  // The earlier press keeps nobody from this one.
  await page.unroute("**/votes**");
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  assert.equal(await message.textContent(), "");
  await page.route("**/votes**", (route) => (route.request().method() === "GET" ? route.continue() : route.abort()));
  await chip(page, "👍").click();
  await refused(page).waitFor();
  await show("post-14");
  await eventually(async () => (await message.textContent()) === "");
  assert.deepEqual(page.errors, []);
});

test("of a poll, reactions close by the server's clock", async () => {
  const poll = await creating.newPoll({ title: "Clock", key: "post-15", choices: ["👍", "🎉"], closes_at: new Date(Date.now() + 600_000).toISOString() });
  const page = await person();
  await page.clock.install({ time: Date.now() + 7_200_000 });
  await page.goto(hosted("clock", `<tally-reactions poll="${poll.id}"></tally-reactions>`));
  await has(page, "👍", "0 votes");
  await page.locator("tally-reactions:not([closed])").waitFor();
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  assert.deepEqual(page.errors, []);
});

test("reactions whose script does not come at once say so to the page, and fetch it again", async () => {
  const page = await person();
  await hears(page, "tally-error");
  let isCut = true;
  await page.route("**/assets/reactions-*", (route) => (isCut ? route.abort() : route.continue()));
  await page.clock.install();
  await page.goto(hosted("script-late", '<tally-reactions to="post-16" emoji="👍">Reactions come.</tally-reactions>'));
  await eventually(async () => (await heard(page, "tally-error")).length === 1);
  await page.getByText("Reactions come.").waitFor();
  isCut = false;
  await eventually(async () => {
    await page.clock.runFor(5000);
    return chip(page, "👍").isVisible();
  });
  await has(page, "👍", "0 votes");
  assert.deepEqual(page.errors, []);
});

test("with single, only the old emoji of what was pressed is taken back, whatever the reactions show by then", async () => {
  const page = await person();
  await page.goto(hosted("single-moves", '<tally-reactions to="post-17" emoji="👍 😂" single></tally-reactions>'));
  const set = (name, value) => page.locator("tally-reactions").evaluate((one, [name, value]) => one.setAttribute(name, value), [name, value]);
  for (const post of ["post-18", "post-17"]) {
    await set("to", post);
    await has(page, "😂", "0 votes");
    await chip(page, "😂").click();
    await has(page, "😂", "1 vote");
  }
  for (const [name, value] of [["to", "post-18"], ["emoji", "👍 😂 🎉"]]) {
    await set("to", "post-17");
    await chip(page, "😂").waitFor();
    if ((await chip(page, "😂").getAttribute("aria-pressed")) === "false") await chip(page, "😂").click();
    await has(page, "😂", "1 vote");
    const { asked, release } = await heldBack(page, "**/votes**", "PUT");
    await chip(page, "👍").click();
    await asked;
    await set(name, value);
    const takenBack = page.waitForResponse((answer) => answer.request().method() === "DELETE");
    release();
    await (await takenBack).finished();
    await page.unroute("**/votes**");
    for (const [key, votes] of [["post-17:👍", 1], ["post-17:😂", 0], ["post-18:😂", 1]]) await eventually(async () => (await countOf(key)) === votes);
    await set("emoji", "👍 😂");
    await set("to", "post-17");
    await isPressed(chip(page, "👍"));
  }
  assert.deepEqual(page.errors, []);
});

test("of a poll whose choice gets another name, there is one chip a choice", async () => {
  const poll = await creating.newPoll({ title: "Renamed", key: "post-19", choices: ["👍", "🎉"] });
  const page = await person();
  await page.goto(hosted("renamed", `<tally-reactions poll="${poll.id}"></tally-reactions>`));
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  await creating.call("PATCH", `/v1/items/${poll.choices[0].item_id}`, { name: "🔥" });
  await has(page, "🔥", "1 vote");
  await isPressed(chip(page, "🔥"));
  assert.equal(await page.locator("tally-reactions").getByRole("button").count(), 2);
  assert.deepEqual(page.errors, []);
});

test("a press that succeeds takes away what was said of one that failed", async () => {
  const page = await person();
  await page.goto(hosted("then-good", '<tally-reactions to="post-20" emoji="👍"></tally-reactions>'));
  await has(page, "👍", "0 votes");
  await page.route("**/votes**", (route) => (route.request().method() === "GET" ? route.continue() : route.abort()));
  await chip(page, "👍").click();
  // This page has read answers, so its origin is allowed.
  await refused(page).getByText("The server does not answer.", { exact: true }).waitFor();
  await page.unroute("**/votes**");
  await chip(page, "👍").click();
  await has(page, "👍", "1 vote");
  await eventually(async () => (await page.locator('tally-reactions [part="message"]').textContent()) === "");
  assert.deepEqual(page.errors, []);
});

test("reactions say by their attributes that their items are closed, full or not open yet, and disable those", async () => {
  const soon = new Date(Date.now() + 3_600_000).toISOString();
  const past = new Date(Date.now() + 1500).toISOString();
  const [closed, full, later] = await Promise.all([
    creating.newItem({ name: "closed", key: "post-21:👍", closes_at: past }),
    creating.newItem({ name: "full", key: "post-22:👍", max_votes: 1 }),
    creating.newItem({ name: "later", key: "post-23:👍", opens_at: soon }),
  ]);
  assert.ok(closed && later);
  await creating.vote(full, "bob");
  const page = await person();
  await page.goto(hosted("states", [21, 22, 23, 24].map((at) => `<tally-reactions to="post-${at}" emoji="👍${at === 22 ? " 🎉" : ""}"></tally-reactions>`).join("")));
  const states = () => page.locator("tally-reactions").evaluateAll((all) => all.map((one) => [
    ["closed", "full", "not-open"].filter((name) => one.hasAttribute(name)).join(),
    [...one.shadowRoot.querySelectorAll("button")].map((button) => button.getAttribute("aria-disabled")).join(),
  ].join(" ")));
  await eventually(async () => (await states()).join("; ") === "closed true;  true,false; not-open true;  false");
  // One that takes votes is enough for the element.
  await page.locator("tally-reactions").nth(1).getByRole("button").first().press("Enter");
  await page.locator("tally-reactions").nth(1).getByText("All places are taken.").waitFor();
  assert.deepEqual(page.errors, []);
});

test("reactions to items with times and without any open and close by themselves, and the page goes on", async () => {
  const at = (ms) => new Date(Date.now() + ms).toISOString();
  await creating.newItem({ name: "👍", key: "post-25:👍" });
  await creating.newItem({ name: "❤️", key: "post-25:❤️", closes_at: at(4000) });
  await creating.newItem({ name: "👍", key: "post-26:👍", opens_at: at(4000) });
  await creating.newItem({ name: "❤️", key: "post-26:❤️" });
  const page = await person();
  await page.goto(hosted("with-times", '<tally-reactions to="post-25" emoji="👍 ❤️"></tally-reactions><tally-reactions to="post-26" emoji="👍 ❤️"></tally-reactions>'));
  const disabled = () => page.locator("tally-reactions").getByRole("button").evaluateAll((all) => all.map((one) => one.getAttribute("aria-disabled")).join());
  await eventually(async () => (await disabled()) === "false,false,true,false");
  await eventually(async () => (await disabled()) === "false,true,false,false");
  await chip(page, "👍").first().click();
  await isPressed(chip(page, "👍").first());
  assert.deepEqual(page.errors, []);
});

test("after an answer that was lost, elements show what the voter holds", async () => {
  const item = await creating.newItem({ name: "Lost" });
  const poll = await creating.newPoll({ title: "Lost?" });
  const page = await person();
  await page.goto(hosted("lost", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll><tally-reactions to="post-27" emoji="👍 🎉"></tally-reactions>`));
  const button = (name) => page.getByRole("button", { name });
  const before = [button(/^Vote up/), button(/^Soup/), chip(page, "👍")];
  const after = [button(/^Vote down/), button(/^Salad/), chip(page, "🎉")];
  for (const one of before) {
    await one.click();
    await isPressed(one);
  }
  // Stored, and not answered.
  await page.route("**/votes**", async (route) => {
    if (route.request().method() !== "PUT") return route.continue();
    await route.fetch();
    await route.abort();
  });
  for (const one of after) {
    await one.click();
    await isPressed(one);
  }
  for (const one of before.slice(0, 2)) await isReleased(one);
  assert.deepEqual(page.errors, []);
});
