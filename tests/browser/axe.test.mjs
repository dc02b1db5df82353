// Every element in every state, on one page for each language: before the counts come, with them, and without a
// connection. axe finds no fault there in light or dark, all text has its contrast, and in a window enlarged to 400%
// nothing is cut off, covered, or to be scrolled sideways.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { STATE_LEAST, TEXT_LEAST, close, contrasts, eventually, faults, fits, hostElements, misplaced, open, person, tally } from "./harness.mjs";
import { bare, html, languages, pattern } from "./languages.mjs";

const SCHEMES = ["light", "dark"];
const LANGUAGES_AT_ONCE = 2;
const WINDOW = { width: 1000, height: 800 };
const ENLARGED = { width: 320, height: 256 }; // 1280 × 1024 at 400%
const MESSAGE_MS = 5000; // of embed.js: what waits for longer would change the page while it is looked at
const UNKNOWN = 999_999_999;
const LATER = "2040-01-01T00:00:00Z";
const EARLIER = "2020-01-01T00:00:00Z";
const SECONDS = /\p{N}:\p{N}{2}/;
const STATES = ["full", "closed", "not-open", "sign-in", "stale"]; // attributes
const pictures = process.env.LANGUAGE_PICTURES; // a folder for pictures of each language, for a person to look at

const inMinutes = (minutes) => new Date(Date.now() + minutes * 60_000).toISOString();
const problem = (name, status, more = {}) => ({ type: `/problems/${name}`, title: name, status, detail: `The server says ${name}.`, ...more });
const icon = (slot) => `<svg slot="${slot}" viewBox="0 0 16 16" fill="currentColor" aria-hidden="true"><circle cx="8" cy="8" r="7"/></svg>`;
const BETWEEN = "<span>12</span>"; // what stands between the tags

// What a voter does in an element. It is done when the element says so by an event, or at once.
const press = (part, { at = 0, until = "tally-vote" } = {}) => ({ part, at, until });
const refuses = (part, at = 0) => press(part, { at, until: "tally-error" });
const only = (part, at = 0) => press(part, { at, until: null });
const type = (ballot) => ({ ballot }); // true: one of the item's or the poll's own
const enter = { isEnter: true };

// A state, and what a voter does for it. `is` is how it is seen: attributes (`has`), texts (`says`) and labels by their key
// and values, why a vote is `refused`, what the element `asks`, what is `pressed`, whether all controls are disabled, and
// whether what is between the tags is shown. Of `more`, `shows` changes what the server says, for what takes a million votes
// or lasts a moment; `refused` is the answer to votes; `votes` are those of others.
const state = (element, is, does = [], more = {}) => ({ element, is, does, ...more });
const ballotOf = async (path, fields) => (fields.by_ballot ? (await tally.call("POST", `/v1/${path}/ballots`, { count: 1 })).ballots[0] : null);
const vote = (fields, is, does = [], more = {}) => state(async (id) => {
  const item = await tally.newItem({ name: "Quill", ...(more.times?.() ?? {}), ...fields });
  for (const [voter, value] of Object.entries(more.votes ?? {})) await tally.vote(item, voter, value);
  const html = `<tally-vote id="${id}" item="${item}" ${more.attributes ?? ""}>${more.within ?? ""}</tally-vote>`;
  return { html, path: `items/${item}`, ballot: await ballotOf(`items/${item}`, fields) };
}, is, does, more);
const poll = (fields, is, does = [], more = {}) => state(async (id) => {
  const made = await tally.newPoll({ title: "Tea?", choices: ["Green", "Black", "White"], ...(more.times?.() ?? {}), ...fields });
  for (const [voter, choices] of Object.entries(more.votes ?? {})) await tally.choose(made, voter, ...choices);
  const name = more.name ?? "tally-poll";
  const html = `<${name} id="${id}" poll="${made.id}" ${more.attributes ?? ""}>${more.within ?? ""}</${name}>`;
  return { html, path: `polls/${made.id}`, ballot: await ballotOf(`polls/${made.id}`, fields) };
}, is, does, more);
const reactions = (fields, is, does, more) => poll({ title: "Emoji", choices: ["👍", "❤️", "😂"], ...fields }, is, does, { name: "tally-reactions", ...more });
const plain = (name, attributes, within, is, does) => state((id) => ({ html: `<${name} id="${id}" ${attributes(id)}>${within}</${name}>` }), is, does);
const votes = (n) => ["votes", { n }];

// What happens to a vote that the server refuses, or answers with what is no answer.
const REFUSALS = {
  throttled: problem("throttled", 429),
  credentialMissing: problem("not-allowed", 403),
  noDownVotes: problem("value-not-taken", 422),
  ballotMissing: problem("ballot-missing", 422),
  unavailable: problem("unavailable", 503),
  outcomeUnknown: problem("vote-unconfirmed", 503, { stored: "unknown" }),
  refused: problem("of-a-later-version", 409),
  noAnswer: "no JSON",
};
const UNKNOWN_VOTER = problem("credential-missing", 401);

// Filled once, before the first page: charts draw what a worker has summed up.
const drawn = {};
const ALL = {
  "vote that does not exist": plain("tally-vote", () => `item="${UNKNOWN}"`, BETWEEN, { isBetween: true }),
  "vote without a reference": plain("tally-vote", () => 'item="abc"', BETWEEN, { isBetween: true }),
  "vote, not made yet": plain("tally-vote", (id) => `item="key:to-be-${id}"`, "", { says: [votes(0)], labels: [["voteUpFor"]] }),
  "vote, made by its first": plain("tally-vote", (id) => `item="key:${id}-${Math.random()}" likes no-name`, "", { says: [votes(1), ["counted"]], pressed: ["up"] }, [press("up")]),
  "vote, fresh": vote({}, { says: [votes(0)], labels: [["voteUpFor", { name: "Quill" }], ["voteDownFor", { name: "Quill" }]] }),
  "vote up": vote({}, { says: [votes(1), ["counted"]], pressed: ["up"] }, [press("up")]),
  "vote down": vote({}, { says: [votes(-1), ["counted"]], pressed: ["down"] }, [press("down")]),
  "vote changed": vote({}, { says: [votes(-1), ["counted"]], pressed: ["down"] }, [press("up"), press("down")]),
  "vote taken back": vote({}, { says: [votes(0), ["takenBack"]] }, [press("up"), press("up")]),
  "vote with a number": vote({ numbered: true }, { says: [["countedAs", { n: 1 }]], pressed: ["up"] }, [press("up")]),
  "vote with marks of the page": vote({}, { says: [votes(1)], pressed: ["up"] }, [press("up")], { within: icon("up") + icon("down") }),
  "vote on a name of other letters": vote({ name: "שלום C++ مرحبا 漢字" }, { says: [votes(1)], labels: [["voteUpFor", { name: "שלום C++ مرحبا 漢字" }]], pressed: ["up"] }, [press("up")]),
  "vote on a long name": vote({ name: "Donaudampfschifffahrtsgesellschaftskapitänsmütze ".repeat(2) }, { says: [votes(-1_234_567)] }, [], { shows: { vote_count: -1_234_567 } }),
  "vote full": vote({ max_votes: 1 }, { has: ["full"], isDisabled: true, says: [["places", { taken: 1, n: 1 }]] }, [], { votes: { bob: 1 } }),
  "vote full, pressed": vote({ max_votes: 1 }, { has: ["full"], isDisabled: true, says: [["full"]] }, [only("up")], { votes: { bob: 1 } }),
  "vote full, held": vote({ max_votes: 2 }, { has: ["full"], pressed: ["up"], says: [["places", { taken: 2, n: 2 }]] }, [press("up")], { votes: { bob: 1 } }),
  "vote with places": vote({ max_votes: 1200, closes_at: LATER }, { says: [["places", { taken: 1, n: 1200 }], ["closes"]] }, [], { votes: { bob: 1 } }),
  "vote final": vote({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["final"]] }, [], { shows: { final: true } }),
  "vote closed": vote({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["closed"]] }, [], { shows: { final: false } }),
  "vote closed, pressed": vote({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["isClosed"]] }, [only("up")]),
  "vote not open": vote({ opens_at: LATER }, { has: ["not-open"], isDisabled: true, says: [["opens"]] }),
  "vote not open, pressed": vote({ opens_at: LATER }, { has: ["not-open"], isDisabled: true, says: [["notOpenYet"]] }, [only("up")]),
  "vote opens in minutes": vote({}, { has: ["not-open"], isDisabled: true, says: [["opensIn"]] }, [], { times: () => ({ opens_at: inMinutes(30) }) }),
  "vote opens in seconds": vote({}, { has: ["not-open"], isDisabled: true, says: [["opensIn", { time: SECONDS }]] }, [], { times: () => ({ opens_at: inMinutes(4.5) }) }),
  "vote closes in minutes": vote({}, { says: [["closesIn"]] }, [], { times: () => ({ closes_at: inMinutes(30) }) }),
  "vote closes in seconds": vote({}, { says: [["closesIn", { time: SECONDS }]] }, [], { times: () => ({ closes_at: inMinutes(4.5) }) }),
  "vote without a sign-in": vote({}, { has: ["sign-in"], says: [["signIn"]] }, [press("up", { until: "tally-sign-in" })], { refused: UNKNOWN_VOTER }),
  ...Object.fromEntries(Object.entries(REFUSALS).map(([key, refused]) => [`vote refused: ${key}`, vote({}, { refused: key }, [refuses("down")], { refused })])),
  // This page has read answers, so nothing refuses its origin.
  "vote whose connection is cut": vote({}, { refused: "noAnswer" }, [refuses("down")], { refused: null }),
  "vote by ballot": vote({ by_ballot: true }, { says: [["ballot"]] }),
  "vote by ballot, Enter before a choice": vote({ by_ballot: true }, { says: [["chooseFirst"]] }, [type("0000-0000"), enter]),
  "vote by ballot, without the ballot": vote({ by_ballot: true }, { says: [["ballotEmpty"]], pressed: ["up"] }, [only("up")]),
  "vote by ballot, asking": vote({ by_ballot: true }, { asks: ["ballotSure", { name: "Quill" }], pressed: ["up"] }, [type("0000-0000"), only("up")]),
  "vote by ballot, asking against": vote({ by_ballot: true }, { asks: ["ballotSureDown", { name: "Quill" }], pressed: ["down"] }, [type("0000-0000"), only("down")]),
  "vote by ballot, not valid": vote({ by_ballot: true }, { says: [["ballotNotValid"]], pressed: ["up"] }, [type("0000-0000"), only("up"), refuses("vote")]),
  "vote by ballot, spent": vote({ by_ballot: true }, { says: [["ballotSpent"], votes(1)] }, [type(true), only("up"), press("vote")]),
  "vote whose count is hidden": state(async (id) => {
    const { choices } = await tally.newPoll({ title: "Hidden", choices: ["Quill", "Pen"], results_before_close: false, closes_at: LATER });
    return { html: `<tally-vote id="${id}" item="${choices[0].item_id}"></tally-vote>` };
  }, { says: [["countFollows"]], pressed: ["up"] }, [press("up")]),

  "count": plain("tally-count", () => `item="${drawn.item}"`, BETWEEN, { says: [["number", 1234]] }),
  "count of down-votes": plain("tally-count", () => `item="${drawn.item}" show="down"`, BETWEEN, { says: [["number", 0]] }),
  "count that does not exist": plain("tally-count", () => `item="${UNKNOWN}"`, BETWEEN, { isBetween: true }),
  "count that is hidden": state(async (id) => {
    const { choices } = await tally.newPoll({ title: "Hidden", results_before_close: false, closes_at: LATER });
    return { html: `<tally-count id="${id}" item="${choices[0].item_id}">${BETWEEN}</tally-count>` };
  }, { isBetween: true }),

  "poll that does not exist": plain("tally-poll", () => `poll="${UNKNOWN}"`, BETWEEN, { isBetween: true }),
  "poll closed after a vote": poll({}, { has: ["closed"], isDisabled: true, pressed: ["Green"] }, [press("choice")], { isEnded: true }),
  "poll, fresh": poll({}, { says: [["voters", { n: 0 }], votes(0)] }),
  "poll, chosen": poll({}, { says: [["counted"], ["percent", 1 / 3]], pressed: ["Green"] }, [press("choice")], { votes: { bob: [1], eve: [2] } }),
  "poll, changed": poll({}, { says: [["counted"]], pressed: ["Black"] }, [press("choice"), press("choice", { at: 1 })]),
  "poll, taken back": poll({}, { says: [["takenBack"]] }, [press("choice"), press("choice")]),
  "poll of two": poll({ max_choices: 2 }, { says: [["ofVotes"], ["chooseUpTo", { n: 2 }]], pressed: ["Green", "White"] }, [press("choice"), press("choice", { at: 2 })]),
  "poll of two, three chosen": poll({ max_choices: 2 }, { says: [["tooManyChoices"]], pressed: ["Green", "Black"] }, [press("choice"), press("choice", { at: 1 }), refuses("choice", 2)]),
  "poll of any, in shares of voters": poll({ max_choices: 0 }, { says: [["ofVoters"], ["chooseAny"], ["voters", { n: 2 }]] }, [], { attributes: 'share-of="voters"', votes: { bob: [0, 1], eve: [0] } }),
  "poll with marks of the page": poll({}, { pressed: ["Green"], says: [["counted"]] }, [press("choice")], { within: icon("check") }),
  "poll without a title or words": poll({}, { says: [votes(1), ["number", 1]], pressed: [] }, [], { attributes: "no-title no-words", votes: { bob: [0] } }),
  "poll of long and other names": poll({ title: "Donaudampfschifffahrtsgesellschaftskapitän?", choices: ["שלום C++ مرحبا", "漢字".repeat(20), "Rindfleischetikettierungsüberwachungsaufgabe"] },
    { says: [votes(1_234_567), ["voters", { n: 7_654_321 }]] }, [], { shows: { voter_count: 7_654_321, counts: [1_234_567, 6_419_754, 0] } }),
  "poll whose results are hidden": poll({ results_before_close: false, closes_at: LATER }, { says: [["resultsAtClose"], ["closes"]], pressed: ["Green"] }, [press("choice")]),
  "poll final": poll({ closes_at: EARLIER, max_choices: 2 }, { has: ["closed"], isDisabled: true, says: [["final"]] }, [], { shows: { final: true } }),
  "poll closed": poll({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["closed"]] }, [], { shows: { final: false } }),
  "poll closed, pressed": poll({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["isClosed"]] }, [only("choice")]),
  "poll not open": poll({ opens_at: LATER, max_choices: 0, results_before_close: false, closes_at: "2041-01-01T00:00:00Z" }, { has: ["not-open"], isDisabled: true, says: [["opens"], ["resultsAtClose"]] }),
  "poll not open, pressed": poll({ opens_at: LATER }, { has: ["not-open"], isDisabled: true, says: [["notOpenYet"]] }, [only("choice")]),
  "poll opens in minutes": poll({}, { has: ["not-open"], isDisabled: true, says: [["opensIn"]] }, [], { times: () => ({ opens_at: inMinutes(30) }) }),
  "poll closes in seconds": poll({}, { says: [["closesIn", { time: SECONDS }]] }, [], { times: () => ({ closes_at: inMinutes(4.5) }) }),
  "poll without a sign-in": poll({}, { has: ["sign-in"], says: [["signIn"]] }, [press("choice", { until: "tally-sign-in" })], { refused: UNKNOWN_VOTER }),
  "poll refused": poll({}, { refused: "outcomeUnknown" }, [refuses("choice")], { refused: REFUSALS.outcomeUnknown }),
  "poll by ballot": poll({ by_ballot: true }, { says: [["ballot"]] }),
  "poll by ballot, Enter before a choice": poll({ by_ballot: true }, { says: [["chooseFirst"]] }, [type("0000-0000"), enter]),
  "poll by ballot, without the ballot": poll({ by_ballot: true }, { says: [["ballotEmpty"]], pressed: ["Green"] }, [only("choice")]),
  "poll by ballot, asking": poll({ by_ballot: true }, { asks: ["ballotSure", { name: "Green" }], pressed: ["Green"] }, [type("0000-0000"), only("choice")]),
  "poll by ballot, not valid": poll({ by_ballot: true }, { says: [["ballotNotValid"]], pressed: ["Green"] }, [type("0000-0000"), only("choice"), refuses("vote")]),
  "poll by ballot, spent": poll({ by_ballot: true }, { says: [["ballotSpent"]] }, [type(true), only("choice"), press("vote")]),

  "reactions that do not exist": plain("tally-reactions", () => `poll="${UNKNOWN}"`, BETWEEN, { isBetween: true }),
  "reactions, not made yet": plain("tally-reactions", (id) => `to="to-be-${id}" emoji="👍 ❤️ 😂"`, "", { labels: [["reactions"], ["reaction", { emoji: "👍" }]], says: [["number", 0]] }),
  "reactions, made by the first": plain("tally-reactions", (id) => `to="${id}-${Math.random()}" emoji="👍 ❤️ 😂" single`, "", { labels: [["reaction", { emoji: "👍" }]], pressed: ["👍"] }, [press("chip")]),
  "reactions, pressed": reactions({}, { labels: [["reaction", { emoji: "👍" }]], pressed: ["👍"] }, [press("chip")]),
  "reactions, changed": reactions({}, { pressed: ["❤️"] }, [press("chip"), press("chip", { at: 1 })]),
  "reactions, taken back": reactions({}, { says: [["number", 0]] }, [press("chip"), press("chip")]),
  "reactions of many": reactions({ choices: [..."😀😃😄😁😆😅😂🙂🙃😉😊😇🥰😍🤩"] }, { says: [["number", 1_234_567]] }, [], { shows: { counts: Array(15).fill(1_234_567) } }),
  "reactions whose counts are hidden": reactions({ results_before_close: false, closes_at: LATER }, { labels: [["countFollows"]], pressed: ["👍"] }, [press("chip")]),
  "reactions closed": reactions({ closes_at: EARLIER }, { has: ["closed"], isDisabled: true, says: [["isClosed"]] }, [only("chip")]),
  "reactions not open": reactions({ opens_at: LATER }, { has: ["not-open"], isDisabled: true, says: [["notOpenYet"]] }, [only("chip")]),
  "reactions without a sign-in": reactions({}, { has: ["sign-in"], says: [["signIn"]] }, [press("chip", { until: "tally-sign-in" })], { refused: UNKNOWN_VOTER }),
  "reactions refused": reactions({}, { refused: "throttled" }, [refuses("chip")], { refused: REFUSALS.throttled }),

  "history of a day": plain("tally-history", () => `item="${drawn.item}"`, BETWEEN, { labels: [["overDay"]], says: [["high", { n: 1234 }]] }),
  "history of an hour": plain("tally-history", () => `item="${drawn.item}" over="hour"`, BETWEEN, { labels: [["overHour"]], says: [["high", { n: 1234 }]] }),
  "history of a poll": plain("tally-history", () => `poll="${drawn.poll}"`, BETWEEN, { labels: [["overDay"]], says: [["high", { n: 3 }]] }),
  "history that does not exist": plain("tally-history", () => `item="${UNKNOWN}"`, BETWEEN, { isBetween: true }),
};
const IDS = new Map(Object.keys(ALL).map((name) => [name, name.replace(/\W+/g, "-")]));

before(async () => {
  await open({ TALLY_CREATE_ITEMS: "likes" });
  drawn.item = await tally.newItem({ name: "Many" });
  for (const from of [0, 617]) await tally.votes(Array.from({ length: 617 }, (_, at) => ({ item_id: drawn.item, voter_id: `v${from + at}` })));
  const made = await tally.newPoll({ title: "Tea?", choices: ["Green", "שלום C++ مرحبا", "漢字".repeat(20), "Donaudampfschifffahrtsgesellschaftskapitän", "White"], max_choices: 0 });
  drawn.poll = made.id;
  for (const voter of ["ada", "bob", "eve"]) await tally.choose(made, voter, 0, 3);
  for (const of of [`items/${drawn.item}`, `items/${made.choices[3].item_id}`]) {
    await eventually(async () => (await tally.call("GET", `/v1/${of}/history?over=day`)).spans.length > 0);
  }
});
after(close);

// A page with all states, whose requests wait until `page.counts.come()`, however long that takes, and whose messages
// stay.
async function pageIn(language) {
  const made = Object.fromEntries(await Promise.all(Object.entries(ALL).map(async ([name, { element }]) => [name, await element(IDS.get(name))])));
  const elements = Object.entries(made).map(([name, { html }]) => `<div class="state"><p lang="en" dir="ltr">${name}</p>${html}</div>`).join("\n");
  const page = await person({ viewport: WINDOW });
  await page.addInitScript((least) => {
    const plain = setTimeout;
    globalThis.setTimeout = (work, delay, ...rest) => (delay >= least ? 0 : plain(work, delay, ...rest));
    AbortSignal.timeout = () => new AbortController().signal;
    globalThis.shown = new Map();
    addEventListener("tally-counts", ({ target, detail }) => globalThis.shown.set(target, detail));
  }, MESSAGE_MS);
  const refusals = new Map(Object.entries(ALL).filter(([, { refused }]) => refused !== undefined).map(([name, { refused }]) => [made[name].path, refused]));
  await answerFor(page, refusals);
  const head = `<style>main { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19em), 1fr)); gap: 0 1.5em; } h1, h2 { grid-column: 1 / -1; }
    .state { min-width: 0; margin-block-end: 5em; } .state > p { font-size: 0.75em; } .state > p::before { content: "# "; }</style>`;
  await page.goto(hostElements(`axe-${language}`, elements, { head, html: html(language) }));
  page.made = made;
  page.ballots = Object.fromEntries(Object.entries(made).map(([name, { ballot }]) => [IDS.get(name), ballot]));
  page.paths = Object.fromEntries(Object.entries(made).map(([name, { path }]) => [IDS.get(name), path]));
  return page;
}

// Stands between a page and the server: counts wait, votes may be refused, and a connection may be lost.
async function answerFor(page, refusals) {
  let come;
  page.counts = { came: new Promise((resolve) => (come = resolve)), come: () => come(), isLost: false };
  await page.route(`${tally.base}/v1/**`, async (route) => {
    await page.counts.came;
    const [, path] = /^\/v1\/((?:items|polls)\/\d+)\/votes/.exec(new URL(route.request().url()).pathname) ?? [];
    const isVote = route.request().method() !== "GET" && path;
    if (page.counts.isLost) return isVote ? answer(route, "no JSON") : route.abort();
    return isVote && refusals.has(path) ? answer(route, refusals.get(path)) : route.continue();
  });
  const answer = (route, refused) => {
    if (refused === null) return route.abort();
    const headers = { "access-control-allow-origin": new URL(page.url()).origin, "access-control-allow-credentials": "true" };
    return typeof refused === "string" ? route.fulfill({ status: 200, body: refused, headers }) : route.fulfill({ status: refused.status, json: refused, headers });
  };
}

// Does what the voter does, in all elements at once.
async function act(page, acts) {
  await page.evaluate((acts) => Promise.all(acts.map(async ([id, steps]) => {
    const element = document.getElementById(id);
    const { shadowRoot: root } = element;
    for (const { part, at, until, ballot, isEnter } of steps) {
      const input = root.querySelector("input");
      if (ballot) input.value = ballot;
      if (isEnter) input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
      if (!part) continue;
      const done = until && new Promise((resolve) => element.addEventListener(until, resolve, { once: true }));
      root.querySelectorAll(`[part~="${part}"]`)[at].click();
      await done;
      await new Promise((resolve) => setTimeout(resolve)); // the event comes before the end
    }
  })), acts);
}

// What each element shows.
const seen = (page) => page.evaluate((states) => Object.fromEntries([...document.querySelectorAll(".state > [id]")].map((one) => {
  const all = [...one.shadowRoot.querySelectorAll("*")].filter((part) => part.getClientRects().length > 0);
  const buttons = all.filter((part) => part.localName === "button");
  const nameOf = (button) => button.querySelector('[part="choice-name"], [part="emoji"]')?.textContent ?? button.part[0];
  return [one.id, {
    has: states.filter((name) => one.hasAttribute(name)),
    text: [...one.shadowRoot.children].filter((part) => part.getClientRects().length > 0).map((part) => part.innerText ?? "").join("\n"),
    labels: all.map((part) => part.getAttribute("aria-label")).join("\n"),
    pressed: buttons.filter((button) => button.getAttribute("aria-pressed") === "true").map(nameOf),
    isDisabled: buttons.length > 0 && buttons.every((button) => button.getAttribute("aria-disabled") === "true"),
    question: all.find((part) => part.getAttribute("role") === "alertdialog")?.innerText ?? "",
    isBetween: one.shadowRoot.querySelector("slot:not([name])") !== null && one.firstElementChild?.getClientRects().length > 0,
  }];
})), STATES);

// What is not as the states are.
function missing(language, all, expected) {
  const number = (value) => new RegExp(value.toLocaleString(language));
  const percent = (share) => new RegExp(share.toLocaleString(language, { style: "percent", maximumFractionDigits: 0 }));
  const said = ([key, values]) => (key === "number" ? number(values) : key === "percent" ? percent(values) : pattern(language, key, values));
  return Object.entries(expected).flatMap(([name, { has = [], says = [], labels = [], pressed = [], isDisabled = false, asks, isBetween = false, refused }]) => {
    const one = all[IDS.get(name)];
    // The server says it in English.
    const words = refused === "refused" && language === "en" ? [/The server says of-a-later-version\./] : refused ? [said([refused])] : [];
    const faults = [...says.map(said), ...words].filter((text) => !text.test(bare(one.text))).map((text) => `${text} is not in ${one.text}`);
    faults.push(...labels.map(said).filter((label) => !label.test(bare(one.labels))).map((label) => `${label} is not in ${one.labels}`));
    if (asks ? !said(asks).test(bare(one.question)) : one.question !== "") faults.push(`asks ${one.question}`);
    for (const [what, is] of Object.entries({ has, pressed, isDisabled, isBetween })) {
      if (String(one[what]) !== String(is)) faults.push(`${what}: ${one[what]}, not ${is}`);
    }
    return faults.map((fault) => `${name}: ${fault}`);
  });
}
async function shows(page, language, expected) {
  let left;
  await eventually(async () => (left = missing(language, await seen(page), expected)).length === 0).catch(() => assert.deepEqual(left, [], language));
}

async function looksRight(page, name) {
  for (const colorScheme of SCHEMES) {
    const where = `${name}, ${colorScheme}`;
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await faults(page), [], where);
    const faint = (await contrasts(page)).filter((one) => one.contrast < (one.isText ? TEXT_LEAST : STATE_LEAST));
    assert.deepEqual(faint, [], where);
    if (pictures) await page.screenshot({ path: `${pictures}/${where.replace(/\W+/g, "-")}.png`, fullPage: true });
  }
  for (const viewport of [WINDOW, ENLARGED]) {
    await page.setViewportSize(viewport);
    const where = `${name}, ${viewport.width} pixels wide`;
    await fits(page, where);
    assert.deepEqual(await misplaced(page), [], where);
    if (pictures) await page.screenshot({ path: `${pictures}/${where.replace(/\W+/g, "-")}.png`, fullPage: true });
  }
  await page.setViewportSize(WINDOW);
}

// Changes what the server says to some elements, from now on.
async function change(page, shown) {
  await page.evaluate((all) => {
    for (const [id, { counts = [], ...changes }] of all) {
      const element = document.getElementById(id);
      const { receive } = element;
      element.receive = (one) => {
        const choices = one.choices?.map((choice, at) => ({ ...choice, vote_count: counts[at] ?? choice.vote_count }));
        receive.call(element, { ...one, ...(choices && { choices }), ...changes });
      };
      element.receive(globalThis.shown.get(element));
    }
  }, shown);
}

// What a voter does without a connection. All other states stay as they are.
const LOST = {
  "vote, fresh": { does: [refuses("up")], is: { says: [["noAnswer"]] } },
  "poll, fresh": { does: [refuses("choice")], is: { says: [["noAnswer"]] } },
  "reactions of many": { does: [refuses("chip")], is: { says: [["noAnswer"]] } },
};

describe("axe finds no fault in any element in any state, in light or dark, and at 400% all of it can be read", { concurrency: LANGUAGES_AT_ONCE }, () => {
  for (const language of languages) {
    test(language, async () => {
      const page = await pageIn(language);
      await shows(page, language, Object.fromEntries(Object.entries(page.made).map(([name, { html }]) => {
        const isBetween = html.includes(BETWEEN);
        const isVote = html.startsWith("<tally-vote") && !isBetween;
        const labels = isVote ? [["voteUp"], ["voteDown"]] : html.includes("emoji=") ? [["countFollows"]] : [];
        return [name, { isBetween, isDisabled: isVote, labels }];
      })));
      await looksRight(page, `${language}, before the counts come`);

      const states = Object.fromEntries(Object.entries(ALL).map(([name, { is }]) => [name, is]));
      const has = (what) => Object.entries(ALL).filter(([, one]) => one[what] && one[what].length !== 0).map(([name, one]) => [IDS.get(name), one[what]]);
      page.counts.come();
      const changed = [...new Set(["does", "shows"].flatMap((what) => has(what).map(([id]) => id)))];
      await eventually(() => page.evaluate((ids) => ids.every((id) => globalThis.shown.has(document.getElementById(id))), changed));
      await act(page, has("does").map(([id, steps]) => [id, steps.map((step) => (step.ballot === true ? type(page.ballots[id]) : step))]));
      await Promise.all(has("isEnded").map(([id]) => tally.call("PATCH", `/v1/${page.paths[id]}`, { closes_at: new Date().toISOString() })));
      await change(page, has("shows"));
      await shows(page, language, states);
      await looksRight(page, `${language}, with the counts`);

      page.counts.isLost = true;
      await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true }))); // a new stream
      await act(page, Object.entries(LOST).map(([name, { does }]) => [IDS.get(name), does]));
      await shows(page, language, Object.fromEntries(Object.entries(states).map(([name, is]) => {
        const isWatching = !name.startsWith("history") && name !== "vote without a reference";
        return [name, { ...is, ...LOST[name]?.is, has: [...(is.has ?? []), ...(isWatching ? ["stale"] : [])] }];
      })));
      await looksRight(page, `${language}, without a connection`);
      assert.deepEqual(page.errors, []);
      await page.context().close();
    });
  }
});
