"use strict";
// Lists the items, votes, and keeps the counts moving by asking again.
const REFRESH_MS = 1000;
const VOTER_KEY = "tally-voter";

const by = (id) => document.getElementById(id);
const rows = new Map(); // item id → its elements
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

function say(text) {
  by("state").textContent = text;
}

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.detail || answer.title || response.statusText);
  return answer;
}

function show(id, count) {
  const row = rows.get(id);
  if (!row || count === null || count === row.shown) return;
  const moved = row.shown !== null;
  row.shown = count;
  row.count.textContent = count.toLocaleString();
  row.count.setAttribute("aria-label", count === 1 ? "1 vote" : `${count} votes`);
  if (moved) {
    row.count.classList.remove("moved");
    void row.count.offsetWidth; // lets the animation start again
    row.count.classList.add("moved");
  }
}

function add(item) {
  const li = document.createElement("li");
  const name = Object.assign(document.createElement("span"), { className: "name", textContent: item.name });
  const count = Object.assign(document.createElement("span"), { className: "count" });
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Vote" });
  button.setAttribute("aria-label", `Vote for ${item.name}`);
  button.addEventListener("click", () => vote(item, button));
  li.append(name, count, button);
  by("items").append(li);
  rows.set(item.id, { count, button, shown: null });
}

async function vote(item, button) {
  const anonymous = by("anonymous").checked;
  button.disabled = true;
  try {
    const answer = await ask(`/v1/items/${item.id}/votes`, anonymous ? {} : { voter_id: voter() });
    show(item.id, answer.vote_count);
    const count = answer.vote_count === null ? "Its count follows shortly." : `It has ${answer.vote_count.toLocaleString()} now.`;
    say(answer.repeated ? `You have voted for ${item.name} before. ${count}` : `Your vote for ${item.name} is stored. ${count}`);
  } catch (error) {
    say(`The vote was not confirmed: ${error.message}`);
  }
  button.disabled = false;
  button.focus();
}

async function refresh() {
  let from = 0;
  for (let page = 0; page < pages; page++) {
    const list = await ask(`/v1/items?after=${from}`);
    for (const item of list.items) {
      if (!rows.has(item.id)) add(item);
      show(item.id, item.vote_count);
    }
    after = list.next_after;
    if (after === null) break;
    from = after;
  }
  by("none").hidden = rows.size > 0;
  by("more").hidden = after === null;
}

let failing = true; // the first answer clears the greeting
async function keepFresh() {
  try {
    if (!document.hidden) await refresh();
    if (failing) say("");
    failing = false;
  } catch (error) {
    failing = true;
    say(`The counts cannot be read at the moment: ${error.message}`);
  }
  setTimeout(keepFresh, REFRESH_MS);
}

by("more").addEventListener("click", async () => {
  pages += 1;
  await refresh().catch((error) => say(error.message));
});

by("add").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const item = await ask("/v1/items", { name: by("name").value });
    by("name").value = "";
    say(`${item.name} is added.`);
    await refresh();
  } catch (error) {
    say(`The item was not added: ${error.message}`);
  }
});

keepFresh();
