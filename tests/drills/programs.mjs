// Programs of the installation: started, ended, ended without a word. Nothing stays when the drills end.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { breath, START_LIMIT_S } from "./waiting.mjs";

const STOP_LIMIT_S = 45; // TimeoutStopSec of deploy/systemd
const RESTART_AFTER_MS = 2_000; // RestartSec of deploy/systemd

const running = new Set();

// The ids of a Unix user; nothing where the drills do not run as root, and everything is of one user.
export function user(name) {
  if (process.getuid() !== 0) return {};
  const line = readFileSync("/etc/passwd", "utf8").split("\n").find((one) => one.startsWith(`${name}:`));
  if (!line) throw new Error(`this machine has no user ${name}`);
  const [, , uid, gid] = line.split(":");
  return { uid: Number(uid), gid: Number(gid) };
}

export class Program {
  #child;
  #wanted = false;

  // `command` gives { command, args, env, cwd } anew for each start. `restarts`: it is started again when it ends.
  constructor(name, log, command, { restarts = false, owner = {} } = {}) {
    Object.assign(this, { name, log, command, restarts, owner });
  }
  get pid() {
    return this.#child?.pid;
  }
  get runs() {
    return Boolean(this.#child) && this.#child.exitCode === null && this.#child.signalCode === null;
  }
  start() {
    if (this.runs) return;
    this.#wanted = true;
    const { command, args, env = {}, cwd = "/" } = this.command();
    const log = openSync(this.log, "a");
    const own = { PATH: process.env.PATH, LANG: "C.UTF-8", ...env };
    // In a process group of its own: Ctrl-C reaches the drills, which then end everything in order.
    const child = spawn(command, args, { cwd, env: own, stdio: ["ignore", log, log], detached: true, ...this.owner });
    closeSync(log);
    this.#child = child;
    running.add(this);
    child.on("error", () => {});
    child.on("exit", async () => {
      if (!this.restarts || !this.#wanted) return;
      await breath(RESTART_AFTER_MS);
      if (this.#wanted && this.#child === child) this.start();
    });
  }
  signal(signal) {
    if (this.runs) process.kill(this.#child.pid, signal);
  }
  // Of a program that was stopped with SIGSTOP, too.
  async stop(signal = "SIGTERM") {
    this.#wanted = false;
    if (!this.runs) return;
    const exit = once(this.#child, "exit");
    this.signal(signal);
    this.signal("SIGCONT");
    const late = setTimeout(() => this.signal("SIGKILL"), STOP_LIMIT_S * 1000);
    await exit;
    clearTimeout(late);
  }
  // Ends it without a word, and lets it stay down.
  async kill() {
    this.#wanted = false;
    if (!this.runs) return;
    const exit = once(this.#child, "exit");
    this.signal("SIGKILL");
    await exit;
  }
  lastLines(count = 20) {
    try {
      return readFileSync(this.log, "utf8").trim().split("\n").slice(-count).join("\n");
    } catch {
      return "";
    }
  }
}

// Ends all that was started, those with children of their own included.
export async function endAll() {
  for (const one of running) one.restarts = false;
  await Promise.all([...running].reverse().map((one) => Promise.race([
    one.stop(one.stopSignal ?? "SIGKILL"),
    breath(START_LIMIT_S * 100).then(() => one.kill()),
  ])));
  running.clear();
}
