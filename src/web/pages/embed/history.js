// A chart of the counts in the last hour or day. What reads and draws it is in chart.js.
class History extends Speaking {
  static observedAttributes = ["item", "poll", "over"];
  timer = 0;
  constructor() {
    super();
    this.root.append(document.createElement("slot"));
  }
  async learned() {
    if (await fetchMethods(this, "/assets/chart.js")) this.read();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.timer);
  }
  attributeChangedCallback(name) {
    this.changed?.(name);
  }
}
