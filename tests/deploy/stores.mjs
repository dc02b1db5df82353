// Private stores and programs for the tests of `deploy/`: real Postgres, Redis and Tally on free ports, in a scratch
// folder. Whatever a test starts ends with it, also when the test is killed.
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, linkSync, mkdirSync, mkdtempSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../ports.mjs";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const IS_ROOT = process.getuid() === 0;
export const PASSWORDS = Object.fromEntries(
  ["OWNER", "SERVER", "WORKER", "REPORT", "OPERATOR", "REDIS", "REPLICA", "SENTINEL", "PROXY"].map((one) => [`${one}_PASSWORD`, `${one.toLowerCase()}0pw`]),
);

/** `holds: false`: the test may end before. */
export const sleep = (ms, { holds = true } = {}) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    if (!holds) timer.unref();
  });

/** Waits until `look` returns something true, and returns that. What it throws counts as not yet. */
export async function eventually(what, look, limitMs = 20_000) {
  const end = Date.now() + limitMs;
  let why;
  while (Date.now() < end) {
    try {
      const seen = await look();
      if (seen) return seen;
      why = seen;
    } catch (error) {
      why = error;
    }
    await sleep(50);
  }
  throw new Error(`not within ${limitMs} ms: ${what} (${why?.message ?? JSON.stringify(why)})`);
}

// Debian's folder for servers is not in every user's PATH, and Postgres' programs are in none.
const versions = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql").sort((a, b) => b - a) : [];
const FOLDERS = [...versions.map((one) => `/usr/lib/postgresql/${one}/bin`), ...process.env.PATH.split(delimiter), "/usr/sbin", "/sbin"];
/** The path of an installed program, or undefined. */
export const installed = (name) => FOLDERS.map((folder) => join(folder, name)).find((path) => existsSync(path));
function needed(name) {
  const path = installed(name);
  if (!path) throw new Error(`${name} is not installed`);
  return path;
}

/** A folder for one test file, and all processes that it starts. `end` ends and deletes all of it. */
export class Laboratory {
  #running = new Set();

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "tally-deploy-"));
    // Postgres' user, and the one of the manifests, read in it.
    chmodSync(this.folder, 0o755);
    // Also when the test is killed by Ctrl-C. `--pdeathsig` ends the processes when it is killed otherwise.
    process.once("exit", () => rmSync(this.folder, { recursive: true, force: true }));
  }

  /** Starts a program; its output goes to a file that `said` reads. `user`: whom root becomes. */
  start(name, command, { env = {}, user, cwd = "/" } = {}) {
    const as = IS_ROOT && user ? [`--reuid=${user}`, `--regid=${user}`, "--clear-groups"] : [];
    const log = join(this.folder, `${name}.log`);
    const out = openSync(log, "a");
    const child = spawn("setpriv", ["--pdeathsig", "KILL", ...as, "--", ...command], { env: { PATH: process.env.PATH, ...env }, cwd, stdio: ["ignore", out, out] });
    const program = {
      name,
      child,
      log,
      said: () => readFileSync(log, "utf8"),
      exit: new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal, at: Date.now() }))),
      stop: async (signal = "SIGKILL") => {
        child.kill(signal);
        return program.exit;
      },
    };
    this.#running.add(program);
    program.exit.then(() => this.#running.delete(program));
    return program;
  }

  /** Runs a program to its end, and returns its output. Throws if it fails, unless `mayFail`. */
  run(command, { env = {}, input, user, cwd = "/", mayFail = false } = {}) {
    const as = IS_ROOT && user ? ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--clear-groups", "--"] : [];
    const [program, ...rest] = [...as, ...command];
    const done = spawnSync(program, rest, { env: { PATH: process.env.PATH, ...env }, cwd, input, encoding: "utf8", timeout: 60_000 });
    if (done.error) throw done.error;
    if (done.status !== 0 && !mayFail) throw new Error(`${command.join(" ")}: ${done.status ?? done.signal}\n${done.stdout}${done.stderr}`);
    return mayFail ? done : done.stdout;
  }

  /** A folder that this user owns. */
  subfolder(name, user) {
    const path = join(this.folder, name);
    mkdirSync(path);
    if (IS_ROOT && user) this.run(["chown", `${user}:`, path]);
    return path;
  }

  /** Brings the programs into the folder: every user may then run them, wherever they were. */
  programs() {
    const from = process.env.PROGRAMS;
    if (!from) throw new Error("PROGRAMS names the folder with tally and sync-worker");
    const folder = this.subfolder("bin");
    for (const name of ["tally", "sync-worker"]) {
      try {
        linkSync(join(from, name), join(folder, name));
      } catch {
        // Another disk.
        copyFileSync(join(from, name), join(folder, name));
        chmodSync(join(folder, name), 0o755);
      }
    }
    return folder;
  }

  async end() {
    await Promise.all([...this.#running].map((one) => one.stop()));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export class Postgres {
  constructor(laboratory, name, port) {
    Object.assign(this, { laboratory, name, port, data: join(laboratory.folder, name) });
  }

  /** Has it speak TLS too, with a certificate of an own authority for localhost. Returns the authority's file. */
  useTls() {
    const files = ["server.crt", "server.key"].map((name) => join(this.data, name));
    this.laboratory.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]]);
    if (IS_ROOT) this.laboratory.run(["chown", "postgres:", ...files]);
    chmodSync(files[1], 0o600);
    this.sql("postgres", "alter system set ssl = on");
    this.sql("postgres", "select pg_reload_conf()");
    const authority = join(this.laboratory.folder, `${this.name}-authority.pem`);
    copyFileSync(files[0], authority);
    return authority;
  }

  /** A new Postgres, with the owner and the database of docs/operating/install.md. */
  static async start(laboratory, name = "postgres") {
    const postgres = new Postgres(laboratory, name, await freePort());
    laboratory.subfolder(name, "postgres");
    // Passwords are asked for: pgbouncer and the logins are tried with theirs.
    writeFileSync(join(laboratory.folder, `${name}.password`), "admin0pw");
    laboratory.run([needed("initdb"), "-D", postgres.data, "-U", "admin", "-A", "scram-sha-256", `--pwfile=${laboratory.folder}/${name}.password`, "-E", "UTF8", "--locale=C", "--no-sync"], { user: "postgres" });
    await postgres.serve();
    postgres.sql("postgres", `create role tally login createrole password '${PASSWORDS.OWNER_PASSWORD}'; create role replica login replication password 'replica0pw'`);
    postgres.sql("postgres", "create database tally owner tally");
    return postgres;
  }

  /** A standby of it. */
  async standby(name = "standby") {
    const standby = new Postgres(this.laboratory, name, await freePort());
    chmodSync(this.laboratory.subfolder(name, "postgres"), 0o700);
    this.laboratory.run([needed("pg_basebackup"), "-d", this.url("replica", "replica0pw", "postgres"), "-D", standby.data, "-R", "-X", "stream", "-c", "fast", "--no-sync"], { user: "postgres", env: { PGPASSFILE: "/dev/null" } });
    await standby.serve();
    return standby;
  }

  async serve() {
    this.program = this.laboratory.start(this.name, [needed("postgres"), "-D", this.data, "-p", `${this.port}`, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=200"], { user: "postgres" });
    await eventually(`${this.name} answers`, () => this.sql("postgres", "select 1"));
  }

  /** Puts a line above those of pg_hba.conf. */
  allow(line) {
    const file = join(this.data, "pg_hba.conf");
    writeFileSync(file, `${line}\n${readFileSync(file, "utf8")}`);
    this.sql("postgres", "select pg_reload_conf()");
  }

  url(login, password, database = "tally", port = this.port) {
    return `postgres://${login}:${password}@127.0.0.1:${port}/${database}`;
  }

  sql(database, statement, port = this.port) {
    return this.laboratory.run([needed("psql"), this.url("admin", "admin0pw", database, port), "-XAtqc", statement], { env: { PGCONNECT_TIMEOUT: "3" } }).trim();
  }

  /** Makes the four logins, as docs/operating/install.md does after the migration. */
  makeLogins() {
    this.laboratory.run([needed("psql"), this.url("tally", PASSWORDS.OWNER_PASSWORD), "-Xq", "--file", join(ROOT, "scripts/logins.sql")], { env: PASSWORDS });
  }
}

/** The lines of scripts/redis-users with these passwords. */
export const redisUsers = (laboratory, env = PASSWORDS) => laboratory.run([join(ROOT, "scripts/redis-users")], { env });

export class Redis {
  static async start(laboratory, name = "redis", lines = [], env = PASSWORDS) {
    const redis = new Redis();
    Object.assign(redis, { laboratory, name, port: await freePort() });
    const folder = laboratory.subfolder(name);
    writeFileSync(join(folder, "users.acl"), redisUsers(laboratory, env));
    writeFileSync(join(folder, "redis.conf"), [`port ${redis.port}`, "bind 127.0.0.1", `dir ${folder}`, `aclfile ${folder}/users.acl`, 'save ""', "appendonly no", "maxmemory-policy noeviction", ...lines, ""].join("\n"));
    await redis.serve(folder);
    return redis;
  }

  async serve(folder = join(this.laboratory.folder, this.name)) {
    this.program = this.laboratory.start(this.name, [needed("redis-server"), join(folder, "redis.conf")]);
    await eventually(`${this.name} answers`, () => this.ask("ping") === "PONG");
  }

  /** What Redis answers, as the user `default` unless another one is named. */
  ask(...command) {
    return this.askAs("default", PASSWORDS.REDIS_PASSWORD, ...command);
  }

  askAs(user, password, ...command) {
    return this.laboratory.run([needed("redis-cli"), "-p", `${this.port}`, "--user", user, ...command], { env: { REDISCLI_AUTH: password } }).trim();
  }

  url(user, port = this.port) {
    return `redis://${user}:${PASSWORDS[`${user.toUpperCase()}_PASSWORD`]}@127.0.0.1:${port}/0`;
  }
}

/** A file of `deploy/`, with these texts in the place of those. Each must be there. */
export function deployed(name, changes) {
  let text = readFileSync(join(ROOT, "deploy", name), "utf8");
  for (const [from, to] of changes) {
    if (!text.includes(from)) throw new Error(`deploy/${name} has no ${from} any more`);
    text = text.replaceAll(from, to);
  }
  return text;
}

/** A running server: its address, and how to vote. */
export class Server {
  static async start(laboratory, bin, name, env) {
    const server = new Server();
    const port = await freePort();
    server.url = `http://127.0.0.1:${port}`;
    server.program = laboratory.start(name, [join(bin, "tally"), "serve"], { env: { TALLY_LISTEN: `127.0.0.1:${port}`, TALLY_OPEN: "anonymous,voters,visitors,admin,report", ...env } });
    await eventually(`${name} is ready: ${server.program.log}`, async () => (await get(`${server.url}/health/ready`)).text.includes('"ready"'));
    return server;
  }

  async post(path, body) {
    const answer = await fetch(`${this.url}${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal: AbortSignal.timeout(15_000) });
    return { status: answer.status, body: await answer.json() };
  }

  async item(id) {
    return JSON.parse((await get(`${this.url}/v1/items/${id}`)).text);
  }
}

/** GET, as the kubelet asks: the status and the time that it took; status 0: no answer in time. */
export async function get(url, limitMs = 3_000, headers = {}) {
  const begin = performance.now();
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(limitMs), headers: { connection: "close", ...headers } });
    const text = await answer.text();
    return { status: answer.status, text, ms: performance.now() - begin };
  } catch (error) {
    return { status: 0, text: `${error.cause?.code ?? error.message}`, ms: performance.now() - begin };
  }
}
