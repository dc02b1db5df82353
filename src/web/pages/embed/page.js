// The page that makes a snippet, and shows how it looks.
import "/assets/embed.js";

const by = (id) => document.getElementById(id);
const ACCENT = by("accent").value;

function make() {
  const [tag, reference, accent] = [by("kind").value, by("reference").value.trim(), by("accent").value];
  const kind = tag === "tally-poll" ? "poll" : "item";
  const shown = document.createElement(tag);
  shown.setAttribute(kind, reference);
  if (accent !== ACCENT) shown.style.setProperty("--tally-accent", accent);
  by("shown").replaceChildren(shown);
  const text = document.createElement("i");
  text.setAttribute("x", reference);
  const quoted = /^<i x=(".*")><\/i>$/s.exec(text.outerHTML)[1]; // quoted as HTML needs it
  const style = accent === ACCENT ? "" : ` style="--tally-accent: ${accent}"`;
  by("snippet").textContent = `<script type="module" src="${location.origin}/embed.js"></script>\n<${tag} ${kind}=${quoted}${style}></${tag}>`;
}

by("choose").addEventListener("submit", (event) => event.preventDefault());
by("choose").addEventListener("input", () => by("reference").value.trim() && make());
by("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(by("snippet").textContent);
    by("said").textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(by("snippet"));
    by("said").textContent = "Selected: copy it with the keyboard.";
  }
});
make();
