// What the tests and the figures share: a `tally dev` of their own with a private Postgres and Redis, Chromium, and
// pages of other origins. Each wait is for something that a person would see, never for a time.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, rm } from "node:fs/promises";
import { createServer, request as send } from "node:http";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { temporary } from "../folders.mjs";
import { freePort } from "../ports.mjs";

const program = process.env.BROWSER_TEST_PROGRAM;
const WAIT_MS = 30_000; // the longest wait
export const TEXT_LEAST = 4.5; // contrast that WCAG asks of text, and of what shows a state
export const STATE_LEAST = 3;
const STOPS_LIMIT = 200; // the most presses of Tab until a control is reached
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export let browser, tally;
const ports = {};
const hosted = new Map();
const servers = new Set();

// A promise, and what keeps it.
export function promised() {
  let resolve;
  const promise = new Promise((keep) => (resolve = keep));
  return { promise, resolve };
}

export async function eventually(check) {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    if (await Promise.resolve().then(check).catch(() => false)) return;
    if (Date.now() > end) throw new Error(`never came true: ${check}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export class Server {
  #settings;
  #process;
  #folder;

  static async start(settings = {}) {
    const server = new Server();
    server.#settings = settings;
    server.port = await freePort();
    server.base = `http://127.0.0.1:${server.port}`;
    server.#folder = await temporary("tally-browser");
    servers.add(server);
    await server.start();
    return server;
  }
  async start() {
    const own = { TALLY_LISTEN: `127.0.0.1:${this.port}`, TALLY_ORIGINS: `http://127.0.0.1:${ports.allowed}` };
    const env = { ...process.env, ...own, ...this.#settings };
    for (const name of ["DATABASE_URL", "REDIS_URL"]) delete env[name];
    this.#process = spawn(program, ["dev"], { cwd: this.#folder, env, stdio: "ignore" });
    await eventually(async () => (await fetch(`${this.base}/health/ready`)).ok);
  }
  async stop() {
    if (this.#process.exitCode !== null) return;
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    await exit;
  }
  async whileStopped(work) {
    await this.stop();
    try {
      await work();
    } finally {
      await this.start();
    }
  }
  // Stops it and does not start it again.
  async end() {
    servers.delete(this);
    await this.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }
  async call(method, path, body, headers = {}) {
    const answer = await fetch(this.base + path, {
      method,
      headers: { "content-type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const read = await answer.json();
    assert.ok(answer.ok, JSON.stringify(read));
    return read;
  }
  async newItem(fields) {
    return (await this.call("POST", "/v1/items", { name: "An item", ...fields })).id;
  }
  newPoll(fields) {
    return this.call("POST", "/v1/polls", { title: "Lunch?", choices: ["Soup", "Salad"], ...fields });
  }
  vote(item, voter, value = 1) {
    return this.call("PUT", `/v1/items/${item}/votes/${voter}`, { value });
  }
  choose(poll, voter, ...choices) {
    return this.call("PUT", `/v1/polls/${poll.id}/votes/${voter}`, { items: choices.map((at) => poll.choices[at].item_id) });
  }
  // Casts many votes, on many items or in a poll, in few requests.
  async votes(votes) {
    const { results } = await this.call("POST", "/v1/votes", { votes });
    for (const one of results) assert.ok(one.status < 300, JSON.stringify(one));
  }
}

// Holds back what the page sends with this method. `asked` keeps with its address when the first comes; `release` lets
// them all go on, or be cut.
export async function heldBack(page, address, method = "GET") {
  const [asked, released] = [promised(), promised()];
  await page.route(address, async (route) => {
    if (route.request().method() !== method) return route.continue();
    asked.resolve(route.request().url());
    await (await released.promise)(route);
  });
  const release = () => released.resolve((route) => route.continue());
  const cut = () => released.resolve((route) => route.abort());
  return { asked: asked.promise, release, cut };
}

// Starts a `tally dev`, a browser, and a host for other pages under both origins.
export async function open(settings = {}) {
  for (const name of ["allowed", "foreign"]) {
    const host = createServer((request, answer) => {
      answer.setHeader("content-type", request.url.endsWith(".js") ? "text/javascript; charset=utf-8" : "text/html; charset=utf-8");
      answer.end(hosted.get(request.url) ?? "");
    });
    host.listen(0, "127.0.0.1").unref();
    await once(host, "listening");
    ports[name] = host.address().port;
  }
  tally = await Server.start(settings);
  const root = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: [...root, "--disable-gpu", "--disable-quic"] });
}

export async function close() {
  await browser?.close();
  await Promise.all([...servers].map((server) => server.end()));
}

// The origin of other pages, an allowed or a foreign one. `name` is a name of this machine: "localhost" is another
// site than "127.0.0.1".
export const originOf = (origin = "allowed", name = "127.0.0.1") => `http://${name}:${ports[origin]}`;

// Puts a page on another origin. Returns its address.
export function host(name, html, origin = "allowed") {
  hosted.set(`/${name}.html`, html);
  return `${originOf(origin)}/${name}.html`;
}

// Puts a script beside the pages. Returns its path.
export function hostScript(name, text) {
  hosted.set(`/${name}.js`, text);
  return `/${name}.js`;
}

// A site that has the server below /tally/, as the nginx in docs/operating/proxy.md: requests go to Tally without that
// prefix. All other paths have this page. Returns the address of the site.
export async function siteAround(html, server = tally) {
  const proxy = createServer((asked, answer) => {
    if (!asked.url.startsWith("/tally/")) return answer.setHeader("content-type", "text/html").end(html);
    const { method, headers } = asked;
    const passed = send(server.base + asked.url.slice("/tally".length), { method, headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    asked.pipe(passed);
  });
  proxy.listen(0, "127.0.0.1").unref();
  await once(proxy, "listening");
  return `http://127.0.0.1:${proxy.address().port}/`;
}

// Puts a page with these elements on an allowed origin. The page has no faults of its own.
export const hostElements = (name, elements, { server = tally, head = "", html = 'lang="en"' } = {}) => host(name, `<!doctype html>
  <html ${html}><head><meta charset="utf-8"><title>${name}</title><meta name="viewport" content="width=device-width, initial-scale=1">
  <style>:root { color-scheme: light dark; background: Canvas; color: CanvasText; }</style><script type="module" src="${server.base}/embed.js"></script>${head}</head>
  <body><main><h1>News</h1><h2>Votes</h2>${elements}</main></body></html>`);

// Another person: a window with storage of its own.
export async function person(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 800 }, ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  page.errors = [];
  page.on("pageerror", (error) => page.errors.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy/.test(message.text())) page.errors.push(message.text());
  });
  return page;
}

export const shows = (page, text) => page.getByText(text, { exact: true }).filter({ visible: true }).first().waitFor();
export const count = (page, text) => page.locator("tally-vote").locator('[part="count"]', { hasText: new RegExp(`^${text}$`) }).waitFor();
export const isPressed = (locator) => locator.and(locator.page().locator('[aria-pressed="true"]')).waitFor();
export const isReleased = (locator) => locator.and(locator.page().locator('[aria-pressed="false"]')).waitFor();
// What the elements of a page said to it. Call it before the page is loaded.
export const hears = (page, name) => page.addInitScript((name) => {
  globalThis.heard ??= {};
  globalThis.heard[name] = [];
  addEventListener(name, ({ detail }) => globalThis.heard[name].push(detail));
}, name);
export const heard = (page, name) => page.evaluate((name) => globalThis.heard[name], name);
export const refused = (page) => page.locator('[part="message"].bad');

// The faults that axe finds.
export async function faults(page) {
  const { violations } = await page.evaluate(`globalThis.axe ?? (() => { ${axe} })(); axe.run({ resultTypes: ["violations"] })`);
  return violations.map((one) => [one.id, ...one.nodes.map((node) => node.target.flat().join(" "))].join(" "));
}

// Checks that the page needs no horizontal scroll bar.
export async function fits(page, name) {
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `${name}: ${wider} pixels too wide`);
}

// What of the elements' text is out of the window, cut off by what it is in, or over other text. A message lies over
// what is below it.
export const misplaced = (page) => page.evaluate(() => {
  const found = [];
  const isWithin = (box, { left, right, top, bottom }) => box.left >= left - 1 && box.right <= right + 1 && box.top >= top - 1 && box.bottom <= bottom + 1;
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
  for (const host of document.querySelectorAll("*")) {
    if (!host.shadowRoot) continue;
    const texts = [];
    const nodes = document.createNodeIterator(host.shadowRoot, NodeFilter.SHOW_TEXT);
    for (let node = nodes.nextNode(); node; node = nodes.nextNode()) {
      const one = node.parentElement;
      if (!node.data.trim() || one.closest(".unseen") || one.getClientRects().length === 0) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const what = `${host.id || host.localName} ${one.getAttribute("part") ?? one.localName}: ${node.data.slice(0, 40)}`;
      const around = one.closest('[part~="choice"]')?.getBoundingClientRect();
      const isMessage = one.closest('[part="message"]') !== null;
      for (const box of range.getClientRects()) {
        if (box.left < -1 || box.right > innerWidth + 1) found.push(`out of the window: ${what}`);
        if (around && !isWithin(box, around)) found.push(`cut off: ${what}`);
        if (isMessage) continue;
        const below = texts.find((other) => other.node !== node && meet(box, other.box));
        if (below) found.push(`over each other: ${what} | ${below.what}`);
        texts.push({ node, box, what });
      }
    }
  }
  return found;
});

// Goes to a control with Tab (or back, with Shift+Tab). Checks that each control on the way shows that it has the
// focus.
export async function tabTo(page, locator, key = "Tab") {
  await locator.waitFor();
  for (let stops = 0; stops < STOPS_LIMIT; stops++) {
    if (await hasFocus(locator)) return;
    await page.keyboard.press(key);
    await focusIsShown(page);
  }
  throw new Error(`${key} does not reach ${locator}`);
}
export const hasFocus = (locator) => locator.evaluate((one) => one.matches(":focus"));
export async function focusIsShown(page) {
  const { what, width } = await page.evaluate(() => {
    let one = document.activeElement;
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(one);
    // After the last control, the browser itself has the focus.
    const width = one === document.body ? null : outlineStyle === "none" ? 0 : parseFloat(outlineWidth);
    return { what: one.outerHTML.slice(0, 200), width };
  });
  assert.ok(width === null || width > 0, `nothing shows that this has the focus: ${what}`);
}

// The contrast of each text and each mark in the elements with what is painted behind it. axe leaves out what is mixed
// with the colours below. A canvas paints the layers: it knows each way to write a colour.
export const contrasts = (page) => page.evaluate(() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const painted = (colors) => {
    for (const color of ["#fff", ...colors]) {
      canvas.fillStyle = "#010203";
      canvas.fillStyle = color;
      if (canvas.fillStyle === "#010203") throw new Error(`no colour: ${color}`);
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (color) => {
    const [red, green, blue] = color.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (behind, color) => {
    const [low, high] = [behind, [...behind, color]].map((layers) => luminance(painted(layers))).sort((a, b) => a - b);
    return Number(((high + 0.05) / (low + 0.05)).toFixed(2));
  };
  const behind = (one) => {
    const layers = [];
    for (let at = one; at; at = at.parentElement ?? at.getRootNode().host) layers.unshift(getComputedStyle(at).backgroundColor);
    return layers;
  };
  const found = [];
  for (const host of document.querySelectorAll("*")) {
    for (const one of host.shadowRoot?.querySelectorAll("*") ?? []) {
      const { color, visibility } = getComputedStyle(one);
      const isText = [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
      const isMark = one.matches("svg.mark");
      if (!(isText || isMark) || visibility !== "visible" || one.getClientRects().length === 0 || one.closest(".unseen")) continue;
      const bar = one.closest('[part~="choice"]')?.querySelector('[part="bar"]');
      const layers = behind(one);
      // A bar lies over its choice, and under the text or beside it.
      const over = bar ? [...layers, getComputedStyle(bar).backgroundColor] : layers;
      const what = `${host.localName} ${one.getAttribute("part") ?? one.localName} ${isText ? one.textContent.trim().slice(0, 40) : ""}`;
      const isPressed = one.closest("button")?.getAttribute("aria-pressed") === "true";
      found.push({ what, isText, isPressed, contrast: Math.min(contrast(layers, color), isMark && bar ? Infinity : contrast(over, color)) });
    }
  }
  return found;
});
