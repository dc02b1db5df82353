class Watching extends HTMLElement {
  #watched = null;
  #before = document.createElement("slot");
  #isShown = false;
  #shownAs = null; // the reference that is shown
  // Whether the voter's own vote is shown.
  wantsHeld = false;
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
    this.build();
    // The page's own content between the tags is shown until there is something to show.
    this.root.prepend(this.#before);
  }
  #begin() {
    this.#before.remove();
  }
  get reference() {
    return this.getAttribute(this.constructor.kind);
  }
  connectedCallback() {
    if (!this.hasChildNodes()) this.#begin();
    this.#follow();
  }
  disconnectedCallback() {
    this.#follow(null);
  }
  attributeChangedCallback() {
    if (this.isConnected) this.#follow();
  }
  #follow(reference = this.reference) {
    if (reference === this.#watched) return;
    const kind = this.constructor.kind;
    if (this.#watched) watch.remove(`${kind}s`, this.#watched, this);
    // An element that is moved stays as it is. With another reference it shows another vote.
    if (this.isConnected && this.#shownAs !== null && this.reference !== this.#shownAs) this.#clear();
    this.#watched = null;
    if (!reference) return;
    const why = whyNoReference(kind, reference);
    if (why) return this.#shownAs === reference ? undefined : this.missing(why);
    this.#watched = reference;
    watch.add(`${kind}s`, reference, this);
  }
  #clear() {
    this.#begin();
    this.#isShown = false;
    this.#shownAs = null;
    this.clear();
    this.say("");
  }
  // Shows an item or a poll as the server returns it.
  show(one) {
    const isFirst = !this.#isShown;
    if (isFirst) {
      this.#begin();
      this.say("");
    }
    this.#isShown = true;
    this.#shownAs = this.reference;
    this.render(one);
    if (isFirst && watch.votes) this.hold?.(watch.votes);
    this.emit("tally-counts", one);
  }
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
  missing(text) {
    this.#clear();
    this.#shownAs = this.reference;
    this.say(text, true);
    this.emit("tally-error", { message: text, problem: null });
  }
  // Says why there is nothing to show yet.
  unavailable(text) {
    if (!this.#isShown && this.#before.parentNode === null) this.say(text, true);
  }
}

// An element that votes. It says what happened to a vote, and does one thing at a time.
class Voting extends Watching {
  wantsHeld = true;
  #busy = false;
  #fading = 0;
  say(text, isBad = false) {
    clearTimeout(this.#fading);
    this.message.textContent = text;
    this.message.classList.toggle("bad", isBad);
    if (text && !isBad) this.#fading = setTimeout(() => this.say(""), MESSAGE_MS);
  }
  // The outcome is shown only while the element still shows the same vote.
  async once(work) {
    if (this.#busy) return;
    this.#busy = true;
    const { reference } = this;
    const isSame = () => this.reference === reference;
    try {
      await work(isSame);
    } catch (error) {
      if (isSame()) this.say(inWords(error), true);
      this.emit("tally-error", { message: error.message, problem: error.problem ?? null });
    }
    this.#busy = false;
  }
}

// Problems in words for voters. For any other problem the server's own words are shown.
const IN_WORDS = {
  "credential-missing": "Votes are only taken from voters who are known here.",
  throttled: "That was too often. Wait a little.",
  full: "All places are taken.",
  closed: "This is closed.",
  "not-open-yet": "This is not open yet.",
  "too-many-choices": "That is one choice too many: take one back first.",
  "value-not-taken": "This takes no down-votes.",
  "ballot-missing": "This needs a ballot.",
  "ballot-not-valid": "This ballot is not valid, or it was used already.",
  unavailable: "Votes cannot be stored right now. Try again in a moment.",
};
function inWords(error) {
  const slug = error.problem?.type?.split("/").pop();
  if (error.problem?.stored === "unknown") return "Your vote may or may not be stored. Vote again to be sure: it counts once.";
  return IN_WORDS[slug] ?? error.message;
}
