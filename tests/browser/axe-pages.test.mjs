// The pages of votes for a frame, in every language, and the pages to share, which are English: with script and without,
// in light and dark, and in a window enlarged to 400%.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { close, eventually, faults, fits, isPressed, misplaced, open, person, shows, tally } from "./harness.mjs";
import { html, languages, text } from "./languages.mjs";

const SCHEMES = ["light", "dark"];
const LANGUAGES_AT_ONCE = 2;
const ENLARGED = { width: 320, height: 256 }; // 1280 × 1024 at 400%
const WINDOW = { width: 600, height: 800 };
const UNKNOWN = 999_999_999;
const LATER = "2040-01-01T00:00:00Z";
const EARLIER = "2020-01-01T00:00:00Z";
const pictures = process.env.LANGUAGE_PICTURES; // a folder for pictures of each language, for a person to look at

async function newPoll(fields, ...votes) {
  const made = await tally.newPoll({ title: "Tea?", choices: ["Green", "שלום C++ مرحبا", "漢字".repeat(20)], ...fields });
  for (const [at, choices] of votes.entries()) await tally.choose(made, `v${at}`, ...choices);
  return `polls/${made.id}`;
}
async function newItem(fields, ...votes) {
  const made = await tally.newItem({ name: "Quill", ...fields });
  for (const [at, value] of votes.entries()) await tally.vote(made, `v${at}`, value);
  return `items/${made}`;
}
// Paths, and what their pages say without script: of all states, and of those in which other languages may look
// different.
const [states, inEach] = [{}, {}];
before(async () => {
  await open({ TALLY_FRAME_ORIGINS: "https://cms.example.org" });
  Object.assign(inEach, {
    [await newPoll({ max_choices: 2, closes_at: LATER }, [0, 1], [0])]: "2 voters. Percentages are of votes. Closes 2040-01-01 00:00 UTC. Choose up to 2.",
    [await newPoll({ opens_at: LATER, results_before_close: false, closes_at: "2041-01-01T00:00:00Z" })]: "Opens 2040-01-01 00:00 UTC. Results show when it closes.",
    [await newItem({ name: "Donaudampfschifffahrtsgesellschaftskapitänsmütze שלום" }, -1, -1)]: "-2 votes",
    [`polls/${UNKNOWN}`]: "There is no such poll.",
  });
  Object.assign(states, inEach, {
    [await newPoll({ max_choices: 0 }, [2])]: "1 voter. Percentages are of votes. Choose as many as you like.",
    [await newPoll({ closes_at: EARLIER })]: "0 voters. Final since 2020-01-01 00:00 UTC.",
    [await newPoll({ by_ballot: true })]: "0 voters.",
    [await newItem({ max_votes: 1 }, 1)]: "1 vote",
    [`items/${UNKNOWN}`]: "There is no such item.",
  });
});
after(close);

async function looksRight(page, name) {
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    // The host page shows through a frame. Alone it has the colour of its scheme, which axe must see.
    await page.evaluate(() => (document.documentElement.style.background = "Canvas"));
    assert.deepEqual(await faults(page), [], `${name}, ${colorScheme}`);
  }
  await page.setViewportSize(ENLARGED);
  await fits(page, `${name}, enlarged`);
  assert.deepEqual(await misplaced(page), [], `${name}, enlarged`);
  if (pictures) await page.screenshot({ path: `${pictures}/${name.replace(/\W+/g, "-")}.png`, fullPage: true });
  await page.setViewportSize(WINDOW);
}

// Loads a page as a browser without script does. Then axe has its own script in it.
async function withoutScript(page, address) {
  page.browserSession ??= await page.context().newCDPSession(page);
  await page.browserSession.send("Emulation.setScriptExecutionDisabled", { value: true });
  await page.goto(address);
  await page.browserSession.send("Emulation.setScriptExecutionDisabled", { value: false });
}

const textOf = (page) => page.evaluate(() => document.querySelector("main").textContent.replace(/\s+/g, " "));
// The texts that are not names, and say that they are in another language than English.
const foreign = (page) => page.evaluate(() => {
  const texts = document.createNodeIterator(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const found = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    if (/\p{L}/u.test(text.data) && !text.parentElement.closest('[dir="auto"]') && text.parentElement.closest("[lang]").lang !== "en") found.push(text.data);
  }
  return found;
});

describe("a frame in each language has no fault in any state, with script and without", { concurrency: LANGUAGES_AT_ONCE }, () => {
  for (const language of languages) {
    test(language, async () => {
      const page = await person({ viewport: WINDOW });
      const frame = (path) => `${tally.base}/${path}/frame?lang=${language}`;
      for (const [path, says] of Object.entries(inEach)) {
        await withoutScript(page, frame(path));
        const { lang, dir } = await page.evaluate(() => ({ lang: document.documentElement.lang, dir: document.documentElement.dir }));
        assert.deepEqual([lang, dir], [language, html(language).includes("rtl") ? "rtl" : "ltr"]);
        assert.ok((await textOf(page)).includes(says), `${path}: ${await textOf(page)}`);
        assert.deepEqual(await foreign(page), [], `${path} in ${language}`);
        await looksRight(page, `frame ${path} in ${language} without script`);
      }
      const item = await newItem({ max_votes: 9 });
      for (const [path, element] of [[await newPoll({ max_choices: 2, closes_at: LATER }), "tally-poll"], [item, "tally-vote"]]) {
        await page.goto(frame(path));
        const button = page.locator(element).getByRole("button").first();
        await button.click();
        await isPressed(button);
        await page.locator(element).locator('[part="message"]').filter({ hasText: text(language, "counted") }).waitFor();
        await looksRight(page, `frame ${path} in ${language}`);
      }
      // A browser that keeps no cookie in a frame.
      const lost = { type: "/problems/credential-missing", title: "Credential missing", status: 401, detail: "Sign in." };
      await page.evaluate(() => localStorage.clear());
      await page.route("**/v1/voter", (route) => route.fulfill({ json: { voter_id: "lost" } }));
      await page.route(/\/votes/, (route) => (route.request().method() === "GET" ? route.continue() : route.fulfill({ status: 401, json: lost })));
      await page.goto(frame(item));
      await page.locator("tally-vote").getByRole("button").first().click();
      await shows(page, "Vote on a page of its own");
      await page.locator("tally-vote[sign-in]").waitFor();
      await eventually(async () => (await page.locator('tally-vote [part="message"]').innerText()) === "");
      await looksRight(page, `frame ${item} in ${language} without a voter`);
      assert.deepEqual(page.errors, []);
      await page.context().close();
    });
  }
});

test("the page of a poll or an item has no fault in any state, with script and without", async () => {
  const page = await person({ viewport: WINDOW });
  for (const [path, says] of Object.entries(states)) {
    await withoutScript(page, `${tally.base}/${path}`);
    assert.ok((await textOf(page)).includes(says), `${path}: ${await textOf(page)}`);
    await looksRight(page, `page ${path} without script`);
    if (says.startsWith("There is no")) continue;
    await page.goto(`${tally.base}/${path}`);
    await page.locator("tally-poll, tally-vote").getByRole("button").first().waitFor();
    await shows(page, "Last day");
    await looksRight(page, `page ${path}`);
  }
  assert.deepEqual(page.errors, []);
  await page.context().close();
});
