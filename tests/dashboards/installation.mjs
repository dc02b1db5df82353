// A Tally that a real Prometheus scrapes, each second and with the shipped configuration: a `tally serve` behind an API
// key and a `sync-worker`. Their stores are those of a `tally dev`, which is not scraped. All files are in one folder, and
// all programs end with the test.
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "./files.mjs";
import { freePort } from "../ports.mjs";

const programs = process.env.DASHBOARDS_TEST_PROGRAMS;
const WAIT_LIMIT_MS = 60_000; // the longest wait for a program, a series or an alert
const EXIT_LIMIT_MS = 30_000; // a drain and a last flush take less
const folder = mkdtempSync(join(tmpdir(), "tally-dashboards-"));
chmodSync(folder, 0o755);
const running = [];
const stopped = new Set(); // processes of the stores that hang
let isVoting = false;
export let stores, server, worker, prometheus;

export function start(command, args, env = {}) {
  const own = { ...process.env, ...env };
  for (const name of ["DATABASE_URL", "REDIS_URL"]) if (!env[name]) delete own[name];
  const child = spawn(command, args, { cwd: folder, env: own, stdio: ["pipe", "pipe", "pipe"] });
  const output = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => output.push(data));
  const one = { child, said: () => Buffer.concat(output).toString(), isOver: () => child.exitCode !== null || child.signalCode !== null };
  running.push(one);
  return one;
}

export async function stop({ child, isOver }) {
  if (isOver()) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), EXIT_LIMIT_MS);
  await exit;
  clearTimeout(late);
}

// Waits until the check returns something, and returns it.
export async function until(what, check, one) {
  const end = Date.now() + WAIT_LIMIT_MS;
  for (;;) {
    const found = await check().catch(() => undefined);
    if (found) return found;
    if (one?.isOver() || Date.now() > end) throw new Error(`${what}: not so. ${one?.said() ?? ""}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const isOk = (url, headers = {}) => async () => (await fetch(url, { headers, signal: AbortSignal.timeout(5_000) })).ok;
export async function get(url) {
  return (await fetch(url, { signal: AbortSignal.timeout(5_000) })).json();
}

async function startStores() {
  const dev = start(join(programs, "tally"), ["dev"], { TALLY_LISTEN: "127.0.0.1:0", TALLY_DEV_FOLDER: join(folder, "stores"), TALLY_OPEN: "anonymous" });
  const at = async () => /Tally is at (http:\/\/[\d.:]+)/.exec(dev.said())?.[1];
  const base = await until("tally dev says its address", at, dev);
  await until("tally dev is ready", isOk(`${base}/health/ready`), dev);
  const file = (name) => readFileSync(join(folder, "stores", name), "utf8");
  const secret = file("secret").trim();
  const [pid, , , port] = file("postgres/data/postmaster.pid").split("\n");
  const redis = /^port (\d+)$/m.exec(file("redis/redis.conf"))[1];
  return {
    dev, secret, postgres: Number(pid), redisPort: Number(redis), key: file("api-key").trim(),
    env: { DATABASE_URL: `postgres://tally:${secret}@127.0.0.1:${port}/tally`, REDIS_URL: `redis://:${secret}@127.0.0.1:${redis}/0` },
  };
}

export async function startServer(port, settings = {}) {
  const env = { ...stores.env, TALLY_LISTEN: `127.0.0.1:${port}`, TALLY_OPEN: "anonymous,voters", ...settings };
  const one = start(join(programs, "tally"), ["serve"], env);
  await until("tally serve is ready", isOk(`http://127.0.0.1:${port}/health/ready`), one);
  return { ...one, port };
}

export async function startWorker(port, settings = {}) {
  const env = { ...stores.env, TALLY_WORKER_LISTEN: `127.0.0.1:${port}`, TALLY_AUDIT_CRON: "*/5 * * * * *", ...settings };
  const one = start(join(programs, "sync-worker"), [], env);
  await until("sync-worker is ready", isOk(`http://127.0.0.1:${port}/health/ready`), one);
  return { ...one, port };
}

// The shipped files, each with what a test must change. Whatever is changed must be there.
function changed(path, changes) {
  let file = text(`deploy/prometheus/${path}`);
  for (const [pattern, by] of changes) {
    assert.match(file, pattern, path);
    file = file.replaceAll(pattern, by);
  }
  writeFileSync(join(folder, "prometheus", path), file);
}

async function startPrometheus() {
  const at = join(folder, "prometheus");
  mkdirSync(at);
  changed("prometheus.yml", [
    [/_interval: 15s/g, "_interval: 1s"],
    [/\["server-1.*\]/g, `["127.0.0.1:${server.port}"]`],
    [/\["worker-1.*\]/g, `["127.0.0.1:${worker.port}"]`],
  ]);
  // At once: promtool's tests hold the times.
  changed("tally-alerts.yml", [[/^ +for: .*\n/gm, ""]]);
  writeFileSync(join(at, "tally.key"), stores.key, { mode: 0o600 });
  const port = await freePort();
  const one = start("prometheus", [`--config.file=${join(at, "prometheus.yml")}`, `--storage.tsdb.path=${join(at, "data")}`, `--web.listen-address=127.0.0.1:${port}`, "--log.level=warn"]);
  const base = `http://127.0.0.1:${port}`;
  await until("prometheus is ready", isOk(`${base}/-/ready`), one);
  return { ...one, base };
}

export async function ask(expr) {
  const { status, error, data } = await get(`${prometheus.base}/api/v1/query?query=${encodeURIComponent(expr)}`);
  if (status !== "success") throw new Error(`${expr}: ${error}`);
  return data.result;
}

// What a statement returns, by the owner's login.
export function sql(statement) {
  const { status, stdout, stderr } = spawnSync("psql", [stores.env.DATABASE_URL, "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", statement], { encoding: "utf8" });
  assert.equal(status, 0, `${statement}: ${stderr}`);
  return stdout.trim();
}

// A session that has done these statements, and stays open until `end`.
export async function session(statements) {
  const one = start("psql", [stores.env.DATABASE_URL, "-qAtX", "-v", "ON_ERROR_STOP=1"]);
  one.child.stdin.write(`${statements};\nselect 'done';\n`);
  await until(statements, async () => one.said().includes("done"), one);
  return { end: () => stop(one) };
}

// A command to Redis, as the user that may do everything.
export async function redis(...command) {
  const socket = connect(stores.redisPort, "127.0.0.1");
  socket.write(`AUTH ${stores.secret}\r\n${command.join(" ")}\r\nQUIT\r\n`);
  let said = "";
  for await (const data of socket) said += data;
  return said;
}

// Posts this to the server, and returns the status.
export async function post(path, body, key = stores.key) {
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` };
  const answer = await fetch(`http://127.0.0.1:${server.port}${path}`, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(10_000) });
  await answer.arrayBuffer();
  return answer.status;
}
const vote = (voter) => post("/v1/items/1/votes", { voter_id: voter });

async function keepVoting() {
  for (let number = 0; isVoting; number += 1) {
    await vote(`voter-${number}`).catch(() => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// A stream that is open all the time, so that its metrics move.
export const streaming = new AbortController();
async function keepStreaming() {
  const { body } = await fetch(`http://127.0.0.1:${server.port}/v1/stream?items=1`, { signal: streaming.signal });
  for await (const data of body) void data;
}

// The processes of a store hang until `goOn`.
export function hang(...pids) {
  for (const pid of pids) {
    process.kill(pid, "SIGSTOP");
    stopped.add(pid);
  }
}
export function goOn() {
  for (const pid of stopped) {
    try { process.kill(pid, "SIGCONT"); } catch { /* it ended */ }
  }
  stopped.clear();
}
export function childrenOf(pid) {
  const all = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return all.map(Number).filter((one) => {
    try { return Number(readFileSync(`/proc/${one}/stat`, "utf8").split(") ")[1].split(" ")[1]) === pid; } catch { return false; }
  });
}

export async function firing() {
  const { data } = await get(`${prometheus.base}/api/v1/alerts`);
  return data.alerts.filter(({ state }) => state === "firing").map(({ labels }) => labels);
}
export const fires = (name, labels = {}) => {
  const isIt = (one) => one.alertname === name && Object.entries(labels).every(([label, value]) => one[label] === value);
  return until(`${name} fires`, async () => (await firing()).some(isIt));
};
export const ends = (name) => until(`${name} ends`, async () => !(await firing()).some((one) => one.alertname === name));

// Starts all of it, and waits until votes are counted and jobs were done.
export async function open() {
  stores = await startStores();
  [server, worker] = await Promise.all([freePort().then(startServer), freePort().then(startWorker)]);
  prometheus = await startPrometheus();
  isVoting = true;
  void keepVoting();
  keepStreaming().catch(() => {});
  // A rate takes two scrapes with votes, and each job a first run.
  await until("all is under way", async () => (await ask('rate(tally_votes_total{outcome="accepted"}[30s]) > 0')).length > 0 && (await ask('increase(tally_job_runs_total{job_name=~"audit|roll_up", outcome="done"}[1m]) > 0')).length > 0, prometheus);
}

export async function close() {
  goOn();
  isVoting = false;
  streaming.abort();
  // The stores last: the others need them to end in order.
  for (const one of running.toReversed()) await stop(one);
  rmSync(folder, { recursive: true, force: true });
}

// Stops the server or the worker, and starts it again with these settings. Prometheus finds it where it was.
export const serverAgain = async (settings) => {
  await stop(server);
  server = await startServer(server.port, settings);
};
export const workerAgain = async (settings) => {
  await stop(worker);
  worker = await startWorker(worker.port, settings);
};
