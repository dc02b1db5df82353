// A chart of the counts in the last hour or day. What draws it is a file of its own, fetched when it is needed.
class History extends Speaking {
  static observedAttributes = ["item", "poll", "over"];
  static #drawing = null;
  #timer = 0;
  #isDrawn = false;
  constructor() {
    super();
    this.root.append(document.createElement("slot"));
  }
  learned() {
    this.read();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.#timer);
  }
  attributeChangedCallback(name) {
    // A chart of something else is no answer. Over another time it is, until the next one comes.
    if (name !== "over" && this.#isDrawn) {
      this.#isDrawn = false;
      this.root.replaceChildren(document.createElement("slot"));
    }
    if (this.isConnected && this.words) this.read();
  }
  #again(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read(), delay);
  }
  static #draws() {
    History.#drawing ??= import(`${SERVER}/assets/chart.js`).catch((error) => {
      History.#drawing = null; // the next read tries again
      throw error;
    });
    return History.#drawing;
  }
  async read() {
    this.#again(HISTORY_EVERY_MS);
    const [kind, reference] = this.hasAttribute("poll") ? ["polls", this.getAttribute("poll")] : ["items", this.getAttribute("item")];
    if (document.hidden || !reference) return;
    const why = whyNoReference(kind.slice(0, -1), reference);
    if (why) return this.emit("tally-error", { message: why, problem: null });
    const over = this.getAttribute("over") === "hour" ? "hour" : "day";
    const asked = (this.asked = Symbol("read"));
    try {
      const [now, history, { draw, look }] = await Promise.all([ask("GET", pathOf(kind, reference)), ask("GET", pathOf(kind, reference, "/history", { over })), History.#draws()]);
      if (asked !== this.asked || !this.isConnected) return;
      const drawn = draw(now, history, clock.now(), this.words, { make, shape });
      if (!drawn) return this.#again(HISTORY_SOON_MS);
      this.#isDrawn = true;
      this.root.adoptedStyleSheets = [sheet, look];
      this.root.replaceChildren(...drawn);
      speakAs(this.root, this.words);
    } catch (error) {
      // The next request may succeed.
      if (!this.#isDrawn) this.emit("tally-error", { message: error.message, problem: error.problem ?? null });
    }
  }
}
