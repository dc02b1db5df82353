class Vote extends Voting {
  static kind = "item";
  static observedAttributes = ["item"];
  value = 0;
  build() {
    this.name = make("span", "name", { dir: "auto" });
    this.count = make("span", "count", { textContent: "–" });
    this.unit = make("span", null, { className: "unseen" });
    this.up = make("button", "up", { type: "button" });
    this.down = make("button", "down", { type: "button" });
    this.up.append(mark(UP));
    this.down.append(mark(DOWN));
    this.up.setAttribute("aria-label", "Vote up");
    this.down.setAttribute("aria-label", "Vote down");
    this.up.addEventListener("click", () => this.toggle(1));
    this.down.addEventListener("click", () => this.toggle(-1));
    this.buttons = make("div", "buttons");
    this.buttons.setAttribute("role", "group");
    const count = make("span");
    count.append(this.count, this.unit);
    this.buttons.append(this.up, count, this.down);
    this.ballot = ballotField();
    this.note = make("p", "note");
    this.message = make("p", "message");
    this.message.setAttribute("role", "status");
    const box = make("div", "box");
    box.append(this.name, this.buttons, this.ballot.label, this.note, this.message);
    this.root.append(box);
    this.press();
  }
  press() {
    for (const [button, value] of [[this.up, 1], [this.down, -1]]) button.setAttribute("aria-pressed", String(this.value === value));
  }
  clear() {
    this.item = null;
    this.value = 0;
    for (const part of [this.name, this.unit, this.note]) part.textContent = "";
    this.count.textContent = "–";
    this.ballot.label.hidden = true;
    this.press();
  }
  render(item) {
    this.item = item;
    this.name.textContent = item.name;
    this.name.hidden = this.hasAttribute("no-name");
    this.buttons.setAttribute("aria-label", item.name);
    this.up.setAttribute("aria-label", `Vote up: ${item.name}`);
    this.down.setAttribute("aria-label", `Vote down: ${item.name}`);
    this.down.hidden = item.down_votes === false;
    this.ballot.label.hidden = !item.by_ballot;
    this.counts(item);
    const now = Date.now();
    const notes = [];
    if (item.opens_at && Date.parse(item.opens_at) > now) notes.push(`Opens ${when(item.opens_at)}.`);
    else if (item.closes_at && Date.parse(item.closes_at) <= now) notes.push(`Closed ${when(item.closes_at)}.`);
    else if (item.closes_at) notes.push(`Closes ${when(item.closes_at)}.`);
    if (item.max_votes) notes.push(`${(item.up_count + item.down_count).toLocaleString()} of ${plural(item.max_votes, "place", "places")} taken.`);
    this.note.textContent = notes.join(" ");
  }
  counts({ vote_count }) {
    this.count.textContent = vote_count === null ? "–" : vote_count.toLocaleString();
    this.unit.textContent = vote_count === null ? " count follows" : vote_count === 1 ? " vote" : " votes";
  }
  hold(votes) {
    if (!this.item) return;
    this.value = votes.find((vote) => vote.item_id === this.item.id)?.value ?? 0;
    this.press();
  }
  toggle(wanted) {
    return this.once(async (isSame) => {
      const { item } = this;
      if (!item) return;
      const path = `/v1/items/${item.id}/votes`;
      const value = this.value === wanted ? 0 : wanted;
      let answer;
      if (item.by_ballot) {
        answer = await ask("POST", path, { value: wanted, ballot: this.ballot.input.value.trim() });
        this.ballot.input.value = "";
      } else {
        answer = await asVoter((id) => {
          const own = ofVoter(path, id);
          return value === 0 ? ask("DELETE", own) : ask("PUT", own, { value });
        }).catch((error) => {
          // The server may take anonymous votes. Then each is a vote of its own.
          if (![401, 403].includes(error.status) || value !== 1) throw error;
          return ask("POST", path, {});
        });
      }
      if (answer.voter_id) watch.changed(new Map([[item.id, answer.value]]));
      // A choice of a poll may have taken the place of another.
      if (item.poll_id) watch.held();
      this.emit("tally-vote", answer);
      if (!isSame()) return;
      // A stream may have shown something newer meanwhile.
      if (answer.vote_count !== null && this.item === item) this.counts(answer);
      const number = answer.number ? ` It is number ${answer.number.toLocaleString()}.` : "";
      this.say(answer.value === 0 ? "Your vote is taken back." : `Your vote counts.${number}`);
    });
  }
}

function ballotField() {
  const label = make("label", "ballot", { textContent: "Your ballot", hidden: true });
  const input = make("input", null, { autocomplete: "off", spellcheck: false });
  label.append(input);
  return { label, input };
}
