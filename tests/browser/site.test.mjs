// The example in examples/site, started as `make site` starts it: every page, with and without script, in both colour
// schemes. PICTURES=1 takes its pictures in docs/pictures again.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { after, before, test } from "node:test";
import { temporary } from "../folders.mjs";
import { freePort } from "../ports.mjs";
import { close, eventually, faults, fits, isPressed, isReleased, open, person, shows } from "./harness.mjs";

const START = new URL("../../examples/site/start.mjs", import.meta.url).pathname;
const PAGES = ["/", "/ferry", "/trees", "/umbrellas", "/top", "/pictures", "/board", "/framed", "/de", "/ar"];
const pictures = process.env.PICTURES ? new URL("../../docs/pictures/", import.meta.url).pathname : null;
const PICTURES = {
  "/ light": "site-light", "/ferry dark": "site-dark", "/de light": "site-german", "/ar dark": "site-arabic",
};

const WIDE = { width: 1000, height: 760 };
const PICTURE = { width: 800, height: 660 };
const NARROW = { width: 320, height: 256 };
const CHART_LIMIT_MS = 3000; // until the page is loaded again

let site;

class Site {
  static async start(settings = {}) {
    const started = new Site();
    const [port, tallyPort] = [await freePort(), await freePort()];
    started.folder = await temporary("tally-site");
    started.base = `http://127.0.0.1:${port}`;
    started.tally = `http://127.0.0.1:${tallyPort}`;
    const own = { SITE_PORT: port, SITE_TALLY_PORT: tallyPort, SITE_FOLDER: started.folder, SITE_PROGRAM: process.env.BROWSER_TEST_PROGRAM };
    started.process = spawn(process.execPath, [START], { env: { ...process.env, ...own, ...settings }, stdio: ["ignore", "pipe", "pipe"] });
    started.said = "";
    for (const stream of [started.process.stdout, started.process.stderr]) stream.on("data", (text) => (started.said += text));
    started.exit = once(started.process, "exit");
    await eventually(() => {
      assert.equal(started.process.exitCode, null, started.said);
      return started.said.includes("is at");
    });
    return started;
  }
  async stop(signal = "SIGTERM") {
    this.process.kill(signal);
    const [code] = await this.exit;
    await rm(this.folder, { recursive: true, force: true });
    return code;
  }
  send(path, fields, headers = {}) {
    return fetch(this.base + path, { method: "POST", redirect: "manual", headers: { origin: this.base, ...headers }, body: new URLSearchParams(fields) });
  }
  // A further reader, without a browser: votes with a token of the site.
  async reader(name) {
    const session = (await this.send("/login", { name })).headers.get("set-cookie").split(";")[0];
    const token = await (await fetch(`${this.base}/my-token`, { headers: { cookie: session } })).text();
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    return {
      session,
      vote: async (item, value = 1) => {
        const answer = await fetch(`${this.tally}/v1/items/${item}/votes`, { method: "POST", headers, body: JSON.stringify({ value }) });
        const read = await answer.json();
        assert.ok(answer.ok, JSON.stringify(read));
        return read;
      },
    };
  }
}

before(async () => {
  await open();
  site = await Site.start();
});
after(async () => {
  if (site) await site.stop();
  await close();
});

// A person whose browser has nothing to complain about.
async function visitor(options = {}) {
  const page = await person(options);
  page.on("console", (message) => message.type() === "error" && page.errors.push(message.text()));
  return page;
}
const like = (page, post) => page.locator(`tally-vote[item="key:post-${post}"]`).getByRole("button");
const likes = (page, post, count) => page.locator(`tally-vote[item="key:post-${post}"]`).locator('[part~="count"]', { hasText: new RegExp(`^${count}$`) }).waitFor();
const choice = (page, name) => page.getByRole("button", { name });

// A post is shown from its votes on.
async function takePicture(page, name) {
  await page.setViewportSize(PICTURE);
  const charts = page.locator("tally-history");
  if ((await charts.count()) > 0) await charts.getByRole("img").first().waitFor();
  await page.evaluate(() => document.querySelector(".post .votes")?.scrollIntoView());
  await page.screenshot({ path: `${pictures}${name}.png` });
}

async function logIn(page, name) {
  await page.getByRole("textbox", { name: "Your name" }).fill(name);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("button", { name: "Log out" }).waitFor();
}

test("a visitor's like makes the item of its post, stays after a reload, and is in the page of a visitor without script", async () => {
  const page = await visitor();
  await page.goto(site.base);
  await likes(page, "umbrellas", 0);
  await like(page, "umbrellas").click();
  await likes(page, "umbrellas", 1);
  await isPressed(like(page, "umbrellas"));
  await page.reload();
  await isPressed(like(page, "umbrellas"));
  const bare = await visitor({ javaScriptEnabled: false });
  await bare.goto(site.base);
  await bare.locator('tally-vote[item="key:post-umbrellas"]').getByText("Likes: 1", { exact: true }).waitFor();
  await bare.getByRole("link", { name: "When should the last ferry leave?" }).waitFor();
  await shows(bare, "I swim: 0");
  assert.deepEqual([...page.errors, ...bare.errors], []);
});

test("a post takes a reaction and as many choices as its poll allows, and its chart shows what was chosen", async () => {
  const page = await visitor();
  await page.goto(`${site.base}/trees`);
  const wow = page.locator("tally-reactions").getByRole("button", { name: /😮/ });
  await wow.click();
  await isPressed(wow);
  for (const name of [/^Lime/, /^Rowan/]) {
    await choice(page, name).click();
    await isPressed(choice(page, name));
  }
  await choice(page, /^Plane/).click();
  await shows(page, "That is one choice too many: take one back first.");
  await isReleased(choice(page, /^Plane/));
  const bare = await visitor({ javaScriptEnabled: false });
  await bare.goto(`${site.base}/trees`);
  await shows(bare, "❤️ 0 😮 1 😢 0");
  await shows(bare, "Lime: 1");
  await page.goto(`${site.base}/ferry`);
  await choice(page, /^I swim/).click();
  await isPressed(choice(page, /^I swim/));
  // A chart is drawn anew each minute, and when the page is loaded.
  await eventually(async () => {
    await page.reload();
    await page.locator("tally-history").getByRole("img", { name: /I swim: from 0 to 1/ }).waitFor({ timeout: CHART_LIMIT_MS });
    return true;
  });
  // The choice that was one too many.
  assert.deepEqual([...page.errors, ...bare.errors], ["Failed to load resource: the server responded with a status of 409 (Conflict)"]);
});

test("a reader who logs in votes under that name in every browser, and is a visitor again after logging out", async () => {
  const page = await visitor();
  await page.goto(site.base);
  await like(page, "trees").click();
  await likes(page, "trees", 1);
  await logIn(page, "Ada <b>");
  await isReleased(like(page, "trees"));
  await like(page, "trees").click();
  await likes(page, "trees", 2);
  const elsewhere = await visitor();
  await elsewhere.goto(`${site.base}/trees`);
  await logIn(elsewhere, " Ada <b> ");
  assert.equal(new URL(elsewhere.url()).pathname, "/trees");
  await isPressed(like(elsewhere, "trees"));
  await like(elsewhere, "trees").click();
  await likes(elsewhere, "trees", 1);
  await likes(page, "trees", 1);
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("button", { name: "Log in" }).waitFor();
  await isPressed(like(page, "trees"));
  assert.deepEqual([...page.errors, ...elsewhere.errors], []);
});

test("each reader gets one ballot, which votes once and is no other reader's", async () => {
  const page = await visitor();
  await page.goto(`${site.base}/board`);
  await page.getByText("Members get a ballot once they have logged in").waitFor();
  await logIn(page, "Bob");
  await page.getByRole("button", { name: "Get my ballot" }).click();
  const shown = page.locator("code.ballot");
  const ballot = await shown.textContent();
  const again = await visitor();
  await again.goto(`${site.base}/board`);
  await logIn(again, "Bob");
  assert.equal(await again.locator("code.ballot").textContent(), ballot);
  const eve = await site.reader("Eve");
  await Promise.all([1, 2, 3].map(() => site.send("/ballot", {}, { cookie: eve.session })));
  const other = /class="ballot">([^<]+)</.exec(await (await fetch(`${site.base}/board`, { headers: { cookie: eve.session } })).text())[1];
  assert.notEqual(other, ballot);
  await page.getByLabel("Your ballot").fill(ballot);
  await choice(page, /^Ida Brandt/).click();
  await page.getByRole("button", { name: "Vote", exact: true }).click();
  await shows(page, "Your vote counts. The ballot is spent.");
  await again.getByLabel("Your ballot").fill(ballot);
  await choice(again, /^Tomás Leal/).click();
  await again.getByRole("button", { name: "Vote", exact: true }).click();
  await shows(again, "This ballot is not valid, or it was used already.");
  assert.equal((await site.send("/ballot", {})).status, 403);
});

test("the leaderboard is in the page as the server sends it, and comes into a new order as votes come in", async () => {
  const readers = await Promise.all(["r1", "r2", "r3", "r4", "r5"].map((name) => site.reader(name)));
  const list = async () => [...(await (await fetch(`${site.base}/top`)).text()).matchAll(/<li data-count="(\d+)"><a href="([^"]+)"/g)].map(([, count, path]) => `${path} ${count}`);
  for (const reader of readers.slice(0, 3)) await reader.vote("key:post-de");
  await eventually(async () => (await list())[0] === "/de 3");
  const page = await visitor();
  await page.goto(`${site.base}/top`);
  const first = page.locator("ol.top li").first();
  await first.getByText("Letzte Fähre pünktlich, niemand weiß, warum").waitFor();
  await first.locator("tally-count").getByText("3", { exact: true }).waitFor();
  for (const reader of readers.slice(0, 4)) await reader.vote("key:post-umbrellas");
  await first.getByText("Library lends 38 umbrellas, gets 40 back").waitFor();
  // A visitor of another test likes it too.
  await first.locator("tally-count").getByText("5", { exact: true }).waitFor();
  assert.deepEqual(page.errors, []);
});

test("the page in React votes, and shows in its own state what the elements tell it", async () => {
  const page = await visitor();
  await page.goto(`${site.base}/pictures`);
  await shows(page, "No picture has a vote yet.");
  const up = page.getByRole("button", { name: "Vote up: A gull, uninvited" });
  await up.click();
  await shows(page, "Ahead with 1: A gull, uninvited.");
  await isPressed(up);
  for (const name of ["p1", "p2"]) await (await site.reader(name)).vote("key:picture-ferry");
  await shows(page, "Ahead with 2: The last ferry.");
  await isPressed(up);
  const bare = await visitor({ javaScriptEnabled: false });
  await bare.goto(`${site.base}/pictures`);
  await bare.locator('tally-vote[item="key:picture-ferry"]').getByText("Likes: 2", { exact: true }).waitFor();
  assert.deepEqual(page.errors, []);
});

test("German and Arabic pages have elements that speak German and Arabic, from the side where reading begins", async () => {
  const german = await visitor({ locale: "fr-FR" });
  await german.goto(`${site.base}/de`);
  await choice(german, /^Zu Fuß/).click();
  await shows(german, "Deine Stimme ist gezählt.");
  const arabic = await visitor({ locale: "fr-FR" });
  await arabic.goto(`${site.base}/ar`);
  await choice(arabic, /^بالدراجة/).click();
  await isPressed(choice(arabic, /^بالدراجة/));
  const poll = arabic.locator("tally-poll");
  assert.equal(await poll.evaluate((one) => getComputedStyle(one).direction), "rtl");
  assert.match(await poll.locator('[part~="note"]').textContent(), /\p{Script=Arabic}/u);
  const bare = await visitor({ javaScriptEnabled: false });
  await bare.goto(`${site.base}/ar`);
  await bare.locator('tally-vote[item="key:post-ar"]').getByText("الإعجابات").waitFor();
  assert.deepEqual([...german.errors, ...arabic.errors], []);
});

test("a poll that came by its address votes in its frame", async () => {
  const page = await visitor();
  await page.goto(`${site.base}/framed`);
  const frame = page.frameLocator("iframe");
  const both = frame.getByRole("button", { name: /^Both/ });
  await both.click();
  await isPressed(both);
  assert.deepEqual(page.errors, []);
});

test("axe finds no fault on any page in either scheme, no page is wider than a window of 320 pixels, and no browser complains", async () => {
  const readers = await Promise.all(Array.from({ length: 12 }, (_, at) => site.reader(`l${at}`)));
  for (const [at, reader] of readers.entries()) for (const post of ["ferry", "trees", "umbrellas", "de", "ar"].slice(0, 1 + (at % 5))) await reader.vote(`key:post-${post}`);
  for (const [key, choices] of [["last-ferry", [0, 1, 1, 2, 1, 0]], ["weg", [0, 1, 0, 2, 0]], ["tariq", [2, 0, 1, 0]], ["trees", [0, 2, 2]]]) {
    const poll = await (await fetch(`${site.tally}/v1/polls/key:${key}`)).json();
    for (const [at, choice] of choices.entries()) await readers[at].vote(poll.choices[choice].item_id);
  }
  for (const [to, emoji] of [["ferry", "❤️"], ["ferry", "😂"], ["de", "😂"], ["ar", "❤️"]]) await readers[0].vote(`key:${encodeURIComponent(`${to}:${emoji}`)}`);
  for (const path of PAGES) {
    for (const colorScheme of ["light", "dark"]) {
      // The colours of a narrow window are those of a wide one.
      for (const viewport of colorScheme === "light" ? [WIDE, NARROW] : [WIDE]) {
        const page = await visitor({ viewport, colorScheme });
        await page.goto(site.base + path);
        for (const element of await page.locator("tally-vote, tally-poll").all()) await element.getByRole("button").first().waitFor();
        for (const image of await page.locator("img").all()) await image.evaluate((one) => one.decode());
        assert.deepEqual(await faults(page), [], `${path} ${colorScheme} ${viewport.width}`);
        await fits(page, path);
        assert.deepEqual(page.errors, [], path);
        const name = PICTURES[`${path} ${colorScheme}`];
        if (pictures && name && viewport === WIDE) await takePicture(page, name);
        await page.context().close();
      }
    }
  }
});

test("the site takes forms of its own pages alone, no forged session, and no name that is none", async () => {
  const name = "Mallory";
  assert.equal((await site.send("/login", { name }, { origin: "http://elsewhere.example" })).status, 403);
  for (const bad of ["", "  ", "é".repeat(51), "a\u0007b"]) assert.equal((await site.send("/login", { name: bad })).status, 400, JSON.stringify(bad));
  assert.equal((await site.send("/login", { name: "x".repeat(3000) })).status, 413);
  const { session } = await site.reader(name);
  const [own, signature] = session.split("=")[1].split(".");
  const forged = `${Buffer.from("Ada").toString("base64url")}.${signature}`;
  const tokenOf = async (value) => (await fetch(`${site.base}/my-token`, { headers: { cookie: `harbour-session=${value}` } })).text();
  assert.equal(await tokenOf(forged), "");
  assert.equal(await tokenOf(`${own}.${signature.slice(1)}`), "");
  assert.match(await tokenOf(`${own}.${signature}`), /^[\w-]+\.[\w-]+\.[\w-]+$/);
  const back = await site.send("/login?back=https://elsewhere.example", { name });
  assert.deepEqual([back.status, back.headers.get("location")], [303, "/"]);
  for (const path of ["/nothing", "/server.mjs", "/pages/front.html", "/constructor"]) assert.equal((await fetch(site.base + path)).status, 404, path);
});

test("where readers alone may vote, the elements ask a visitor to log in, and one signal stops site and Tally", async () => {
  const closed = await Site.start({ SITE_OPEN: "" });
  const page = await visitor();
  await page.goto(`${closed.base}/trees`);
  await choice(page, /^Lime/).click();
  await shows(page, "Sign in to vote.");
  await eventually(() => page.getByRole("textbox", { name: "Your name" }).evaluate((one) => one.matches(":focus")));
  await logIn(page, "Ada");
  await choice(page, /^Lime/).click();
  await isPressed(choice(page, /^Lime/));
  assert.equal(await closed.stop("SIGINT"), 0, closed.said);
  for (const base of [closed.base, closed.tally]) await assert.rejects(fetch(base));
});
