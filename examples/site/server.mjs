// The server of the example: pages with counts in them, a log-in, tokens for voters, ballots, a leaderboard. It needs
// Node 18 and nothing else; React, for /pictures alone, is served from node_modules as it is.
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { PICTURES } from "./pictures.mjs";

const { SITE_PORT, SITE_FOLDER, SITE_SESSION_KEY, TALLY_URL, TALLY_API_KEY, TALLY_JWT_SECRET } = process.env;
for (const name of ["SITE_PORT", "SITE_FOLDER", "SITE_SESSION_KEY", "TALLY_URL", "TALLY_API_KEY", "TALLY_JWT_SECRET"]) {
  if (process.env[name]) continue;
  console.error(`${name} is not set. start.mjs sets it, and starts this server.`);
  process.exit(2);
}
const SITE = `http://127.0.0.1:${SITE_PORT}`;
const CALL_LIMIT_MS = 10_000;
const COUNTS_LIMIT_MS = 1000; // a page waits no longer for its counts
const TOKEN_LIMIT_S = 300;
const FORM_LIMIT_BYTES = 2048;
const NAME_LIMIT_BYTES = 100; // Tally's voters have at most 128
const TOP_READ_ITEMS = 100;
const TOP_SHOWN_ITEMS = 10;
const FRAME_WIDTH_PX = 600;

// Plain fetch. The client in clients/typescript adds types and retries, but must be built before it can be imported;
// whoever runs this example builds nothing.
async function call(method, path, body, limit = CALL_LIMIT_MS) {
  const headers = { authorization: `Bearer ${TALLY_API_KEY}`, "content-type": "application/json" };
  const sent = { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(limit) };
  const response = await fetch(TALLY_URL + path, sent);
  const answer = await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer.detail ?? answer.title}`);
  return answer;
}

// What the site votes on. All of it has a key of the site's own, so that each start may ask for it again. The likes of
// posts and the reactions are not here: the first vote makes them.
const POLLS = [
  { key: "last-ferry", title: "When should the last ferry leave?", choices: ["At 22:45, as now", "At 23:30", "I swim"] },
  { key: "trees", title: "Which trees for the market square?", choices: ["Lime", "Rowan", "Cherry", "Plane"], max_choices: 2 },
  { key: "rain", title: "Will it rain on Sunday?", choices: ["Yes", "No", "Both"] },
  { key: "weg", title: "Wie kommst du zum Hafen?", choices: ["Mit dem Rad", "Zu Fuß", "Mit dem Bus"] },
  { key: "tariq", title: "كيف تصل إلى الميناء؟", choices: ["بالدراجة", "سيرًا على الأقدام", "بالحافلة Line 7"] },
  {
    key: "board",
    title: "Who shall chair the Harbour Club?",
    choices: ["Ida Brandt", "Tomás Leal", "Yusuf Aydın"],
    by_ballot: true,
    secret: true,
    results_before_close: false,
    closes_at: "2040-01-01T12:00:00Z",
  },
];
const made = await Promise.all(POLLS.map((poll) => call("POST", "/v1/polls", poll)));
const framed = made.find(({ key }) => key === "rain");
await Promise.all(PICTURES.map(({ key, name }) => call("POST", "/v1/items", { key, name, down_votes: false })));

// Who reads. A name is enough here; a site of your own has passwords, or another way to know its readers.
const mac = (key, text) => createHmac("sha256", key).update(text).digest("base64url");

function readerOf(request) {
  const [, name, signature] = /(?:^|; )harbour-session=([\w-]+)\.([\w-]+)/.exec(request.headers.cookie ?? "") ?? [];
  if (!name) return null;
  const [given, right] = [signature, mac(SITE_SESSION_KEY, name)].map((text) => Buffer.from(text));
  return given.length === right.length && timingSafeEqual(given, right) ? Buffer.from(name, "base64url").toString() : null;
}

// Not Secure, because the example is served without TLS; yours is.
function sessionCookie(reader) {
  const name = Buffer.from(reader ?? "").toString("base64url");
  const value = reader === null ? "" : `${name}.${mac(SITE_SESSION_KEY, name)}`;
  return `harbour-session=${value}; Path=/; HttpOnly; SameSite=Lax; Max-Age=${reader === null ? 0 : 30 * 86_400}`;
}

// What a reader votes with (docs/operating/voters.md). `sub` is the voter; Tally knows the secret, the audience and
// the issuer from its settings.
function tokenOf(reader) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const claims = { sub: `reader-${reader}`, aud: "votes", iss: "harbour-post", exp: Math.floor(Date.now() / 1000) + TOKEN_LIMIT_S };
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${mac(TALLY_JWT_SECRET, signed)}`;
}

// Who got which ballot is kept, so that no reader gets two. Which ballot bought which vote nobody can look up: the
// poll is secret.
const BALLOTS = join(SITE_FOLDER, "ballots.json");
const ballots = new Map(JSON.parse(await readFile(BALLOTS, "utf8").catch(() => "[]")));
let writing = Promise.resolve();

function giveBallot(reader) {
  writing = writing.catch(() => {}).then(async () => {
    if (ballots.has(reader)) return;
    const made = await call("POST", "/v1/polls/key:board/ballots", { count: 1 });
    const all = [...ballots, [reader, made.ballots[0]]];
    await writeFile(`${BALLOTS}.new`, JSON.stringify(all), { mode: 0o600 });
    await rename(`${BALLOTS}.new`, BALLOTS);
    ballots.set(reader, made.ballots[0]);
  });
  return writing;
}

// Words of the pages' frame.
const WORDS = {
  en: { paper: "The Harbour Post", skip: "To the text", sections: "Sections", name: "Your name", logIn: "Log in", logOut: "Log out", likes: "Likes", madeUp: "An example of votes on a site. Ferries, trees and umbrellas are made up." },
  de: { paper: "Der Hafenbote", skip: "Zum Text", sections: "Ressorts", name: "Dein Name", logIn: "Anmelden", logOut: "Abmelden", likes: "Gefällt", madeUp: "Ein Beispiel für Abstimmungen auf einer Website. Fähren, Bäume und Schirme sind erfunden." },
  ar: { paper: "بريد الميناء", skip: "إلى النص", sections: "الأقسام", name: "اسمك", logIn: "تسجيل الدخول", logOut: "تسجيل الخروج", likes: "الإعجابات", madeUp: "مثال على التصويت في موقع. العبّارات والأشجار والمظلّات من نسج الخيال." },
};

// Each address has a file in pages/. `fill` gives what its {{names}} stand for, in HTML.
const PAGES = {
  "/": { file: "front" },
  "/ferry": { file: "ferry" },
  "/trees": { file: "trees" },
  "/umbrellas": { file: "umbrellas" },
  "/top": { file: "top", fill: topList },
  "/board": { file: "board", fill: ballotOf },
  "/pictures": { file: "pictures", fill: pictures },
  "/framed": { file: "framed", fill: frame },
  "/de": { file: "de", lang: "de" },
  "/ar": { file: "ar", lang: "ar" },
};
const NAV = { "/": "News", "/top": "Most liked", "/pictures": "Pictures", "/board": "Election", "/framed": "Weather", "/de": "Deutsch", "/ar": "العربية" };
const NAV_LANG = { "/de": "de", "/ar": "ar" };

const here = (path) => new URL(path, import.meta.url);
const layout = readFileSync(here("layout.html"), "utf8");
const texts = new Map(Object.values(PAGES).map(({ file }) => [file, readFileSync(here(`pages/${file}.html`), "utf8")]));
const titleOf = (file) => /<h1[^>]*>(.*?)<\/h1>/s.exec(texts.get(file))[1];
// A page with several posts has an unseen title of its own.
const headlineOf = (file) => /<h([12])>(.*?)<\/h\1>/s.exec(texts.get(file))[2];

// React is published as CommonJS, which browsers do not load: each file becomes an ES module by a few lines around it.
const MODULES = {
  htm: "htm/dist/htm.module.js",
  react: "react/cjs/react.production.js",
  "react-dom": "react-dom/cjs/react-dom.production.js",
  "react-dom/client": "react-dom/cjs/react-dom-client.production.js",
  scheduler: "scheduler/cjs/scheduler.production.js",
};
function asModule(source) {
  if (/^export /m.test(source) || source.includes("export default")) return source;
  const needed = [...new Set([...source.matchAll(/\brequire\("([\w/-]+)"\)/g)].map(([, name]) => name))];
  const imports = needed.map((name, at) => `import needed${at} from "${name}";`).join("\n");
  const given = needed.map((name, at) => `"${name}": needed${at}`).join(", ");
  return `${imports}\nconst require = (name) => ({ ${given} })[name];\nconst module = { exports: {} };\nconst { exports } = module;\n${source}\nexport default module.exports;\n`;
}
const files = new Map();
for (const [path, type] of [["/site.css", "text/css"], ["/site.js", "text/javascript"], ["/top.js", "text/javascript"], ["/pictures.js", "text/javascript"], ["/pictures.mjs", "text/javascript"]]) {
  files.set(path, { type, content: readFileSync(here(`.${path}`)) });
}
for (const { file } of PICTURES) files.set(file, { type: "image/svg+xml", content: readFileSync(here(`.${file}`)) });
let hasReact = true;
for (const [name, file] of Object.entries(MODULES)) {
  try {
    files.set(`/modules/${name}.js`, { type: "text/javascript", content: asModule(readFileSync(here(`node_modules/${file}`), "utf8")) });
  } catch {
    hasReact = false;
  }
}

// What a page's scripts import by name. The elements' script is Tally's: also the site's own must import it from there.
const IMPORTS = JSON.stringify({
  imports: { tally: `${TALLY_URL}/embed.js`, ...Object.fromEntries(Object.keys(MODULES).map((name) => [name, `/modules/${name}.js`])) },
});
const POLICY = [
  "default-src 'none'",
  `script-src 'self' ${TALLY_URL} 'sha256-${createHash("sha256").update(IMPORTS).digest("base64")}'`,
  `connect-src 'self' ${TALLY_URL}`,
  `frame-src ${TALLY_URL}`,
  "style-src 'self'",
  "img-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join("; ");

const MARKS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escaped = (text) => String(text).replace(/[&<>"]/g, (one) => MARKS[one]);
const filled = (text, values) => text.replace(/\{\{(\w+)\}\}/g, (whole, name) => values[name] ?? whole);

// The first vote on any key makes its item, so the list may have keys of nobody's posts: it shows only those of pages.
async function topList() {
  const none = (text) => ({ rows: `<li>${text}</li>` });
  const answer = await call("GET", `/v1/items/top?limit=${TOP_READ_ITEMS}&key_prefix=post-`, undefined, COUNTS_LIMIT_MS).catch(() => null);
  if (answer === null) return none("The list cannot be read right now. Load the page again in a moment.");
  const posts = answer.items.map(({ key, vote_count }) => ({ key, vote_count, path: key.replace("post-", "/") }));
  const shown = posts.filter(({ path, vote_count }) => Object.hasOwn(PAGES, path) && vote_count > 0).slice(0, TOP_SHOWN_ITEMS);
  if (shown.length === 0) return none("Nobody has liked a post yet.");
  const rows = shown.map(({ key, vote_count, path }) => {
    const { file, lang = "en" } = PAGES[path];
    return `<li data-count="${vote_count}"><a href="${path}" lang="${lang}" dir="auto">${headlineOf(file)}</a> <tally-count item="key:${key}"></tally-count></li>`;
  });
  return { rows: rows.join("\n") };
}

function ballotOf(reader) {
  const ballot = ballots.get(reader);
  if (reader === null) return { ballot: `<p>Members get a ballot once they have logged in: type your name at the top of the page.</p>` };
  if (ballot) return { ballot: `<p>Your ballot, ${escaped(reader)}: <code class="ballot">${escaped(ballot)}</code> Copy it into the field below.</p>` };
  return { ballot: `<form method="post" action="/ballot"><button>Get my ballot</button></form>` };
}

function pictures() {
  const rows = PICTURES.map(({ key, name, file }) => `<li><img src="${file}" alt="" width="320" height="200"><h2>${name}</h2><tally-vote item="key:${key}" no-name></tally-vote></li>`);
  const script = '<script type="module" src="/pictures.js"></script>';
  const without = "<p>React is not installed, so this is the page without it. Run <code>npm ci</code> in examples/site and start again.</p>";
  return { pictures: rows.join("\n"), script: hasReact ? script : without };
}

// What a CMS does with an address that its editors paste: it asks the address's server what to show (https://oembed.com).
// The HTML is Tally's, a server of ours.
async function frame() {
  const address = `${TALLY_URL}/polls/${framed.id}`;
  try {
    const { html } = await call("GET", `/oembed?${new URLSearchParams({ url: address, maxwidth: FRAME_WIDTH_PX })}`, undefined, COUNTS_LIMIT_MS);
    // The style of the answer's frame is in site.css: this site's policy allows no inline style.
    return { frame: html.replace(/ style="[^"]*"/, "") };
  } catch {
    return { frame: `<a href="${address}">${escaped(framed.title)}</a>` };
  }
}

// Writes counts between the tags of the elements, behind the page's own marks, for visitors without script and until the script has newer ones. One
// request for all items of a page, one for each poll; a busy site would keep the answers for a second.
const ELEMENT = /<(tally-vote|tally-count|tally-poll|tally-reactions)\b([^>]*)>(.*?)<\/\1>/g;
async function withCounts(html, lang) {
  const wanted = { item: new Set(), poll: new Set() };
  const of = (attributes, name) => new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1];
  const emojiOf = (attributes) => of(attributes, "emoji").split(" ").map((emoji) => [emoji, `key:${of(attributes, "to")}:${emoji}`]);
  for (const [, tag, attributes] of html.matchAll(ELEMENT)) {
    if (tag === "tally-reactions") for (const [, reference] of emojiOf(attributes)) wanted.item.add(reference);
    else for (const kind of ["item", "poll"]) if (of(attributes, kind)) wanted[kind].add(of(attributes, kind));
  }
  const found = new Map();
  const reads = [...wanted.poll].map((reference) => `/v1/polls/${reference}`);
  if (wanted.item.size > 0) reads.push(`/v1/items?${new URLSearchParams({ ids: [...wanted.item].join(",") })}`);
  await Promise.all(reads.map(async (path) => {
    // Without an answer the page comes without counts.
    const answer = await call("GET", path, undefined, COUNTS_LIMIT_MS).catch(() => ({ items: [] }));
    for (const one of answer.items ?? [answer]) found.set(`key:${one.key}`, one);
  }));
  const number = (value) => (value ?? 0).toLocaleString(lang);
  const between = (tag, attributes) => {
    if (tag === "tally-reactions") return emojiOf(attributes).map(([emoji, reference]) => `${emoji} ${number(found.get(reference)?.vote_count)}`).join(" ");
    const one = found.get(of(attributes, tag === "tally-poll" ? "poll" : "item"));
    if (tag === "tally-count") return number(one?.vote_count);
    if (tag === "tally-vote") return `${WORDS[lang].likes}: ${number(one?.vote_count)}`;
    if (!one) return "";
    const rows = one.choices.map(({ name, vote_count }) => `<li><bdi>${escaped(name)}</bdi>${vote_count === null ? "" : `: ${number(vote_count)}`}</li>`);
    // Tally's own page of a poll takes votes without script.
    return `<p><a href="${TALLY_URL}/polls/${one.id}">${escaped(one.title)}</a></p><ul>${rows.join("")}</ul>`;
  };
  return html.replace(ELEMENT, (whole, tag, attributes, own) => `<${tag}${attributes}>${own}${between(tag, attributes)}</${tag}>`);
}

async function page(path, reader) {
  const { file, lang = "en", fill } = PAGES[path];
  const words = WORDS[lang];
  const nav = Object.entries(NAV).map(([to, name]) => `<a href="${to}"${NAV_LANG[to] ? ` lang="${NAV_LANG[to]}"` : ' lang="en"'}${to === path ? ' aria-current="page"' : ""}>${name}</a>`);
  const login = reader === null
    ? `<form method="post" action="/login?back=${path}"><input id="name" name="name" required autocomplete="username" aria-label="${words.name}" placeholder="${words.name}"><button>${words.logIn}</button></form>`
    : `<form method="post" action="/logout?back=${path}"><bdi>${escaped(reader)}</bdi><button>${words.logOut}</button></form>`;
  const main = filled(texts.get(file), await fill?.(reader) ?? {});
  const values = {
    lang,
    dir: lang === "ar" ? "rtl" : "ltr",
    reader: reader === null ? "" : ` data-reader="${escaped(reader)}"`,
    title: titleOf(file),
    imports: IMPORTS,
    ...words,
    nav: nav.join("\n"),
    login,
    main: await withCounts(main, lang),
  };
  return filled(layout, values);
}

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function form(request) {
  // A page of another site may not log a reader in or out.
  if (request.headers.origin !== SITE) throw new Refused(403, `Send this form from ${SITE}.`);
  let text = "";
  for await (const part of request.setEncoding("utf8")) {
    text += part;
    if (Buffer.byteLength(text) > FORM_LIMIT_BYTES) throw new Refused(413, `A form has at most ${FORM_LIMIT_BYTES} bytes.`);
  }
  return new URLSearchParams(text);
}

async function login(request) {
  // One spelling is one voter.
  const name = ((await form(request)).get("name") ?? "").normalize("NFC").trim();
  if (name === "" || Buffer.byteLength(name) > NAME_LIMIT_BYTES || /\p{Cc}/u.test(name)) throw new Refused(400, `A name has 1 to ${NAME_LIMIT_BYTES} bytes in UTF-8 and no control characters.`);
  return sessionCookie(name);
}

async function answer(request, response) {
  const [pathname, query = ""] = request.url.split("?");
  const send = (status, type, content, headers = {}) => {
    response.writeHead(status, { "content-type": `${type}; charset=utf-8`, "cache-control": "no-store", ...headers });
    response.end(request.method === "HEAD" ? undefined : content);
  };
  const goBack = (headers) => {
    const back = new URLSearchParams(query).get("back");
    send(303, "text/plain", "", { location: Object.hasOwn(PAGES, back) ? back : "/", ...headers });
  };
  // Cookies and allowed origins belong to one name of this machine.
  if (request.headers.host !== new URL(SITE).host) return send(308, "text/plain", "", { location: SITE + pathname });
  const reader = readerOf(request);
  if (request.method === "POST") {
    if (pathname === "/login") return goBack({ "set-cookie": await login(request) });
    if (pathname === "/logout") return await form(request), goBack({ "set-cookie": sessionCookie(null) });
    if (pathname === "/ballot") {
      await form(request);
      if (reader === null) throw new Refused(403, "Log in first: a reader gets one ballot.");
      await giveBallot(reader);
      return send(303, "text/plain", "", { location: "/board" });
    }
    throw new Refused(404, "There is no such form.");
  }
  if (request.method !== "GET" && request.method !== "HEAD") throw new Refused(405, "Pages take GET.");
  if (pathname === "/my-token") return send(200, "text/plain", reader === null ? "" : tokenOf(reader));
  const found = files.get(pathname);
  if (found) return send(200, found.type, found.content, { "cache-control": "no-cache" });
  if (!Object.hasOwn(PAGES, pathname)) throw new Refused(404, "There is no such page.");
  send(200, "text/html", await page(pathname, reader), { "content-security-policy": POLICY });
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => {
    if (!(error instanceof Refused)) console.error(error);
    if (response.headersSent) return response.destroy();
    const [status, text] = error instanceof Refused ? [error.status, error.message] : [500, "Something failed; the log says what."];
    response.writeHead(status, { "content-type": "text/plain; charset=utf-8" });
    response.end(text);
  });
});
server.listen(Number(SITE_PORT), "127.0.0.1", () => console.log(`
The Harbour Post is at ${SITE}/
Its votes are at ${TALLY_URL}/
Ctrl-C stops both; the data stay in ${SITE_FOLDER}
`));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit());
