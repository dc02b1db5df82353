// The page that makes a snippet, and shows how it looks.
import "/assets/embed.js";

const by = (id) => document.getElementById(id);
const ACCENT = by("accent").value;
const FRAME_HEIGHT_PIXELS = 320; // until the frame says its own

// A text as HTML needs it between quotes, with the quotes.
function quoted(text) {
  const one = document.createElement("i");
  one.setAttribute("x", text);
  return /^<i x=(".*")><\/i>$/s.exec(one.outerHTML)[1];
}

// The address of the page of an item or a poll. A key that a proxy would change in a path goes into the query.
function addressOf(kind, reference, query) {
  const key = reference.startsWith("key:") ? reference.slice(4) : null;
  const isPlain = key === null || /^[\w~-][\w.~-]*$/.test(key);
  const all = new URLSearchParams(isPlain ? {} : { key });
  for (const [name, value] of Object.entries(query)) all.set(name, value);
  const asked = String(all);
  const path = `${location.origin}/${kind}s/${isPlain ? reference : "key:"}`;
  return { page: path + (asked && `?${asked}`), frame: `${path}/frame${asked && `?${asked}`}` };
}

const listener = (origin) => `<script>
addEventListener("message", ({ data, origin, source }) => {
  if (origin !== "${origin}" || !data?.tally) return;
  for (const frame of document.querySelectorAll("iframe")) {
    if (frame.contentWindow === source) frame.height = data.tally.height;
  }
});
</script>`;

function make() {
  const [tag, reference, accent] = [by("kind").value, by("reference").value.trim(), by("accent").value];
  const kind = tag === "tally-poll" ? "poll" : "item";
  const shown = document.createElement(tag);
  shown.setAttribute(kind, reference);
  by("problem").textContent = "";
  if (accent !== ACCENT) shown.style.setProperty("--tally-accent", accent);
  by("shown").replaceChildren(shown);
  const style = accent === ACCENT ? "" : ` style="--tally-accent: ${accent}"`;
  by("snippet").textContent = `<script type="module" src="${location.origin}/embed.js"></script>\n<${tag} ${kind}=${quoted(reference)}${style}></${tag}>`;

  by("as-frame").hidden = !["tally-poll", "tally-vote"].includes(tag);
  const { page, frame } = addressOf(kind, reference, accent === ACCENT ? {} : { accent: accent.slice(1) });
  const write = (title) => {
    by("frame").textContent = `<iframe src=${quoted(frame)} title=${quoted(title)} width="100%" height="${FRAME_HEIGHT_PIXELS}" style="border: 0"></iframe>\n${listener(location.origin)}`;
  };
  write(kind === "poll" ? "A poll" : "A vote");
  shown.addEventListener("tally-counts", ({ detail }) => write(detail.title ?? detail.name), { once: true });
  by("address").textContent = page;
}

// Visitors do not see it; whoever makes a page does.
by("shown").addEventListener("tally-error", ({ detail }) => (by("problem").textContent = detail.message));
by("shown").addEventListener("tally-counts", () => (by("problem").textContent = ""));
by("choose").addEventListener("submit", (event) => event.preventDefault());
by("choose").addEventListener("input", () => by("reference").value.trim() && make());
for (const button of document.querySelectorAll("[data-copies]")) {
  const text = by(button.dataset.copies);
  const said = button.parentElement.querySelector("[role=status]");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      said.textContent = "Copied.";
    } catch {
      getSelection().selectAllChildren(text);
      said.textContent = "Selected: copy it with the keyboard.";
    }
  });
}
make();
