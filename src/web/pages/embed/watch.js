// What the elements of this page show, and the stream that keeps it current.
const watch = {
  items: new Map(),
  polls: new Map(),
  stream: null,
  timer: 0, // until the stream opens anew …
  at: 0, // … at this time
  often: 0, // how often it did within OFTEN_MS
  late: 0, // until a stream that brought nothing is given up
  failures: 0,
  connected: null,
  // The votes that this voter holds. Null: not known.
  votes: null,
  // How many votes this page has cast.
  changes: 0,
  // References to what does not exist.
  absent: { items: new Set(), polls: new Set() },
  absentTimer: 0,

  add(kind, reference, element) {
    const all = this[kind];
    if (!all.has(reference)) all.set(reference, new Set());
    all.get(reference).add(element);
    element.toggleAttribute("stale", this.connected === false);
    this.absent[kind].delete(reference); // look for it again
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
  // References to what may exist: those that a stream or a list can name, and the others.
  wanted(kind) {
    const all = [...this[kind].keys()].filter((reference) => !this.absent[kind].has(reference));
    // Commas separate the entries of a list.
    return { listed: all.filter((one) => !one.includes(",")), single: all.filter((one) => one.includes(",")) };
  },
  elements() {
    return [...this.items.values(), ...this.polls.values()].flatMap((elements) => [...elements]);
  },
  // Opens the stream anew, at the earliest time that anyone asked for. The more often of late, the later.
  soon(delay = Math.min(RETRY_LEAST_MS, DELAY_MS * 2 ** this.often)) {
    const at = Date.now() + delay;
    if (this.timer && this.at <= at) return;
    clearTimeout(this.timer);
    this.at = at;
    this.timer = setTimeout(() => this.open(), delay);
  },
  close() {
    clearTimeout(this.timer);
    clearTimeout(this.late);
    this.timer = 0;
    this.stream?.close();
    this.stream = null;
  },
  async open() {
    this.close();
    this.often += 1;
    setTimeout(() => (this.often -= 1), OFTEN_MS);
    this.round = null;
    const [items, polls] = [this.wanted("items"), this.wanted("polls")];
    if (document.hidden || this.items.size + this.polls.size === 0) return;
    this.others(
      [...items.listed.slice(STREAM_LIMIT_ITEMS), ...items.single],
      [...polls.listed.slice(STREAM_LIMIT_POLLS), ...polls.single],
    );
    this.held();
    this.lookForAbsent();
    const query = queryOf({ items: items.listed.slice(0, STREAM_LIMIT_ITEMS), polls: polls.listed.slice(0, STREAM_LIMIT_POLLS) });
    if (query === "") return;
    const stream = new EventSource(`${SERVER}/v1/stream?${query}`);
    this.stream = stream;
    // A proxy may hold back what a stream sends.
    this.late = setTimeout(() => this.refused(), ANSWER_LIMIT_MS);
    // It comes first, each time that the stream opens.
    stream.addEventListener("unknown", ({ data }) => {
      clearTimeout(this.late);
      this.leftOut(JSON.parse(data), stream);
    });
    stream.addEventListener("counts", (event) => {
      clearTimeout(this.late);
      this.failures = 0;
      this.say(true);
      this.deliver(JSON.parse(event.data));
    });
    // A stream that reconnects shows only what changed meanwhile, which may be nothing.
    stream.addEventListener("open", () => this.say(true));
    stream.addEventListener("error", () => {
      if (this.stream !== stream) return;
      clearTimeout(this.late);
      // The browser reconnects by itself, unless the server refused.
      if (stream.readyState === EventSource.CLOSED) return this.refused();
      if (this.connected !== false) for (const element of this.elements()) element.unavailable(new Unanswered("noAnswer"));
      this.say(false, "Connection lost. Trying again …");
    });
  },
  // Looks for what does not exist, as a stream says. A stream of nothing else is closed.
  async leftOut({ items, polls }, stream) {
    try {
      await this.read(items, polls);
    } catch (error) {
      return this.again(error);
    }
    const { listed } = this.wanted("items");
    if (this.stream === stream && listed.length + this.wanted("polls").listed.length === 0) this.close();
    this.lookForAbsent();
  },
  // A read failed: all is asked for again.
  again(error) {
    for (const element of this.elements()) element.unavailable(error);
    this.soon(OTHERS_EVERY_MS);
  },
  // Without a stream, ask for what it would show. The answers also say what does not exist.
  async refused() {
    this.close();
    const wait = Math.min(RETRY_MOST_MS, RETRY_LEAST_MS * 2 ** this.failures++);
    try {
      const [items, polls] = [this.wanted("items"), this.wanted("polls")];
      await this.read([...items.listed, ...items.single], [...polls.listed, ...polls.single]);
      this.say(true);
    } catch (error) {
      this.say(false, `${error.message} Trying again …`);
      for (const element of this.elements()) element.unavailable(error);
    }
    if (!document.hidden) this.soon(wait * (0.5 + Math.random() / 2));
  },
  async others(items, polls) {
    const round = (this.round = Symbol("until the next stream"));
    if (items.length === 0 && polls.length === 0) return;
    const again = async () => {
      if (this.round !== round || document.hidden) return;
      await this.read(items, polls).catch((error) => {
        for (const element of this.elements()) element.unavailable(error);
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
    const future = []; // items that the first vote on their key creates
    const problems = new Map();
    const one = async (kind, reference) => {
      try {
        found[kind].push(await ask("GET", pathOf(kind, reference)));
      } catch (error) {
        if (error.status !== 404) throw error;
        problems.set(`${kind} ${reference}`, error.problem);
      }
    };
    const listed = items.filter((reference) => !reference.includes(","));
    for (let at = 0; at < listed.length; at += STREAM_LIMIT_ITEMS) {
      const ids = new URLSearchParams({ ids: listed.slice(at, at + STREAM_LIMIT_ITEMS).join(",") });
      const answer = await ask("GET", `/v1/items?${ids}`);
      found.items.push(...answer.items);
      for (const one of answer.created_by_a_vote ?? []) future.push({ id: null, name: one.key, vote_count: 0, up_count: 0, down_count: 0, ...one });
    }
    for (const reference of items.filter((reference) => reference.includes(","))) await one("items", reference);
    for (const reference of polls) await one("polls", reference);
    this.deliver(found);
    this.deliver({ items: future, polls: [] });
    for (const [kind, name, asked] of [["items", "item", items], ["polls", "poll", polls]]) {
      for (const reference of asked) {
        if (!this[kind].has(reference)) continue; // the element is gone meanwhile
        const isAbsent = !found[kind].some((one) => isThere(reference, one));
        if (isAbsent && this.absent[kind].has(reference)) continue;
        if (!isAbsent) {
          this.absent[kind].delete(reference);
          continue;
        }
        // Streams leave this reference out from now on.
        this.absent[kind].add(reference);
        if (kind === "items" && future.some((one) => isThere(reference, one))) continue;
        // A list leaves out what does not exist, without a problem of its own.
        const detail = `There is no ${name} ${reference}.`;
        const problem = problems.get(`${kind} ${reference}`) ?? { type: `/problems/unknown-${name}`, title: `Unknown ${name}`, status: 404, detail };
        for (const element of this[kind].get(reference) ?? []) element.missing(problem.detail, problem);
      }
    }
  },
  // A vote of this page has created an item, or may have: it looks for all again.
  created() {
    this.absent.items.clear();
    this.soon();
  },
  deliver({ items, polls }) {
    for (const [all, shown] of [[this.items, items], [this.polls, polls]]) {
      for (const one of shown) {
        for (const reference of [String(one.id), `key:${one.key}`]) {
          for (const element of all.get(reference) ?? []) element.receive(one);
        }
      }
    }
  },
  // Asks for the votes of this browser's voter, in one request for the whole page. Ends when the latest answer is there.
  held() {
    return (this.asking = this.askHeld());
  },
  async askHeld() {
    let known = null;
    const of = (kind) => this.wanted(kind).listed.filter((reference) => [...this[kind].get(reference)].some((one) => one.wantsHeld));
    const [items, polls] = [of("items").slice(0, HELD_LIMIT_ITEMS), of("polls").slice(0, HELD_LIMIT_POLLS)];
    if (items.length === 0 && polls.length === 0) return;
    try {
      known = await voter.remembered();
      // A voter who has not voted yet holds nothing. With a token, the voter may have voted.
      if (!known && !(await settings.token?.())) return;
      const query = queryOf({ voter_id: (known ?? (await voter.identify())).id, items, polls });
      const [asked, question] = [this.changes, (this.question = Symbol("held"))];
      const { votes } = await ask("GET", `/v1/votes?${query}`);
      if (question !== this.question) return this.asking; // a later one is newer
      // A vote that this page cast meanwhile is newer than this answer.
      if (asked === this.changes) this.hold(votes);
      else return this.held();
    } catch (error) {
      // The browser keeps its own name: some of the items may be open to it.
      if (known?.own && voter.isKept && [401, 403].includes(error.status)) voter.forget();
      // Until then a press would not take back what this voter holds.
      else if (!(error.status < 500)) this.soon(OTHERS_EVERY_MS);
    }
  },
  hold(votes) {
    this.votes = votes;
    for (const element of this.elements()) element.hold?.(votes);
  },
  // A vote of this page changed these items to these values; 0 is no vote. Other elements and tabs show it
  // too.
  changed(values) {
    this.changes += 1;
    const kept = (this.votes ?? []).filter((vote) => !values.has(vote.item_id));
    for (const [item_id, value] of values) if (value !== 0) kept.push({ item_id, value });
    this.hold(kept);
    tellTabs();
  },
  say(connected, reason = "") {
    isRead ||= connected;
    if (this.connected === connected) return;
    const was = this.connected;
    this.connected = connected;
    if (connected && was === null) return;
    document.dispatchEvent(new CustomEvent("tally-connection", { detail: { connected, reason } }));
    for (const element of this.elements()) element.toggleAttribute("stale", !connected);
    if (connected) this.held();
  },
};

// Names what is not empty. Entries of a list are separated by commas.
const queryOf = (all) => String(new URLSearchParams(Object.entries(all).filter(([, one]) => one.length)));

const isThere = (reference, one) => reference === String(one.id) || reference === `key:${one.key}`;

// All tabs of this origin have the same voter.
function tellTabs() {
  try {
    localStorage.setItem(STORED_CHANGE, String(Date.now()));
  } catch {
    // Without storage, each tab has its own voter.
  }
}
addEventListener("storage", ({ key }) => {
  if (key === STORED_VOTER) voter.known = null;
  if (key === STORED_CHANGE) watch.held();
});

// Says why this is no reference to an item or a poll. Null: it may be one.
function whyNoReference(kind, text) {
  const key = text.startsWith("key:") ? text.slice(4) : null;
  const isId = /^[1-9][0-9]{0,18}$/.test(text) && BigInt(text) <= LARGEST_ID;
  const isKey = key && new TextEncoder().encode(key).length <= KEY_LIMIT_BYTES && !/\p{Cc}/u.test(key);
  return isId || isKey ? null : `There is no ${kind} “${text}”: it takes an id, or key: and a key.`;
}

document.addEventListener("visibilitychange", () => (document.hidden ? watch.close() : watch.soon(0)));
addEventListener("pagehide", () => watch.close());
addEventListener("pageshow", (event) => event.persisted && watch.soon(0));
