// The elements in the language of the page: words, plural forms, numbers, dates, and directions of writing.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { close, eventually, faults, fits, heldBack, host, hostElements, isPressed, open, person, tally } from "./harness.mjs";
import { bare, html, languages, text, words } from "./languages.mjs";

after(close);

const guide = await readFile(new URL("../../docs/embed.md", import.meta.url), "utf8");
const pictures = process.env.LANGUAGE_PICTURES; // a folder for pictures of each language, for a person to look at
const part = (page, name, element = "tally-poll") => page.locator(element).locator(`[part~="${name}"]`);
const hasText = (locator, expected) => eventually(async () => bare(await locator.first().innerText()).includes(expected));
const labelled = (page, expected) => eventually(async () => bare(await part(page, "up", "tally-vote").first().getAttribute("aria-label")) === expected);
const fetchedFiles = (page) => {
  const fetched = [];
  page.on("request", (request) => {
    const file = /words-(.*)-[0-9a-f]{8}\.js$/.exec(request.url());
    if (file) fetched.push(file[1]);
  });
  return fetched;
};
// What the elements show is in this language, and names are in the page's.
async function spoken(page, element) {
  return page.locator(element).first().evaluate((one) => {
    const names = [...one.shadowRoot.querySelectorAll('[part~="title"], [part~="name"], [part~="choice-name"]')];
    const all = [...one.shadowRoot.children].filter((child) => child.localName !== "slot" && !names.includes(child));
    return { words: [...new Set(all.map((child) => child.lang))], names: [...new Set(names.map((name) => name.lang))] };
  });
}

// An item with a vote, a poll with three voters, and an item with 1,234 votes, which languages write in several ways.
let many;
async function newElements() {
  const item = await tally.newItem({ name: "Quill" });
  await tally.vote(item, "bob");
  const poll = await tally.newPoll({ title: "Tea?", choices: ["Green", "Black"], max_choices: 2, closes_at: "2040-01-01T00:00:00Z" });
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(poll, voter, 0);
  return { item, poll, elements: `<tally-vote item="${item}"></tally-vote><tally-vote item="${many}"></tally-vote>
    <tally-poll poll="${poll.id}"></tally-poll><tally-history item="${many}"></tally-history>` };
}
let shared; // no test votes on these
before(async () => {
  await open();
  many = await tally.newItem({ name: "Many" });
  for (const from of [0, 617]) await tally.votes(Array.from({ length: 617 }, (_, at) => ({ item_id: many, voter_id: `v${from + at}` })));
  await eventually(async () => (await tally.call("GET", `/v1/items/${many}/history?over=day`)).spans.length > 0);
  shared = await newElements();
});

test("a page in each language has that language's words, fetched once, and axe finds no fault in light or dark", async () => {
  assert.ok(languages.length >= 15, String(languages));
  for (const language of languages) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await person({ colorScheme, viewport: { width: 390, height: 800 } });
      const fetched = fetchedFiles(page);
      await page.goto(hostElements(`language-${language}`, (await newElements()).elements, { html: html(language) }));
      await labelled(page, text(language, "voteUpFor", { name: "Quill" }));
      const note = part(page, "note");
      await hasText(note, text(language, "voters", { n: 3 }));
      await hasText(note, text(language, "chooseUpTo", { n: 2 }));
      const tea = part(page, "choice").first();
      await hasText(tea, text(language, "votes", { n: 3 }));
      const chart = page.locator("tally-history").locator("svg[role=img]");
      await chart.waitFor();
      const drawn = text(language, "overDay", { lines: text(language, "fromTo", { name: "Many", from: 0, to: 1234 }) });
      assert.equal(bare(await chart.getAttribute("aria-label")), drawn);
      await part(page, "up", "tally-vote").first().click();
      await hasText(part(page, "message", "tally-vote"), text(language, "counted"));
      await tea.click();
      await isPressed(tea);
      await hasText(part(page, "message"), text(language, "counted"));
      for (const element of ["tally-vote", "tally-poll", "tally-history"]) {
        assert.deepEqual((await spoken(page, element)).words, [language], `${language} ${element}`);
      }
      assert.deepEqual(fetched, language === "en" ? [] : [language]);
      assert.deepEqual(await faults(page), [], `${language} ${colorScheme}`);
      await fits(page, language);
      assert.deepEqual(page.errors, []);
      if (pictures) await page.screenshot({ path: `${pictures}/${language}-${colorScheme}.png`, fullPage: true });
      await page.context().close();
    }
  }
});

test("a language tag with a region, a script or an old name has the words of its language and the numbers of its region", async () => {
  // Words of the file; what the texts and the names say that they are in; 1,234 in that language.
  const tags = {
    "de-AT": ["de", "de-AT"],
    "DE-ch": ["de", "de-CH"],
    "pt-BR": ["pt", "pt-BR"],
    "en-IN": ["en", "en-IN"],
    "zh-CN": ["zh", "zh-CN"],
    "zh-TW": ["zh-Hant", "zh-TW"],
    "zh-Hant-HK": ["zh-Hant", "zh-Hant-HK"],
    iw: ["he", "he"],
  };
  for (const [tag, [file, spokenAs]] of Object.entries(tags)) {
    const page = await person();
    const fetched = fetchedFiles(page);
    await page.goto(hostElements(`tag-${tag}`, shared.elements, { html: `lang="${tag}"` }));
    await labelled(page, text(file, "voteUpFor", { name: "Quill" }));
    await part(page, "choice").first().waitFor();
    for (const element of ["tally-vote", "tally-poll"]) {
      assert.deepEqual(await spoken(page, element), { words: [spokenAs], names: [spokenAs] }, tag);
    }
    assert.equal(await part(page, "count", "tally-vote").nth(1).innerText(), await page.evaluate((tag) => (1234).toLocaleString(tag), spokenAs));
    assert.deepEqual(fetched, file === "en" ? [] : [file], tag);
    await page.context().close();
  }
});

test("a language that changes back while the words of another one are fetched stays as it is", async () => {
  const page = await person();
  const { asked, release } = await heldBack(page, "**/assets/words-de-*.js");
  await page.goto(hostElements("there-and-back", shared.elements, { html: html("en") }));
  await labelled(page, text("en", "voteUpFor", { name: "Quill" }));
  const speak = (language) => page.evaluate((language) => (document.documentElement.lang = language), language);
  await speak("de");
  const file = await asked;
  await speak("en");
  release();
  await page.evaluate((file) => import(file), file);
  for (const element of ["tally-vote", "tally-poll", "tally-history"]) assert.deepEqual((await spoken(page, element)).words, ["en"], element);
  await speak("de");
  await labelled(page, text("de", "voteUpFor", { name: "Quill" }));
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test("a page in a language without words here has English words that say so, and its own numbers; without a language, English ones", async () => {
  // The browser's own language writes 1,234 as 1.234, which no page here does.
  for (const [tag, name, numbers] of [["sv", "sv", "sv"], ["fa", "fa", "fa"], [null, "", "en"], ["", "", "en"], ["de_DE", "", "en"], ["the English of Oxford", "", "en"], ["tlh", "tlh", "en"]]) {
    const page = await person({ locale: "de-DE" });
    const fetched = fetchedFiles(page);
    await page.goto(hostElements(`unknown-${String(tag).replaceAll(" ", "-")}`, shared.elements, { html: tag === null ? "" : `lang="${tag}"` }));
    await labelled(page, "Vote up: Quill");
    await part(page, "choice").first().waitFor();
    for (const element of ["tally-vote", "tally-poll"]) {
      assert.deepEqual(await spoken(page, element), { words: ["en"], names: [name] }, tag);
    }
    assert.equal(await part(page, "count", "tally-vote").nth(1).innerText(), await page.evaluate((tag) => (1234).toLocaleString(tag), numbers), tag);
    await hasText(part(page, "note"), "Choose up to");
    assert.deepEqual(fetched, [], tag);
    await page.context().close();
  }
});

test("numbers and dates are the page's, not the browser's, and a date names its time zone", async () => {
  const expected = { de: ["1.234", "Endet am 1. Jan. 2040, 09:00 GMT+9."], fr: ["1\u202f234", "Se termine le 1 janv. 2040, 09:00 UTC+9."], en: ["1,234", "Closes Jan 1, 2040, 9:00 AM GMT+9."] };
  for (const [language, [number, date]] of Object.entries(expected)) {
    for (const locale of ["fr-FR", "ja-JP"]) {
      const page = await person({ locale, timezoneId: "Asia/Tokyo" });
      await page.goto(hostElements(`dates-${language}`, shared.elements, { html: html(language) }));
      await part(page, "choice").first().waitFor();
      assert.equal(await part(page, "count", "tally-vote").nth(1).innerText(), number);
      await eventually(async () => (await part(page, "note").innerText()).replace(/[\u202f\u00a0]/g, " ").includes(date));
      await page.context().close();
    }
  }
});

test("an element has the language of what it stands in, also within a shadow root of the page, and one file serves all", async () => {
  const page = await person();
  const fetched = fetchedFiles(page);
  const vote = `<tally-vote item="${shared.item}"></tally-vote>`;
  await page.goto(hostElements("nested", `${vote}${vote}<section lang="fr">${vote}<p lang="nl">${vote}</p></section>
    <div id="host" lang="pl"></div><script type="module">document.getElementById("host").attachShadow({ mode: "open" }).innerHTML = '<div>${vote}</div>'</script>`, { html: html("de") }));
  const labels = ["de", "de", "fr", "nl", "pl"].map((language) => text(language, "voteUpFor", { name: "Quill" }));
  await eventually(async () => {
    const all = await page.locator("tally-vote").locator('[part~="up"]').evaluateAll((all) => all.map((one) => one.ariaLabel));
    return String(all.sort()) === String(labels.toSorted());
  });
  assert.deepEqual(fetched.sort(), ["de", "fr", "nl", "pl"]);
  assert.deepEqual(page.errors, []);
});

test("an element follows its page to another language, and asks for no file twice", async () => {
  const page = await person();
  const fetched = fetchedFiles(page);
  await page.goto(hostElements("changing", shared.elements, { html: html("de") }));
  for (const language of ["de", "ja", "en", "de", "ja"]) {
    await page.evaluate((language) => (document.documentElement.lang = language), language);
    await labelled(page, text(language, "voteUpFor", { name: "Quill" }));
    await hasText(part(page, "note"), text(language, "voters", { n: 3 }));
    await hasText(part(page, "choice"), text(language, "votes", { n: 3 }));
    assert.deepEqual((await spoken(page, "tally-poll")).words, [language]);
  }
  assert.deepEqual(fetched, ["de", "ja"]);
  assert.deepEqual(page.errors, []);
});

test("a page's own words take the place of some, for a language, for a region, and for a language without words here", async () => {
  const own = {
    de: { counted: "Danke!", votes: { one: "{n} Klick", other: "{n} Klicks" } },
    "DE-at": { counted: "Danke dir!" },
    sv: { voteUpFor: "Rösta för {name}" },
    "sv-FI": { counted: "Tack!" },
  };
  const expected = { de: "Danke!", "de-CH": "Danke!", "de-AT": "Danke dir!", fr: text("fr", "counted"), "sv-FI": "Tack!" };
  for (const [tag, counted] of Object.entries(expected)) {
    const item = await tally.newItem({ name: "Own" });
    const page = await person();
    await page.goto(hostElements(`own-${tag}`, `<tally-vote item="${item}"></tally-vote><tally-poll poll="${shared.poll.id}"></tally-poll>`, { html: html(tag) }));
    await part(page, "choice").first().waitFor();
    await page.evaluate(async ([file, own]) => (await import(file)).configure({ words: own }), [`${tally.base}/embed.js`, own]);
    if (tag.startsWith("de")) await hasText(part(page, "choice"), "3 Klicks");
    if (tag === "sv-FI") await labelled(page, "Rösta för Own");
    await part(page, "up", "tally-vote").click();
    await hasText(part(page, "message", "tally-vote"), counted);
    assert.deepEqual((await spoken(page, "tally-vote")).words, [tag]);
    // The other words stay.
    const language = tag.split("-")[0];
    await hasText(part(page, "note"), text(words[language] ? language : "en", "voters", { n: 3 }));
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("the guide's script for own words works as it stands, and its table names each language", async () => {
  const section = guide.slice(guide.indexOf("## Languages"), guide.indexOf("\n## ", guide.indexOf("## Languages") + 1));
  const named = [...section.matchAll(/^\| (.*?) \|/gm)].flatMap(([, cell]) => [...cell.matchAll(/`([\w-]+)`/g)].map(([, tag]) => tag));
  assert.deepEqual(languages.filter((language) => !named.includes(language)), []);
  const script = /```html\n(.*?)```/s.exec(section)[1].replace("https://votes.example.org", tally.base);
  assert.ok(script.includes(tally.base), script);
  for (const [tag, counted] of [["de", "Danke!"], ["de-AT", "Vielen Dank!"]]) {
    const item = await tally.newItem({ name: "Guide" });
    const page = await person();
    await page.goto(hostElements(`guide-${tag}`, `<tally-vote item="${item}"></tally-vote>`, { html: html(tag), head: script }));
    await labelled(page, "Für Guide stimmen");
    await part(page, "up", "tally-vote").click();
    await hasText(part(page, "message", "tally-vote"), counted);
    assert.deepEqual(page.errors, []);
    await page.context().close();
  }
});

test("while its language's file cannot be fetched, an element speaks English and votes count; it asks for the file again", async () => {
  const page = await person();
  await page.clock.install();
  const item = await tally.newItem({ name: "Without" });
  await page.route("**/assets/words-*", (route) => route.abort());
  await page.goto(hostElements("without-file", `<tally-vote item="${item}"></tally-vote>`, { html: html("he") }));
  await labelled(page, "Vote up: Without");
  assert.deepEqual(await spoken(page, "tally-vote"), { words: ["en"], names: ["he"] });
  await part(page, "up", "tally-vote").click();
  await hasText(part(page, "message", "tally-vote"), "Your vote counts.");
  await page.unroute("**/assets/words-*");
  // An element that is added later tries at once.
  await page.evaluate((item) => {
    const late = document.createElement("tally-vote");
    late.setAttribute("item", item);
    document.querySelector("main").append(late);
  }, item);
  const labels = () => page.locator('tally-vote [part~="up"]').evaluateAll((all) => all.map((one) => one.getAttribute("aria-label")));
  const inHebrew = async () => (await labels()).filter((label) => bare(label) === text("he", "voteUpFor", { name: "Without" })).length;
  await eventually(async () => (await inHebrew()) === 1);
  await eventually(async () => {
    await page.clock.runFor(5000);
    return (await inHebrew()) === 2;
  });
  assert.deepEqual(page.errors, []);
});

test("why a vote is refused is in the page's language, also where only the server's English says why; the event has the server's words", async () => {
  const full = await tally.newItem({ name: "Full", max_votes: 1 });
  await tally.vote(full, "bob");
  const other = await tally.newItem({ name: "Other" });
  const problem = { type: "/problems/of-a-later-version", title: "Later", status: 409, detail: "Something else is wrong." };
  for (const [language, refused] of [["de", text("de", "refused")], ["ja", text("ja", "refused")], ["en-GB", problem.detail], ["sv", problem.detail]]) {
    const page = await person();
    await page.route(`**/v1/items/${other}/votes**`, (route) => (route.request().method() === "PUT"
      ? route.fulfill({ status: 409, json: problem, headers: { "access-control-allow-origin": new URL(page.url()).origin, "access-control-allow-credentials": "true" } })
      : route.continue()));
    await page.goto(hostElements(`refused-${language}`, `<tally-vote item="${full}"></tally-vote><tally-vote item="${other}"></tally-vote>`, { html: html(language) }));
    await page.evaluate(() => addEventListener("tally-error", ({ detail }) => (globalThis.failed = detail.message)));
    const votes = page.locator("tally-vote");
    await page.locator("tally-vote[full]").waitFor();
    await votes.nth(0).locator('[part~="up"]').press("Enter"); // disabled, and still says why
    await hasText(votes.nth(0).locator('[part="message"]'), text(words[language] ? language : "en", "full"));
    await votes.nth(1).locator('[part~="up"]').click();
    await hasText(votes.nth(1).locator('[part="message"]'), refused);
    assert.equal(await page.evaluate(() => globalThis.failed), problem.detail);
    await page.context().close();
  }
});

test("each language has its own plural forms", async () => {
  const forms = {
    en: { 0: "0 voters.", 1: "1 voter.", 2: "2 voters." },
    fr: { 0: "0 personne a voté.", 1: "1 personne a voté.", 2: "2 personnes ont voté." },
    pl: { 0: "Zagłosowało 0 osób.", 1: "Zagłosowała 1 osoba.", 2: "Zagłosowały 2 osoby.", 5: "Zagłosowało 5 osób.", 12: "Zagłosowało 12 osób.", 22: "Zagłosowały 22 osoby." },
    ar: { 0: "لم يصوّت أحد بعد.", 1: "صوّت شخص واحد.", 2: "صوّت شخصان.", 5: "صوّت # أشخاص.", 12: "صوّت # شخصًا.", 100: "صوّت # شخص." },
    he: { 0: "0 אנשים הצביעו.", 1: "אדם אחד הצביע.", 2: "שני אנשים הצביעו.", 5: "5 אנשים הצביעו." },
    hi: { 0: "0 व्यक्ति ने वोट दिया।", 1: "1 व्यक्ति ने वोट दिया।", 2: "2 लोगों ने वोट दिया।" },
    ja: { 1: "1人が投票しました。", 22: "22人が投票しました。" },
  };
  const polls = {};
  for (const voters of [0, 1, 2, 5, 12, 22, 100]) {
    polls[voters] = await tally.newPoll({ title: `By ${voters}` });
    const item_id = polls[voters].choices[0].item_id;
    if (voters > 0) await tally.votes(Array.from({ length: voters }, (_, at) => ({ item_id, voter_id: `v${at}` })));
  }
  const elements = Object.values(polls).map(({ id }) => `<tally-poll poll="${id}"></tally-poll>`).join("");
  for (const [language, expected] of Object.entries(forms)) {
    const page = await person();
    await page.goto(hostElements(`plurals-${language}`, elements, { html: html(language) }));
    for (const [voters, said] of Object.entries(expected)) {
      const number = await page.evaluate(([voters, language]) => Number(voters).toLocaleString(language), [voters, language]);
      await hasText(page.locator(`tally-poll[poll="${polls[voters].id}"]`).locator('[part="note"]'), said.replace("#", number));
    }
    await page.context().close();
  }
  // Armenian says 0 as it says 1. What it has no words for is English, and has the forms of English.
  const page = await person();
  await page.goto(hostElements("plurals-hy", `<tally-poll poll="${polls[0].id}"></tally-poll>`, { html: html("hy") }));
  await page.evaluate(async (file) => (await import(file)).configure({ words: { hy: { votes: { one: "{n} ձայն", other: "{n} ձայներ" } } } }), `${tally.base}/embed.js`);
  await hasText(part(page, "count"), "0 ձայն");
  assert.equal(bare(await part(page, "note").innerText()), "0 voters.");
  await page.context().close();
});

// Where the characters of an element's first text are: the left edge of each.
const edges = (locator) => locator.evaluate((one) => {
  let node = one;
  while (node.nodeType !== Node.TEXT_NODE) node = node.firstChild;
  return [...node.data].map((_, at) => {
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    return range.getBoundingClientRect().left;
  });
});
const box = (locator) => locator.evaluate((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  const { left, right } = range.getBoundingClientRect();
  return { left, right };
});

test("in either direction, a choice's name begins beside its mark whatever its letters, and its count stands before its share", async () => {
  const poll = await tally.newPoll({ title: "C++ 20, שלום?", choices: ["C++ (2020)", "שלום, 3", "مرحبا!", "42"] });
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(poll, voter, 0);
  await tally.choose(poll, "joe", 1);
  for (const [language, direction] of [["en", "ltr"], ["ar", "rtl"], ["he", "rtl"], ["fa", "rtl"]]) {
    const page = await person({ viewport: { width: 500, height: 800 } });
    await page.goto(hostElements(`mixed-${language}`, `<tally-poll poll="${poll.id}"></tally-poll>`, { html: `lang="${language}" dir="${direction}"` }));
    const choices = part(page, "choice");
    await eventually(async () => (await choices.count()) === 4);
    const isRtl = direction === "rtl";
    // From where reading begins: smaller is earlier.
    const begin = ({ left, right }) => (isRtl ? -right : left);
    const all = [];
    for (let at = 0; at < 4; at++) {
      const of = (name) => choices.nth(at).locator(`[part~="${name}"]`);
      const [name, count, share] = [await box(of("choice-name")), await box(of("count")), await box(of("share"))];
      assert.ok(begin(name) < begin(count) && begin(count) < begin(share), `${language}: ${JSON.stringify([name, count, share])}`);
      all.push(begin(name));
    }
    assert.ok(Math.max(...all) - Math.min(...all) < 2, `${language}: names begin at ${all}`);
    const title = begin(await box(part(page, "title")));
    const note = begin(await box(part(page, "note")));
    assert.ok(Math.abs(title - note) < 2, `${language}: the title begins at ${title}, the note at ${note}`);
    // Within a name, the order is the name's own: “C++ (2020)” is not “(2020) ++C”.
    const latin = await edges(part(page, "choice-name").first());
    assert.deepEqual(latin, latin.toSorted((a, b) => a - b), language);
    const hebrew = await edges(part(page, "choice-name").nth(1));
    assert.ok(hebrew[0] > hebrew.at(-1), language);
    // “3 votes” is not “votes 3”, also on a page from right to left that has English words.
    const counted = await edges(part(page, "count").first());
    if (["en", "fa"].includes(language)) assert.ok(counted[0] < counted.at(-1), `${language}: ${counted}`);
    else assert.ok(counted[0] > counted.at(-1), `${language}: ${counted}`);
    // The full stop of an English sentence is at its right.
    if (language === "fa") {
      const end = await edges(part(page, "note"));
      assert.ok(end[0] < end.at(-1), `${end}`);
    }
    assert.deepEqual(page.errors, []);
    if (pictures) await page.screenshot({ path: `${pictures}/mixed-${language}.png` });
    await page.context().close();
  }
});

test("a name does not move the words around it: it is isolated where letters of both directions meet, and only there", async () => {
  for (const [language, name, isIsolated] of [["en", "Quill", false], ["en", "שלום", true], ["he", "C++", true], ["de", "Feder", false]]) {
    const item = await tally.newItem({ name });
    const page = await person();
    await page.goto(hostElements(`isolated-${language}-${isIsolated}`, `<tally-vote item="${item}"></tally-vote>`, { html: html(language) }));
    await labelled(page, text(language, "voteUpFor", { name }));
    const label = await part(page, "up", "tally-vote").getAttribute("aria-label");
    assert.equal(label.includes(`\u2068${name}\u2069`), isIsolated, label);
    await page.context().close();
  }
});

test("a count below zero has its minus on the left in every language", async () => {
  const item = await tally.newItem({ name: "Below" });
  for (const voter of ["ada", "bob", "eve"]) await tally.vote(item, voter, -1);
  for (const [language, direction] of [["en", "ltr"], ["en", "rtl"], ["ar", "rtl"], ["he", "rtl"], ["fa", "rtl"]]) {
    const page = await person();
    await page.goto(host(`minus-${language}-${direction}`, `<!doctype html><html lang="${language}" dir="${direction}"><meta charset="utf-8"><title>Minus</title>
      <script type="module" src="${tally.base}/embed.js"></script><tally-vote item="${item}"></tally-vote><p>A <tally-count item="${item}"></tally-count>.</p></html>`));
    for (const element of ["tally-vote", "tally-count"]) {
      const count = part(page, "count", element);
      await eventually(async () => /[3٣۳]/.test(await count.innerText()));
      const [written, at] = [await count.evaluate((one) => one.textContent), await edges(count)];
      assert.ok(at[[...written].findIndex((one) => /[-−]/.test(one))] < at[[...written].findIndex((one) => /[3٣۳]/.test(one))], `${language}: ${written}`);
    }
    await page.context().close();
  }
});

test("a language that changes within a shadow root of the page is followed, and a message stays in the language in which it was said", async () => {
  const item = await tally.newItem({ name: "Inside" });
  const page = await person();
  await page.goto(hostElements("inside", "<div></div>"));
  await page.evaluate((item) => {
    const root = document.querySelector("div").attachShadow({ mode: "open" });
    root.innerHTML = `<p lang="en"><tally-vote item="${item}"></tally-vote></p>`;
  }, item);
  await labelled(page, "Vote up: Inside");
  await part(page, "up", "tally-vote").click();
  await hasText(part(page, "message", "tally-vote"), "Your vote counts.");
  await page.evaluate(() => document.querySelector("div").shadowRoot.querySelector("p").setAttribute("lang", "de"));
  await labelled(page, text("de", "voteUpFor", { name: "Inside" }));
  assert.deepEqual(await part(page, "message", "tally-vote").evaluate((one) => [one.textContent, one.lang]), ["Your vote counts.", "en"]);
  assert.deepEqual(page.errors, []);
});
