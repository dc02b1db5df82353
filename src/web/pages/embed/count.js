class Count extends Watching {
  static kind = "item";
  static observedAttributes = ["item", "show"];
  build() {
    this.number = make("span", "count", { textContent: "–" });
    this.root.adoptedStyleSheets = [sheet, inline];
    this.root.append(this.number);
  }
  clear() {
    this.number.textContent = "–";
  }
  #of(item) {
    return item[{ up: "up_count", down: "down_count" }[this.getAttribute("show")] ?? "vote_count"];
  }
  tells(item) {
    return this.#of(item) !== null;
  }
  render(item) {
    const count = this.#of(item);
    this.number.textContent = count === null ? "–" : this.words.number(count);
  }
}
