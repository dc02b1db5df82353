// What the tests and the figures share: a `tally dev` of their own with a private Postgres and Redis, Chromium, and
// pages of other origins. Each wait is for something that a person would see, never for a time.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { freePort } from "../ports.mjs";

const program = process.env.BROWSER_TEST_PROGRAM;
const WAIT_MS = 30_000; // the longest wait
const STOPS_LIMIT = 200; // the most presses of Tab until a control is reached
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export let browser, tally;
const ports = {};
const hosted = new Map();
const servers = new Set();

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
    server.#folder = await mkdtemp(join(tmpdir(), "tally-browser-"));
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

// Starts a `tally dev`, a browser, and a host for other pages under both origins.
export async function open() {
  for (const name of ["allowed", "foreign"]) {
    const host = createServer((request, answer) => {
      answer.setHeader("content-type", "text/html; charset=utf-8");
      answer.end(hosted.get(request.url) ?? "");
    });
    host.listen(0, "127.0.0.1").unref();
    await once(host, "listening");
    ports[name] = host.address().port;
  }
  tally = await Server.start();
  const root = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: [...root, "--disable-gpu", "--disable-quic"] });
}

export async function close() {
  await browser?.close();
  await Promise.all([...servers].map((server) => server.end()));
}

// Puts a page on another origin, an allowed or a foreign one. Returns its address.
export function host(name, html, origin = "allowed") {
  hosted.set(`/${name}.html`, html);
  return `http://127.0.0.1:${ports[origin]}/${name}.html`;
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
export const refused = (page) => page.locator('[part="message"].bad');

// The faults that axe finds.
export async function faults(page) {
  const { violations } = await page.evaluate(`${axe}; axe.run()`);
  return violations.map((one) => [one.id, ...one.nodes.map((node) => node.target.flat().join(" "))].join(" "));
}

// Checks that the page needs no horizontal scroll bar.
export async function fits(page, name) {
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `${name}: ${wider} pixels too wide`);
}

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
