// The page for voters: lists and searches items and polls, or shows one of them. The elements of embed.js do the
// voting.
import { ask } from "/assets/embed.js";

const TYPING_MS = 250; // a search waits until the typing pauses
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

// A list of cards, with a link that adds the next cards. The list comes from the server's HTML or from a search.
class List {
  constructor(title, path, parameter, card, section = null) {
    Object.assign(this, { path, parameter, card });
    this.section = section ?? make("section", {}, make("h2", { textContent: title }), make("ul", { className: "cards", role: "list" }));
    this.cards = this.section.querySelector(".cards");
    this.more = this.section.querySelector(".more") ?? make("a", { className: "more", textContent: "Show more" });
    this.next = this.more.dataset.next ?? null;
    this.more.addEventListener("click", (event) => {
      event.preventDefault();
      this.page().catch((error) => (by("connection").textContent = error.message));
    });
  }
  // Throws when the server does not answer.
  page() {
    return (this.asked ??= this.read().finally(() => (this.asked = null)));
  }
  async read() {
    const from = this.next;
    const list = await ask("GET", this.path + (from === null ? "" : `&${this.parameter}=${from}`));
    const first = this.cards.children.length;
    this.cards.append(...(list.polls ?? list.items).map(this.card));
    this.next = list[`next_${this.parameter}`] ?? null;
    if (this.next === null) this.more.remove();
    else {
      this.more.href = `/?${this.parameter}=${this.next}${/&search=.*/.exec(this.path)?.[0] ?? ""}`;
      this.section.append(this.more);
    }
    if (from !== null) this.cards.children[first]?.querySelector("a")?.focus();
  }
}

function poll(one) {
  const vote = element("tally-poll", { poll: one.id });
  vote.receive(one);
  const address = make("a", { href: `/polls/${one.id}`, textContent: "Open and share" });
  address.setAttribute("aria-label", `Open and share: ${one.title}`);
  return make("li", {}, vote, make("div", { className: "below" }, address));
}

function item(one) {
  const vote = element("tally-vote", { item: one.id, "no-name": "" });
  vote.receive(one);
  const name = make("a", { href: `/items/${one.id}`, dir: "auto", textContent: one.name });
  const row = make("li", { className: "row" }, name, vote);
  return row;
}

const lists = (words, sections = []) => {
  const found = words ? `&search=${encodeURIComponent(words)}` : "";
  const has = (tag) => sections.find((section) => section.querySelector(tag));
  return [
    new List("Polls", `/v1/polls?limit=10${found}`, "before", poll, has("tally-poll")),
    new List("Items", `/v1/items?choices=false${found}`, "after", item, has("tally-vote")),
  ];
};

let search = 0;
async function home(words) {
  const mine = ++search;
  const found = lists(words);
  const said = (text) => make("p", { className: "note", textContent: text });
  let none = said(words ? `Nothing has “${words}” in its name.` : "There is nothing to vote on yet.");
  try {
    await Promise.all(found.map((list) => list.page()));
  } catch (error) {
    none = said(error.message);
    // The connection may come back.
    setTimeout(() => search === mine && home(words), BACK_AGAIN_MS);
    if (by("view").children.length) return;
  }
  if (search !== mine) return;
  const shown = found.filter((list) => list.cards.children.length || list.next !== null).map((list) => list.section);
  by("view").replaceChildren(...(shown.length ? shown : [none]));
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

// The element is in the page already. This adds what belongs to it.
function single(vote) {
  const kind = vote.hasAttribute("poll") ? "poll" : "item";
  let isThere = false;
  vote.addEventListener("tally-counts", ({ detail }) => {
    by("title").textContent = detail.title ?? detail.name;
    if (isThere) return;
    isThere = true;
    const history = element("tally-history", { [kind]: detail.id });
    by("view").append(make("h2", { textContent: "Last day" }), history, share());
  });
}

let clearing;
document.addEventListener("tally-connection", ({ detail }) => {
  by("connection").textContent = detail.connected ? "Connected again. The counts are current." : detail.reason;
  clearTimeout(clearing);
  if (detail.connected) clearing = setTimeout(() => (by("connection").textContent = ""), BACK_AGAIN_MS);
});

// The server could not show the counts. Tries until it can.
async function again() {
  try {
    const { status } = await fetch(location.href, { method: "HEAD", cache: "no-store" });
    if (status < 500) return location.reload();
  } catch {
    // The server does not answer yet.
  }
  setTimeout(again, BACK_AGAIN_MS);
}

const { view, has } = by("main").dataset;
const asked = by("words").defaultValue.trim(); // what the server has searched for
let typing;
function find() {
  clearTimeout(typing);
  const words = by("words").value.trim();
  const address = words ? `/?search=${encodeURIComponent(words)}` : "/";
  if (view !== "home") return location.assign(address);
  window.history.replaceState(null, "", address);
  home(words);
}
by("search").addEventListener("submit", (event) => {
  event.preventDefault();
  find();
});
by("words").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(find, TYPING_MS);
});
if (has === "unknown") setTimeout(again, BACK_AGAIN_MS);
else if (view === "home") lists(asked, [...by("view").querySelectorAll("section")]);
else if (has === "all") single(by("view").querySelector("tally-poll, tally-vote"));
if (has !== "unknown" && by("words").value.trim() !== asked) find(); // someone typed before this script ran
