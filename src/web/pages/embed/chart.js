// <tally-history>: reads and draws a chart of counts. embed.js fetches this file when the first of these elements appears.
const HISTORY_EVERY_MS = 60_000;
const HISTORY_SOON_MS = 5000; // while there is no history yet
const SPANS_MS = { hour: 3_600_000, day: 86_400_000 };
const STARTS_MS = { hour: 300_000, day: 3_600_000 }; // a history begins with a full span: up to this much earlier
const MINUTE_MS = 60_000;
const BEFORE_SHARE = 0.1; // of a count, from before its history
const LINES_LIMIT = 5; // choices in a history

// Over the look of all elements.
export const look = new CSSStyleSheet();
look.replaceSync(`
svg.chart { display: block; width: 100%; height: 9em; overflow: visible; }
svg.chart polyline { fill: none; stroke: var(--edge); stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
:host(:dir(rtl)) svg.chart { transform: scaleX(-1); }
svg.chart line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.ends > * { unicode-bidi: plaintext; }
.ends { display: flex; flex-wrap: wrap; gap: 0 1em; justify-content: space-between; color: var(--soft); font-size: 0.85em; }
.line-1 { stroke-dasharray: 6 4; } .line-2 { stroke-dasharray: 2 4; } .line-3 { stroke-dasharray: 10 4 2 4; } .line-4 { stroke-dasharray: 1 6; }
.legend li { display: flex; align-items: center; min-width: 0; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25em 1em; margin: 0.5em 0 0; padding: 0; list-style: none; font-size: 0.92em; }
.legend svg.chart { flex: none; width: 1.8em; height: 0.6em; margin-inline-end: 0.4em; }
`);

// The lines: a name, the count now, and the history of the count.
function linesOf(now, history) {
  if (!("choices" in history)) return history.spans && [{ name: now.name, count: now.vote_count, ...history }];
  return history.choices?.flatMap((choice) => {
    const one = now.choices.find((one) => one.item_id === choice.item_id);
    // It was added between the two answers.
    return one ? [{ name: one.name, count: one.vote_count, ...choice }] : [];
  });
}

// The points of a line, from its first moment to `until`. The history sums votes a little after they were cast; those
// since then are in the count now.
function pointsOf({ count, total, spans }, from, asOf, until) {
  const points = [[asOf, total.vote_count], [until, count]];
  let before = total.vote_count;
  for (const span of [...spans].reverse()) {
    const starts = Date.parse(span.starts_at);
    points.unshift([Math.min(asOf, starts + span.minutes * MINUTE_MS), before]);
    before -= span.change.vote_count;
    points.unshift([Math.max(from, starts), before]);
  }
  points.unshift([from, before]);
  return points;
}

// What an element shows of an item or a poll, and of its history. `at` is the time by the server's clock, as far as the
// page knows it. Null: there is nothing to draw yet.
function draw(now, history, at, words, { make, shape }) {
  const { over } = history;
  const since = Date.parse(history.since);
  const lines = (linesOf(now, history) ?? []).filter((line) => line.count !== null).sort((a, b) => b.count - a.count).slice(0, LINES_LIMIT);
  if (lines.length === 0 || history.as_of === null) return null;
  const asOf = Date.parse(history.as_of);
  // The history says between which times the server's clock is.
  const earliest = since + SPANS_MS[over];
  const until = Math.max(asOf, Math.min(Math.max(at, earliest), earliest + STARTS_MS[over]));
  // If nearly all votes are in this time, the chart begins with the first vote.
  const changes = (line) => line.spans.reduce((sum, span) => sum + span.change.vote_count, 0);
  const isNew = lines.every((line) => line.total.vote_count - changes(line) <= line.count * BEFORE_SHARE);
  const first = Math.min(...lines.flatMap((line) => line.spans.map((span) => Date.parse(span.starts_at))));
  const from = isNew && first < until ? Math.max(first, since) : since;
  const points = lines.map((line) => pointsOf(line, from, asOf, until));
  const counts = points.flatMap((line) => line.map(([, count]) => count));
  const [low, high] = [Math.min(0, ...counts), Math.max(0, ...counts)];
  const x = (time) => ((time - from) / Math.max(1, until - from)) * 100;
  const y = (count) => 40 - ((count - low) / Math.max(1, high - low)) * 40;
  const said = lines.map((line, at) => words.text("fromTo", { name: line.name, from: points[at][0][1], to: line.count })).join("; ");
  const svg = shape("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", class: "chart", "aria-label": words.text(over === "day" ? "overDay" : "overHour", { lines: said }) });
  svg.append(shape("line", { x1: 0, x2: 100, y1: y(0), y2: y(0) }));
  points.forEach((line, at) => svg.append(shape("polyline", { class: `line-${at}`, points: line.map(([time, count]) => `${x(time)},${y(count)}`).join(" ") })));
  const begins = from > since ? words.time(from) : words.text(over === "day" ? "dayAgo" : "hourAgo");
  const ends = make("div", null, { className: "ends" });
  ends.append(...[begins, words.text("high", { n: high }), words.time(until)].map((text) => make("span", null, { textContent: text })));
  if (lines.length === 1) return [svg, ends];
  const legend = make("ul", null, { className: "legend" });
  lines.forEach((line, at) => {
    const one = make("li");
    const key = shape("svg", { viewBox: "0 0 30 8", "aria-hidden": "true", class: "chart" });
    key.append(shape("polyline", { class: `line-${at}`, points: "0,4 30,4" }));
    one.append(key, make("span", null, { dir: "auto", textContent: line.name }));
    legend.append(one);
  });
  return [svg, ends, legend];
}

// Returns the methods of <tally-history>.
export function methods({ ask, clock, make, pathOf, shape, speakAs, whyNoReference }) {
  return {
    isDrawn: false,
    changed(name) {
      // A chart of something else is no answer. Over another time it is, until the next one comes.
      if (name !== "over" && this.isDrawn) {
        this.isDrawn = false;
        this.root.replaceChildren(document.createElement("slot"));
      }
      if (this.isConnected && this.words) this.read();
    },
    again(delay) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.read(), delay);
    },
    async read() {
      clearTimeout(this.timer);
      if (document.hidden) {
        // The same listener again is none.
        this.whenSeen ??= () => this.isConnected && this.read();
        return document.addEventListener("visibilitychange", this.whenSeen, { once: true });
      }
      this.again(HISTORY_EVERY_MS);
      const asked = (this.asked = Symbol("read")); // an earlier answer is of something else
      const [kind, reference] = this.hasAttribute("poll") ? ["polls", this.getAttribute("poll")] : ["items", this.getAttribute("item")];
      if (!reference) return;
      const why = whyNoReference(kind.slice(0, -1), reference);
      if (why) return this.unavailable(new Error(why));
      const over = this.getAttribute("over") === "hour" ? "hour" : "day";
      try {
        const [now, history] = await Promise.all([ask("GET", pathOf(kind, reference)), ask("GET", pathOf(kind, reference, "/history", { over }))]);
        if (asked !== this.asked || !this.isConnected) return;
        const drawn = draw(now, history, clock.now(), this.words, { make, shape });
        // Where results are hidden there will be none soon.
        if (!drawn) return history.as_of === null && this.again(HISTORY_SOON_MS);
        this.isDrawn = true;
        this.root.replaceChildren(...drawn);
        speakAs(this.root, this.words);
      } catch (error) {
        // The next request may succeed.
        if (asked === this.asked && !this.isDrawn) this.unavailable(error);
      }
    },
  };
}
