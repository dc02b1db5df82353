// <tally-reactions>: emoji to press. Each is an item with a key of its own (post-42:👍), which its first vote may make,
// or a choice of a poll. embed.js fetches this file when the first of these elements appears, and gives it what both
// need, so that a page has one stream.
const CHIPS_LIMIT = 20; // emoji in one element
export const look = new CSSStyleSheet();
look.replaceSync(`
[part="reactions"] { display: flex; flex-wrap: wrap; gap: 0.4em; }
[part~="chip"] { display: inline-flex; align-items: center; gap: 0.45em; max-width: 100%; min-height: clamp(32px, 2.25em, 56px); padding: 0 0.7em; border-radius: 99em; }
[part~="chip"][aria-pressed="true"] { color: inherit; background: var(--fill); border-color: var(--edge); box-shadow: inset 0 0 0 1px var(--edge); }
[part="emoji"] { min-width: 0; font-size: 1.15em; line-height: 1.2; overflow-wrap: anywhere; }
[part~="chip"] [part="count"] { min-width: 1ch; font-size: 0.92em; font-weight: 650; text-align: center; }
`);

const emojiOf = (text) => [...new Set(text?.split(/\s+/).filter((one) => one !== ""))];
const keyOf = (to, emoji) => `key:${to}:${emoji}`;
// Chips of items show them by themselves.
const pollOf = ({ shown }) => (shown?.choices ? shown : null);

// Returns the methods of <tally-reactions>.
export function methods({ cast, choose, loginNow, make, setPressed, stateOf, watch, whyNoReference }) {
  // One emoji. That of an item is watched as an element is.
  class Chip {
    wantsHeld = true;
    id = null; // of the item. Null: not known, or its first vote makes it
    count = null;
    isHeld = false;
    isOpen = true;
    isFull = false;
    constructor(element, emoji, reference = null) {
      Object.assign(this, { element, emoji, reference });
      this.button = make("button", "chip", { type: "button" });
      this.number = make("span", "count");
      this.name = make("span", "emoji", { dir: "auto" });
      this.button.append(this.name, this.number);
      this.button.addEventListener("click", () => element.press(this));
      this.set({ id: null, vote_count: null });
    }
    set({ id, vote_count }) {
      Object.assign(this, { id, count: vote_count });
      this.button.hidden = false;
      this.write();
      this.hold(watch.votes ?? []);
    }
    write() {
      const { words } = this.element;
      this.name.textContent = this.emoji;
      const isHidden = this.count === null;
      this.number.textContent = isHidden ? "–" : words.number(this.count);
      const count = isHidden ? words.text("countFollows") : words.text("votes", { n: this.count });
      this.button.setAttribute("aria-label", words.text("reaction", { emoji: this.emoji, count }));
    }
    // The voter's votes may come before the counts, which bring the id.
    hold(votes) {
      const own = votes.find((vote) => vote.item_id === this.id || `key:${vote.key}` === this.reference);
      this.id ??= own?.item_id ?? null;
      this.isHeld = own !== undefined && own.value !== -1;
      this.enable();
    }
    enable() {
      setPressed(this.button, this.isHeld);
      // On a full item a vote can still be taken back.
      this.button.setAttribute("aria-disabled", String(!this.isOpen || (this.isFull && !this.isHeld)));
    }
    receive(item) {
      this.shown = item;
      this.set(item);
      this.element.receive(item);
    }
    // No item has this key. Others of the element may be there.
    missing(text, problem) {
      this.button.hidden = true;
      if ([...this.element.all.values()].every((chip) => chip.button.hidden)) this.element.missing(text, problem);
    }
    signedIn() {
      this.element.signedIn();
    }
    unavailable(error) {
      if (this.element.isFirst(this)) this.element.unavailable(error);
    }
    toggleAttribute(name, isSet) {
      this.element.toggleAttribute(name, isSet);
    }
  }

  return {
    named() {
      return JSON.stringify(["to", "emoji", "poll"].map((name) => this.getAttribute(name)));
    },
    whyNot(named) {
      const [to, emoji, poll] = JSON.parse(named);
      if (poll !== null) return whyNoReference("poll", poll);
      const all = emojiOf(emoji);
      if (!to || all.length === 0) return 'It takes what the reactions are to, and emoji: to="post-42" emoji="👍 ❤️".';
      if (to.startsWith("key:")) return `“${to}” is no key of your own: it takes the key alone, “${to.slice(4)}”.`;
      if (all.length > CHIPS_LIMIT) return `There are ${all.length} emoji: it takes at most ${CHIPS_LIMIT}.`;
      return all.map((one) => whyNoReference("item", keyOf(to, one))).find(Boolean);
    },
    watches(named) {
      const [to, emoji, poll] = JSON.parse(named);
      // An element that is moved stays as it is.
      if (named !== this.chipsOf) {
        this.chipsOf = named;
        this.all.clear();
        this.chips.replaceChildren();
        if (poll === null) for (const one of emojiOf(emoji)) this.add(one, keyOf(to, one));
      }
      return poll === null ? [...this.all.values()].map((chip) => ["items", chip.reference, chip]) : [["polls", poll, this]];
    },
    tells(one) {
      const isBallots = Boolean(one.choices && one.by_ballot);
      if (isBallots && !this.isMissing) this.missing(`Poll ${one.id} takes ballots. <tally-poll> has a field for them.`);
      return !isBallots;
    },
    // `id`: of a choice, whose name may change.
    add(emoji, reference, id = emoji) {
      const chip = new Chip(this, emoji, reference);
      this.all.set(id, chip);
      this.chips.append(chip.button);
      return chip;
    },
    isFirst(chip) {
      return this.all.values().next().value === chip;
    },
    label() {
      this.chips.setAttribute("aria-label", this.words.text("reactions"));
      for (const chip of this.all.values()) chip.write();
    },
    render(one) {
      for (const { item_id, name, vote_count } of one.choices ?? []) {
        const chip = this.all.get(item_id) ?? this.add(name, null, item_id);
        chip.emoji = name;
        chip.set({ id: item_id, vote_count });
      }
      this.tick();
    },
    // What changes with time: a poll closes, or an item.
    tick() {
      const all = [...this.all.values()];
      const poll = pollOf(this);
      for (const chip of all) {
        const one = poll ?? chip.shown;
        chip.isOpen = !one || stateOf(one) === "open";
        chip.isFull = one?.max_votes !== undefined && one.up_count + one.down_count >= one.max_votes;
        chip.enable();
      }
      // Of several items, the element is as one that takes votes.
      const best = all.find((chip) => chip.isOpen && !chip.isFull) ?? all.find((chip) => chip.isOpen) ?? all[0];
      const times = (poll ? [poll] : all.map((chip) => chip.shown)).flatMap((one) => [one?.opens_at, one?.closes_at]);
      this.noteTimes(poll ?? best?.shown, best?.isFull, times);
    },
    hold(votes) {
      for (const chip of this.all.values()) chip.hold(votes);
    },
    press(chip) {
      if (this.isRefused()) return;
      if (chip.isFull && !chip.isHeld) return this.say(this.words.text("full"), true);
      return this.once(async (isSame) => {
        const poll = pollOf(this);
        if (poll) this.emit("tally-vote", await choose(poll, chip.id, chip.isHeld));
        else await this.castIn([...this.all.values()], chip);
        // What was said of an earlier press is over.
        if (isSame()) this.say("");
      });
    },
    // Casts a vote on one of these chips, or takes it back. The element may show others meanwhile.
    async castIn(all, chip) {
      const earlier = loginNow();
      const isTakenBack = chip.isHeld;
      const isSingle = this.hasAttribute("single") && !isTakenBack;
      // Without the voter's votes it cannot know which to take back.
      if (isSingle && watch.votes === null) await watch.held();
      await this.cast(chip, isTakenBack ? 0 : 1);
      // Only now: a voter whose new reaction is refused keeps the old one.
      for (const other of isSingle ? all : []) if (other !== chip && other.isHeld && loginNow() === earlier) await this.cast(other, 0);
    },
    async cast(chip, value) {
      const { shown } = chip;
      const reference = chip.id === null ? chip.reference : String(chip.id);
      const isNew = chip.id === null;
      const answer = await cast(reference, value);
      // A stream may have shown something newer meanwhile.
      if (chip.shown === shown) chip.set({ id: answer.item_id, vote_count: answer.vote_count ?? chip.count });
      if (isNew) watch.created();
      this.emit("tally-vote", answer);
    },
  };
}
