"use strict";
// Lists the items, votes, and keeps the counts moving by asking again.
const REFRESH_MS = 1000;
const ANSWER_LIMIT_MS = 10_000;
const MESSAGE_MS = 8000;
const VOTER_KEY = "tally-voter";
const LOADING = "Loading the items…";

const by = (id) => document.getElementById(id);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const brief = (name) => name.replace(/^(.{60}).{2,}$/u, "$1…"); // for messages
const rows = new Map(); // item id → its elements, and what they show
let after = null; // where the next page of items begins
let pages = 1; // how many pages are shown

// One voter a browser. Without storage, one a visit.
function voter() {
  const fresh = () => "page-" + Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
  try {
    let id = localStorage.getItem(VOTER_KEY);
    if (!id) localStorage.setItem(VOTER_KEY, (id = fresh()));
    return id;
  } catch {
    return (voter.id ??= fresh());
  }
}

// A message is shown for a while. A standing one, such as that the server is unavailable, stays until it is cleared.
let standing = "";
let fading;
function say(text) {
  clearTimeout(fading);
  by("state").textContent = text;
  if (text !== standing) fading = setTimeout(() => say(standing), MESSAGE_MS);
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let response, answer;
  try {
    response = await fetch(path, { ...options, signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
    answer = await response.json();
  } catch {
    throw new Error("the server does not answer.");
  }
  if (!response.ok) throw Object.assign(new Error(answer.detail || answer.title || response.statusText), { stored: answer.stored });
  return answer;
}

// A button does one thing at a time. It is not `disabled`: that would take the focus from it.
async function once(button, work) {
  if (button.hasAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  await work();
  button.removeAttribute("aria-disabled");
}

// An answer is not shown if the count that is shown was asked for later.
function show(id, count, asked = performance.now()) {
  const row = rows.get(id);
  if (!row || count === null || asked < row.asked) return;
  row.asked = asked;
  if (count === row.shown) return;
  const moved = row.shown !== null;
  row.shown = count;
  row.number.textContent = count.toLocaleString();
  row.unit.textContent = count === 1 ? " vote" : " votes";
  if (moved) {
    row.count.classList.remove("moved");
    void row.count.offsetWidth; // lets the animation start again
    row.count.classList.add("moved");
  }
}

function add(item) {
  if (rows.has(item.id)) return;
  const li = make("li");
  const name = make("span", { className: "name", dir: "auto", textContent: item.name });
  const count = make("span", { className: "count" });
  const number = make("span");
  const unit = make("span", { className: "unseen" });
  const button = make("button", { type: "button", textContent: "Vote" });
  button.setAttribute("aria-label", `Vote for ${item.name}`);
  button.addEventListener("click", () => once(button, () => vote(item)));
  count.append(number, unit);
  li.append(name, count, button);
  li.dataset.id = item.id;
  let next = null; // the first item with a higher id
  for (let last = by("items").lastElementChild; last && Number(last.dataset.id) > item.id; last = last.previousElementSibling) next = last;
  by("items").insertBefore(li, next);
  rows.set(item.id, { count, number, unit, shown: null, asked: 0 });
}

async function vote(item) {
  try {
    const answer = await ask(`/v1/items/${item.id}/votes`, by("anonymous").checked ? {} : { voter_id: voter() });
    show(item.id, answer.vote_count);
    const count = answer.vote_count === null ? "Its count follows shortly." : `It has ${answer.vote_count.toLocaleString()} now.`;
    say(answer.repeated ? `You have voted for ${brief(item.name)} before. ${count}` : `Your vote for ${brief(item.name)} is stored. ${count}`);
  } catch (error) {
    say(error.stored === "no" ? error.message : `The vote was not confirmed: ${error.message}`);
  }
}

async function refresh() {
  let from = 0;
  for (let page = 0; page < pages; page++) {
    const asked = performance.now();
    const list = await ask(`/v1/items?after=${from}`);
    for (const item of list.items) {
      add(item);
      show(item.id, item.vote_count, asked);
    }
    from = list.next_after;
    if (from === null) break;
  }
  after = from;
  by("none").hidden = rows.size > 0;
  by("more").hidden = after === null;
  // Items that were added here and whose page is not shown yet.
  for (const id of rows.keys()) {
    if (after === null || id <= after) continue;
    const asked = performance.now();
    show(id, (await ask(`/v1/items/${id}`)).vote_count, asked);
  }
}

async function keepFresh() {
  try {
    if (!document.hidden) {
      await refresh();
      const before = standing;
      standing = "";
      if (before) say(before === LOADING ? "" : "The counts are up to date again.");
    }
  } catch (error) {
    const text = `The counts cannot be read at the moment: ${error.message}`;
    if (text !== standing) say((standing = text));
  }
  setTimeout(keepFresh, REFRESH_MS);
}

by("more").addEventListener("click", () => once(by("more"), async () => {
  const from = after;
  pages += 1;
  await refresh().catch((error) => say(`More items cannot be read at the moment: ${error.message}`));
  // The first new item stands where the button was.
  [...by("items").children].find((li) => Number(li.dataset.id) > from)?.querySelector("button").focus();
}));

by("add").addEventListener("submit", (event) => {
  event.preventDefault();
  once(event.target.querySelector("button"), async () => {
    const name = by("name").value;
    try {
      const item = await ask("/v1/items", { name });
      if (by("name").value === name) by("name").value = "";
      add(item);
      show(item.id, item.vote_count);
      by("none").hidden = true;
      say(`${brief(item.name)} is added.`);
      document.activeElement?.closest("#add")?.scrollIntoView({ block: "nearest" }); // for the next one
    } catch (error) {
      say(`The new item was not confirmed: ${error.message}`);
    }
  });
});

say((standing = LOADING));
keepFresh();
