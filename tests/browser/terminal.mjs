// Takes the README's picture of a terminal: Chromium draws what the program wrote in a real terminal.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { temporary } from "../folders.mjs";

const program = process.env.BROWSER_TEST_PROGRAM;
const picture = new URL("../../docs/pictures/terminal.png", import.meta.url).pathname;
const PORT = 8080; // the port that the documents name
const base = `http://127.0.0.1:${PORT}`;
const COLUMNS = 112;
const WAIT_MS = 30_000;

const folder = await temporary("tally-terminal");
const env = { ...process.env, PATH: `${join(program, "..")}:${process.env.PATH}` };
for (const name of ["DATABASE_URL", "REDIS_URL", "TALLY_LISTEN"]) delete env[name];

async function eventually(check) {
  const end = Date.now() + WAIT_MS;
  while (!(await Promise.resolve().then(check).catch(() => false))) {
    if (Date.now() > end) throw new Error(`never came true: ${check}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Runs a command in a terminal of its own. `text` is what it has written so far.
function inTerminal(command) {
  const running = { text: "" };
  const file = join(folder, "typescript");
  const child = spawn("script", ["-qfec", `stty cols ${COLUMNS} rows 40; ${command}`, file], { cwd: folder, env, stdio: ["ignore", "pipe", "ignore"] });
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (part) => (running.text += part));
  running.ended = once(child, "exit");
  running.stop = () => child.kill("SIGINT");
  return running;
}

// The screen after a terminal got this output: text, line breaks, and moves up and down.
function screen(written) {
  const lines = [[]];
  let [row, column] = [0, 0];
  const put = (text) => {
    for (const character of text) {
      if (column === COLUMNS) [row, column] = [row + 1, 0];
      (lines[row] ??= [])[column++] = character;
    }
  };
  for (const [, control, ends, amount, kind, text] of written.matchAll(/((\r|\n)|\x1b\[\??([0-9;]*)([A-Za-z]))|([^\x1b\r\n]+)/g)) {
    if (text) put(text);
    else if (ends === "\r") column = 0;
    else if (ends === "\n") row += 1;
    else if (kind === "A") row -= Number(amount || 1);
    else if (kind === "B") row += Number(amount || 1);
    else if (kind === "K") lines[row] = [];
    else if (!control) throw new Error("not a control");
  }
  return Array.from(lines, (line) => Array.from(line ?? [], (character) => character ?? " ").join("").trimEnd()).join("\n").replace(/^\n+|\n+$/g, "");
}

const tally = spawn(program, ["dev"], { cwd: folder, env, stdio: "ignore" });
let browser;
try {
  await eventually(async () => (await fetch(`${base}/health/ready`)).ok);
  const shown = [];
  const run = async (command, shownAs = command) => {
    const running = inTerminal(command);
    await running.ended;
    shown.push(`$ ${shownAs}\n${screen(running.text)}`);
  };
  const vote = (item, voter, value) => fetch(`${base}/v1/items/${item}/votes/${voter}`, {
    method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify({ value }),
  });
  for (let voter = 0; voter < 41; voter++) await vote(1 + (voter % 3), `v${voter}`, voter % 7 ? 1 : -1);
  const json = "-H 'content-type: application/json'";
  await run(`curl -s ${base}/v1/items/1/votes ${json} -d '{"voter_id":"ada"}'`);
  await run(`curl -s ${base}/v1/items/1/votes ${json} -d '{"voter_id":"ada"}'`);
  const watching = inTerminal(`tally watch 1 2 3`);
  await eventually(() => /current/.test(screen(watching.text)));
  await vote(2, "bob", 1);
  const { up_count } = await (await fetch(`${base}/v1/items/2`)).json();
  await eventually(() => new RegExp(`Spaces +-?\\d+ +${up_count} `).test(screen(watching.text)));
  shown.push(`$ tally watch 1 2 3\n${screen(watching.text)}`);
  watching.stop();
  await watching.ended;

  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: process.getuid?.() === 0 ? ["--no-sandbox"] : [] });
  const page = await browser.newPage({ viewport: { width: 970, height: 200 }, deviceScaleFactor: 1 });
  await page.setContent(`<style>
    body { margin: 0; background: #111318; }
    pre { margin: 0; padding: 20px 24px; color: #d8dbe2; font: 13.5px/1.5 "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
    b { color: #a3afff; font-weight: 600; }</style><pre></pre>`);
  await page.evaluate((text) => {
    const pre = document.querySelector("pre");
    for (const line of text.split("\n")) {
      const one = document.createElement(line.startsWith("$ ") ? "b" : "span");
      one.textContent = `${line}\n`;
      pre.append(one);
    }
  }, shown.join("\n\n"));
  await page.locator("pre").screenshot({ path: picture });
} finally {
  await browser?.close();
  const exit = once(tally, "exit");
  tally.kill("SIGTERM");
  await exit;
  await rm(folder, { recursive: true, force: true });
}
