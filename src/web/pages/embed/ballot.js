// The field for a ballot, and the question before the ballot is spent: it votes once, so a press alone is not final.
class Ballot {
  // What is marked: the button, a function that makes the question, where to vote, and with which value.
  choice = null;
  constructor(element) {
    this.element = element;
    this.label = make("label", "ballot", { hidden: true });
    this.text = make("span");
    this.input = make("input", null, { autocomplete: "off", spellcheck: false, enterKeyHint: "go" });
    this.input.setAttribute("autocapitalize", "off");
    this.label.append(this.text, this.input);
    this.sure = make("div", "sure", { hidden: true, tabIndex: -1 });
    this.sure.setAttribute("role", "alertdialog");
    this.sure.setAttribute("aria-labelledby", "sure");
    this.question = make("p", null, { id: "sure" });
    this.vote = make("button", "vote", { type: "button" });
    this.cancel = make("button", "cancel", { type: "button" });
    this.sure.append(this.question, this.vote, this.cancel);
    this.input.addEventListener("input", () => this.choice && this.offerToSpend());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      if (this.choice) this.ask(this.choice);
      else element.say(element.words.text("chooseFirst"), true);
    });
    this.sure.addEventListener("keydown", (event) => event.key === "Escape" && this.close());
    this.cancel.addEventListener("click", () => this.close());
    this.vote.addEventListener("click", () => this.spend());
    element.place(this.label, this.sure);
    this.learned(element.words);
  }
  learned(words) {
    this.text.textContent = words.text("ballot");
    this.vote.textContent = words.text("vote");
    this.cancel.textContent = words.text("cancel");
    if (this.choice) this.write();
  }
  // Names change.
  write() {
    this.question.textContent = this.choice.question();
  }
  // Shows the field, or hides all of it.
  offer(isOffered) {
    this.label.hidden = !isOffered;
    if (isOffered) return this.choice && this.write();
    this.input.readOnly = false;
    // It closes by time, perhaps while it is asking.
    if (this.sure.contains(this.element.root.activeElement)) this.close();
    this.choice = null;
    this.sure.hidden = true;
  }
  clear() {
    this.offer(false);
    this.input.value = "";
  }
  // Asks whether the marked choice shall have the ballot, if there is one. The server reads capitals, dashes and blanks
  // as they are meant. Returns whether it asks.
  offerToSpend() {
    this.write();
    return !(this.sure.hidden = !/[\p{L}\p{N}]/u.test(this.input.value));
  }
  // Marks a choice, and asks. Not while a ballot is on its way.
  ask(choice) {
    if (this.input.readOnly) return;
    this.choice = choice;
    this.element.press();
    if (!this.offerToSpend()) {
      this.element.say(this.element.words.text("ballotEmpty"), true);
      return this.input.focus();
    }
    this.element.say("");
    this.sure.focus(); // and not a button: a second Enter would vote
  }
  close() {
    this.sure.hidden = true;
    this.choice?.button.focus();
  }
  spend() {
    const { element, choice, input } = this;
    this.close();
    const ballot = input.value;
    // What is shown may change meanwhile, and change back.
    const isMarked = () => this.choice === choice;
    const { showing } = element; // whoever has signed in meanwhile
    return element.once(async () => {
      input.readOnly = true;
      let answer;
      try {
        answer = await ask("POST", choice.path, { value: choice.value, ballot: ballot.trim() });
      } catch (error) {
        // To mend it, if the voter still waits here.
        if (isMarked() && error.problem?.type?.includes("/ballot-") && element.root.activeElement === choice.button) input.select();
        throw error;
      } finally {
        if (isMarked()) input.readOnly = false;
      }
      element.emit("tally-vote", answer);
      if (element.showing !== showing) return;
      if (input.value === ballot) input.value = "";
      if (isMarked()) this.choice = null;
      element.press();
      element.say(element.words.text("ballotSpent"));
    });
  }
}
