// What was seen: target/drills.json, and the table in docs/drills.md.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";

const ROOT = new URL("../../", import.meta.url).pathname;
const NOTES = join(ROOT, "target", "drills.json");
const PAGE = join(ROOT, "docs", "drills.md");
const BY_HAND = "## On call\n"; // from here on

const readNotes = () => (existsSync(NOTES) ? JSON.parse(readFileSync(NOTES, "utf8")) : []);

// Which commit the programs are of: they know it if they were built with TALLY_COMMIT.
export function commit() {
  const said = execFileSync(join(process.env.DRILLS_PROGRAMS, "tally"), ["--version"]).toString();
  return process.env.DRILLS_COMMIT ?? /commit (\S+?)\)/.exec(said)?.[1].slice(0, 7) ?? "unknown";
}

// Forgets what earlier runs saw.
export const forgetNotes = () => rmSync(NOTES, { force: true });

// Adds what was seen of a drill, in the place of what was seen before.
export function note(result) {
  const notes = readNotes();
  const at = notes.findIndex((one) => one.name === result.name);
  const dated = { ...result, commit: commit(), at: new Date().toISOString() };
  if (at < 0) notes.push(dated);
  else notes[at] = dated;
  mkdirSync(join(ROOT, "target"), { recursive: true });
  writeFileSync(NOTES, `${JSON.stringify(notes, null, 1)}\n`);
}

// Said while it is so.
// Code in a cell of a table.
const code = (text) => `\`${text.replaceAll(/\s*\n\s*/g, " ").replaceAll("|", "\\|")}\``;
const number = (value, digits = 1) => (value === undefined || value === null ? "" : value.toFixed(digits));

function typed(steps) {
  const shown = [];
  for (const { text, words, on } of steps) {
    shown.push(words ?? code(text) + (on ? ` on ${/_/.test(on) ? on.replace("_", " ") : `machine ${on}`}` : ""));
  }
  return shown.join("; ") || "nothing";
}

function row(one) {
  const link = `[${one.name}](${one.page.replace(/^docs\//, "")})`;
  if (one.notDone) return `| ${link} | ${one.breaks} | not done: ${one.notDone} | | | | |`;
  const alert = one.alert ? `\`${one.alert}\`${one.isShortened ? " (shortened)" : ""}` : `none: ${one.why}`;
  const then = one.then ? `; ${one.then}` : "";
  return `| ${link} | ${one.breaks} | ${alert}${then} | ${number(one.firedAfter)} | ${typed(one.typed)} | ${number(one.exactAfter)} | ${number(one.ready.p99)} · ${number(one.ready.worst)} |`;
}

// Writes the page once each drill has been seen with the same programs.
export function writeTable(drills) {
  const notes = readNotes();
  const rows = drills.map((drill) => notes.find((one) => one.name === drill.name));
  if (rows.some((one) => !one) || new Set(rows.map((one) => one.commit)).size > 1) {
    console.log(`docs/drills.md stays as it is: ${rows.filter(Boolean).length} of ${drills.length} drills are noted`);
    return;
  }
  const days = [...new Set(rows.map((one) => one.at.slice(0, 10)))].join(", ");
  const done = rows.filter((one) => !one.notDone);
  const refused = done.reduce((sum, one) => sum + Object.entries(one.tallies).filter(([what]) => !["acknowledged", "not sent"].includes(what)).reduce((votes, [, count]) => votes + count, 0), 0);
  const written = readFileSync(PAGE, "utf8");
  const byHand = written.slice(written.indexOf(BY_HAND)); // what no run writes
  writeFileSync(PAGE, `# Drills

For the operator who wants to know what an alert looks like, and whoever changes the [runbook](operating/runbook.md). \`make drills\` breaks a real installation in miniature on purpose, waits for the alert in a real Prometheus, types what the page says, and waits until each acknowledged vote is counted once.

${days}, commit ${rows[0].commit}, ${cpus().length} processors: ${done.length} drills; after each, all counts were exact. ${refused.toLocaleString("en")} votes got no 201 meanwhile (503, or no answer).

- **Installation**: Postgres with a standby and Redis with a replica, over TLS; two servers, two workers, with the [least rights](operating/stores.md#logins); HAProxy in front; Prometheus asks each program once a second, with the alerts that Tally ships. *(shortened)*: this alert waits for minutes; its copy in the drill waits for seconds. \`LONG=1 make drills\` has it as it ships.
- **Exact**: from the first command, seconds until the votes in the load's record, the rows in Postgres, the live and the saved counts of both servers agree, by item and voter, and \`tally audit\` finds nothing wrong.
- **Ready**: how long \`/health/ready\` took to answer a new connection, each server asked ten times a second: p99 · worst, in ms. Tally waits at most 100 of these for the stores.

| drill | what breaks | alert | fired after s | what the operator does | exact after s | ready ms |
|---|---|---|--:|---|--:|--:|
${rows.map(row).join("\n")}

${byHand}`);
  console.log("docs/drills.md is written");
}
