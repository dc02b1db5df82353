// The page of one item or one poll, in a frame of another page.
import "../assets/embed.js";

const AGAIN_MS = 4000;
const BAR_OPACITY = 0.2;
const DARK_TEXT_FROM = 0.179; // the luminance at which black and white text have the same contrast
const SHADOW_PX = 8; // below what the vote says
const vote = document.querySelector("tally-poll, tally-vote"); // none on a page of nothing
const { has, accent } = document.body.dataset;

// The page may be of any colour: text on it is black or white, whichever is easier to read.
function colour(digits) {
  const channels = [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
  const linear = channels.map((channel) => channel / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  const { style } = document.documentElement;
  style.setProperty("--accent", `#${digits}`);
  style.setProperty("--on-accent", luminance > DARK_TEXT_FROM ? "#000000" : "#ffffff");
  style.setProperty("--fill", `rgb(${channels.join(" ")} / ${BAR_OPACITY})`);
}

// The frame's own height, for the page around it. What the vote says lies over what is below it, and may reach further
// than the page does. Only pages of named origins can stand around this one, and a height is no secret, so the message
// goes to whichever of them it is.
function sendHeight() {
  const { height } = document.documentElement.getBoundingClientRect();
  const said = vote?.message.textContent ? vote.message.getBoundingClientRect().bottom + scrollY + SHADOW_PX : 0;
  parent.postMessage({ tally: { height: Math.ceil(Math.max(height, said)) } }, "*");
}

// Whether the server gave this visitor a cookie that the browser then did not send.
function isCookieLost() {
  try {
    return JSON.parse(localStorage.getItem("tally-voter"))?.own === true;
  } catch {
    return true; // the browser keeps nothing for this frame
  }
}

// The server could not show the counts. Tries until it can.
async function again() {
  try {
    const { status } = await fetch(location.href, { method: "HEAD", cache: "no-store" });
    if (status < 500) return location.reload();
  } catch {
    // The server does not answer yet.
  }
  setTimeout(again, AGAIN_MS);
}

if (accent) colour(accent);
if (parent !== window) {
  const sizes = new ResizeObserver(sendHeight);
  sizes.observe(document.documentElement);
  if (vote) sizes.observe(vote.message);
}
document.addEventListener("tally-counts", ({ detail }) => (document.getElementById("title").textContent = document.title = detail.title ?? detail.name));
for (const name of ["tally-error", "tally-sign-in"]) {
  document.addEventListener(name, ({ detail }) => {
    const isRefused = name === "tally-sign-in" || /\/credential-(missing|not-valid)$/.test(detail?.problem?.type ?? "");
    if (!isRefused || !isCookieLost()) return;
    vote.say(""); // there is no sign-in here, but another page
    document.getElementById("own").hidden = false;
  });
}
if (has === "unknown") setTimeout(again, AGAIN_MS);
