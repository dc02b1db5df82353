// Waiting for a condition, never for a time. Each wait has a limit with a name and a unit.
import { execFile } from "node:child_process";

export const START_LIMIT_S = 60; // until a program or a store answers
export const ALERT_LIMIT_S = process.env.LONG === "1" ? 4_000 : 400; // until Prometheus says that an alert fires
export const EXACT_LIMIT_S = 90; // until each count is exact again
export const COMMAND_LIMIT_S = 120; // what one command of an operator may take
const BETWEEN_MS = 50; // between two looks

export const seconds = (from, to = performance.now()) => (to - from) / 1000;
// Lets other things happen before the next look.
export const breath = (ms = BETWEEN_MS) => new Promise((resolve) => setTimeout(resolve, ms));

// Looks until `check` gives something true, and gives that. A look that fails is one that gave nothing.
export async function until(what, limitS, check, betweenMs = BETWEEN_MS) {
  const end = performance.now() + limitS * 1000;
  let failure = "";
  for (;;) {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      if (error.fatal) throw error;
      failure = `: ${error.message}`;
    }
    if (performance.now() > end) throw new Error(`not within ${limitS} s: ${what}${failure}`);
    await breath(betweenMs);
  }
}

// Runs a program. Gives what it printed; fails with what it said when its exit code is another than 0.
export function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const limits = { timeout: COMMAND_LIMIT_S * 1000, maxBuffer: 64 * 1024 * 1024, killSignal: "SIGKILL" };
    const child = execFile(command, args, { ...limits, ...options }, (error, stdout, stderr) => {
      if (!error) return resolve(stdout);
      const said = `${stdout}\n${stderr}`.trim();
      reject(Object.assign(new Error(`${[command, ...args].join(" ").slice(0, 300)}: ${said || error.message}`), { code: error.code, said }));
    });
    child.stdin.on("error", () => {}); // it ended without reading: its exit code says more
    child.stdin.end(options.input ?? "");
  });
}
