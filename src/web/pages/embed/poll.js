class Poll extends Voting {
  static kind = "poll";
  static observedAttributes = ["poll"];
  held = new Set();
  rows = new Map();
  build() {
    this.heading = make("h3", "title", { dir: "auto", hidden: true });
    this.ballot = ballotField();
    this.list = make("ul", "choices");
    this.list.setAttribute("role", "list");
    this.note = make("p", "note");
    this.message = make("p", "message");
    this.message.setAttribute("role", "status");
    this.root.append(this.heading, this.ballot.label, this.list, this.note, this.message);
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
    button.append(row.bar, mark(CHECK), row.name, figures);
    button.addEventListener("click", () => this.choose(choice.item_id));
    const line = make("li");
    line.append(button);
    this.list.append(line);
    this.rows.set(choice.item_id, row);
    return row;
  }
  clear() {
    this.poll = null;
    this.held.clear();
    this.rows.clear();
    this.list.replaceChildren();
    this.heading.textContent = this.note.textContent = "";
    this.heading.hidden = this.ballot.label.hidden = true;
  }
  render(poll) {
    this.poll = poll;
    this.heading.textContent = poll.title;
    this.heading.hidden = this.hasAttribute("no-title");
    this.ballot.label.hidden = !poll.by_ballot || poll.state !== "open";
    for (const choice of poll.choices) {
      const row = this.rows.get(choice.item_id) ?? this.row(choice);
      row.name.textContent = choice.name;
      row.bar.style.setProperty("--share", choice.share ?? 0);
      row.share.textContent = choice.share === null ? "" : choice.share.toLocaleString(undefined, { style: "percent", maximumFractionDigits: 0 });
      row.count.textContent = choice.vote_count === null ? "" : plural(choice.vote_count, "vote", "votes");
      row.button.setAttribute("aria-disabled", String(poll.state !== "open"));
    }
    const notes = [];
    if (poll.voter_count !== null) notes.push(plural(poll.voter_count, "voter", "voters") + ".");
    if (poll.state === "closed") notes.push(poll.final ? `Final since ${when(poll.closes_at)}.` : `Closed ${when(poll.closes_at)}.`);
    else if (poll.state === "not-open-yet") notes.push(`Opens ${when(poll.opens_at)}.`);
    else if (poll.closes_at) notes.push(`Closes ${when(poll.closes_at)}.`);
    if (poll.state === "open" && poll.max_choices !== 1) {
      notes.push(poll.max_choices === null ? "Choose as many as you like." : `Choose up to ${poll.max_choices}.`);
    }
    if (poll.state !== "closed" && !poll.results_before_close) notes.push("Results show when it closes.");
    this.note.textContent = notes.join(" ");
    this.press();
  }
  press() {
    for (const [item, row] of this.rows) row.button.setAttribute("aria-pressed", String(this.held.has(item)));
  }
  hold(votes) {
    const ids = new Set(votes.map((vote) => vote.item_id));
    this.held = new Set([...this.rows.keys()].filter((id) => ids.has(id)));
    this.press();
  }
  choose(item) {
    return this.once(async (isSame) => {
      const poll = this.poll;
      if (poll.state === "closed") return this.say("This poll is closed.", true);
      if (poll.state === "not-open-yet") return this.say("This poll is not open yet.", true);
      if (poll.by_ballot) {
        const answer = await ask("POST", `/v1/items/${item}/votes`, { ballot: this.ballot.input.value.trim() });
        this.emit("tally-vote", answer);
        if (!isSame()) return;
        this.ballot.input.value = "";
        return this.say("Your vote counts. The ballot is spent.");
      }
      const isTakenBack = this.held.has(item);
      const answer = await asVoter((id) => {
        if (poll.max_choices === 1) return ask("PUT", ofVoter(`/v1/polls/${poll.id}/votes`, id), { items: isTakenBack ? [] : [item] });
        // Only this choice: this page may not know the voter's other choices.
        const path = ofVoter(`/v1/items/${item}/votes`, id);
        return isTakenBack ? ask("DELETE", path) : ask("PUT", path, { value: 1 });
      });
      const held = (choice) => (answer.items ? Number(answer.items.includes(choice)) : answer.value);
      const changed = answer.items ? poll.choices.map((choice) => choice.item_id) : [item];
      watch.changed(new Map(changed.map((choice) => [choice, held(choice)])));
      this.emit("tally-vote", answer);
      if (isSame()) this.say(isTakenBack ? "Your vote is taken back." : "Your vote counts.");
    });
  }
}
