class Vote extends Voting {
  static kind = "item";
  static observedAttributes = ["item", "no-name", "likes"];
  value = 0;
  build() {
    this.name = make("span", "name", { dir: "auto" });
    this.count = make("span", "count", { textContent: "–" });
    this.unit = make("span", null, { className: "unseen" });
    this.up = make("button", "up", { type: "button" });
    this.down = make("button", "down", { type: "button" });
    this.up.append(ownMark("up", UP));
    this.down.append(ownMark("down", DOWN));
    this.up.addEventListener("click", () => this.toggle(1));
    this.down.addEventListener("click", () => this.toggle(-1));
    this.buttons = make("div", "buttons");
    this.buttons.setAttribute("role", "group");
    const count = make("span");
    count.append(this.count, this.unit);
    this.buttons.append(this.up, count, this.down);
    const box = make("div", "box");
    box.append(this.name, this.buttons);
    Object.assign(this, foot());
    this.root.append(box, this.foot);
    this.press();
  }
  place(field, question) {
    this.buttons.after(field, question);
  }
  // Controls name the item, once it is known.
  label() {
    const { words } = this;
    const name = this.shown?.name ?? "";
    this.buttons.setAttribute("aria-label", name);
    this.up.setAttribute("aria-label", words.text(name ? "voteUpFor" : "voteUp", { name }));
    this.down.setAttribute("aria-label", words.text(name ? "voteDownFor" : "voteDown", { name }));
  }
  press() {
    for (const [button, value] of [[this.up, 1], [this.down, -1]]) {
      setPressed(button, this.value === value || this.isMarked(button));
      // On a full item a vote can still be changed.
      button.setAttribute("aria-disabled", String(!this.shown || this.state !== "open" || (this.hasAttribute("full") && this.value === 0)));
    }
  }
  clear() {
    this.value = 0;
    for (const part of [this.name, this.unit, this.note]) part.textContent = "";
    this.count.textContent = "–";
    super.clear();
    if (this.words) this.label();
    this.press();
  }
  render(item) {
    this.name.textContent = item.name;
    this.name.hidden = this.hasAttribute("no-name");
    this.label();
    this.down.hidden = item.down_votes === false || this.hasAttribute("likes");
    this.counts(item);
    this.tick();
  }
  // What changes with time.
  tick() {
    const { shown: item, words } = this;
    const taken = item.up_count + item.down_count;
    const isFull = taken >= item.max_votes; // never without a limit
    this.noteTimes(item, isFull);
    this.offerBallot(Boolean(item.by_ballot) && this.state === "open" && !isFull);
    const places = item.max_votes === undefined ? "" : words.text("places", { taken, n: item.max_votes });
    this.note.textContent = words.sentences([this.timeNote(item), places]);
    this.press();
  }
  counts({ vote_count }) {
    this.count.setAttribute("aria-hidden", "true");
    this.count.textContent = vote_count === null ? "–" : this.words.number(vote_count);
    // Said, but not shown: a number alone says nothing.
    this.unit.textContent = vote_count === null ? this.words.text("countFollows") : this.words.text("votes", { n: vote_count });
  }
  hold(votes) {
    this.value = votes.find((vote) => vote.item_id === this.shown?.id)?.value ?? 0;
    this.press();
  }
  toggle(wanted) {
    const { shown: item } = this;
    if (!item || this.isRefused()) return;
    if (this.hasAttribute("full") && this.value === 0) return this.say(this.words.text("full"), true);
    if (item.by_ballot) {
      const [button, key] = wanted === 1 ? [this.up, "ballotSure"] : [this.down, "ballotSureDown"];
      const question = () => this.words.text(key, { name: this.shown.name });
      return this.ballot.ask({ button, question, path: `/v1/items/${item.id}/votes`, value: wanted });
    }
    return this.once(async (isSame) => {
      // The first vote creates an item that is only a key so far.
      const reference = item.id === null ? this.reference : String(item.id);
      const value = this.value === wanted ? 0 : wanted;
      const answer = await cast(reference, value);
      const now = { ...item, id: answer.item_id };
      if (this.shown === item) this.shown = now;
      if (item.id === null) watch.created();
      this.hold(watch.votes ?? []);
      // A choice of a poll may have taken the place of another.
      if (item.poll_id) watch.held();
      this.emit("tally-vote", answer);
      if (!isSame()) return;
      // A stream may have shown something newer meanwhile.
      if (answer.vote_count !== null && this.shown === now) this.counts(answer);
      if (answer.value === 0) this.say(this.words.text("takenBack"));
      else if (answer.number) this.say(this.words.text("countedAs", { n: answer.number }));
      else this.say(this.words.text("counted"));
    });
  }
}

// Casts a vote on an item, or takes it back: 0.
function cast(reference, value) {
  return asVoter((id) => {
    const own = ofVoter("items", reference, id);
    return value === 0 ? ask("DELETE", own) : ask("PUT", own, { value });
  }, (answer) => [[answer.item_id, answer.value]]).catch((error) => {
    // The server may take anonymous votes. Then each is a vote of its own.
    if (![401, 403].includes(error.status) || value !== 1) throw error;
    return ask("POST", pathOf("items", reference, "/votes"), {});
  });
}
