class Count extends Watching {
  static kind = "item";
  static observedAttributes = ["item"];
  build() {
    this.number = make("span", "count", { textContent: "–" });
    this.root.adoptedStyleSheets = [sheet, inline];
    this.root.append(this.number);
  }
  clear() {
    this.number.textContent = "–";
  }
  render(item) {
    const field = { up: "up_count", down: "down_count" }[this.getAttribute("show")] ?? "vote_count";
    this.number.textContent = item[field] === null ? "–" : item[field].toLocaleString();
  }
  say(text) {
    this.title = text;
  }
}
