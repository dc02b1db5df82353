// All colours come from the page's own text colour, which fits the page's background whatever the page is built with.
// A browser without color-mix() shows the plain ones. On the page's accent stands black or white, whichever is read
// better. Lengths follow the text's size, not the page's `rem`. A message lies over what is below: nothing moves when it
// comes or goes. Each text is in its own direction (-1, not 1-), but begins where the page's texts begin.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
:host { display: block; color: var(--tally-ink, inherit); line-height: 1.4; --round: var(--tally-radius, 0.75em); --target: clamp(36px, 2.75em, 64px);
  --accent: var(--tally-accent, #5468e7); --on-accent: var(--tally-on-accent, #fff); --edge: var(--accent);
  --soft: var(--tally-soft, currentColor); --line: var(--tally-line, #8888); --fill: var(--tally-fill, #8883); }
@supports (color: color-mix(in srgb, red, transparent)) {
  :host { --edge: var(--tally-accent, color-mix(in srgb, #5468e7 60%, currentColor)); --fill: var(--tally-fill, color-mix(in srgb, var(--edge) 16%, transparent));
    --soft: var(--tally-soft, color-mix(in srgb, currentColor 90%, transparent)); --line: var(--tally-line, color-mix(in srgb, currentColor 30%, transparent)); }
}
@supports (color: color(from red srgb-linear r g b)) {
  :host { --ink-on: clamp(0, (0.18 - 0.2126 * r - 0.7152 * g - 0.0722 * b) * 9999, 1); --on-accent: var(--tally-on-accent, color(from var(--accent) srgb-linear var(--ink-on) var(--ink-on) var(--ink-on))); }
}
:host([hidden]), [hidden], slot:not([name]) ~ * { display: none !important; }
* { box-sizing: border-box; }
[part~="count"], [part~="share"] { font-variant-numeric: tabular-nums; }
[part="buttons"] [part~="count"], :host(tally-count) [part~="count"] { direction: ltr; unicode-bidi: isolate; }
[part="box"] { display: flex; flex-wrap: wrap; gap: 0.25em 1em; align-items: center; }
[part="name"] { flex: 99 1 8em; min-width: 0; overflow-wrap: anywhere; }
[part="buttons"] { display: flex; align-items: center; gap: 0.25em; margin-inline-start: auto; }
[part="buttons"] [part~="count"] { display: inline-block; min-width: 4ch; padding-inline: 0.25em; text-align: center; font-size: 1.15em; font-weight: 650; }
button { margin: 0; font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: calc(var(--round) * 0.75); cursor: pointer; touch-action: manipulation; }
[part~="up"], [part~="down"] { display: grid; place-items: center; width: var(--target); height: var(--target); padding: 0; color: var(--soft); }
svg.mark, ::slotted([slot="up"]), ::slotted([slot="down"]) { display: block; width: 1.1em; height: 1.1em; }
svg.mark { fill: none; stroke: currentColor; stroke-width: 2.4; stroke-linecap: round; stroke-linejoin: round; }
button[aria-pressed="true"] { color: var(--on-accent); background: var(--accent); border-color: var(--edge); }
button[aria-disabled="true"] { cursor: default; }
:is([part~="up"], [part~="down"])[aria-disabled="true"] { border-style: dotted; }
[aria-disabled="true"]:not([aria-pressed="true"]) > slot { opacity: 0.5; }
button:focus-visible, input:focus-visible, [part="sure"]:focus-visible { outline: 3px solid var(--edge); outline-offset: 2px; }
@media (hover: hover) { button:not([aria-disabled="true"]):hover { border-color: var(--edge); } }
.foot { position: relative; display: flow-root; }
[part="note"] { margin: 0; color: var(--soft); font-size: 0.92em; overflow-wrap: anywhere; }
[part="note"]:not(:empty) { margin-block-start: calc(0.5em / 0.92); }
[part="message"] { position: absolute; z-index: 1; inset-block-start: 0.3em; inset-inline-start: 0; max-width: 100%; margin: 0; color: #fff; font-size: 0.92em; overflow-wrap: anywhere; pointer-events: none; }
[part="message"]:not(:empty) { padding: 0.2em 0.65em; background: #24262d; border: 1px solid #fff5; border-radius: calc(var(--round) * 0.6); box-shadow: 0 0.1em 0.4em #0004; }
[part="message"].bad { border-inline-start: 0.3em solid var(--tally-bad, #fff5); }
[part="box"] + .foot [part="message"] { inset-inline: auto 0; }
[part="reactions"] { min-height: clamp(32px, 2.25em, 56px); }
[part="title"] { margin: 0 0 calc(0.75em / 1.15); font-size: 1.15em; font-weight: 650; line-height: 1.25; overflow-wrap: anywhere; text-wrap: balance; }
[part="choices"] { display: grid; gap: 0.5em; margin: 0; padding: 0; list-style: none; }
[part="choices"] > li { min-width: 0; }
[part~="choice"] { position: relative; display: flex; flex-wrap: wrap; gap: 0.1em 0.6em; align-items: center; width: 100%; min-height: var(--target); padding: 0.35em 0.8em; overflow: hidden; text-align: start; isolation: isolate; }
[part~="choice"][aria-pressed="true"] { color: inherit; background: none; border-color: var(--edge); }
[part~="choice"][aria-pressed="true"]:not(:focus-visible) { outline: 1px solid var(--edge); outline-offset: -2px; }
[part="bar"] { position: absolute; inset-block: 0; inset-inline-start: 0; width: calc(var(--share, 0) * 100%); z-index: -1; background: var(--fill); transition: width 0.4s ease-out; }
.marker { flex: none; display: grid; width: 1.2em; height: 1.2em; padding: 0.15em; border: 1.5px solid var(--soft); border-radius: 50%; }
.several .marker { border-radius: 0.3em; }
span.marker > * { display: block; width: 100%; height: 100%; visibility: hidden; }
[aria-pressed="true"] > .marker { color: var(--on-accent); background: var(--accent); border-color: var(--edge); }
[aria-pressed="true"] > .marker > * { visibility: visible; }
[aria-disabled="true"]:not([aria-pressed="true"]) > .marker { visibility: hidden; }
[part="choice-name"] { flex: 1 1 8em; min-width: 0; overflow-wrap: anywhere; }
[part="figures"] { display: flex; flex-wrap: wrap; gap: 0 0.6em; align-items: baseline; margin-inline-start: auto; }
[part~="share"] { font-weight: 650; }
[part~="share"]:empty { display: none; }
[part="figures"] [part~="count"] { font-size: 0.92em; }
[part="ballot"] { display: grid; gap: 0.25em; margin: 0 0 0.75em; color: var(--soft); font-size: 0.92em; }
input { width: 100%; min-height: var(--target); padding: 0 0.75em; font: inherit; font-size: max(1em, 16px); color: inherit; background: var(--tally-card, transparent); border: 1px solid var(--soft); border-radius: calc(var(--round) * 0.75); }
[part="sure"] { display: flex; flex-wrap: wrap; gap: 0.5em; align-items: center; margin-block-start: 0.75em; }
[part="sure"] p { flex-basis: 100%; margin: 0; overflow-wrap: anywhere; }
[part="box"] [part="sure"] { flex-basis: 100%; margin: 0; }
[part="box"] label { flex-grow: 1; }
[part="vote"], [part="cancel"] { min-height: var(--target); padding-inline: 1em; }
[part="vote"] { color: var(--on-accent); background: var(--accent); border-color: var(--edge); }
[part="note"], [part="message"], [part="figures"] [part~="count"] { unicode-bidi: plaintext; }
[dir="auto"], [part="note"], [part="message"], input { text-align: -webkit-match-parent; text-align: match-parent; }
input { direction: ltr; }
.unseen { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:host([stale]) [part~="count"], :host([stale]) [part~="share"] { text-decoration: underline dotted; text-underline-offset: 0.2em; }
@media (prefers-reduced-motion: reduce) { * { transition: none !important; } }
@media (forced-colors: active) {
  [part="bar"] { background: Highlight; opacity: 0.35; }
  button[aria-pressed="true"]:not([part~="choice"]), [aria-pressed="true"] > .marker { forced-color-adjust: none; color: HighlightText; background: Highlight; border-color: Highlight; }
  [part~="choice"][aria-pressed="true"] { border-color: Highlight; }
  button[aria-disabled="true"]:not([part~="choice"]) { color: GrayText; border-color: GrayText; }
}
`);

const inline = new CSSStyleSheet();
inline.replaceSync(":host { display: inline; }");

const make = (tag, part, properties = {}) => {
  const one = Object.assign(document.createElement(tag), properties);
  if (part) one.setAttribute("part", part);
  return one;
};
const SVG = "http://www.w3.org/2000/svg";
const shape = (tag, attributes = {}) => {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  return one;
};
const mark = (path) => {
  const svg = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "mark", part: "mark" });
  svg.append(shape("path", { d: path }));
  return svg;
};
const UP = mark("M3 10l5-5 5 5");
const DOWN = mark("M3 6l5 5 5-5");
const CHECK = mark("M3 8.5l3.5 3.5L13 4.5");
// A mark in whose place the page may put its own: <svg slot="up">.
const ownMark = (name, mark) => {
  const slot = make("slot", null, { name });
  slot.append(mark.cloneNode(true));
  return slot;
};
// What shows whether a choice is chosen. A slot takes what it shows once, so each choice has a copy of the page's own.
const marker = (element) => {
  const box = make("span", "mark", { className: "marker" });
  const own = element.querySelector(':scope > [slot="check"]')?.cloneNode(true);
  own?.removeAttribute("slot");
  box.setAttribute("aria-hidden", "true");
  box.append(own ?? CHECK.cloneNode(true));
  return box;
};
// A page styles what is pressed by ::part(up pressed), ::part(choice pressed).
const setPressed = (button, isPressed) => {
  button.setAttribute("aria-pressed", String(isPressed));
  button.part.toggle("pressed", isPressed);
};
// What stands below the controls: what is known, and over it what has just happened.
const foot = () => {
  const one = make("div", null, { className: "foot" });
  const [note, message] = [make("p", "note"), make("p", "message")];
  message.setAttribute("role", "status");
  one.append(note, message);
  return { foot: one, note, message };
};
// Our words may be in another language than the page: English, where the page's language has no words here. Names are
// the page's.
const speakAs = (root, { tag, page }) => {
  // A language that is set again has all below it styled again.
  const speak = (one, tag) => one.getAttribute("lang") === tag || (one.lang = tag);
  for (const one of root.children) if (one.localName !== "slot") speak(one, tag);
  for (const one of root.querySelectorAll("[dir=auto]")) speak(one, page);
};
