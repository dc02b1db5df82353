class Poll extends Voting {
  static kind = "poll";
  static observedAttributes = ["poll", "no-title", "heading-level", "no-words", "share-of"];
  held = new Set();
  rows = new Map();
  build() {
    this.heading = make("h3", "title", { dir: "auto", hidden: true });
    this.list = make("ul", "choices");
    this.list.setAttribute("role", "list");
    Object.assign(this, foot());
    this.root.append(this.heading, this.list, this.foot);
  }
  place(field, question) {
    this.list.before(field);
    this.list.after(question);
  }
  row(choice) {
    const button = make("button", "choice", { type: "button" });
    const row = {
      button,
      bar: make("span", "bar"),
      name: make("span", "choice-name", { dir: "auto" }),
      share: make("span", "share"),
      count: make("span", "count"),
    };
    const figures = make("span", "figures");
    figures.append(row.count, row.share);
    button.append(row.bar, marker(this), row.name, figures);
    button.addEventListener("click", () => this.choose(choice.item_id));
    const line = make("li");
    line.append(button);
    this.list.append(line);
    this.rows.set(choice.item_id, row);
    return row;
  }
  clear() {
    this.held.clear();
    this.rows.clear();
    this.list.replaceChildren();
    this.heading.textContent = this.note.textContent = "";
    this.heading.hidden = true;
    super.clear();
  }
  render(poll) {
    const { words } = this;
    this.list.classList.toggle("several", poll.max_choices !== 1);
    this.title(poll.title);
    for (const choice of poll.choices) {
      const row = this.rows.get(choice.item_id) ?? this.row(choice);
      const share = this.share(choice);
      row.name.textContent = choice.name;
      row.bar.style.setProperty("--share", share ?? 0);
      row.share.textContent = share === null ? "" : words.percent(share);
      row.count.replaceChildren(...this.count(choice.vote_count));
    }
    this.tick();
  }
  title(text) {
    const level = /^[2-6]$/.test(this.getAttribute("heading-level")) ? this.getAttribute("heading-level") : 3;
    if (this.heading.localName !== `h${level}`) {
      const heading = make(`h${level}`, "title", { dir: "auto", lang: this.heading.lang });
      this.heading.replaceWith(heading);
      this.heading = heading;
    }
    this.heading.textContent = text;
    this.heading.hidden = this.hasAttribute("no-title");
  }
  // What part of the votes a choice has, or of the voters.
  share({ vote_count, share }) {
    if (!this.isOfVoters() || share === null) return share;
    return this.shown.voter_count > 0 ? vote_count / this.shown.voter_count : null;
  }
  isOfVoters() {
    return this.getAttribute("share-of") === "voters";
  }
  // A count and its word. Without words, the word is only said.
  count(count) {
    if (count === null) return [];
    const text = this.words.text("votes", { n: count });
    if (!this.hasAttribute("no-words")) return [text];
    const number = make("span", null, { textContent: this.words.number(count) });
    number.setAttribute("aria-hidden", "true");
    return [number, make("span", null, { className: "unseen", textContent: text })];
  }
  // What changes with time.
  tick() {
    const { shown: poll, words } = this;
    this.noteTimes(poll);
    const isOpen = this.state === "open";
    this.offerBallot(poll.by_ballot && isOpen);
    const isOfSeveral = poll.max_choices !== 1;
    const notes = [];
    const note = (key, values) => notes.push(words.text(key, values));
    if (poll.voter_count !== null) note("voters", { n: poll.voter_count });
    if (isOfSeveral && poll.choices.some((choice) => choice.share !== null)) note(this.isOfVoters() ? "ofVoters" : "ofVotes");
    notes.push(this.timeNote(poll));
    if (isOpen && isOfSeveral) note(poll.max_choices === null ? "chooseAny" : "chooseUpTo", { n: poll.max_choices });
    if (this.state !== "closed" && !poll.results_before_close) note("resultsAtClose");
    this.note.textContent = words.sentences(notes);
    for (const { button } of this.rows.values()) button.setAttribute("aria-disabled", String(!isOpen));
    this.press();
  }
  press() {
    for (const [item, { button }] of this.rows) setPressed(button, this.held.has(item) || this.isMarked(button));
  }
  hold(votes) {
    const ids = new Set(votes.map((vote) => vote.item_id));
    this.held = new Set([...this.rows.keys()].filter((id) => ids.has(id)));
    this.press();
  }
  choose(item) {
    const { shown: poll } = this;
    if (this.isRefused()) return;
    if (poll.by_ballot) {
      const { button, name } = this.rows.get(item);
      const question = () => this.words.text("ballotSure", { name: name.textContent });
      return this.ballot.ask({ button, question, path: `/v1/items/${item}/votes`, value: 1 });
    }
    return this.once(async (isSame) => {
      const isTakenBack = this.held.has(item);
      this.emit("tally-vote", await choose(poll, item, isTakenBack));
      if (isSame()) this.say(this.words.text(isTakenBack ? "takenBack" : "counted"));
    });
  }
}

// Chooses a choice, or takes it back. All elements of the page show what the voter holds then.
function choose(poll, item, isTakenBack) {
  const vote = (id) => {
    if (poll.max_choices === 1) return ask("PUT", ofVoter("polls", String(poll.id), id), { items: isTakenBack ? [] : [item] });
    // Only this choice: this page may not know the voter's other choices.
    const path = ofVoter("items", String(item), id);
    return isTakenBack ? ask("DELETE", path) : ask("PUT", path, { value: 1 });
  };
  return asVoter(vote, ({ items, value }) => (items ? poll.choices.map(({ item_id: one }) => [one, Number(items.includes(one))]) : [[item, value]]));
}
