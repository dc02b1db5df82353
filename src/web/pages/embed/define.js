// What some elements do is in a file of its own, which is fetched when the first of them appears. Returns whether this
// element, which is still in the page, can do it now.
const fetched = new Map();
async function fetchMethods(one, file) {
  const kit = { ask, cast, choose, clock, loginNow: () => login, make, pathOf, setPressed, shape, speakAs, stateOf, watch, whyNoReference };
  const fetching = fetched.get(file) ?? load(file).then(({ look, methods }) => Object.assign(one.constructor.prototype, methods(kit)) && look);
  fetched.set(file, fetching);
  try {
    one.root.adoptedStyleSheets = [sheet, await fetching];
    return one.isConnected;
  } catch (error) {
    fetched.delete(file);
    again += "?";
    if (!one.isConnected) return false;
    setTimeout(() => one.isConnected && one.learn(), RETRY_MOST_MS);
    one.unavailable(error);
    return false;
  }
}

class Reactions extends Voting {
  static observedAttributes = ["to", "emoji", "poll"];
  build() {
    this.chips = make("div", "reactions");
    this.chips.setAttribute("role", "group");
    Object.assign(this, foot());
    this.root.append(this.chips, this.foot);
  }
  all = new Map(); // chips, by emoji
  // Null until the file and the words are there.
  get reference() {
    return (this.words && this.named?.()) ?? null;
  }
  async learned() {
    if (!(await fetchMethods(this, "/assets/reactions.js"))) return;
    this.follow();
    super.learned();
  }
  // All of them, when the page has set the last one.
  attributeChangedCallback() {
    queueMicrotask(() => this.follow());
  }
}

const ELEMENTS = { "tally-count": Count, "tally-vote": Vote, "tally-poll": Poll, "tally-history": History, "tally-reactions": Reactions };
for (const [name, element] of Object.entries(ELEMENTS)) {
  if (!customElements.get(name)) customElements.define(name, element);
}
// By then all modules of the page have added their elements and called `configure`: what they show is asked for before
// the page is drawn, but for elements whose file is on its way. Later elements wait for others.
const begin = () => watch.timer && watch.open();
addEventListener("DOMContentLoaded", () => Promise.all(fetched.values()).then(begin, begin));
