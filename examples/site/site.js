// For all pages: the elements, and who votes.
import { configure } from "tally";

const TOKEN_KEPT_MS = 240_000; // the server makes it for 300 s

// A visitor votes by the cookie that Tally gives to a browser with its first vote. A reader who has logged in votes by
// a token that this site's server makes. `configure` switches from one to the other: with a token, the cookie does not
// count. The two are different voters: what was liked before logging in stays liked by the visitor.
let kept = null;
function token() {
  if (!kept || Date.now() > kept.until) {
    const read = fetch("/my-token").then((answer) => answer.text());
    kept = { until: Date.now() + TOKEN_KEPT_MS, read };
    read.catch(() => (kept = null));
  }
  return kept.read;
}
if (document.documentElement.dataset.reader) configure({ token });

// With SITE_OPEN= only readers vote, and an element asks a visitor to log in.
addEventListener("tally-sign-in", () => document.querySelector("#name")?.focus());
