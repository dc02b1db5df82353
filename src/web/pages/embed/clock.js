// The server's time, and one timer for all elements of a page that say how long something still takes.
const clock = {
  // What to add to this browser's clock for the server's. Null: not known.
  ahead: null,
  isAsked: false,
  timer: 0,
  // When something opens or closes, by the elements that show it.
  moments: new Map(),
  now() {
    return Date.now() + (this.ahead ?? 0);
  },
  // Reads the Date of an answer, which leaves out parts of a second.
  note(date) {
    const ahead = Date.parse(date) + SECOND_MS / 2 - Date.now();
    if (Number.isNaN(ahead) || (this.ahead !== null && Math.abs(ahead - this.ahead) < CLOCK_LEAST_MS)) return;
    this.ahead = Math.abs(ahead) < CLOCK_LEAST_MS ? 0 : ahead;
    if (this.ahead !== 0) this.tick();
  },
  // Ticks an element whenever what it says of these times changes.
  follow(element, times) {
    const moments = times.filter(Boolean).map(Date.parse);
    if (moments.length === 0) return this.leave(element);
    this.moments.set(element, moments);
    this.plan();
    // Streams tell no time.
    if (this.ahead !== null || this.isAsked || !moments.some((at) => Math.abs(at - Date.now()) < DAY_MS)) return;
    this.isAsked = true;
    element.again().catch(() => (this.isAsked = false));
  },
  leave(element) {
    if (this.moments.delete(element)) this.plan();
  },
  plan() {
    clearTimeout(this.timer);
    const now = this.now();
    const waits = [...this.moments.values()].flat().filter((at) => at > now).map((at) => untilOther(at - now));
    if (waits.length > 0) this.timer = setTimeout(() => this.tick(), Math.min(HOUR_MS, ...waits));
  },
  tick() {
    for (const element of [...this.moments.keys()]) element.tick(); // which may follow others
    this.plan();
  },
};

// How long what is said of the time left stays right: a date, then minutes, then seconds.
function untilOther(left) {
  if (left > MINUTES_FROM_MS) return left - MINUTES_FROM_MS;
  if (left > SECONDS_FROM_MS) return Math.min(left - SECONDS_FROM_MS, left % MINUTE_MS || MINUTE_MS);
  return left % SECOND_MS || SECOND_MS;
}

// Whether an item or a poll takes votes now. It opens and closes once, so the later of what the server said and of
// what its times say is right.
const STATES = ["not-open-yet", "open", "closed"];
function stateOf({ opens_at, closes_at, state }) {
  const now = clock.now();
  const isBefore = opens_at && Date.parse(opens_at) > now;
  const isAfter = closes_at && Date.parse(closes_at) <= now;
  const byTime = isAfter ? 2 : isBefore ? 0 : 1;
  return STATES[Math.max(byTime, STATES.indexOf(state))];
}
