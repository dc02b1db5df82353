// The elements <tally-count>, <tally-vote>, <tally-poll> and <tally-history>, for any page of an allowed origin.
// One stream serves all elements of a page; it is closed while the page is hidden. docs/EMBED.md says how to use them.

const SERVER = new URL(import.meta.url).origin;
const STREAM_LIMIT_ITEMS = 100; // as the server's
const STREAM_LIMIT_POLLS = 10;
const DELAY_MS = 30; // elements of a page that come at once are asked for at once
const ANSWER_LIMIT_MS = 10_000;
const RETRY_LEAST_MS = 1000;
const RETRY_MOST_MS = 30_000;
const OTHERS_EVERY_MS = 10_000; // what is beyond the limits of a stream
const HISTORY_EVERY_MS = 60_000;
const MESSAGE_MS = 8000;
const LINES_LIMIT = 5; // choices in a history
const STORED_VOTER = "tally-voter";

// What a host page may set: `token`, a function that gives a voter's token (docs/OPERATING.md, "Voters").
const settings = { token: null };
export function configure(changes) {
  Object.assign(settings, changes);
  voter.forget();
  watch.soon(); // what this voter holds
}

class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answers ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

export async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const token = await settings.token?.();
  if (token) headers.authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(ANSWER_LIMIT_MS);
  const asked = { method, headers, signal, credentials: "include" };
  if (body !== undefined) asked.body = JSON.stringify(body);
  let response, answer;
  try {
    response = await fetch(SERVER + path, asked);
    answer = response.status === 204 ? {} : await response.json();
  } catch {
    throw new Error(await whyNoAnswer());
  }
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

// A browser does not say whether a server is unavailable or does not let this page read its answers.
async function whyNoAnswer() {
  if (SERVER !== location.origin) {
    try {
      await fetch(`${SERVER}/health/live`, { mode: "no-cors", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
      return "This page may not use these votes: its origin is not allowed.";
    } catch {
      // It is unavailable.
    }
  }
  return "The server does not answer.";
}

// Who votes in this browser: a voter's cookie or token where the server gives one, else a name of this
// browser's own, else nobody in particular.
const voter = {
  known: null,
  forget() {
    this.known = null;
    keep(null);
  },
  // Without asking the server: null for a browser that has not voted yet.
  remembered() {
    if (this.known || settings.token) return this.known;
    try {
      this.known = JSON.parse(localStorage.getItem(STORED_VOTER));
      if (typeof this.known?.id !== "string") this.known = null;
    } catch {
      this.known = null;
    }
    return this.known;
  },
  // A token names its voter, also where the server gives no cookies.
  async given() {
    if (settings.token) {
      try {
        return await ask("GET", "/v1/voter");
      } catch (error) {
        if (error.status !== 404) throw error; // no token: nobody has logged in
      }
    }
    return ask("POST", "/v1/voter", {});
  },
  async identify() {
    if (this.remembered()) return this.known;
    try {
      this.known = { id: (await this.given()).voter_id, own: true };
    } catch (error) {
      const without = settings.token ? [404] : [401, 403, 404];
      if (!(error instanceof Refused) || !without.includes(error.status)) throw error;
      const bytes = crypto.getRandomValues(new Uint8Array(12));
      this.known = { id: "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""), own: false };
    }
    if (!settings.token) keep(this.known);
    return this.known;
  },
};

function keep(known) {
  try {
    if (known) localStorage.setItem(STORED_VOTER, JSON.stringify(known));
    else localStorage.removeItem(STORED_VOTER);
  } catch {
    // Without storage, one voter a visit.
  }
}

// Does something as the voter of this browser. A credential that is not good any more is replaced, once.
async function asVoter(work) {
  const known = await voter.identify();
  try {
    return await work(known.id);
  } catch (error) {
    if (!(error instanceof Refused) || ![401, 403].includes(error.status) || settings.token || !known.own) throw error;
    voter.forget();
    return work((await voter.identify()).id);
  }
}

// What the elements of this page show, and the one stream that keeps it current.
const watch = {
  items: new Map(),
  polls: new Map(),
  stream: null,
  timer: 0,
  failures: 0,
  connected: null,

  add(kind, reference, element) {
    const all = this[kind];
    if (!all.has(reference)) all.set(reference, new Set());
    all.get(reference).add(element);
    element.toggleAttribute("stale", this.connected === false);
    this.soon();
  },
  remove(kind, reference, element) {
    const elements = this[kind].get(reference);
    elements?.delete(element);
    if (elements?.size === 0) this[kind].delete(reference);
    this.soon();
  },
  soon(delay = DELAY_MS) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), delay);
  },
  close() {
    clearTimeout(this.timer);
    this.stream?.close();
    this.stream = null;
  },
  async open() {
    this.close();
    const [items, polls] = [[...this.items.keys()], [...this.polls.keys()]];
    if (document.hidden || (items.length === 0 && polls.length === 0)) return;
    const query = new URLSearchParams();
    if (items.length) query.set("items", items.slice(0, STREAM_LIMIT_ITEMS).join(","));
    if (polls.length) query.set("polls", polls.slice(0, STREAM_LIMIT_POLLS).join(","));
    const stream = new EventSource(`${SERVER}/v1/stream?${query}`);
    this.stream = stream;
    stream.addEventListener("counts", (event) => {
      this.failures = 0;
      this.say(true);
      this.deliver(JSON.parse(event.data));
    });
    // A stream that comes back shows only what changed meanwhile, which may be nothing.
    stream.addEventListener("open", () => this.say(true));
    stream.addEventListener("error", () => {
      if (this.stream !== stream) return;
      // The browser tries again by itself, unless the server refused.
      if (stream.readyState !== EventSource.CLOSED) return this.say(false, "Connection lost. Trying again …");
      this.refused();
    });
    this.others(items.slice(STREAM_LIMIT_ITEMS), polls.slice(STREAM_LIMIT_POLLS));
    this.held();
  },
  // Without a stream, what it would show is asked for. That also tells what is not there.
  async refused() {
    this.close();
    const wait = Math.min(RETRY_MOST_MS, RETRY_LEAST_MS * 2 ** this.failures++);
    try {
      await this.read([...this.items.keys()], [...this.polls.keys()]);
      this.say(true);
    } catch (error) {
      this.say(false, `${error.message} Trying again …`);
    }
    if (!document.hidden) this.soon(wait * (0.5 + Math.random() / 2));
  },
  async others(items, polls) {
    if (items.length === 0 && polls.length === 0) return;
    const stream = this.stream;
    const again = async () => {
      if (this.stream !== stream || document.hidden) return;
      await this.read(items, polls).catch(() => {});
      setTimeout(again, OTHERS_EVERY_MS);
    };
    again();
  },
  async read(items, polls) {
    const found = { items: [], polls: [] };
    for (let at = 0; at < items.length; at += STREAM_LIMIT_ITEMS) {
      const ids = new URLSearchParams({ ids: items.slice(at, at + STREAM_LIMIT_ITEMS).join(",") });
      found.items.push(...(await ask("GET", `/v1/items?${ids}`)).items);
    }
    for (const poll of polls) {
      try {
        found.polls.push(await ask("GET", `/v1/polls/${encodeURIComponent(poll)}`));
      } catch (error) {
        if (error.status !== 404) throw error;
      }
    }
    this.deliver(found);
    const isThere = (reference, one) => reference === String(one.id) || reference === `key:${one.key}`;
    for (const [kind, name, asked] of [["items", "item", items], ["polls", "poll", polls]]) {
      for (const reference of asked) {
        if (found[kind].some((one) => isThere(reference, one))) continue;
        // A stream that asks for it would be refused.
        for (const element of this[kind].get(reference) ?? []) element.missing(`There is no ${name} ${reference}.`);
        this[kind].delete(reference);
      }
    }
  },
  deliver({ items, polls }) {
    for (const [all, shown] of [[this.items, items], [this.polls, polls]]) {
      for (const one of shown) {
        for (const reference of [String(one.id), `key:${one.key}`]) {
          for (const element of all.get(reference) ?? []) element.show(one);
        }
      }
    }
  },
  // What the voter of this browser holds, in one request for the whole page.
  async held() {
    const known = voter.remembered();
    const of = (all) => [...all].filter(([, elements]) => [...elements].some((one) => one.wantsHeld)).map(([reference]) => reference);
    const [items, polls] = [of(this.items).slice(0, 1000), of(this.polls).slice(0, 100)];
    if ((!known && !settings.token) || (items.length === 0 && polls.length === 0)) return;
    try {
      const query = new URLSearchParams({ voter_id: (known ?? (await voter.identify())).id });
      if (items.length) query.set("items", items.join(","));
      if (polls.length) query.set("polls", polls.join(","));
      const { votes } = await ask("GET", `/v1/votes?${query}`);
      for (const elements of [...this.items.values(), ...this.polls.values()]) {
        for (const element of elements) element.hold?.(votes);
      }
    } catch (error) {
      if (!settings.token && [401, 403].includes(error.status)) voter.forget();
    }
  },
  say(connected, reason = "") {
    if (this.connected === connected) return;
    const was = this.connected;
    this.connected = connected;
    if (connected && was === null) return;
    document.dispatchEvent(new CustomEvent("tally-connection", { detail: { connected, reason } }));
    for (const elements of [...this.items.values(), ...this.polls.values()]) {
      for (const element of elements) element.toggleAttribute("stale", !connected);
    }
  },
};

document.addEventListener("visibilitychange", () => (document.hidden ? watch.close() : watch.soon(0)));
addEventListener("pagehide", () => watch.close());
addEventListener("pageshow", (event) => event.persisted && watch.soon(0));

const sheet = new CSSStyleSheet();
sheet.replaceSync(`
:host { display: block; color: var(--tally-ink, inherit); font: inherit; line-height: 1.4;
  --accent: var(--tally-accent, light-dark(#3546c9, #a3afff)); --fill: var(--tally-fill, light-dark(#e4e8fd, #2b3263));
  --soft: var(--tally-soft, light-dark(#565d6b, #a6adba)); --line: var(--tally-line, light-dark(#dddfe4, #323844));
  --bad: var(--tally-bad, light-dark(#b3261e, #ff9d94)); --round: var(--tally-radius, 0.75rem); }
:host([hidden]), [hidden], slot ~ * { display: none !important; }
* { box-sizing: border-box; }
[part~="count"], [part~="share"] { font-variant-numeric: tabular-nums; }
[part="buttons"] [part="count"], :host(tally-count) [part="count"] { direction: ltr; unicode-bidi: isolate; } /* -1, not 1- */
[part="box"] { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; align-items: center; }
[part="name"] { flex: 1 1 8rem; min-width: 0; overflow-wrap: anywhere; }
[part="buttons"] { display: flex; align-items: center; gap: 0.25rem; margin-inline-start: auto; }
[part="buttons"] [part="count"] { min-width: 4ch; padding-inline: 0.25rem; text-align: center; font-size: 1.15em; font-weight: 650; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: calc(var(--round) * 0.75); cursor: pointer; }
[part="up"], [part="down"] { display: grid; place-items: center; width: 2.75rem; height: 2.75rem; color: var(--soft); }
svg.mark { width: 1.1rem; height: 1.1rem; fill: none; stroke: currentColor; stroke-width: 2.4; stroke-linecap: round; stroke-linejoin: round; }
button[aria-pressed="true"] { color: var(--tally-on-accent, light-dark(#ffffff, #12142b)); background: var(--accent); border-color: var(--accent); }
button[aria-disabled="true"] { cursor: default; }
button:focus-visible, input:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
@media (hover: hover) { button:not([aria-disabled="true"]):hover { border-color: var(--accent); } }
[part="message"], [part="note"] { margin: 0; }
[part="message"]:empty, [part="note"]:empty { position: absolute; }
[part="message"]:not(:empty), [part="note"]:not(:empty) { flex-basis: 100%; margin: 0.5rem 0 0; color: var(--soft); font-size: 0.92em; overflow-wrap: anywhere; }
[part="message"].bad { color: var(--bad); }
[part="title"] { margin: 0 0 0.75rem; font-size: 1.15em; font-weight: 650; line-height: 1.25; overflow-wrap: anywhere; text-wrap: balance; }
[part="choices"] { display: grid; gap: 0.5rem; margin: 0; padding: 0; list-style: none; }
[part="choice"] { position: relative; display: grid; grid-template-columns: 1.2rem 1fr auto; gap: 0.6rem; align-items: center; width: 100%; min-height: 2.75rem; padding: 0.35rem 0.8rem; overflow: hidden; text-align: start; isolation: isolate; }
[part="choice"][aria-pressed="true"] { color: inherit; background: none; border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
[part="bar"] { position: absolute; inset: 0; z-index: -1; background: var(--fill); transform-origin: 0 0; transform: scaleX(var(--share, 0)); transition: transform 0.4s ease-out; }
:host(:dir(rtl)) [part="bar"] { transform-origin: 100% 0; }
[part="choice"] .mark { width: 1.2rem; height: 1.2rem; padding: 0.15rem; color: transparent; border: 1.5px solid var(--soft); border-radius: 50%; }
[part="choice"][aria-pressed="true"] .mark { color: var(--tally-on-accent, light-dark(#ffffff, #12142b)); background: var(--accent); border-color: var(--accent); }
[part="choice"][aria-disabled="true"]:not([aria-pressed="true"]) .mark { visibility: hidden; }
[part="choice-name"] { min-width: 0; overflow-wrap: anywhere; }
[part="figures"] { display: flex; gap: 0.6rem; align-items: baseline; }
[part~="share"] { font-weight: 650; }
[part~="share"]:empty { display: none; }
[part="figures"] [part="count"] { color: var(--tally-ink, inherit); font-size: 0.92em; }
[part="ballot"] { display: grid; gap: 0.25rem; margin: 0 0 0.75rem; color: var(--soft); font-size: 0.92em; }
input { font: inherit; width: 100%; min-height: 2.75rem; padding: 0 0.75rem; color: inherit; background: var(--tally-card, transparent); border: 1px solid var(--soft); border-radius: calc(var(--round) * 0.75); }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:host([stale]) [part~="count"], :host([stale]) [part~="share"] { opacity: 0.75; }
svg.chart { display: block; width: 100%; height: 9rem; overflow: visible; }
svg.chart polyline { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
:host(:dir(rtl)) svg.chart { transform: scaleX(-1); }
svg.chart line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.ends { display: flex; justify-content: space-between; color: var(--soft); font-size: 0.85em; }
.line-1 { stroke-dasharray: 6 4; } .line-2 { stroke-dasharray: 2 4; } .line-3 { stroke-dasharray: 10 4 2 4; } .line-4 { stroke-dasharray: 1 6; }
.legend li { display: flex; align-items: center; min-width: 0; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; margin: 0.5rem 0 0; padding: 0; list-style: none; font-size: 0.92em; }
.legend svg.chart { width: 1.8rem; height: 0.6rem; margin-inline-end: 0.4rem; }
@media (prefers-reduced-motion: reduce) { [part="bar"] { transition: none; } }
@media (forced-colors: active) { [part="bar"] { background: Highlight; opacity: 0.35; } button[aria-pressed="true"] { border-color: Highlight; } [part="choice"][aria-pressed="true"] .mark { forced-color-adjust: none; color: HighlightText; background: Highlight; } }
`);

const inline = new CSSStyleSheet();
inline.replaceSync(":host { display: inline; }");

const make = (tag, part, properties = {}) => {
  const one = Object.assign(document.createElement(tag), properties);
  if (part) one.setAttribute("part", part);
  return one;
};
const SVG = "http://www.w3.org/2000/svg";
const shape = (tag, attributes = {}) => {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  return one;
};
const mark = (path) => {
  const svg = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "mark" });
  svg.append(shape("path", { d: path }));
  return svg;
};
const UP = "M3 10l5-5 5 5";
const DOWN = "M3 6l5 5 5-5";
const CHECK = "M3 8.5l3.5 3.5L13 4.5";
const plural = (count, one, many) => `${count.toLocaleString()} ${count === 1 ? one : many}`;
const when = (text) => new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

class Watching extends HTMLElement {
  #watched = null;
  #before = document.createElement("slot");
  // What the voter holds on it is shown.
  wantsHeld = false;
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
    this.build();
    // What the page has between the tags stands here until there is something to show.
    this.root.prepend(this.#before);
  }
  #begin() {
    this.#before.remove();
  }
  get reference() {
    return this.getAttribute(this.constructor.kind);
  }
  connectedCallback() {
    if (!this.hasChildNodes()) this.#begin();
    this.#follow();
  }
  disconnectedCallback() {
    this.#follow(null);
  }
  // Shows an item or a poll, as the server answers it.
  show(one) {
    this.#begin();
    this.render(one);
    this.emit("tally-counts", one);
  }
  attributeChangedCallback() {
    if (this.isConnected) this.#follow();
  }
  #follow(reference = this.reference) {
    if (reference === this.#watched) return;
    const kind = `${this.constructor.kind}s`;
    if (this.#watched) watch.remove(kind, this.#watched, this);
    this.#watched = reference;
    if (reference) watch.add(kind, reference, this);
  }
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
  missing(text) {
    this.#begin();
    this.say?.(text, true);
    this.emit("tally-error", { message: text });
  }
}

class Count extends Watching {
  static kind = "item";
  static observedAttributes = ["item"];
  build() {
    this.number = make("span", "count");
    this.root.adoptedStyleSheets = [sheet, inline];
    this.root.append(this.number);
  }
  render(item) {
    const field = { up: "up_count", down: "down_count" }[this.getAttribute("show")] ?? "vote_count";
    this.number.textContent = item[field] === null ? "–" : item[field].toLocaleString();
  }
  say(text) {
    this.number.textContent = "–";
    this.title = text;
  }
}

// What votes: it says what became of it, and does one thing at a time.
class Voting extends Watching {
  wantsHeld = true;
  #busy = false;
  #fading = 0;
  say(text, isBad = false) {
    clearTimeout(this.#fading);
    this.message.textContent = text;
    this.message.classList.toggle("bad", isBad);
    if (text && !isBad) this.#fading = setTimeout(() => this.say(""), MESSAGE_MS);
  }
  async once(work) {
    if (this.#busy) return;
    this.#busy = true;
    try {
      await work();
    } catch (error) {
      const wait = error.problem?.type === "/problems/throttled" ? " Wait a little." : "";
      const unsure = error.problem?.stored === "unknown" ? " Whether your vote counts is not known; vote again to be sure: it counts once." : "";
      this.say(known(error) + wait + unsure, true);
      this.emit("tally-error", { message: error.message, problem: error.problem ?? null });
    }
    this.#busy = false;
  }
}

// What is wrong, for who votes.
function known(error) {
  if (error instanceof Refused && error.status === 401) return "Votes are only taken from voters who are known here.";
  return error.message;
}

class Vote extends Voting {
  static kind = "item";
  static observedAttributes = ["item"];
  value = 0;
  build() {
    this.name = make("span", "name", { dir: "auto" });
    this.count = make("span", "count", { textContent: "–" });
    this.unit = make("span", null, { className: "unseen" });
    this.up = make("button", "up", { type: "button" });
    this.down = make("button", "down", { type: "button" });
    this.up.append(mark(UP));
    this.down.append(mark(DOWN));
    this.up.setAttribute("aria-label", "Vote up");
    this.down.setAttribute("aria-label", "Vote down");
    this.up.addEventListener("click", () => this.toggle(1));
    this.down.addEventListener("click", () => this.toggle(-1));
    this.buttons = make("div", "buttons");
    this.buttons.setAttribute("role", "group");
    const count = make("span");
    count.append(this.count, this.unit);
    this.buttons.append(this.up, count, this.down);
    this.ballot = ballotField();
    this.note = make("p", "note");
    this.message = make("p", "message");
    this.message.setAttribute("role", "status");
    const box = make("div", "box");
    box.append(this.name, this.buttons, this.ballot.label, this.note, this.message);
    this.root.append(box);
    this.press();
  }
  press() {
    for (const [button, value] of [[this.up, 1], [this.down, -1]]) button.setAttribute("aria-pressed", String(this.value === value));
  }
  render(item) {
    this.item = item;
    this.name.textContent = item.name;
    this.name.hidden = this.hasAttribute("no-name");
    this.buttons.setAttribute("aria-label", item.name);
    this.up.setAttribute("aria-label", `Vote up: ${item.name}`);
    this.down.setAttribute("aria-label", `Vote down: ${item.name}`);
    this.down.hidden = item.down_votes === false;
    this.ballot.label.hidden = !item.by_ballot;
    this.counts(item);
    const now = Date.now();
    const notes = [];
    if (item.opens_at && Date.parse(item.opens_at) > now) notes.push(`Opens ${when(item.opens_at)}.`);
    else if (item.closes_at && Date.parse(item.closes_at) <= now) notes.push(`Closed ${when(item.closes_at)}.`);
    else if (item.closes_at) notes.push(`Closes ${when(item.closes_at)}.`);
    if (item.max_votes) notes.push(`${(item.up_count + item.down_count).toLocaleString()} of ${plural(item.max_votes, "place", "places")} taken.`);
    this.note.textContent = notes.join(" ");
  }
  counts({ vote_count }) {
    this.count.textContent = vote_count === null ? "–" : vote_count.toLocaleString();
    this.unit.textContent = vote_count === null ? " count follows" : vote_count === 1 ? " vote" : " votes";
  }
  hold(votes) {
    if (!this.item && !/^\d+$/.test(this.reference)) return;
    const id = this.item?.id ?? Number(this.reference);
    this.value = votes.find((vote) => vote.item_id === id)?.value ?? 0;
    this.press();
  }
  toggle(wanted) {
    return this.once(async () => {
      const path = `/v1/items/${encodeURIComponent(this.reference)}/votes`;
      const value = this.value === wanted ? 0 : wanted;
      let answer;
      if (this.item?.by_ballot) {
        answer = await ask("POST", path, { value: wanted, ballot: this.ballot.input.value.trim() });
        this.ballot.input.value = "";
      } else {
        answer = await asVoter((id) => {
          const own = `${path}/${encodeURIComponent(id)}`;
          return value === 0 ? ask("DELETE", own) : ask("PUT", own, { value });
        }).catch((error) => {
          // Where votes are taken from nobody in particular, each is a further one.
          if (![401, 403].includes(error.status) || value !== 1) throw error;
          return ask("POST", path, {});
        });
      }
      this.value = answer.voter_id ? answer.value : 0;
      this.press();
      if (answer.vote_count !== null) this.counts(answer);
      const number = answer.number ? ` It is number ${answer.number.toLocaleString()}.` : "";
      this.say(answer.value === 0 ? "Your vote is taken back." : `Your vote counts.${number}`);
      this.emit("tally-vote", answer);
    });
  }
}

function ballotField() {
  const label = make("label", "ballot", { textContent: "Your ballot", hidden: true });
  const input = make("input", null, { autocomplete: "off", spellcheck: false });
  label.append(input);
  return { label, input };
}

class Poll extends Voting {
  static kind = "poll";
  static observedAttributes = ["poll"];
  held = new Set();
  rows = new Map();
  build() {
    this.heading = make("h3", "title", { dir: "auto", hidden: true });
    this.ballot = ballotField();
    this.list = make("ul", "choices");
    this.list.setAttribute("role", "list");
    this.note = make("p", "note");
    this.message = make("p", "message");
    this.message.setAttribute("role", "status");
    this.root.append(this.heading, this.ballot.label, this.list, this.note, this.message);
  }
  row(choice) {
    const button = make("button", "choice", { type: "button" });
    const row = {
      button,
      bar: make("span", "bar"),
      name: make("span", "choice-name", { dir: "auto" }),
      share: make("span", "share"),
      count: make("span", "count"),
    };
    const figures = make("span", "figures");
    figures.append(row.count, row.share);
    button.append(row.bar, mark(CHECK), row.name, figures);
    button.addEventListener("click", () => this.choose(choice.item_id));
    const line = make("li");
    line.append(button);
    this.list.append(line);
    this.rows.set(choice.item_id, row);
    return row;
  }
  render(poll) {
    this.poll = poll;
    this.heading.textContent = poll.title;
    this.heading.hidden = this.hasAttribute("no-title");
    this.ballot.label.hidden = !poll.by_ballot || poll.state !== "open";
    for (const choice of poll.choices) {
      const row = this.rows.get(choice.item_id) ?? this.row(choice);
      row.name.textContent = choice.name;
      row.bar.style.setProperty("--share", choice.share ?? 0);
      row.share.textContent = choice.share === null ? "" : choice.share.toLocaleString(undefined, { style: "percent", maximumFractionDigits: 0 });
      row.count.textContent = choice.vote_count === null ? "" : plural(choice.vote_count, "vote", "votes");
      row.button.setAttribute("aria-disabled", String(poll.state !== "open"));
    }
    const notes = [];
    if (poll.voter_count !== null) notes.push(plural(poll.voter_count, "voter", "voters") + ".");
    if (poll.state === "closed") notes.push(poll.final ? `Final since ${when(poll.closes_at)}.` : `Closed ${when(poll.closes_at)}.`);
    else if (poll.state === "not-open-yet") notes.push(`Opens ${when(poll.opens_at)}.`);
    else if (poll.closes_at) notes.push(`Closes ${when(poll.closes_at)}.`);
    if (poll.state === "open" && poll.max_choices !== 1) {
      notes.push(poll.max_choices === null ? "Choose as many as you like." : `Choose up to ${poll.max_choices}.`);
    }
    if (poll.state !== "closed" && !poll.results_before_close) notes.push("Results show when it closes.");
    this.note.textContent = notes.join(" ");
    this.press();
  }
  press() {
    for (const [item, row] of this.rows) row.button.setAttribute("aria-pressed", String(this.held.has(item)));
  }
  hold(votes) {
    const ids = votes.map((vote) => vote.item_id);
    const choices = this.poll?.choices.map((choice) => choice.item_id) ?? ids;
    this.held = new Set(ids.filter((id) => choices.includes(id)));
    this.press();
  }
  choose(item) {
    return this.once(async () => {
      const poll = this.poll;
      if (poll.state === "closed") return this.say("This poll is closed.", true);
      if (poll.state === "not-open-yet") return this.say("This poll is not open yet.", true);
      if (poll.by_ballot) {
        const answer = await ask("POST", `/v1/items/${item}/votes`, { ballot: this.ballot.input.value.trim() });
        this.ballot.input.value = "";
        this.say("Your vote counts. The ballot is spent.");
        return this.emit("tally-vote", answer);
      }
      const wanted = new Set(this.held);
      if (poll.max_choices === 1 && !wanted.has(item)) wanted.clear();
      if (!wanted.delete(item)) wanted.add(item);
      const answer = await asVoter((id) =>
        ask("PUT", `/v1/polls/${poll.id}/votes/${encodeURIComponent(id)}`, { items: [...wanted] }),
      );
      this.held = new Set(answer.items);
      this.press();
      this.say(answer.items.length === 0 ? "Your vote is taken back." : "Your vote counts.");
      this.emit("tally-vote", answer);
    });
  }
}

// A line of how counts moved in the last hour or day.
class History extends HTMLElement {
  static observedAttributes = ["item", "poll", "over"];
  #timer = 0;
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
  }
  connectedCallback() {
    this.read();
  }
  disconnectedCallback() {
    clearTimeout(this.#timer);
  }
  attributeChangedCallback() {
    if (this.isConnected) this.read();
  }
  async read() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), HISTORY_EVERY_MS);
    const [kind, reference] = this.hasAttribute("poll") ? ["polls", this.getAttribute("poll")] : ["items", this.getAttribute("item")];
    if (document.hidden || !reference) return;
    const path = `/v1/${kind}/${encodeURIComponent(reference)}`;
    const over = this.getAttribute("over") === "hour" ? "hour" : "day";
    try {
      const [now, history] = await Promise.all([ask("GET", path), ask("GET", `${path}/history?over=${over}`)]);
      const lines = kind === "items" ? [{ name: now.name, count: now.vote_count, spans: history.spans }] : (history.choices ?? []).map((choice) => {
        const { name, vote_count } = now.choices.find((one) => one.item_id === choice.item_id);
        return { name, count: vote_count, spans: choice.spans };
      });
      this.draw(lines.filter((line) => line.spans && line.count !== null), history, over);
    } catch {
      // The next one may come.
    }
  }
  draw(all, history, over) {
    const lines = all.sort((a, b) => b.count - a.count).slice(0, LINES_LIMIT);
    this.hidden = lines.length === 0 || history.as_of === null;
    if (this.hidden) return;
    const [from, until] = [Date.parse(history.since), Date.parse(history.as_of)];
    for (const line of lines) {
      // From what it is now, back over what changed.
      const points = [[until, line.count]];
      let count = line.count;
      for (const span of [...line.spans].reverse()) {
        points.unshift([Math.min(until, Date.parse(span.starts_at) + span.minutes * 60_000), count]);
        count -= span.change.vote_count;
        points.unshift([Math.max(from, Date.parse(span.starts_at)), count]);
      }
      points.unshift([from, count]);
      line.points = points;
    }
    const counts = lines.flatMap((line) => line.points.map(([, count]) => count));
    const [low, high] = [Math.min(0, ...counts), Math.max(1, ...counts)];
    const x = (at) => ((at - from) / Math.max(1, until - from)) * 100;
    const y = (count) => 40 - ((count - low) / (high - low)) * 40;
    const first = (line) => line.points[0][1];
    const said = lines.map((line) => `${line.name}: from ${first(line).toLocaleString()} to ${line.count.toLocaleString()}`).join("; ");
    const svg = shape("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", class: "chart", "aria-label": `Over the last ${over}. ${said}.` });
    svg.append(shape("line", { x1: 0, x2: 100, y1: y(0), y2: y(0) }));
    lines.forEach((line, at) => svg.append(shape("polyline", { class: `line-${at}`, points: line.points.map(([time, count]) => `${x(time)},${y(count)}`).join(" ") })));
    const ends = make("div", null, { className: "ends" });
    const time = (at) => new Date(at).toLocaleTimeString(undefined, { timeStyle: "short" });
    ends.append(make("span", null, { textContent: over === "day" ? "a day ago" : "an hour ago" }), make("span", null, { textContent: `high ${high.toLocaleString()}` }), make("span", null, { textContent: time(until) }));
    const shown = [svg, ends];
    if (lines.length > 1) {
      const legend = make("ul", null, { className: "legend" });
      lines.forEach((line, at) => {
        const one = make("li");
        const key = shape("svg", { viewBox: "0 0 30 8", "aria-hidden": "true", class: "chart" });
        key.append(shape("polyline", { class: `line-${at}`, points: "0,4 30,4" }));
        one.append(key, make("span", null, { dir: "auto", textContent: line.name }));
        legend.append(one);
      });
      shown.push(legend);
    }
    this.root.replaceChildren(...shown);
  }
}

for (const [name, element] of [["tally-count", Count], ["tally-vote", Vote], ["tally-poll", Poll], ["tally-history", History]]) {
  if (!customElements.get(name)) customElements.define(name, element);
}
