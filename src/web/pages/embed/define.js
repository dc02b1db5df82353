// What some elements do is in a file of its own, which is fetched when the first of them appears.
const fetched = new Map();
async function fetchMethods(element, file) {
  const kit = { ask, cast, choose, clock, historyEveryMs: HISTORY_EVERY_MS, make, pathOf, setPressed, shape, sheet, speakAs, watch, whyNoReference };
  const fetching = fetched.get(file) ?? import(SERVER + file).then(({ methods }) => Object.assign(element.prototype, methods(kit)));
  fetched.set(file, fetching);
  try {
    await fetching;
  } catch (error) {
    fetched.delete(file); // the next element tries again
    throw error;
  }
}

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
      await fetchMethods(Reactions, "/assets/reactions.js");
    } catch (error) {
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
