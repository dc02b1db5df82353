const sheet = new CSSStyleSheet();
sheet.replaceSync(`
:host { display: block; color: var(--tally-ink, inherit); font: inherit; line-height: 1.4;
  --accent: var(--tally-accent, light-dark(#3546c9, #a3afff)); --fill: var(--tally-fill, light-dark(#e4e8fd, #2b3263));
  --soft: var(--tally-soft, light-dark(#565d6b, #a6adba)); --line: var(--tally-line, light-dark(#dddfe4, #323844));
  --bad: var(--tally-bad, light-dark(#b3261e, #ff9d94)); --round: var(--tally-radius, 0.75rem); }
:host([hidden]), [hidden], slot ~ * { display: none !important; }
* { box-sizing: border-box; }
[part~="count"], [part~="share"] { font-variant-numeric: tabular-nums; }
[part="buttons"] [part="count"], :host(tally-count) [part="count"] { direction: ltr; unicode-bidi: isolate; } /* -1, not 1- */
[part="box"] { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; align-items: center; }
[part="name"] { flex: 1 1 8rem; min-width: 0; overflow-wrap: anywhere; }
[part="buttons"] { display: flex; align-items: center; gap: 0.25rem; margin-inline-start: auto; }
[part="buttons"] [part="count"] { display: inline-block; min-width: 4ch; padding-inline: 0.25rem; text-align: center; font-size: 1.15em; font-weight: 650; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--line); border-radius: calc(var(--round) * 0.75); cursor: pointer; }
[part="up"], [part="down"] { display: grid; place-items: center; width: 2.75rem; height: 2.75rem; color: var(--soft); }
svg.mark { width: 1.1rem; height: 1.1rem; fill: none; stroke: currentColor; stroke-width: 2.4; stroke-linecap: round; stroke-linejoin: round; }
button[aria-pressed="true"] { color: var(--tally-on-accent, light-dark(#ffffff, #12142b)); background: var(--accent); border-color: var(--accent); }
button[aria-disabled="true"] { cursor: default; }
button:focus-visible, input:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
@media (hover: hover) { button:not([aria-disabled="true"]):hover { border-color: var(--accent); } }
[part="message"], [part="note"] { margin: 0; }
[part="message"]:empty, [part="note"]:empty { position: absolute; }
[part="message"]:not(:empty), [part="note"]:not(:empty) { flex-basis: 100%; margin: 0.5rem 0 0; color: var(--soft); font-size: 0.92em; overflow-wrap: anywhere; }
[part="message"].bad { color: var(--bad); }
[part="title"] { margin: 0 0 0.75rem; font-size: 1.15em; font-weight: 650; line-height: 1.25; overflow-wrap: anywhere; text-wrap: balance; }
[part="choices"] { display: grid; gap: 0.5rem; margin: 0; padding: 0; list-style: none; }
[part="choice"] { position: relative; display: grid; grid-template-columns: 1.2rem 1fr auto; gap: 0.6rem; align-items: center; width: 100%; min-height: 2.75rem; padding: 0.35rem 0.8rem; overflow: hidden; text-align: start; isolation: isolate; }
[part="choice"][aria-pressed="true"] { color: inherit; background: none; border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
[part="bar"] { position: absolute; inset: 0; z-index: -1; background: var(--fill); transform-origin: 0 0; transform: scaleX(var(--share, 0)); transition: transform 0.4s ease-out; }
:host(:dir(rtl)) [part="bar"] { transform-origin: 100% 0; }
[part="choice"] .mark { width: 1.2rem; height: 1.2rem; padding: 0.15rem; color: transparent; border: 1.5px solid var(--soft); border-radius: 50%; }
[part="choice"][aria-pressed="true"] .mark { color: var(--tally-on-accent, light-dark(#ffffff, #12142b)); background: var(--accent); border-color: var(--accent); }
[part="choice"][aria-disabled="true"]:not([aria-pressed="true"]) .mark { visibility: hidden; }
[part="choice-name"] { min-width: 0; overflow-wrap: anywhere; }
[part="figures"] { display: flex; gap: 0.6rem; align-items: baseline; }
[part~="share"] { font-weight: 650; }
[part~="share"]:empty { display: none; }
[part="figures"] [part="count"] { color: var(--tally-ink, inherit); font-size: 0.92em; }
[part="ballot"] { display: grid; gap: 0.25rem; margin: 0 0 0.75rem; color: var(--soft); font-size: 0.92em; }
input { font: inherit; width: 100%; min-height: 2.75rem; padding: 0 0.75rem; color: inherit; background: var(--tally-card, transparent); border: 1px solid var(--soft); border-radius: calc(var(--round) * 0.75); }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
:host([stale]) [part~="count"], :host([stale]) [part~="share"] { opacity: 0.75; }
svg.chart { display: block; width: 100%; height: 9rem; overflow: visible; }
svg.chart polyline { fill: none; stroke: var(--accent); stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
:host(:dir(rtl)) svg.chart { transform: scaleX(-1); }
svg.chart line { stroke: var(--line); vector-effect: non-scaling-stroke; }
.ends { display: flex; justify-content: space-between; color: var(--soft); font-size: 0.85em; }
.line-1 { stroke-dasharray: 6 4; } .line-2 { stroke-dasharray: 2 4; } .line-3 { stroke-dasharray: 10 4 2 4; } .line-4 { stroke-dasharray: 1 6; }
.legend li { display: flex; align-items: center; min-width: 0; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; margin: 0.5rem 0 0; padding: 0; list-style: none; font-size: 0.92em; }
.legend svg.chart { width: 1.8rem; height: 0.6rem; margin-inline-end: 0.4rem; }
@media (prefers-reduced-motion: reduce) { [part="bar"] { transition: none; } }
@media (forced-colors: active) { [part="bar"] { background: Highlight; opacity: 0.35; } button[aria-pressed="true"] { border-color: Highlight; } [part="choice"][aria-pressed="true"] .mark { forced-color-adjust: none; color: HighlightText; background: Highlight; } }
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
  const svg = shape("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "mark" });
  svg.append(shape("path", { d: path }));
  return svg;
};
const UP = "M3 10l5-5 5 5";
const DOWN = "M3 6l5 5 5-5";
const CHECK = "M3 8.5l3.5 3.5L13 4.5";
const plural = (count, one, many) => `${count.toLocaleString()} ${count === 1 ? one : many}`;
const when = (text) => new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
