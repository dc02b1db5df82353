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
    for (let one = this; one; one = one.host) languages.observe((one = one.getRootNode()), { subtree: true, attributeFilter: ["lang"] });
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
    // A page hears also of an element that it has removed meanwhile.
    (this.isConnected ? this : document).dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
  // Tells the page. Without an answer there is no problem.
  fail({ message, problem = null }) {
    this.emit("tally-error", { message, problem });
  }
  // There is nothing to show yet.
  unavailable(error) {
    if (!this.shown) this.fail(error);
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
const languages = new MutationObserver(learnChanged);

class Watching extends Speaking {
  // The item or poll that is shown.
  shown = null;
  isMissing = false;
  // Another one whenever it shows something else.
  showing = {};
  // Whether the voter's own vote is shown.
  wantsHeld = false;
  #before = document.createElement("slot");
  #received = null; // shown once there are words, and something to tell
  #watched = null; // while it is in the page
  #followed; // the reference that it showed or looked for last
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
    if (this.isMissing || [...this.childNodes].some(isShown)) this.root.prepend(this.#before);
    else this.#begin();
  }
  get reference() {
    return this.getAttribute(this.constructor.kind);
  }
  connectedCallback() {
    super.connectedCallback();
    this.follow();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    this.follow();
  }
  learned() {
    speakAs(this.root, this.words);
    this.label?.();
    this.#showAgain();
  }
  attributeChangedCallback(name) {
    if (name === this.constructor.kind) this.follow();
    else if (this.shown && this.words) this.render(this.shown);
    else this.#showAgain();
  }
  #showAgain() {
    const one = this.shown ?? this.#received;
    if (one) this.receive(one);
  }
  // Reads it again, and shows it.
  async again() {
    const watched = this.#watched;
    const [[kind, reference]] = watched;
    const one = await ask("GET", pathOf(kind, reference));
    if (watched === this.#watched) this.receive(one);
  }
  // Watches what its attributes name, while it is in the page.
  follow() {
    const { isConnected, reference } = this;
    // An element that is moved stays as it is. With another reference it shows another vote.
    const isOther = isConnected && reference !== this.#followed;
    if (!isOther && isConnected === Boolean(this.#watched)) return;
    for (const one of this.#watched ?? []) watch.remove(...one);
    this.#watched = isConnected ? [] : null;
    if (isOther) {
      if (this.#followed !== undefined) this.#clear();
      else this.#wait(); // a new one is empty
      this.#followed = reference;
    }
    if (!isConnected || !reference) return;
    const why = this.whyNot(reference);
    if (why) return isOther && this.missing(why);
    this.#watched = this.watches(reference);
    for (const one of this.#watched) watch.add(...one);
  }
  // Says why this names nothing that could be shown.
  whyNot(reference) {
    return whyNoReference(this.constructor.kind, reference);
  }
  // What to watch, as watch.add takes it.
  watches(reference) {
    return [[`${this.constructor.kind}s`, reference, this]];
  }
  #clear(isMissing = false) {
    this.isMissing = isMissing;
    this.showing = {};
    this.#wait();
    this.shown = this.#received = null;
    this.clear();
    this.say("");
  }
  // Shows an item or a poll as the server returns it. (Nothing of an element is called as one of its attributes is: React
  // from 19 on would set it in place of the attribute.)
  receive(one) {
    this.#received = one;
    const { shown } = this;
    if (!this.words || !(shown || this.tells(one))) return;
    if (!shown) {
      this.#begin();
      this.say("");
    }
    this.shown = one;
    this.render(one);
    speakAs(this.root, this.words);
    if (shown?.id !== one.id && watch.votes) this.hold?.(watch.votes);
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
  missing(message, problem) {
    this.#clear(true);
    this.fail({ message, problem });
  }
}

// An element that votes. It says what happened to a vote, and does one thing at a time.
class Voting extends Watching {
  wantsHeld = true;
  state = "open";
  #busy = null; // what it shows, while a vote on that is on its way
  #fading = 0;
  connectedCallback() {
    super.connectedCallback();
    if (!this.shown) return;
    // It was moved, or is back: the voter may be another one.
    this.hold(watch.votes ?? []);
    this.tick();
  }
  disconnectedCallback() {
    super.disconnectedCallback();
    clock.leave(this);
    if (this.hasAttribute("sign-in")) this.signedIn();
  }
  learned() {
    this.ballot?.learned(this.words);
    super.learned();
  }
  clear() {
    this.ballot?.clear();
    this.noteTimes(null);
    this.removeAttribute("sign-in");
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
    if (text) this.message.lang = this.words.tag;
    this.message.classList.toggle("bad", isBad);
    // It lies over what is below, so it goes.
    if (text) this.#fading = setTimeout(() => this.say(""), isLong ? MESSAGE_LONG_MS : MESSAGE_MS);
  }
  // Notes what the times of this item or poll mean now. Without one, nothing.
  noteTimes(one, isFull = false, times = [one?.opens_at, one?.closes_at]) {
    clock.follow(this, this.isConnected ? times : []);
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
  // The voter may be another one, who waits for no earlier vote.
  signedIn() {
    this.#busy = null;
    this.removeAttribute("sign-in");
    this.say("");
  }
  // The outcome is shown only while the element still shows the same vote.
  async once(work) {
    if (this.#busy === this.showing) return;
    // A function for tokens may have one by now.
    if (this.hasAttribute("sign-in") && !settings.token) return this.#askToSignIn(null);
    const { showing } = this;
    const earlier = login;
    this.#busy = showing;
    const isSame = () => this.showing === showing && login === earlier;
    try {
      await work(isSame);
      this.removeAttribute("sign-in");
    } catch (error) {
      // It may be stored, and may have created what it is on.
      if (!error.status) watch.created();
      if (error.status === 401 && isSame()) {
        this.#askToSignIn(error.problem);
      } else {
        if (isSame()) this.say(inWords(this.words, error), true);
        this.fail(error);
      }
    }
    if (this.#busy === showing) this.#busy = null;
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
