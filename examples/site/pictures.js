// The page in React. htm reads templates, so that nothing is compiled; with JSX the elements are written the same.
import React from "react";
import ReactDOM from "react-dom/client";
import htm from "htm";
import "tally";
import { PICTURES } from "./pictures.mjs";

const html = htm.bind(React.createElement);

function Pictures() {
  const [counts, setCounts] = React.useState({});
  // The element tells the page each count; React keeps it as it keeps any state.
  const counted = ({ detail }) => setCounts((all) => ({ ...all, [detail.key]: detail.vote_count ?? 0 }));
  const most = Math.max(0, ...Object.values(counts));
  const first = PICTURES.filter(({ key }) => counts[key] === most && most > 0).map(({ name }) => name);
  return html`
    <p role="status">${first.length > 0 ? `Ahead with ${most}: ${first.join(", ")}.` : "No picture has a vote yet."}</p>
    <ul class="pictures">
      ${PICTURES.map(({ key, name, file }) => html`
        <li key=${key} className=${first.includes(name) ? "first" : undefined}>
          <img src=${file} alt="" width="320" height="200" />
          <h2>${name}</h2>
          <tally-vote item=${`key:${key}`} no-name="" ontally-counts=${counted}></tally-vote>
        </li>`)}
    </ul>`;
}

ReactDOM.createRoot(document.querySelector("#pictures")).render(html`<${Pictures} />`);
