// What the elements of this page show, and the one stream that keeps it current.
const watch = {
  items: new Map(),
  polls: new Map(),
  stream: null,
  timer: 0,
  failures: 0,
  connected: null,
  // What this voter is known to hold; null: not known.
  votes: null,
  // How many votes this page has cast.
  changes: 0,
  // What was asked for and is not there.
  absent: { items: new Set(), polls: new Set() },
  absentTimer: 0,

  add(kind, reference, element) {
    const all = this[kind];
    if (!all.has(reference)) all.set(reference, new Set());
    all.get(reference).add(element);
    element.toggleAttribute("stale", this.connected === false);
    this.absent[kind].delete(reference); // it is looked for anew
    this.soon();
  },
  remove(kind, reference, element) {
    const elements = this[kind].get(reference);
    elements?.delete(element);
    if (elements?.size === 0) {
      this[kind].delete(reference);
      this.absent[kind].delete(reference);
    }
    this.soon();
  },
  // What is asked for and may be there: those that a stream or a list can name, and the others.
  wanted(kind) {
    const all = [...this[kind].keys()].filter((reference) => !this.absent[kind].has(reference));
    // A list separates by commas.
    return { listed: all.filter((one) => !one.includes(",")), single: all.filter((one) => one.includes(",")) };
  },
  elements() {
    return [...this.items.values(), ...this.polls.values()].flatMap((elements) => [...elements]);
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
    this.round = null;
    const [items, polls] = [this.wanted("items"), this.wanted("polls")];
    if (document.hidden || this.items.size + this.polls.size === 0) return;
    this.others(
      [...items.listed.slice(STREAM_LIMIT_ITEMS), ...items.single],
      [...polls.listed.slice(STREAM_LIMIT_POLLS), ...polls.single],
    );
    this.held();
    this.lookForAbsent();
    const query = new URLSearchParams();
    if (items.listed.length) query.set("items", items.listed.slice(0, STREAM_LIMIT_ITEMS).join(","));
    if (polls.listed.length) query.set("polls", polls.listed.slice(0, STREAM_LIMIT_POLLS).join(","));
    if (items.listed.length + polls.listed.length === 0) return;
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
  },
  // Without a stream, what it would show is asked for. That also tells what is not there.
  async refused() {
    this.close();
    const wait = Math.min(RETRY_MOST_MS, RETRY_LEAST_MS * 2 ** this.failures++);
    try {
      const [items, polls] = [this.wanted("items"), this.wanted("polls")];
      await this.read([...items.listed, ...items.single], [...polls.listed, ...polls.single]);
      this.say(true);
    } catch (error) {
      this.say(false, `${error.message} Trying again …`);
      for (const element of this.elements()) element.unavailable(error.message);
    }
    if (!document.hidden) this.soon(wait * (0.5 + Math.random() / 2));
  },
  async others(items, polls) {
    const round = (this.round = Symbol("until the next stream"));
    if (items.length === 0 && polls.length === 0) return;
    const again = async () => {
      if (this.round !== round || document.hidden) return;
      await this.read(items, polls).catch((error) => {
        for (const element of this.elements()) element.unavailable(error.message);
      });
      setTimeout(again, OTHERS_EVERY_MS);
    };
    again();
  },
  lookForAbsent() {
    clearTimeout(this.absentTimer);
    const { items, polls } = this.absent;
    if (items.size + polls.size === 0 || document.hidden) return;
    this.absentTimer = setTimeout(async () => {
      const before = items.size + polls.size;
      await this.read([...items], [...polls]).catch(() => {});
      if (items.size + polls.size < before) this.soon();
      else this.lookForAbsent();
    }, ABSENT_EVERY_MS);
  },
  async read(items, polls) {
    const found = { items: [], polls: [] };
    const one = async (kind, reference) => {
      try {
        found[kind].push(await ask("GET", `/v1/${kind}/${encodeURIComponent(reference)}`));
      } catch (error) {
        if (error.status !== 404) throw error;
      }
    };
    const listed = items.filter((reference) => !reference.includes(","));
    for (let at = 0; at < listed.length; at += STREAM_LIMIT_ITEMS) {
      const ids = new URLSearchParams({ ids: listed.slice(at, at + STREAM_LIMIT_ITEMS).join(",") });
      found.items.push(...(await ask("GET", `/v1/items?${ids}`)).items);
    }
    for (const reference of items.filter((reference) => reference.includes(","))) await one("items", reference);
    for (const reference of polls) await one("polls", reference);
    this.deliver(found);
    const isThere = (reference, one) => reference === String(one.id) || reference === `key:${one.key}`;
    for (const [kind, name, asked] of [["items", "item", items], ["polls", "poll", polls]]) {
      for (const reference of asked) {
        if (!this[kind].has(reference)) continue; // it has gone meanwhile
        const isAbsent = !found[kind].some((one) => isThere(reference, one));
        if (isAbsent && this.absent[kind].has(reference)) continue;
        if (!isAbsent) {
          this.absent[kind].delete(reference);
          continue;
        }
        // A stream that asks for it would be refused.
        for (const element of this[kind].get(reference) ?? []) element.missing(`There is no ${name} ${reference}.`);
        this.absent[kind].add(reference);
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
    const of = (kind) => this.wanted(kind).listed.filter((reference) => [...this[kind].get(reference)].some((one) => one.wantsHeld));
    const [items, polls] = [of("items").slice(0, HELD_LIMIT_ITEMS), of("polls").slice(0, HELD_LIMIT_POLLS)];
    if (items.length === 0 && polls.length === 0) return;
    try {
      // Who has not voted yet holds nothing; a token may be of who has.
      if (!known && !(await settings.token?.())) return;
      const query = new URLSearchParams({ voter_id: (known ?? (await voter.identify())).id });
      if (items.length) query.set("items", items.join(","));
      if (polls.length) query.set("polls", polls.join(","));
      const [asked, question] = [this.changes, (this.question = Symbol("held"))];
      const { votes } = await ask("GET", `/v1/votes?${query}`);
      if (question !== this.question) return; // a later one is newer
      // A vote that was cast meanwhile is newer than this answer.
      if (asked === this.changes) this.hold(votes);
      else this.held();
    } catch (error) {
      // A name of this browser's own stays: some of what is shown may be open to it.
      if (known?.own && !settings.token && [401, 403].includes(error.status)) voter.forget();
    }
  },
  hold(votes) {
    this.votes = votes;
    for (const element of this.elements()) element.hold?.(votes);
  },
  // What a vote of this page has changed: the value of each of these items, 0 for none. Other elements and
  // tabs show it as well.
  changed(values) {
    this.changes += 1;
    const kept = (this.votes ?? []).filter((vote) => !values.has(vote.item_id));
    for (const [item_id, value] of values) if (value !== 0) kept.push({ item_id, value });
    this.hold(kept);
    tellTabs();
  },
  say(connected, reason = "") {
    if (this.connected === connected) return;
    const was = this.connected;
    this.connected = connected;
    if (connected && was === null) return;
    document.dispatchEvent(new CustomEvent("tally-connection", { detail: { connected, reason } }));
    for (const element of this.elements()) element.toggleAttribute("stale", !connected);
  },
};

// Other tabs of this origin have the same voter.
function tellTabs() {
  try {
    localStorage.setItem(STORED_CHANGE, String(Date.now()));
  } catch {
    // Without storage, a voter for each.
  }
}
addEventListener("storage", ({ key }) => {
  if (key === STORED_VOTER) voter.known = null;
  if (key === STORED_CHANGE) watch.held();
});

// Why this stands for no item and no poll; null: it may.
function whyNoReference(kind, text) {
  const key = text.startsWith("key:") ? text.slice(4) : null;
  const isId = /^[1-9][0-9]{0,18}$/.test(text) && BigInt(text) <= LARGEST_ID;
  const isKey = key && new TextEncoder().encode(key).length <= KEY_LIMIT_BYTES && !/\p{Cc}/u.test(key);
  return isId || isKey ? null : `There is no ${kind} “${text}”: it takes an id, or key: and a key.`;
}

document.addEventListener("visibilitychange", () => (document.hidden ? watch.close() : watch.soon(0)));
addEventListener("pagehide", () => watch.close());
addEventListener("pageshow", (event) => event.persisted && watch.soon(0));
