// A chart of the counts in the last hour or day.
class History extends HTMLElement {
  static observedAttributes = ["item", "poll", "over"];
  #timer = 0;
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
    this.root.append(document.createElement("slot"));
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
  #again(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), delay);
  }
  async read() {
    this.#again(HISTORY_EVERY_MS);
    const [kind, reference] = this.hasAttribute("poll") ? ["polls", this.getAttribute("poll")] : ["items", this.getAttribute("item")];
    if (document.hidden || !reference || whyNoReference(kind, reference)) return;
    const over = this.getAttribute("over") === "hour" ? "hour" : "day";
    const asked = (this.asked = Symbol("read"));
    try {
      const [now, history] = await Promise.all([ask("GET", pathOf(kind, reference)), ask("GET", pathOf(kind, reference, "/history", { over }))]);
      if (asked !== this.asked || !this.isConnected) return;
      const lines = kind === "items" ? [{ name: now.name, count: now.vote_count, spans: history.spans }] : (history.choices ?? []).map((choice) => {
        const { name, vote_count } = now.choices.find((one) => one.item_id === choice.item_id);
        return { name, count: vote_count, spans: choice.spans };
      });
      this.draw(lines.filter((line) => line.spans && line.count !== null), history, over);
    } catch {
      // The next request may succeed.
    }
  }
  draw(all, history, over) {
    const lines = all.sort((a, b) => b.count - a.count).slice(0, LINES_LIMIT);
    if (lines.length === 0 || history.as_of === null) return this.#again(HISTORY_SOON_MS);
    // If nearly all votes are in this time, the chart begins with the first vote.
    const until = Date.parse(history.as_of);
    const changes = lines.map((line) => line.spans.reduce((sum, span) => sum + span.change.vote_count, 0));
    const isNew = lines.every((line, at) => line.count - changes[at] <= line.count * BEFORE_SHARE);
    const first = Math.min(...lines.flatMap((line) => line.spans.map((span) => Date.parse(span.starts_at))));
    const from = isNew && first < until ? Math.max(first, Date.parse(history.since)) : Date.parse(history.since);
    for (const line of lines) {
      // From the count now, back over the changes.
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
    const before = (line) => line.points[0][1];
    const said = lines.map((line) => `${line.name}: from ${before(line).toLocaleString()} to ${line.count.toLocaleString()}`).join("; ");
    const svg = shape("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", class: "chart", "aria-label": `Over the last ${over}. ${said}.` });
    svg.append(shape("line", { x1: 0, x2: 100, y1: y(0), y2: y(0) }));
    lines.forEach((line, at) => svg.append(shape("polyline", { class: `line-${at}`, points: line.points.map(([time, count]) => `${x(time)},${y(count)}`).join(" ") })));
    const ends = make("div", null, { className: "ends" });
    const time = (at) => new Date(at).toLocaleTimeString(undefined, { timeStyle: "short" });
    ends.append(make("span", null, { textContent: from > Date.parse(history.since) ? time(from) : over === "day" ? "a day ago" : "an hour ago" }), make("span", null, { textContent: `high ${high.toLocaleString()}` }), make("span", null, { textContent: time(until) }));
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
