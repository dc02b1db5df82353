// How pages and elements look to people with poor sight, in small windows, and in other writing systems. PICTURES=1
// takes the pictures in docs/pictures again.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { close, eventually, faults, fits, hostElements, open, person, refused, shows, tally } from "./harness.mjs";

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
  const [open, closed, ballots] = [
    await tally.newPoll({ title: "An open poll" }),
    await tally.newPoll({ title: "A closed poll", closes_at: "2020-01-01T00:00:00Z" }),
    await tally.newPoll({ title: "A board", by_ballot: true }),
  ];
  await tally.vote(item, "bob");
  await tally.choose(open, "bob", 0);
  await eventually(() => isDrawn(`items/${item}`));
  const elements = `<p>It has <tally-count item="${item}"></tally-count> votes, and this <tally-count item="9999999"></tally-count>.</p>
    <tally-vote item="${item}"></tally-vote><tally-vote item="${full}"></tally-vote><tally-vote item="9999999"></tally-vote>
    ${[open, closed, ballots].map((poll) => `<tally-poll poll="${poll.id}"></tally-poll>`).join("")}
    <tally-history item="${item}"></tally-history><tally-history poll="${open.id}" over="hour"></tally-history>`;
  const address = hostElements("faults", elements);
  for (const colorScheme of SCHEMES) {
    const page = await person({ colorScheme });
    await page.goto(address);
    await refused(page).filter({ hasText: "There is no item 9999999." }).waitFor();
    await page.getByRole("button", { name: "Vote up: One seat" }).click();
    await page.getByRole("button", { name: "Vote up: Fountains" }).click();
    await page.locator(`tally-poll[poll="${open.id}"]`).getByRole("button", { name: /^Salad/ }).click();
    await page.locator(`tally-poll[poll="${closed.id}"]`).getByRole("button", { name: /^Salad/ }).press("Enter");
    await page.locator(`tally-poll[poll="${ballots.id}"]`).getByRole("button", { name: /^Salad/ }).click();
    for (const text of ["All places are taken.", "This poll is closed.", "This ballot is not valid"]) await refused(page).filter({ hasText: text }).waitFor();
    await page.getByRole("img", { name: /^Over the last day/ }).waitFor();
    await page.getByRole("img", { name: /^Over the last hour/ }).waitFor();
    assert.deepEqual(await faults(page), [], colorScheme);
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
