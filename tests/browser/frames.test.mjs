// Votes in frames of other pages, and what docs/frames.md says about them.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { Server, close, eventually, faults, fits, host, isPressed, isReleased, open, originOf, person, shows, siteAround } from "./harness.mjs";

let tally;
before(async () => {
  await open();
  tally = await Server.start({ TALLY_FRAME_ORIGINS: `${originOf()},${originOf("allowed", "localhost")}` });
});
after(close);

const guide = await readFile(new URL("../../docs/frames.md", import.meta.url), "utf8");
const [, framed, listener] = /```html\n(.*?)```.*```html\n(.*?)```/s.exec(guide.replaceAll("   ", ""));
// What the guide shows, for a poll of this server.
const own = (html, poll) => html.replaceAll("http://127.0.0.1:8080", tally.base).replace("/polls/1/", `/polls/${poll.id}/`);
const page = (body) => `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>News</title></head><body>${body}</body></html>`;
const frameOf = (of) => of.frameLocator("iframe");
const choice = (of, name) => frameOf(of).getByRole("button", { name: new RegExp(`^${name}`) });
const said = (of, text) => frameOf(of).getByText(text, { exact: true }).waitFor();

test("a page of a named origin shows and takes votes in a frame; the browser refuses the frame to any other page", async () => {
  const poll = await tally.newPoll({ title: "Framed?" });
  const visitor = await person();
  await visitor.goto(host("framed", own(framed, poll)));
  await choice(visitor, "Soup").click();
  await said(visitor, "Your vote counts.");
  await isPressed(choice(visitor, "Soup"));
  await tally.choose(poll, "bob", 1);
  await frameOf(visitor).getByText("50%").first().waitFor();
  await visitor.reload();
  await isPressed(choice(visitor, "Soup"));
  assert.deepEqual(visitor.errors, []);

  const stranger = await person();
  const refused = stranger.waitForEvent("console", { predicate: (message) => message.type() === "error" && /frame-ancestors/.test(message.text()) });
  await stranger.goto(host("framed", own(framed, poll), "foreign"));
  await refused;
  await eventually(() => stranger.frames().length === 2 && !stranger.frames()[1].url().startsWith(tally.base));
  assert.equal(await choice(stranger, "Soup").count(), 0);
  // The page to vote on is in no frame, also not of a named origin.
  const other = await person();
  const also = other.waitForEvent("console", { predicate: (message) => message.type() === "error" && /frame-ancestors/.test(message.text()) });
  await other.goto(host("page", page(`<iframe src="${tally.base}/polls/${poll.id}" title="x"></iframe>`)));
  await also;
});

test("a frame gets the height of its vote, when it is narrower too, and another page's message changes nothing", async () => {
  const poll = await tally.newPoll({ title: "How high?", choices: ["A choice with a name that needs several lines in a narrow window", "Salad"] });
  const visitor = await person();
  await visitor.goto(host("height", own(framed.replace("</body>", `${listener}</body>`), poll)));
  await choice(visitor, "Salad").waitFor();
  const heights = () => Promise.all([
    visitor.locator("iframe").evaluate((one) => one.clientHeight),
    frameOf(visitor).locator("html").evaluate((one) => Math.ceil(one.getBoundingClientRect().height)),
  ]);
  const isSame = async () => {
    const [frame, content] = await heights();
    return frame === content;
  };
  await eventually(isSame);
  const [before] = await heights();
  assert.notEqual(before, 320, "the height is the vote's");
  await visitor.setViewportSize({ width: 320, height: 600 });
  await eventually(async () => (await heights())[0] > before && (await isSame()));
  await visitor.evaluate(() => postMessage({ tally: { height: 9999 } }, "*"));
  await visitor.evaluate(() => postMessage(null, "*"));
  await visitor.setViewportSize({ width: 1000, height: 800 });
  await eventually(async () => (await heights())[0] === before);
  assert.deepEqual(visitor.errors, []);
});

test("a frame is as high as what its vote says needs, while it says it", async () => {
  const [item, poll] = [await tally.newItem({ name: "A line" }), await tally.newPoll({ title: "A board?", by_ballot: true })];
  for (const [path, said] of [[`items/${item}`, "Your vote counts."], [`polls/${poll.id}`, "Enter your ballot first."]]) {
    const visitor = await person({ viewport: { width: 320, height: 600 } });
    await visitor.clock.install();
    await visitor.goto(host("said", own(framed.replace("</body>", `${listener}</body>`), poll).replace(/polls\/\d+/, path)));
    const frame = frameOf(visitor);
    const height = () => visitor.locator("iframe").evaluate((one) => Number(one.getAttribute("height")));
    await frame.getByRole("button").first().waitFor();
    const isOwn = async () => (await height()) === (await frame.locator("html").evaluate((one) => Math.ceil(one.getBoundingClientRect().height)));
    await eventually(isOwn);
    await frame.getByRole("button").first().click();
    const message = frame.locator('[part="message"]').filter({ hasText: said });
    await message.waitFor();
    const bottom = () => message.evaluate((one) => one.getBoundingClientRect().bottom + scrollY);
    await eventually(async () => (await height()) >= (await bottom()));
    await visitor.clock.fastForward(60_000);
    await eventually(async () => (await frame.locator('[part="message"]').innerText()) === "");
    await eventually(isOwn);
    assert.deepEqual(visitor.errors, []);
    await visitor.context().close();
  }
});

test("the frame that oEmbed answers works on a page of a named origin, in the language and colours of the address", async () => {
  const item = await tally.newItem({ name: "An oEmbed item" });
  const visitor = await person();
  await visitor.goto(`${tally.base}/items/${item}?accent=a00000&lang=ar&scheme=dark`);
  const address = await visitor.locator('link[type="application/json+oembed"]').getAttribute("href");
  const answer = await (await fetch(address)).json();
  assert.deepEqual([answer.type, answer.version, answer.title], ["rich", "1.0", "An oEmbed item"]);
  await visitor.goto(host("oembed", page(answer.html)));
  const up = frameOf(visitor).getByRole("button", { name: /An oEmbed item/ }).first();
  await up.click();
  await isPressed(up);
  assert.equal((await tally.call("GET", `/v1/items/${item}`)).vote_count, 1);
  const styles = await up.evaluate((one) => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color, getComputedStyle(document.documentElement).colorScheme]);
  assert.deepEqual(styles, ["rgb(160, 0, 0)", "rgb(255, 255, 255)", "dark"]);
  assert.deepEqual(await frameOf(visitor).locator("html").evaluate((one) => [one.lang, one.dir]), ["ar", "rtl"]);
  assert.deepEqual(visitor.errors, []);

  // The guide's own request.
  const poll = await tally.newPoll({ title: "Asked?" });
  const asked = /^curl -s '(.*)'$/m.exec(guide)[1].replaceAll("http://127.0.0.1:8080", tally.base).replace("/polls/1", `/polls/${poll.id}`);
  const found = await (await fetch(asked)).json();
  assert.deepEqual([found.title, found.width], ["Asked?", 480]);
});

test("what /embed shows for a frame and an address works without a change", async () => {
  const item = await tally.newItem({ name: 'Quoted "&amp;', key: 'k"<b>&amp;/x' });
  const author = await person();
  await author.goto(`${tally.base}/embed`);
  await author.locator("#kind").selectOption("tally-vote");
  await author.locator("#reference").fill('key:k"<b>&amp;/x');
  await author.locator("#accent").fill("#00aa00");
  await author.locator("#frame").filter({ hasText: "Quoted" }).waitFor();
  const [snippet, address] = await Promise.all(["#frame", "#address"].map((id) => author.locator(id).innerText()));
  await author.locator("#kind").selectOption("tally-count");
  await author.locator("#as-frame").waitFor({ state: "hidden" });
  assert.deepEqual(author.errors, []);

  const visitor = await person();
  await visitor.goto(host("embed", page(`${snippet}<p>After.</p>`)));
  await shows(visitor, "After.");
  assert.equal(await visitor.locator("iframe").getAttribute("title"), 'Quoted "&amp;');
  const up = frameOf(visitor).getByRole("button", { name: /^Vote up/ });
  await up.click();
  await isPressed(up);
  // Black on bright green is easier to read than white.
  assert.deepEqual(await up.evaluate((one) => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]), ["rgb(0, 170, 0)", "rgb(0, 0, 0)"]);
  await eventually(async () => (await visitor.locator("iframe").getAttribute("height")) !== "320");
  const answer = await fetch(`${tally.base}/oembed?${new URLSearchParams({ url: address })}`);
  assert.match((await answer.json()).html, new RegExp(`src="${tally.base}/items/${item}/frame\\?accent=00aa00"`));
});

test("a visitor with a cookie votes in a frame on the same site, and is sent to a page of its own from one on another site", async () => {
  const settings = { TALLY_OPEN: "visitors,admin", TALLY_COOKIE_KEYS: "ab".repeat(32), TALLY_FRAME_ORIGINS: `${originOf()},${originOf("allowed", "localhost")}` };
  const server = await Server.start(settings);
  const poll = await server.newPoll({ title: "Cookies?" });
  // Browsers keep the cookie on localhost without https too.
  const base = server.base.replace("127.0.0.1", "localhost");
  const path = new URL(host("cookies", page(`<iframe src="${base}/polls/${poll.id}/frame" title="Cookies?" width="600" height="400"></iframe>`))).pathname;
  const voters = async () => (await server.call("GET", `/v1/polls/${poll.id}`)).voter_count;
  const near = await person();
  await near.goto(originOf("allowed", "localhost") + path);
  await choice(near, "Soup").click();
  await isPressed(choice(near, "Soup"));
  await near.reload();
  await isPressed(choice(near, "Soup"));
  assert.equal(await frameOf(near).getByRole("link").filter({ visible: true }).count(), 0);
  await eventually(async () => (await voters()) === 1);

  const far = await person();
  await far.goto(originOf() + path);
  await choice(far, "Salad").click();
  const link = frameOf(far).getByRole("link", { name: "Vote on a page of its own" });
  for (let press = 0; press < 2; press++) {
    await link.waitFor();
    // It does not ask for a sign-in, which the frame does not have.
    await eventually(async () => (await frameOf(far).locator('[part="message"]').innerText()) === "");
    await choice(far, "Salad").click();
  }
  const opened = far.waitForEvent("popup");
  await link.click();
  const own = await opened;
  await own.getByRole("button", { name: /^Salad/ }).click();
  await isPressed(own.getByRole("button", { name: /^Salad/ }));
  assert.equal(own.url(), `${base}/polls/${poll.id}`);
  await eventually(async () => (await voters()) === 2);
  await server.end();
});

test("where anyone may vote as a voter, frames on two other sites have a voter each", async () => {
  const item = await tally.newItem({ name: "Apart" });
  const path = new URL(host("apart", page(`<iframe src="${tally.base}/items/${item}/frame" title="Apart"></iframe>`))).pathname;
  const visitor = await person();
  const up = () => frameOf(visitor).getByRole("button", { name: "Vote up: Apart" });
  for (const [name, expected] of [["127.0.0.1", 1], ["localhost", 2]]) {
    await visitor.goto(originOf("allowed", name) + path);
    await isReleased(up());
    await up().click();
    await isPressed(up());
    assert.equal((await tally.call("GET", `/v1/items/${item}`)).vote_count, expected);
  }
  await visitor.goto(originOf() + path);
  await isPressed(up());
});

test("a frame works below a path of the site around it", async () => {
  const behind = {};
  const address = await siteAround(page('<iframe src="/tally/polls/key:below/frame" title="Below?" width="600" height="400"></iframe>'), behind);
  const server = await Server.start({ TALLY_FRAME_ORIGINS: new URL(address).origin });
  behind.base = server.base;
  const poll = await server.newPoll({ title: "Below?", key: "below" });
  const visitor = await person();
  await visitor.goto(address);
  await choice(visitor, "Soup").click();
  await said(visitor, "Your vote counts.");
  await server.choose(poll, "bob", 1);
  await frameOf(visitor).getByText("50%").first().waitFor();
  assert.match(await frameOf(visitor).locator("main").evaluate((one) => getComputedStyle(one).fontFamily), /system-ui/, "the style is loaded");
  assert.deepEqual(visitor.errors, []);
  await server.end();
});

test("a frame has its counts without script, no fault that axe finds, and no scroll bar in 320 pixels", async () => {
  const poll = await tally.newPoll({ title: "A poll in a frame" });
  const item = await tally.newItem({ name: "An item in a frame" });
  await tally.choose(poll, "bob", 0);
  await tally.vote(item, "bob");
  const bare = await person({ javaScriptEnabled: false });
  for (const [path, texts] of [[`polls/${poll.id}`, ["A poll in a frame", "1 vote", "100%"]], [`items/${item}`, ["An item in a frame"]]]) {
    await bare.goto(`${tally.base}/${path}/frame`);
    for (const text of [...texts, "To vote, this page needs JavaScript."]) await shows(bare, text);
  }
  for (const query of ["", "?scheme=dark", "?scheme=light&accent=ffee00", "?accent=000066&lang=ar"]) {
    for (const colorScheme of ["light", "dark"]) {
      const visitor = await person({ colorScheme, viewport: { width: 320, height: 480 } });
      for (const path of [`polls/${poll.id}`, `items/${item}`]) {
        await visitor.goto(`${tally.base}/${path}/frame${query}`);
        const button = visitor.getByRole("button").first();
        await button.click();
        await isPressed(button);
        // The host page shows through a frame. Alone it has the colour of its scheme, which axe must see.
        await visitor.evaluate(() => (document.documentElement.style.background = "Canvas"));
        assert.deepEqual(await faults(visitor), [], `${path}${query} ${colorScheme}`);
        await fits(visitor, `${path}${query}`);
        await button.click();
        await isReleased(button);
      }
      assert.deepEqual(visitor.errors, []);
      await visitor.context().close();
    }
  }
});

test("a frame of a poll that is made later says that there is none", async () => {
  const visitor = await person();
  await visitor.goto(host("none", page(`<iframe src="${tally.base}/polls/key:none/frame" title="None"></iframe>`)));
  await said(visitor, "There is no such poll.");
});
