// Runs the calls of calls.mjs through each proxy of proxies.mjs, in front of one real `tally dev`. Each proxy is a
// process of its own, on a free port, with all its files in a folder of its own. A proxy that is not installed is
// skipped, and said. Each wait is for something that a client would see, never for a time.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { gunzipSync } from "node:zlib";
import { CALLS, OTHER_ORIGIN } from "./calls.mjs";
import { COMMANDS, HOST, PATH, PROXIES, installed } from "./proxies.mjs";
import { freePort } from "../ports.mjs";

const program = process.env.PROXIES_TEST_PROGRAM;
const ANSWER_LIMIT_MS = 20_000; // the longest wait for an answer or an event
const START_LIMIT_MS = 60_000;
const wanted = process.env.ONLY ? new RegExp(process.env.ONLY, "i") : /./;
const folder = mkdtempSync(join(tmpdir(), "tally-proxies-"));
chmodSync(folder, 0o755);
const running = [];
let names = 0;

function start(command, args, at, env = {}) {
  mkdirSync(at, { recursive: true });
  const child = spawn(command, args, { cwd: at, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  const output = [];
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => output.push(data));
  const one = { child, said: () => Buffer.concat(output).toString() };
  running.push(one);
  return one;
}

async function stop({ child }) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), ANSWER_LIMIT_MS);
  await exit;
  clearTimeout(late);
}

async function until(what, one, check) {
  const end = Date.now() + START_LIMIT_MS;
  for (;;) {
    if (await check().catch(() => false)) return;
    if (one.child.exitCode !== null || Date.now() > end) throw new Error(`${what}: ${one.said()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// Starts a `tally dev` with these settings. Returns its port.
async function tally(name, settings) {
  const port = await freePort();
  const env = { ...settings, TALLY_LISTEN: `127.0.0.1:${port}`, TALLY_ORIGINS: OTHER_ORIGIN, TALLY_PROXIES: "127.0.0.1" };
  env.TALLY_COOKIE_KEYS = "a".repeat(64);
  const own = { ...process.env, ...env };
  for (const variable of ["DATABASE_URL", "REDIS_URL"]) delete own[variable];
  const at = join(folder, name);
  mkdirSync(at);
  const one = start(program, ["dev"], at, own);
  await until(`${name} is ready`, one, async () => (await fetch(`http://127.0.0.1:${port}/health/ready`)).ok);
  return port;
}

// One proxy in front of the server, as the calls see it.
class Proxy {
  #agents = [];

  constructor(config, upstream) {
    Object.assign(this, { passesHost: false, addsAddress: false, prefix: "", tls: false, ...config, upstream });
  }
  async start() {
    this.folder = join(folder, this.name.replaceAll(/\W+/g, "-").toLowerCase());
    mkdirSync(this.folder);
    for (const [name, text] of Object.entries(certificate)) writeFileSync(join(this.folder, name), text);
    // Programs that start as root and then give it up still need their folder.
    chmodSync(this.folder, 0o777);
    this.port = await freePort();
    this.origin = `${this.tls ? "https" : "http"}://${HOST}:${this.port}`;
    const at = { port: this.port, upstream: this.upstream, folder: this.folder, prefix: this.prefix, file: join(this.folder, "config") };
    writeFileSync(at.file, this.config(at));
    const own = { PATH: PATH, XDG_DATA_HOME: at.folder, XDG_CONFIG_HOME: at.folder, HOME: at.folder };
    this.one = start(this.program, COMMANDS[this.program](at), at.folder, own);
    const log = join(at.folder, "error.log");
    const { said } = this.one;
    this.one.said = () => said() + (existsSync(log) ? readFileSync(log, "utf8") : "");
    await until(`${this.name} passes on`, this.one, async () => (await this.ask("GET", "/health/ready")).status === 200);
  }
  // A client of one connection that stays open.
  keepAlive = () => {
    const agent = new (this.tls ? https : http).Agent({ keepAlive: true, maxSockets: 1 });
    this.#agents.push(agent);
    return { agent, end: () => agent.destroy() };
  };
  own = (name) => `${name}-${++names}`;
  item = async () => (await this.ask("POST", "/v1/items", { body: '{"name":"x"}', headers: { "content-type": "application/json" } }, 201)).json.id;

  #request(method, path, { headers = {}, agent, localAddress }) {
    const options = {
      host: "127.0.0.1", port: this.port, method, path: this.prefix + path, localAddress, agent: agent ?? false,
      headers: { host: `${HOST}:${this.port}`, ...headers },
      ...(this.tls ? { servername: HOST, ca: certificate["cert.pem"] } : {}),
      signal: AbortSignal.timeout(ANSWER_LIMIT_MS),
    };
    return (this.tls ? https : http).request(options);
  }
  ask = async (method, path, options = {}, status) => {
    const { body } = options;
    const headers = { ...options.headers };
    const isChunked = headers["transfer-encoding"] === "chunked";
    if (body !== undefined && !isChunked) headers["content-length"] = Buffer.byteLength(body);
    const request = this.#request(method, path, { ...options, headers });
    // A proxy may permit it too, before the server does.
    if (headers.expect) request.once("continue", () => request.end(body));
    else request.end(body);
    const [answer] = await once(request, "response");
    const chunks = await answer.toArray();
    const bytes = Buffer.concat(chunks);
    const text = (answer.headers["content-encoding"] === "gzip" && bytes.length ? gunzipSync(bytes) : bytes).toString();
    const isJson = /json/.test(answer.headers["content-type"] ?? "");
    const said = `${method} ${path}: ${answer.statusCode} ${text.slice(0, 300)}\n${JSON.stringify(answer.headers)}`;
    if (status !== undefined) assert.equal(answer.statusCode, status, said);
    return { status: answer.statusCode, headers: answer.headers, text, json: isJson && text ? JSON.parse(text) : undefined };
  };
  // Opens a stream. `next` returns its next event with counts.
  stream = async (path, headers) => {
    const request = this.#request("GET", path, { headers: { accept: "text/event-stream", ...headers } });
    request.end();
    const [answer] = await once(request, "response");
    assert.deepEqual([answer.statusCode, answer.headers["content-type"]], [200, "text/event-stream"]);
    assert.equal(answer.headers["content-encoding"], undefined);
    answer.setEncoding("utf8");
    const chunks = answer[Symbol.asyncIterator]();
    let text = "";
    const next = async () => {
      for (;;) {
        const [event, rest] = text.split(/\n\n(.*)/s);
        if (rest !== undefined) {
          text = rest;
          const lines = event.split("\n");
          const data = lines.find((line) => line.startsWith("data: "));
          if (data && lines.includes("event: counts")) return JSON.parse(data.slice("data: ".length));
          continue;
        }
        const { value, done } = await chunks.next();
        assert.ok(!done, "the stream ended");
        text += value;
      }
    };
    return { next, close: () => request.destroy() };
  };
  async stop() {
    for (const agent of this.#agents) agent.destroy();
    await stop(this.one);
  }
}

const certificate = {};
let upstream;

before(async () => {
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => join(folder, name));
  execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
    "-subj", `/CN=${HOST}`, "-addext", `subjectAltName=DNS:${HOST}`, "-keyout", key, "-out", cert], { stdio: "ignore" });
  for (const name of ["key.pem", "cert.pem"]) certificate[name] = readFileSync(join(folder, name), "utf8");
  certificate["both.pem"] = certificate["cert.pem"] + certificate["key.pem"];
  upstream = await tally("tally", {});
});

after(async () => {
  await Promise.all(running.reverse().map(stop));
  rmSync(folder, { recursive: true, force: true });
});

const proxies = PROXIES.filter((one) => wanted.test(one.name));

test("a proxy is there to be checked", () => {
  assert.ok(proxies.length, `no proxy's name has ${wanted}`);
  assert.ok(proxies.some((one) => installed().includes(one.program)), "none of the proxies is installed (scripts/prepare proxies)");
});

// Several at once: they mostly wait.
describe("the documented calls", { concurrency: 4 }, () => {
  for (const config of proxies) {
    const missing = installed().includes(config.program) ? false : `NOT CHECKED: ${config.program} is not installed (scripts/prepare proxies)`;
    test(config.name, { skip: missing }, async (t) => {
      const proxy = new Proxy(config, upstream);
      await proxy.start();
      for (const [name, call] of Object.entries(CALLS)) await t.test(name, () => call(proxy));
      await proxy.stop();
    });
  }
});
