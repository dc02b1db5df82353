// A chart of the counts in the last hour or day. What reads and draws it is in chart.js.
class History extends Speaking {
  static observedAttributes = ["item", "poll", "over"];
  timer = 0;
  constructor() {
    super();
    this.root.append(document.createElement("slot"));
  }
  async learned() {
    try {
      await fetchMethods(History, "/assets/chart.js");
    } catch (error) {
      if (!this.isConnected) return;
      this.timer = setTimeout(() => this.learned(), HISTORY_EVERY_MS);
      return this.unavailable(error);
    }
    if (this.isConnected) this.read();
  }
  unavailable(error) {
    this.emit("tally-error", { message: error.message, problem: error.problem ?? null });
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.timer);
  }
  attributeChangedCallback(name) {
    this.changed?.(name);
  }
}
