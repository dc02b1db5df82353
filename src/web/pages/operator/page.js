// Shows the state of the server and its workers, now and in the last hour, and does what an operator does.
// Everything from the server goes into the page as text, never as markup.
const STATUS_MS = 2000;
const HISTORY_MS = 5000;
const ANSWER_LIMIT_MS = 35_000; // a voiding waits up to 30 s for votes that are being stored
const KEY = "tally-operator-key";
const HOUR_SECONDS = 3600;
const WIDTH = 720;
const HEIGHT = 100;
const SVG = "http://www.w3.org/2000/svg";

const by = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const drawn = (tag, attributes) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};

const say = (text) => { if (by("state").textContent !== text) by("state").textContent = text; };

let key = null;
try { key = sessionStorage.getItem(KEY); } catch { /* without storage, the key stays in this page */ }
function keep(value) {
  key = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch { /* as above */ }
}

class Refused extends Error {}

async function ask(path, { method = "GET", body } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  let response, answer;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", credentials: "omit",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(ANSWER_LIMIT_MS),
    });
    answer = response.status === 204 ? null : await response.json();
  } catch {
    throw new Error("The server does not answer.");
  }
  if (response.ok) return answer;
  const error = new Refused(answer.detail || answer.title || response.statusText);
  error.status = response.status;
  throw error;
}

// Numbers and times, for people.
const number = (value) => value === null || value === undefined ? "–" : value.toLocaleString(undefined, { maximumSignificantDigits: 4 });
const seconds = (value) => {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${number(value * 1000)} ms`;
  return `${number(value)} s`;
};
const votesOf = (count) => count === 1 ? "1 vote" : `${count.toLocaleString()} votes`;
const inUnit = (value, unit) => unit === "seconds" ? seconds(value) : value === null ? "–" : unit === "1 or 0" ? (value ? "yes" : "no") : `${number(value)} ${unit}`;
function time(text) {
  if (!text) return "–";
  return make("time", { dateTime: text, textContent: new Date(text).toLocaleString() });
}
const text = (value) => value === null || value === undefined || value === "" ? "–" : make("bdi", { textContent: String(value) });

// Fills a table's head and rows. Rows that did not change stay, so that they keep the focus.
function fill(table, heads, rows) {
  if (!table.tHead) {
    const row = table.createTHead().insertRow();
    for (const head of heads) row.append(make("th", { scope: "col", textContent: head }));
    table.createTBody();
  }
  const shown = rows.map((cells) => cells.map((cell) => cell instanceof Node ? cell.textContent : cell).join("\u0000"));
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, at) => {
    const row = body.rows[at] ?? body.insertRow();
    if (row.dataset.shown === shown[at]) return;
    row.dataset.shown = shown[at];
    row.replaceChildren(...cells.map((cell) => make("td", {}, cell)));
  });
}

// A button does one thing at a time. It is never `disabled`, because it would lose the focus.
async function once(button, work) {
  if (button.hasAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  try {
    say(alarm);
    await work();
  } catch (error) {
    failed(error);
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

function failed(error) {
  if (error.status === 401) {
    keep(null);
    login(error.message);
  } else {
    say(error.message);
  }
}

// Asks before an act, and says what it will do. Returns whether to do it.
function confirmed(title, what, yes) {
  by("ask-title").textContent = title;
  by("ask-text").textContent = what;
  by("ask-yes").textContent = yes;
  const dialog = by("ask");
  dialog.returnValue = "";
  dialog.showModal();
  by("ask-no").focus(); // the harmless button has the focus
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
by("ask-yes").addEventListener("click", () => by("ask").close("yes"));
by("ask-no").addEventListener("click", () => by("ask").close(""));

function showOnce(title, secret) {
  by("shown-title").textContent = title;
  by("shown-text").value = secret;
  by("shown").showModal();
  by("shown-text").select();
}
by("shown").addEventListener("cancel", (event) => event.preventDefault()); // Escape would lose the only copy
by("shown-done").addEventListener("click", () => by("shown").close());
by("shown").addEventListener("close", () => { by("shown-text").value = ""; });

function act(label, name, work) {
  const button = make("button", { type: "button", textContent: label });
  button.setAttribute("aria-label", name);
  button.addEventListener("click", () => once(button, work));
  return button;
}

// The state now.
function showStatus(status) {
  const { stores, latency, streams, connections } = status;
  const figures = [
    ["Postgres", stores.postgres, stores.postgres !== "ready"],
    ["Redis", stores.redis, stores.redis !== "ready"],
    ["Votes waiting", number(status.queue_votes)],
    ["Votes in a batch", number(status.batch_votes)],
    ["Vote latency, median", seconds(latency.p50_seconds)],
    ["Vote latency, p99", seconds(latency.p99_seconds)],
    ["Throttled attempts", number(status.throttled_total)],
    ["Live streams", `${number(streams.open)}, ${number(streams.refused_total)} refused`],
    ["Connections", `${number(connections.open)}, ${number(connections.refused_total)} refused`],
    ["Suspect items", number(status.suspect_items), status.suspect_items > 0],
    ["Lost votes", number(status.lost_votes?.total), status.lost_votes?.total > 0],
    ["Server started", new Date(status.started_at).toLocaleString()],
  ];
  const list = by("now");
  figures.forEach(([name, value, isWrong], at) => {
    let part = list.children[at];
    if (!part) list.append((part = make("div", {}, make("dt", { textContent: name }), make("dd"))));
    const shown = isWrong ? `${value} (check this)` : value;
    if (part.lastChild.textContent !== shown) part.lastChild.textContent = shown;
    part.lastChild.classList.toggle("wrong", Boolean(isWrong));
  });
  fill(by("votes"), ["Outcome", "Votes per second, last minute", "Votes since the start"],
    status.votes.map((one) => [one.outcome, number(one.per_second), number(one.total)]));
  const lost = status.lost_votes;
  by("lost").hidden = !(lost?.total > 0);
  if (lost?.total > 0) {
    const rest = lost.whole ? "" : " Earlier ones may be lost too.";
    by("lost-when").textContent = `${number(lost.total)} votes that servers had acknowledged are gone: stored from ${time(lost.first_stored_at)} to ${time(lost.last_stored_at)}, last found missing at ${time(lost.found_at)}.${rest}`;
    fill(by("lost-items"), ["Item", "Lost votes"], lost.items.map((one) => [String(one.item_id), number(one.total)]));
  }
  const workers = status.workers ?? [];
  fill(by("workers"), ["Worker", "State", "Last pass", "Duration", "Unsaved counts", "Age of the oldest", "Saved since its start", "Started"],
    workers.map((one) => [
      text(one.name), one.alive ? "alive" : "silent", time(one.last_pass?.ended_at),
      one.last_pass ? `${seconds(one.last_pass.took_seconds)}, ${one.last_pass.outcome}` : "–",
      number(one.unsaved_counts), seconds(one.oldest_unsaved_seconds), number(one.saved_counts), time(one.started_at),
    ]));
  fill(by("jobs"), ["Job", "State", "Last success", "Last run", "Result"],
    (status.jobs ?? []).map((one) => [
      one.name, one.holder ? "under way" : one.asked_at ? "requested" : "–", time(one.succeeded_at),
      one.last_run ? `${one.last_run.outcome}, ${seconds(one.last_run.took_seconds)}` : "–",
      one.last_run?.details ? Object.entries(one.last_run.details).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "number" ? number(value) : value}`).join(", ") : "–",
    ]));
  for (const element of document.querySelectorAll(".commands")) element.hidden = status.operator_login;
  for (const element of document.querySelectorAll(".operator")) element.hidden = !status.operator_login;
  const alive = workers.filter((one) => one.alive).length;
  const wrong = [];
  if (stores.postgres !== "ready") wrong.push("Postgres is unavailable: no votes are stored");
  else if (alive === 0) wrong.push("no worker is alive: counts are not saved");
  if (stores.redis !== "ready") wrong.push("Redis is unavailable: votes are stored, but counted later");
  return wrong.length ? `Check this: ${wrong.join("; ")}.` : "";
}

// Last hour.
const hour = { at: [], curves: new Map() };
function showHistory(history) {
  hour.at.push(...history.at);
  const excess = Math.max(0, hour.at.length - history.limit);
  hour.at.splice(0, excess);
  for (const curve of history.curves) {
    let kept = hour.curves.get(curve.name);
    if (!kept) hour.curves.set(curve.name, (kept = { ...curve, values: [], ...figureOf(curve) }));
    kept.values.push(...curve.values);
    kept.values.splice(0, excess);
    draw(kept);
  }
}

function figureOf(curve) {
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const band = drawn("rect", { class: "band", x: 0, width: WIDTH });
  const line = drawn("path", { class: "line" });
  svg.append(band, line);
  const value = make("p", { className: "value" });
  const { least, most, why } = curve.normal;
  const bounds = most !== null ? `Normal: at most ${inUnit(most, curve.unit)}. ` : least !== null ? `Normal: at least ${inUnit(least, curve.unit)}. ` : "";
  const caption = make("figcaption", { textContent: bounds + why });
  const figure = make("figure", {}, make("h3", { textContent: curve.title }), value, svg, caption);
  by("curves").append(figure);
  return { figure, svg, band, line, value };
}

const isOff = ({ least, most }, value) => value !== null && ((most !== null && value > most) || (least !== null && value < least));

function draw(curve) {
  const { values, normal, unit } = curve;
  const known = values.filter((value) => value !== null);
  const top = Math.max(...known, normal.least ?? 0, 1e-9) * 1.1;
  // A bound far above all values would flatten the curve. Then the band fills the picture.
  const y = (value) => HEIGHT - (Math.min(value, top) / top) * HEIGHT;
  const end = hour.at.at(-1) ?? 0;
  const x = (at) => WIDTH * (1 - (end - at) / HOUR_SECONDS);
  let path = "";
  let isDown = false;
  values.forEach((value, at) => {
    if (value === null) { isDown = false; return; }
    path += `${isDown ? "L" : "M"}${x(hour.at[at]).toFixed(1)} ${y(value).toFixed(1)}`;
    isDown = true;
  });
  curve.line.setAttribute("d", path);
  const hasBounds = normal.least !== null || normal.most !== null;
  const upper = normal.most === null ? 0 : y(normal.most);
  const lower = normal.least === null ? HEIGHT : y(normal.least);
  curve.band.setAttribute("y", upper);
  curve.band.setAttribute("height", hasBounds ? Math.max(lower - upper, 2) : 0);
  const last = values.at(-1) ?? null;
  const off = isOff(normal, last);
  const was = values.filter((value) => isOff(normal, value)).length;
  curve.figure.classList.toggle("off", off);
  curve.value.textContent = inUnit(last, unit) + (off ? ": not normal" : was > 0 ? "; was not normal in the last hour" : "");
  const spread = known.length ? `between ${inUnit(Math.min(...known), unit)} and ${inUnit(Math.max(...known), unit)}` : "without a value";
  curve.svg.setAttribute("aria-label", `${curve.title}, last hour: ${spread}, now ${inUnit(last, unit)}.`);
}

// Lists.
async function showKeys() {
  const { api_keys: keys } = await ask("/v1/api-keys");
  fill(by("keys"), ["Id", "Name", "Scopes", "State", "Last used", "Expires", "Actions"], keys.map((one) => {
    const name = `API key ${one.id}, ${one.name}`;
    const acts = make("div", { className: "bar" });
    if (one.valid) {
      acts.append(
        act("Revoke…", `Revoke ${name}`, async () => {
          if (!await confirmed("Revoke a key", `${name}, stops working at once on this server, and within a minute on others. This cannot be undone.`, "Revoke it")) return;
          await ask(`/v1/api-keys/${one.id}`, { method: "DELETE" });
          say(`${name}, was revoked.`);
          await showKeys();
        }));
      const rotate = act("Rotate…", `Rotate ${name}`, async () => {
        if (!await confirmed("Rotate a key", `A new key with the same name and scopes is created and shown once. ${name}, stops working in an hour.`, "Rotate it")) return;
        const made = await ask(`/v1/api-keys/${one.id}/rotate`, { method: "POST", body: {} });
        showOnce(`API key ${made.id}`, made.key);
        await showKeys();
      });
      rotate.classList.add("operator");
      acts.append(rotate);
    }
    return [String(one.id), text(one.name), one.scopes.join(", "), one.valid ? "valid" : one.revoked_at ? "revoked" : "expired", time(one.last_used_at), time(one.expires_at), acts];
  }));
}

async function showVoidings() {
  const { voidings } = await ask("/v1/voidings?limit=20");
  fill(by("voidings"), ["Id", "State", "Filter", "Reason", "Voided", "Cast again", "Left void", "Actions"], voidings.map((one) => {
    const name = `voiding ${one.id}`;
    const of = [one.voter_id && `voter ${one.voter_id}`, one.item_id && `item ${one.item_id}`, one.from && `from ${one.from}`, one.until && `until ${one.until}`, one.by_address && "certain clients", one.api_key_id && `API key ${one.api_key_id}`].filter(Boolean).join(", ");
    const acts = make("div", { className: "bar" });
    const go = (label, title, what, path) => act(label, `${label.replace("…", "")} ${name}`, async () => {
      if (!await confirmed(title, what, title)) return;
      await ask(`/v1/voidings/${one.id}/${path}`, { method: "POST" });
      say(`${name} is under way.`);
      await showVoidings();
    });
    if (!one.under_way && (one.state === "voiding" || one.state === "undoing"))
      acts.append(go("Resume…", `Resume ${name}`, `The voiding was interrupted. It continues from vote ${one.state === "voiding" ? one.done_vote_id : "where it stopped"}. If it is also under way on another server, both take turns, and nothing is done twice.`, "resume"));
    if (one.state === "voided" && one.voided_votes > 0)
      acts.append(go("Undo…", `Undo ${name}`, `${votesOf(one.voided_votes)} will be cast again. Some may stay void: votes that their voters have replaced since, votes on full items, and choices beyond the poll's limit. Votes that are cast again have no number. There is no dry run.`, "undo"));
    const share = one.until_vote_id > 0 ? Math.floor((100 * Math.min(one.done_vote_id, one.until_vote_id)) / one.until_vote_id) : 100;
    const state = one.state === "voiding" ? `voiding, ${share}%${one.under_way ? "" : ", not under way here"}` : one.state;
    return [String(one.id), state, text(of), text(one.reason), number(one.voided_votes), number(one.restored_votes), number(one.left_votes), acts];
  }));
}

const trail = { acts: [], before: null, query: "" };
async function showTrail(isOlder) {
  const query = new URLSearchParams({ limit: "50" });
  if (by("trail-who").value.trim()) query.set("who", by("trail-who").value.trim());
  if (by("trail-what").value.trim()) query.set("what", by("trail-what").value.trim());
  if (isOlder && trail.before) query.set("before", trail.before);
  const page = await ask(`/v1/trail?${query}`);
  trail.acts = isOlder ? trail.acts.concat(page.acts) : page.acts;
  trail.before = page.next_before;
  fill(by("trail"), ["Id", "Time", "Who", "What", "Target", "Outcome", "From", "Details"], trail.acts.map((one) => [
    String(one.id), time(one.acted_at), text(one.who), one.what, text(one.target),
    one.problem ? `${one.outcome}: ${one.problem}` : one.outcome, text([one.tool, one.address].filter(Boolean).join(" ")),
    text(one.details && Object.keys(one.details).length ? JSON.stringify(one.details) : ""),
  ]));
  by("older").hidden = page.next_before === null;
}

// Forms.
function form(id, work) {
  by(id).addEventListener("submit", (event) => {
    event.preventDefault();
    once(event.submitter ?? event.target.querySelector("button"), () => work(event.target));
  });
}
const value = (id) => by(id).value.trim() || undefined;
const reference = (written) => /^[1-9][0-9]*$/.test(written ?? "") ? Number(written) : written;
const moment = (id) => by(id).value ? new Date(by(id).value).toISOString() : undefined;

by("key").addEventListener("input", ({ target }) => {
  if (target.value !== target.value.trim()) target.value = target.value.trim(); // a copied key may have spaces around it
});
form("login", async () => {
  keep(by("key").value.trim());
  by("key").value = "";
  await open();
});
by("leave").addEventListener("click", () => { keep(null); location.reload(); });

by("audit").addEventListener("click", () => once(by("audit"), async () => {
  if (!await confirmed("Audit now", "A worker compares all counts with the ledger within seconds, and has wrong counts rebuilt. It reads every item. Voting continues meanwhile.", "Audit now")) return;
  await ask("/v1/audits", { method: "POST" });
  say("The audit was requested.");
}));

form("new-item", async (target) => {
  const body = { name: by("item-name").value, key: value("item-key"), max_votes: value("item-max") && Number(value("item-max")) };
  if (!by("item-down").checked) body.down_votes = false;
  if (by("item-ballot").checked) body.by_ballot = true;
  if (!await confirmed("Create an item", `The item “${body.name}” will be created${body.key ? `, with the key ${body.key}` : ""}. Items cannot be deleted, only hidden.`, "Create it")) return;
  const item = await ask("/v1/items", { method: "POST", body });
  target.reset();
  say(`Item ${item.id}, ${item.name}, was created.`);
});

form("new-poll", async (target) => {
  const choices = by("poll-choices").value.split("\n").map((line) => line.trim()).filter(Boolean);
  const body = { title: by("poll-title").value, choices, key: value("poll-key"), max_choices: Number(by("poll-max").value) };
  if (by("poll-ballot").checked) body.by_ballot = true;
  if (!await confirmed("Create a poll", `The poll “${body.title}” will be created with ${choices.length} choices. A voter may hold ${body.max_choices}:\n${choices.join("\n")}\nChoices may be added until the poll closes, and never removed.`, "Create it")) return;
  const poll = await ask("/v1/polls", { method: "POST", body });
  target.reset();
  say(`Poll ${poll.id}, ${poll.title}, was created.`);
});

// The path of what belongs to an item or a poll. A proxy may decode %2F in a path, but not in a query.
const below = (of, id, rest) => `/v1/${of}/${id.startsWith("key:") ? `key:/${rest}?${new URLSearchParams({ key: id.slice(4) })}` : `${encodeURIComponent(id)}/${rest}`}`;

form("copy-poll", async (target) => {
  const id = value("copy-of");
  const body = { title: value("copy-title"), key: value("copy-key"), opens_at: moment("copy-opens"), closes_at: moment("copy-closes") };
  if (!await confirmed("Create a poll from another one", `A poll like poll ${id} will be created${body.closes_at ? `, which closes at ${new Date(body.closes_at).toLocaleString()}` : ""}. It has no votes.`, "Create it")) return;
  const poll = await ask(below("polls", id, "copy"), { method: "POST", body });
  target.reset();
  say(`Poll ${poll.id}, ${poll.title}, was created.`);
});

form("new-choice", async (target) => {
  const [id, name] = [value("choice-of"), by("choice-name").value];
  if (!await confirmed("Add a choice", `The choice “${name}” will be added to poll ${id}, and cannot be removed. Votes that are cast stay as they are.`, "Add it")) return;
  const poll = await ask(below("polls", id, "choices"), { method: "POST", body: { name } });
  target.reset();
  say(`Poll ${poll.id}, ${poll.title}, has ${poll.choices.length} choices.`);
});

form("new-ballots", async (target) => {
  const [of, id, count] = [by("ballots-of").value, value("ballots-id"), Number(by("ballots-count").value)];
  if (!await confirmed("Create ballots", `${count} ballots will be created for ${of === "polls" ? "poll" : "item"} ${id}, and shown once. Each buys one vote and cannot be revoked.`, "Create them")) return;
  const made = await ask(below(of, id, "ballots"), { method: "POST", body: { count } });
  target.reset();
  showOnce(`${made.ballots.length} ballots`, made.ballots.join("\n"));
});

form("new-voiding", async (target) => {
  const body = { voter_id: by("void-voter").value || undefined, item: reference(value("void-item")), from: moment("void-from"), until: moment("void-until"), reason: by("void-reason").value };
  let votes = 0, sum = 0, after, dry;
  do {
    dry = await ask("/v1/voidings", { method: "POST", body: { ...body, dry_run: true, after } });
    [votes, sum, after] = [votes + dry.votes, sum + dry.sum, dry.next_after ?? undefined];
    if (!dry.complete) say(`Counting: ${votesOf(votes)} up to vote ${after}…`);
  } while (!dry.complete);
  say(`The dry run found ${votesOf(votes)}.`);
  if (votes === 0) return;
  if (!await confirmed("Void votes", `${votesOf(votes)} will be taken back, with values that add up to ${sum.toLocaleString()}: the counts together change by ${(-sum).toLocaleString()}. Each gets a row that takes it back. Votes that are cast from now on are not voided. The voiding continues if you close this page, and can be undone.`, `Void ${votesOf(votes)}`)) return;
  const voiding = await ask("/v1/voidings", { method: "POST", body: { ...body, dry_run: false } });
  target.reset();
  say(`Voiding ${voiding.id} is under way.`);
  await showVoidings();
});

form("new-key", async (target) => {
  const scopes = [...target.querySelectorAll("[name=scope]:checked")].map((box) => box.value);
  if (scopes.length === 0) { say("Choose at least one scope."); return; }
  const name = by("key-name").value;
  if (!await confirmed("Create an API key", `The key “${name}” will be created with the scopes ${scopes.join(", ")}, and shown once. It works until it is revoked.`, "Create it")) return;
  const made = await ask("/v1/api-keys", { method: "POST", body: { name, scopes } });
  target.reset();
  showOnce(`API key ${made.id}`, made.key);
  await showKeys();
});

form("trail-filter", () => showTrail(false));
by("older").addEventListener("click", () => once(by("older"), () => showTrail(true)));

// The page stays closed until a key is valid, or no key is needed.
let isOpen = false;
let alarm = "";
function login(why) {
  isOpen = false;
  by("all").hidden = true;
  by("leave").hidden = true;
  by("login").hidden = false;
  say(why);
  by("key").focus();
}

async function refresh() {
  const status = await ask("/v1/status");
  const now = showStatus(status);
  if (now !== alarm) say((alarm = now));
  return status;
}

// What changes slowly is read when the page opens and after acts.
async function lists(status) {
  await showKeys();
  if (!status.operator_login) return;
  await showVoidings();
  await showTrail(false);
}

async function open() {
  let status;
  try {
    status = await ask("/v1/status");
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      const wasKey = key !== null;
      keep(null);
      login(wasKey ? error.message : "");
      return;
    }
    say(error.message);
    setTimeout(open, STATUS_MS);
    return;
  }
  isOpen = true;
  by("login").hidden = true;
  by("all").hidden = false;
  by("leave").hidden = key === null;
  say((alarm = showStatus(status)));
  await showHistoryNow().catch(failed);
  await lists(status).catch(failed);
}

async function showHistoryNow() {
  showHistory(await ask(`/v1/status/history?after=${hour.at.at(-1) ?? 0}`));
}

function every(ms, work) {
  setTimeout(async () => {
    if (isOpen && !document.hidden) await work().catch(failed);
    every(ms, work);
  }, ms);
}
every(STATUS_MS, refresh);
every(HISTORY_MS, async () => {
  await showHistoryNow();
  // A voiding that is under way makes progress.
  if (!document.querySelector(".operator").hidden) await showVoidings();
});
open();
