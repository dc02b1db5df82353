for (const [name, element] of [["tally-count", Count], ["tally-vote", Vote], ["tally-poll", Poll], ["tally-history", History]]) {
  if (!customElements.get(name)) customElements.define(name, element);
}
