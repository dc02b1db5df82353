// The page of voters: lists and searches items and polls, and shows one of them by itself. What votes are the
// elements of embed.js.
import { ask } from "/embed.js";

const TYPING_MS = 250; // a search waits until the typing rests
const BACK_AGAIN_MS = 4000;

const by = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const one = Object.assign(document.createElement(tag), properties);
  one.append(...children);
  return one;
};
const element = (name, attributes) => {
  const one = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  return one;
};

// One list: its cards, and a button for the next page.
class List {
  constructor(title, path, card) {
    Object.assign(this, { path, card, next: null });
    this.heading = make("h2", { textContent: title });
    this.cards = make("ul", { className: "cards" });
    this.cards.setAttribute("role", "list");
    this.more = make("button", { type: "button", className: "more", textContent: "Show more", hidden: true });
    this.more.addEventListener("click", () => this.page());
    this.section = make("section", { hidden: true }, this.heading, this.cards, this.more);
  }
  // Throws when the server does not answer.
  async page() {
    const from = this.next;
    const list = await ask("GET", this.path(from));
    const items = list.polls ?? list.items;
    const next = (list.polls ? list.next_before : list.next_after) ?? null;
    const first = this.cards.children.length;
    this.cards.append(...items.map(this.card));
    this.next = next;
    this.more.hidden = next === null;
    this.section.hidden = this.cards.children.length === 0;
    if (from !== null) this.cards.children[first]?.querySelector("a")?.focus();
  }
}

function poll(one) {
  const vote = element("tally-poll", { poll: one.id });
  vote.show(one);
  const address = make("a", { href: `/polls/${one.id}`, textContent: "Open and share" });
  address.setAttribute("aria-label", `Open and share: ${one.title}`);
  return make("li", {}, vote, make("div", { className: "below" }, address));
}

function item(one) {
  const vote = element("tally-vote", { item: one.id, "no-name": "" });
  vote.show(one);
  const name = make("a", { href: `/items/${one.id}`, dir: "auto", textContent: one.name });
  const row = make("li", { className: "row" }, name, vote);
  return row;
}

let search = 0;
async function home(words) {
  const mine = ++search;
  const found = words ? `&search=${encodeURIComponent(words)}` : "";
  const polls = new List("Polls", (before) => `/v1/polls?limit=10${found}${before === null ? "" : `&before=${before}`}`, poll);
  const items = new List("Items", (after) => `/v1/items?choices=false${found}${after === null ? "" : `&after=${after}`}`, item);
  const none = make("p", { className: "note", textContent: words ? `Nothing has “${words}” in its name.` : "There is nothing to vote on yet.", hidden: true });
  try {
    await Promise.all([polls.page(), items.page()]);
  } catch (error) {
    none.textContent = error.message;
    none.hidden = false;
    // The connection may come back.
    setTimeout(() => search === mine && home(words), BACK_AGAIN_MS);
    if (by("view").children.length) return;
  }
  if (search !== mine) return;
  none.hidden &&= !(polls.section.hidden && items.section.hidden);
  by("view").replaceChildren(polls.section, items.section, none);
}

function share() {
  const button = make("button", { type: "button", className: "first", textContent: navigator.share ? "Share" : "Copy the address" });
  const said = make("span", { className: "note" });
  said.setAttribute("role", "status");
  button.addEventListener("click", async () => {
    try {
      if (navigator.share) return await navigator.share({ title: document.title, url: location.href });
      await navigator.clipboard.writeText(location.href);
      said.textContent = "Copied.";
    } catch {
      said.textContent = location.href;
    }
  });
  return make("form", { className: "more" }, button, said);
}

function single(kind, reference) {
  const vote = element(kind === "poll" ? "tally-poll" : "tally-vote", { [kind]: reference, "no-title": "", "no-name": "" });
  vote.addEventListener("tally-counts", ({ detail }) => {
    by("title").textContent = detail.title ?? detail.name;
  });
  const history = element("tally-history", { [kind]: reference });
  by("view").replaceChildren(
    make("ul", { className: "cards" }, make("li", {}, vote)),
    make("h2", { textContent: "The last day" }),
    history,
    share(),
  );
}

document.addEventListener("tally-connection", ({ detail }) => {
  by("connection").textContent = detail.connected ? "Connected again. The counts are current." : detail.reason;
  if (detail.connected) setTimeout(() => (by("connection").textContent = ""), BACK_AGAIN_MS);
});

const { view, reference } = by("main").dataset;
const asked = new URLSearchParams(location.search).get("search") ?? "";
by("words").value = asked;
let typing;
by("search").addEventListener("submit", (event) => event.preventDefault());
by("words").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const words = by("words").value.trim();
    if (view !== "home") return location.assign(words ? `/?search=${encodeURIComponent(words)}` : "/");
    history.replaceState(null, "", words ? `/?search=${encodeURIComponent(words)}` : "/");
    home(words);
  }, TYPING_MS);
});
if (view === "home") home(asked.trim());
else single(view, reference);
