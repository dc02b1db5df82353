// The page of one item or one poll, in a frame of another page.
import "../assets/embed.js";

const AGAIN_MS = 4000;
const BAR_OPACITY = 0.2;
const DARK_TEXT_FROM = 0.179; // the luminance at which black and white text have the same contrast
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

// The frame's own height, for the page around it. Only pages of named origins can stand around this one, and a
// height is no secret, so the message goes to whichever of them it is.
function sendHeight() {
  const { height } = document.documentElement.getBoundingClientRect();
  parent.postMessage({ tally: { height: Math.ceil(height) } }, "*");
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
if (parent !== window) new ResizeObserver(sendHeight).observe(document.documentElement);
document.addEventListener("tally-counts", ({ detail }) => (document.getElementById("title").textContent = document.title = detail.title ?? detail.name));
for (const name of ["tally-error", "tally-sign-in"]) {
  document.addEventListener(name, ({ detail }) => {
    if (/\/credential-(missing|not-valid)$/.test(detail?.problem?.type ?? "") && isCookieLost()) document.getElementById("own").hidden = false;
  });
}
if (has === "unknown") setTimeout(again, AGAIN_MS);
