// How pages and elements look to people with poor sight, in small windows, and in other writing systems. PICTURES=1
// takes the pictures in docs/pictures again.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { close, eventually, faults, fits, hostElements, isPressed, open, person, refused, shows, tally } from "./harness.mjs";

before(open);
after(close);

// An element draws only what a worker has summed up.
const isDrawn = async (of) => (await tally.call("GET", `/v1/${of}/history?over=day`)).spans.length > 0;
const SCHEMES = ["light", "dark"];
const pictures = process.env.PICTURES ? new URL("../../docs/pictures/", import.meta.url).pathname : null;
const KEPT = new Set([
  "home-light-desktop", "home-dark-phone", "poll-light-phone", "poll-dark-desktop", "item-light-phone", "embed-dark-desktop",
  "ops-light-desktop", "ops-dark-phone", "docs-light-desktop",
]);

test("axe finds no fault on any page in either scheme, and no page is wider than a window of 320 pixels", async () => {
  // The poll and the items of a first start.
  const poll = await tally.call("GET", "/v1/polls/1");
  for (let voter = 0; voter < 19; voter++) {
    await tally.choose(poll, `v${voter}`, voter < 9 ? 0 : voter < 15 ? 1 : 2);
    for (let item = 1; item <= 1 + (voter % 4); item++) await tally.vote(item, `v${voter}`, voter % 5 ? 1 : -1);
  }
  await eventually(() => isDrawn("items/1"));
  const all = { home: "/", poll: `/polls/${poll.id}`, item: "/items/1", embed: "/embed", ops: "/ops", docs: "/docs" };
  for (const [name, address] of Object.entries(all)) {
    for (const colorScheme of SCHEMES) {
      for (const [device, viewport] of Object.entries({ desktop: { width: 1000, height: 720 }, phone: { width: 390, height: 720 }, narrow: { width: 320, height: 256 } })) {
        const page = await person({ viewport, colorScheme });
        await page.goto(tally.base + address);
        if (["home", "poll"].includes(name)) await page.getByRole("button", { name: /^The noodle bar/ }).first().waitFor();
        assert.deepEqual(await faults(page), [], `${name} ${colorScheme} ${device}`);
        await fits(page, `${name} ${device}`);
        assert.deepEqual(page.errors, [], name);
        if (pictures && KEPT.has(`${name}-${colorScheme}-${device}`)) await page.screenshot({ path: `${pictures}${name}-${colorScheme}-${device}.png` });
        await page.context().close();
      }
    }
  }
});

test("axe finds no fault in any element on another origin's page, whatever the element's state", async () => {
  const item = await tally.newItem({ name: "Fountains" });
  const full = await tally.newItem({ name: "One seat", max_votes: 1 });
  await tally.vote(full, "bob");
  const [open, several, closed, ballots] = [
    await tally.newPoll({ title: "An open poll" }),
    await tally.newPoll({ title: "A poll of several", max_choices: 0 }),
    await tally.newPoll({ title: "A closed poll", closes_at: "2020-01-01T00:00:00Z" }),
    await tally.newPoll({ title: "A board", by_ballot: true }),
  ];
  const emoji = await tally.newPoll({ title: "Emoji", choices: ["👍", "❤️"] });
  await tally.vote(item, "bob");
  await tally.choose(open, "bob", 0);
  await eventually(() => isDrawn(`items/${item}`));
  const elements = `<p>It has <tally-count item="${item}"></tally-count> votes, and this <tally-count item="9999999"></tally-count>.</p>
    <tally-vote item="${item}"></tally-vote><tally-vote item="${full}"></tally-vote><tally-vote item="9999999"></tally-vote>
    ${[open, several, closed, ballots].map((poll) => `<tally-poll poll="${poll.id}"></tally-poll>`).join("")}
    <tally-reactions poll="${emoji.id}"></tally-reactions>
    <tally-history item="${item}"></tally-history><tally-history poll="${open.id}" over="hour"></tally-history>`;
  const address = hostElements("faults", elements);
  for (const colorScheme of SCHEMES) {
    const page = await person({ colorScheme });
    await page.goto(address);
    await page.getByRole("button", { name: "Vote up: Fountains" }).click();
    for (const poll of [open, several]) await page.locator(`tally-poll[poll="${poll.id}"]`).getByRole("button", { name: /^Salad/ }).click();
    await page.getByRole("button", { name: /^👍/ }).click();
    await isPressed(page.getByRole("button", { name: /^👍/ }));
    await page.getByRole("img", { name: /^Over the last day/ }).waitFor();
    await page.getByRole("img", { name: /^Over the last hour/ }).waitFor();
    const board = page.locator(`tally-poll[poll="${ballots.id}"]`);
    await board.getByLabel("Your ballot").fill("0000-0000");
    await board.getByRole("button", { name: /^Salad/ }).click();
    await board.getByRole("alertdialog").waitFor();
    assert.deepEqual(await faults(page), [], `${colorScheme}, with a question`);
    await board.getByRole("button", { name: "Vote", exact: true }).click();
    await page.getByRole("button", { name: "Vote up: One seat" }).press("Enter");
    await page.locator(`tally-poll[poll="${closed.id}"]`).getByRole("button", { name: /^Salad/ }).press("Enter");
    for (const text of ["This ballot is not valid", "All places are taken.", "This is closed."]) await refused(page).filter({ hasText: text }).waitFor();
    assert.deepEqual(await faults(page), [], `${colorScheme}, with refusals`);
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("axe finds no fault on a voter's page without a connection, or on the operator's page with a question", async () => {
  const item = await tally.newItem({ name: "Lost" });
  const asking = await Promise.all(SCHEMES.map(async (colorScheme) => {
    const page = await person({ colorScheme });
    await page.goto(`${tally.base}/ops`);
    await page.getByRole("button", { name: "Audit now…" }).click();
    await page.getByRole("dialog").filter({ hasText: "Audit now" }).waitFor();
    assert.deepEqual(await faults(page), [], `ops ${colorScheme}`);
    return page;
  }));
  for (const page of asking) await page.context().close();
  const lost = await Promise.all(SCHEMES.map(async (colorScheme) => {
    const page = await person({ colorScheme });
    await page.goto(`${tally.base}/items/${item}`);
    await page.getByRole("button", { name: "Vote up: Lost" }).click();
    await shows(page, "Your vote counts.");
    return page;
  }));
  await tally.whileStopped(async () => {
    for (const page of lost) {
      await page.getByText("Trying again").waitFor();
      assert.deepEqual(await faults(page), [], "connection lost");
    }
  });
});

test("an operator sees how many acknowledged votes are lost, of which items and from when, and otherwise nothing of it", async () => {
  const page = await person();
  const section = page.getByRole("region", { name: "Lost votes", exact: true });
  await page.goto(`${tally.base}/ops`);
  await page.locator("#now dd").first().waitFor();
  assert.equal(await section.isVisible(), false);
  // What a failover leaves: tests/it/stores/lost_votes.rs.
  const lost_votes = {
    total: 1243, found_at: "2030-01-31T17:00:00.5Z", first_stored_at: "2030-01-31T16:59:57Z", last_stored_at: "2030-01-31T16:59:59Z",
    whole: false, items: [{ item_id: 5, total: 1200 }, { item_id: 9, total: 43 }],
  };
  await page.route("**/v1/status", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...await response.json(), lost_votes } });
  });
  await section.waitFor();
  const said = await section.innerText();
  for (const part of ["1,243 votes that servers had acknowledged are gone", "Earlier ones may be lost too.", "loss_item"]) assert.ok(said.includes(part), said);
  assert.deepEqual(await section.locator("tbody tr").allInnerTexts(), ["5\t1,200", "9\t43"]);
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a name of 200 wide characters, or with right-to-left marks, is text and widens no page", async () => {
  const viewport = { width: 320, height: 640 };
  const names = ["漢".repeat(200), `\u202e\u2067Ω${"ש".repeat(90)}\u200f${"W".repeat(100)}\u2069`];
  for (const name of names) {
    const item = await tally.newItem({ name });
    const poll = await tally.newPoll({ title: name, choices: [name, `${name.slice(0, -1)}x`] });
    await tally.choose(poll, "bob", 0);
    await eventually(() => isDrawn(`items/${poll.choices[0].item_id}`));
    const page = await person({ viewport });
    for (const address of [`/?search=${encodeURIComponent(name)}`, `/items/${item}`, `/polls/${poll.id}`]) {
      await page.goto(tally.base + address);
      await page.locator("tally-vote, tally-poll").getByRole("button").first().waitFor();
      await shows(page, name);
      await fits(page, address);
    }
    await page.goto(hostElements("wide", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll>
      <tally-history poll="${poll.id}"></tally-history>`));
    for (const element of ["tally-vote", "tally-poll", "tally-history"]) await page.locator(element).getByText(name, { exact: true }).first().waitFor();
    await fits(page, "elements");

    await page.goto(`${tally.base}/ops`);
    await page.locator("summary", { hasText: "Create an item" }).click();
    await page.getByLabel("Name", { exact: true }).fill(name);
    await page.getByRole("button", { name: "Create the item…" }).click();
    await page.getByRole("dialog").filter({ hasText: name }).waitFor();
    await fits(page, "/ops, asking");
    await page.getByRole("button", { name: "Create it" }).click();
    await page.locator("#state").filter({ hasText: name }).waitFor();
    await page.locator("summary", { hasText: "Create an API key" }).click();
    await page.getByLabel("Owner, or where the key is used").fill(name.slice(0, 100));
    await page.getByLabel("report: read metrics").check();
    await page.getByRole("button", { name: "Create the key…" }).click();
    await page.getByRole("button", { name: "Create it" }).click();
    await page.getByRole("button", { name: "I copied it" }).click();
    await page.locator("#keys bdi").filter({ hasText: name.slice(0, 100) }).first().waitFor();
    await fits(page, "/ops");
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("on a right-to-left page, bars and lines begin at the right, and numbers do not change", async () => {
  const poll = await tally.newPoll({ title: "Mirrored?" });
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(poll, voter, 0);
  await tally.choose(poll, "joe", 1);
  const item = await tally.newItem({ name: "Below" });
  await tally.vote(item, "bob", -1);
  await eventually(() => isDrawn(`items/${item}`));
  const elements = `<tally-poll poll="${poll.id}"></tally-poll><tally-vote item="${item}"></tally-vote><tally-history item="${item}"></tally-history>`;
  for (const [direction, sides] of Object.entries({ ltr: ["left", "right"], rtl: ["right", "left"] })) {
    const page = await person({ viewport: { width: 600, height: 800 } });
    await page.goto(hostElements(direction, elements, { html: `lang="en" dir="${direction}"` }));
    await page.getByText("75%").waitFor();
    const within = () => page.getByRole("button", { name: /^Soup/ }).evaluate((button) => {
      const [bar, all] = [button.querySelector('[part="bar"]').getBoundingClientRect(), button.getBoundingClientRect()];
      return { left: bar.left - all.left, right: all.right - bar.right, width: all.width };
    });
    // The bar moves to three quarters of the choice, from the side where reading begins.
    await eventually(async () => {
      const { width, ...gaps } = await within();
      const [begin, end] = sides.map((side) => gaps[side] / width);
      return begin < 0.02 && end > 0.23 && end < 0.27;
    });
    const minus = await page.locator("tally-vote").locator('[part="count"]', { hasText: /^-1$/ }).evaluate((one) => {
      const at = (from) => {
        const range = document.createRange();
        range.setStart(one.firstChild, from);
        range.setEnd(one.firstChild, from + 1);
        return range.getBoundingClientRect().left;
      };
      return at(0) < at(1);
    });
    assert.ok(minus, `${direction}: the minus is behind the number`);
    // The line ends at the label of the present time.
    const chart = page.locator("tally-history").getByRole("img");
    await chart.waitFor();
    const ends = await page.locator("tally-history").evaluate((history) => {
      const svg = history.shadowRoot.querySelector("svg.chart");
      const line = svg.querySelector("polyline");
      const last = line.points[line.points.numberOfItems - 1].matrixTransform(line.getScreenCTM());
      const box = svg.getBoundingClientRect();
      const [before] = history.shadowRoot.querySelector(".ends").children;
      return { line: (last.x - box.left) / box.width, before: (before.getBoundingClientRect().left - box.left) / box.width };
    });
    assert.ok(Math.abs(ends.line - ends.before) > 0.5, `${direction}: the line ends at ${ends.line}, “a day ago” begins at ${ends.before}`);
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("nothing on a page moves when a message comes or goes", async () => {
  const item = await tally.newItem({ name: "Still" });
  const full = await tally.newItem({ name: "A full one", max_votes: 1 });
  await tally.vote(full, "bob");
  const poll = await tally.newPoll({ title: "Still?" });
  const emoji = await tally.newPoll({ title: "Still", choices: ["👍", "❤️"] });
  for (const width of [320, 1000]) {
    const page = await person({ viewport: { width, height: 800 } });
    await page.clock.install();
    await page.goto(hostElements("still", `<tally-vote item="${item}"></tally-vote><p>One.</p><tally-vote item="${full}"></tally-vote><p>Two.</p>
      <tally-poll poll="${poll.id}"></tally-poll><p>Three.</p><tally-reactions poll="${emoji.id}"></tally-reactions><p>Four.</p>`));
    const places = () => page.evaluate(() => [...document.querySelectorAll("main > *, tally-vote, tally-poll, tally-reactions")].flatMap((one) =>
      [one, ...(one.shadowRoot?.querySelectorAll("button, [part~=name], [part~=title]") ?? [])].map((part) => {
        const { x, y, width, height } = part.getBoundingClientRect();
        return [part.localName, x, y, width, height].join(" ");
      })));
    const said = page.locator('[part="message"]:not(:empty)');
    await page.getByRole("button", { name: /^Soup/ }).waitFor();
    await page.getByRole("button", { name: /^❤️/ }).waitFor();
    const before = await places();
    await page.getByRole("button", { name: "Vote up: A full one" }).press("Enter");
    await refused(page).waitFor();
    assert.deepEqual(await places(), before, `${width}: a refusal`);
    await page.getByRole("button", { name: "Vote up: Still" }).click();
    await page.getByRole("button", { name: /^Soup/ }).click();
    await page.getByRole("button", { name: /^👍/ }).click();
    await isPressed(page.getByRole("button", { name: /^👍/ }));
    await eventually(async () => (await said.count()) === 3);
    assert.deepEqual(await places(), before, `${width}: messages`);
    for (const message of await said.all()) {
      const { x, width: wide } = await message.boundingBox();
      assert.ok(x >= 0 && x + wide <= width, `a message is at ${x}, ${wide} wide`);
    }
    await fits(page, `messages at ${width}`);
    await page.clock.fastForward(60_000);
    await eventually(async () => (await said.count()) === 0);
    assert.deepEqual(await places(), before, `${width}: messages have gone`);
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("a page's own marks stand in place of ours, and it styles what is pressed", async () => {
  const item = await tally.newItem({ name: "Hearts" });
  const poll = await tally.newPoll({ title: "Stars?" });
  const svg = (slot) => `<svg slot="${slot}" class="own" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7"/></svg>`;
  const page = await person();
  await page.goto(hostElements("marks", `<tally-vote item="${item}">${svg("up")}${svg("down")}</tally-vote><tally-poll poll="${poll.id}">${svg("check")}</tally-poll>`, {
    head: `<style>.own { fill: rgb(1, 2, 3); } tally-vote::part(up pressed) { background: rgb(4, 5, 6); } tally-poll::part(choice pressed) { color: rgb(7, 8, 9); }
      tally-poll::part(mark) { outline: 1px solid rgb(10, 11, 12); }</style>`,
  }));
  const up = page.getByRole("button", { name: "Vote up: Hearts" });
  const soup = page.getByRole("button", { name: /^Soup/ });
  await up.click();
  await soup.click();
  await isPressed(up);
  await isPressed(soup);
  for (const slot of ["up", "down"]) {
    const { fill, width } = await page.locator(`svg[slot="${slot}"]`).evaluate((one) => ({ fill: getComputedStyle(one).fill, width: one.getBoundingClientRect().width }));
    assert.equal(fill, "rgb(1, 2, 3)");
    assert.ok(width > 10 && width < 30, `${slot} is ${width} wide`);
  }
  const style = (locator, name) => locator.evaluate((one, name) => getComputedStyle(one)[name], name);
  assert.equal(await style(up, "backgroundColor"), "rgb(4, 5, 6)");
  assert.equal(await style(soup, "color"), "rgb(7, 8, 9)");
  const marks = page.locator("tally-poll").locator('[part="mark"]:has(circle)');
  assert.equal(await marks.count(), 2);
  assert.match(await style(marks.first(), "outline"), /rgb\(10, 11, 12\)/);
  // Only what is chosen shows its mark.
  assert.deepEqual(await marks.locator("circle").evaluateAll((all) => all.map((one) => getComputedStyle(one).visibility)), ["visible", "hidden"]);
  // The vote's marks are none of what stands between the tags.
  await page.getByRole("button", { name: "Vote down: Hearts" }).waitFor();
  assert.deepEqual(await faults(page), []);
  assert.deepEqual(page.errors, []);

  // The guide's own snippet.
  await tally.newItem({ name: "A post", key: "post-42", down_votes: false });
  const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");
  const snippet = /```html\n(<tally-vote [^>]*>\s*<svg.*?)```/s.exec(guide)[1];
  await page.goto(hostElements("marks-guide", snippet));
  const like = page.getByRole("button", { name: "Vote up: A post" });
  await like.click();
  await isPressed(like);
  const { x, y, width, height } = await page.locator("tally-vote > svg").boundingBox();
  const around = await like.boundingBox();
  assert.ok(x > around.x && y > around.y && x + width < around.x + around.width && y + height < around.y + around.height, "the mark is not within its button");
});

test("who may choose one sees round marks, who may choose several square ones, also before the script runs", async () => {
  const polls = { one: await tally.newPoll({ title: "Round?" }), several: await tally.newPoll({ title: "Square?", max_choices: 2 }) };
  const isRound = (locator, pseudo) => locator.evaluate((one, pseudo) => getComputedStyle(one, pseudo).borderTopLeftRadius === "50%", pseudo);
  for (const [name, poll] of Object.entries(polls)) {
    const bare = await person({ javaScriptEnabled: false });
    await bare.goto(`${tally.base}/polls/${poll.id}`);
    assert.equal(await isRound(bare.locator(".choices > li").first(), "::before"), name === "one", `${name}, without script`);
    const page = await person();
    await page.goto(hostElements(name, `<tally-poll poll="${poll.id}"></tally-poll>`));
    await page.getByRole("button", { name: /^Soup/ }).waitFor();
    assert.equal(await isRound(page.locator('tally-poll [part="mark"]').first()), name === "one", name);
  }
});

test("in forced colours and with reduced motion, what is chosen is seen, and nothing moves by itself", async () => {
  const item = await tally.newItem({ name: "Forced" });
  const poll = await tally.newPoll({ title: "Forced?" });
  await tally.choose(poll, "bob", 1);
  const page = await person({ forcedColors: "active", reducedMotion: "reduce" });
  await page.goto(hostElements("forced", `<tally-vote item="${item}"></tally-vote><tally-poll poll="${poll.id}"></tally-poll>`));
  const pairs = {
    vote: [page.getByRole("button", { name: "Vote up: Forced" }), page.getByRole("button", { name: "Vote down: Forced" })],
    poll: ["Soup", "Salad"].map((name) => page.getByRole("button", { name: new RegExp(`^${name}`) }).locator('[part="mark"]').first()),
  };
  for (const [pressed] of Object.values(pairs)) await pressed.click();
  await isPressed(pairs.vote[0]);
  await isPressed(page.getByRole("button", { name: /^Soup/ }));
  const style = (locator, name) => locator.evaluate((one, name) => getComputedStyle(one)[name], name);
  for (const [name, [pressed, other]] of Object.entries(pairs)) {
    // Where a mark is hidden, its colour is that of nothing.
    assert.notEqual(await style(pressed, "backgroundColor"), await style(other, "backgroundColor"), name);
  }
  const bar = page.getByRole("button", { name: /^Salad/ }).locator('[part="bar"]');
  await eventually(async () => (await bar.boundingBox()).width > 0);
  assert.notEqual(await style(bar, "backgroundColor"), await style(page.getByRole("button", { name: /^Salad/ }), "backgroundColor"));
  assert.equal(await style(bar, "transitionDuration"), "0s");
  assert.deepEqual(await faults(page), []);
});
