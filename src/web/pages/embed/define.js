// What <tally-reactions> does is in a file of its own, which is fetched when the first of them appears.
let fetched = null;
class Reactions extends Voting {
  static kind = ""; // it watches by itself: several items, or a poll
  static observedAttributes = ["to", "emoji", "poll"];
  build() {
    this.chips = make("div", "reactions");
    this.chips.setAttribute("role", "group");
    Object.assign(this, foot());
    this.root.append(this.chips, this.foot);
  }
  clear() {}
  async learned() {
    try {
      const kit = { cast, choose, make, setPressed, watch, whyNoReference };
      fetched ??= import(SERVER + "/assets/reactions.js").then((file) => Object.assign(Reactions.prototype, file.reactions(kit)));
      await fetched;
    } catch (error) {
      fetched = null; // the next element tries again
      return this.unavailable(error);
    }
    this.follow();
    if (this.all) super.learned();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    this.follow?.();
  }
  attributeChangedCallback() {
    if (this.all) this.follow();
  }
}

const ELEMENTS = { "tally-count": Count, "tally-vote": Vote, "tally-poll": Poll, "tally-history": History, "tally-reactions": Reactions };
for (const [name, element] of Object.entries(ELEMENTS)) {
  if (!customElements.get(name)) customElements.define(name, element);
}
