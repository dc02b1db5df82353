// An element with words in the language that applies to it. `learned` is called when they are there, and again when
// the language changes or the host page sets words of its own.
class Speaking extends HTMLElement {
  words = null;
  tag = null; // the language whose words were asked for last
  #asked = null;
  constructor() {
    super();
    this.root = this.attachShadow({ mode: "open" });
    this.root.adoptedStyleSheets = [sheet];
  }
  connectedCallback() {
    speaking.add(this);
    this.learn();
  }
  disconnectedCallback() {
    speaking.delete(this);
  }
  learn() {
    const tag = (this.tag = tagOf(this));
    const asked = (this.#asked = Symbol(tag));
    const use = (words) => {
      if (asked !== this.#asked) return;
      this.words = words;
      this.learned();
    };
    const words = wordsFor(tag);
    if (words instanceof Promise) words.then(use);
    else use(words);
  }
  emit(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

const speaking = new Set();
function learnAll() {
  spoken.clear();
  for (const element of speaking) element.learn();
}
function learnChanged() {
  for (const element of speaking) if (element.tag !== tagOf(element)) element.learn();
}
new MutationObserver(learnChanged).observe(document, { subtree: true, attributeFilter: ["lang"] });

class Watching extends Speaking {
  #watched = null;
  #before = document.createElement("slot");
  #shown = null; // what is shown, or waits for words
  #isShown = false;
  #isMissing = false;
  #shownAs = null; // the reference that is shown
  // Whether the voter's own vote is shown.
  wantsHeld = false;
  constructor() {
    super();
    this.build();
    this.root.prepend(this.#before);
  }
  // The page's own content between the tags is shown until there is something better.
  #begin() {
    this.#before.remove();
  }
  #wait() {
    // Without a vote there are no controls either. Marks of the page's own have slots of their own.
    const isShown = (one) => one.slot === "" || (one.nodeType === Node.TEXT_NODE && one.data.trim());
    if (this.#isMissing || [...this.childNodes].some(isShown)) this.root.prepend(this.#before);
    else this.#begin();
  }
  get reference() {
    return this.getAttribute(this.constructor.kind);
  }
  connectedCallback() {
    super.connectedCallback();
    if (!this.#isShown) this.#wait();
    this.#follow();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    this.#follow(null);
  }
  learned() {
    speakAs(this.root, this.words);
    this.label?.();
    if (this.#shown) this.receive(this.#shown);
  }
  attributeChangedCallback(name) {
    if (!this.isConnected) return;
    if (name === this.constructor.kind) this.#follow();
    else if (this.#isShown && this.words) this.render(this.#shown);
  }
  // Reads it again, and shows it.
  async again() {
    this.receive(await ask("GET", pathOf(`${this.constructor.kind}s`, this.reference)));
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
  #clear(isMissing = false) {
    this.#isMissing = isMissing;
    this.#wait();
    this.#shown = null;
    this.#isShown = false;
    this.#shownAs = null;
    this.clear();
    this.say("");
  }
  // Shows an item or a poll as the server returns it. (Nothing of an element is called as one of its attributes is: React
  // from 19 on would set it in place of the attribute.)
  receive(one) {
    this.#shown = one;
    if (!this.words) return; // shown when they come
    const isFirst = !this.#isShown;
    if (isFirst && !this.tells(one)) return;
    if (isFirst) {
      this.#begin();
      this.say("");
    }
    this.#isShown = true;
    this.#shownAs = this.reference;
    this.render(one);
    speakAs(this.root, this.words);
    if (isFirst && watch.votes) this.hold?.(watch.votes);
    this.emit("tally-counts", one);
  }
  // Whether this is better than what is between the tags.
  tells() {
    return true;
  }
  // Elements that vote have a place for it.
  say() {}
  // What does not exist is not the visitors' concern: the page hears of it, and what is between the tags stays. Without
  // a problem nothing was asked.
  missing(message, problem = null) {
    this.#clear(true);
    this.#shownAs = this.reference;
    this.emit("tally-error", { message, problem });
  }
  // There is nothing to show yet.
  unavailable(error) {
    if (!this.#isShown) this.fail(error);
  }
  // Tells the page. Without an answer there is no problem.
  fail(error) {
    this.emit("tally-error", { message: error.message, problem: error.problem ?? null });
  }
}

// An element that votes. It says what happened to a vote, and does one thing at a time.
class Voting extends Watching {
  wantsHeld = true;
  state = "open";
  #busy = false;
  #fading = 0;
  connectedCallback() {
    super.connectedCallback();
    if (this.shown) this.tick(); // it was moved
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    clock.leave(this);
  }
  // Most elements never need a ballot's field, so it is made for the first ballot.
  offerBallot(isOffered) {
    if (isOffered && !this.ballot) {
      this.ballot = new Ballot(this);
      speakAs(this.root, this.words);
    }
    this.ballot?.offer(isOffered);
  }
  isMarked(button) {
    return this.ballot?.choice?.button === button;
  }
  say(text, isBad = false, isLong = isBad) {
    clearTimeout(this.#fading);
    this.message.textContent = text;
    this.message.classList.toggle("bad", isBad);
    // It lies over what is below, so it goes.
    if (text) this.#fading = setTimeout(() => this.say(""), isLong ? MESSAGE_LONG_MS : MESSAGE_MS);
  }
  // Notes what the times of this item or poll mean now. Without one, nothing.
  noteTimes(one, isFull = false) {
    clock.follow(this, one ? [one.opens_at, one.closes_at] : []);
    this.state = one ? stateOf(one) : "open";
    this.toggleAttribute("closed", this.state === "closed");
    this.toggleAttribute("not-open", this.state === "not-open-yet");
    this.toggleAttribute("full", isFull && this.state === "open");
  }
  // When it opens, closes or has closed, in words. Empty without times.
  timeNote({ opens_at, closes_at, final }) {
    const { words, state } = this;
    if (state === "closed") return words.text(final ? "final" : "closed", { when: words.when(closes_at) });
    const [key, at] = state === "open" ? ["closes", closes_at] : ["opens", opens_at];
    if (!at) return "";
    const left = Date.parse(at) - clock.now();
    return left > MINUTES_FROM_MS ? words.text(key, { when: words.when(at) }) : words.text(`${key}In`, { time: words.duration(left) });
  }
  // Says why it takes no votes. False: it takes them.
  isRefused() {
    if (this.state === "open") return false;
    this.say(this.words.text(this.state === "closed" ? "isClosed" : "notOpenYet"), true);
    return true;
  }
  // The page may know how visitors sign in. Until then a press asks nothing of the server.
  #askToSignIn(problem) {
    this.toggleAttribute("sign-in", true);
    this.say(this.words.text("signIn"), false, true);
    this.emit("tally-sign-in", { problem });
  }
  signedIn() {
    if (!this.hasAttribute("sign-in")) return;
    this.removeAttribute("sign-in");
    this.say("");
  }
  // The outcome is shown only while the element still shows the same vote.
  async once(work) {
    if (this.#busy) return;
    // A function for tokens may have one by now.
    if (this.hasAttribute("sign-in") && !settings.token) return this.#askToSignIn(null);
    this.#busy = true;
    const { reference } = this;
    const isSame = () => this.reference === reference;
    try {
      await work(isSame);
      this.removeAttribute("sign-in");
    } catch (error) {
      if (error.status === 401 && isSame()) {
        this.#askToSignIn(error.problem);
      } else {
        if (isSame()) this.say(inWords(this.words, error), true);
        this.fail(error);
      }
    }
    this.#busy = false;
  }
}

// Problems in words for voters. For any other problem the server's own words are shown, which are English. What a host
// page's function for tokens throws is for the page.
const IN_WORDS = {
  "not-allowed": "credentialMissing",
  throttled: "throttled",
  full: "full",
  closed: "isClosed",
  "not-open-yet": "notOpenYet",
  "too-many-choices": "tooManyChoices",
  "value-not-taken": "noDownVotes",
  "ballot-missing": "ballotMissing",
  "ballot-not-valid": "ballotNotValid",
  unavailable: "unavailable",
};
function inWords(words, error) {
  const slug = error.problem?.type?.split("/").pop();
  if (error.problem?.stored === "unknown") return words.text("outcomeUnknown");
  const key = error.word ?? IN_WORDS[slug];
  if (key) return words.text(key);
  return error.problem && words.tag.split("-")[0] === "en" ? error.message : words.text("refused");
}
