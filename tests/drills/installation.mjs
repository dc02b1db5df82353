// An installation in miniature, by docs/operating/install.md: two machines for Postgres, two for Redis, two with a
// server and a worker each, and HAProxy in front of all.
import { randomBytes } from "node:crypto";
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Operator, shellOfManual } from "./operator.mjs";
import { endAll, Program } from "./programs.mjs";
import { Authority, Postgres, Redis } from "./stores.mjs";
import { freePort } from "../ports.mjs";
import { START_LIMIT_S, until } from "./waiting.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;
const PROGRAMS = process.env.DRILLS_PROGRAMS;
export const MACHINES = ["one", "two"]; // of servers and workers
const sites = new Set();

const read = (path) => readFileSync(join(ROOT, path), "utf8");

// The example's file for HAProxy, with our addresses, and two more that are not for clients: the stores' names.
function haproxyOfExample({ port, pem, servers, socket, postgres, redis }) {
  let text = read("deploy/haproxy.cfg");
  const changes = [
    [/bind :443 ssl crt \S+/, `bind 127.0.0.1:${port} ssl crt ${pem}`],
    [/server one \S+/, `server one 127.0.0.1:${servers[0]}`],
    [/server two \S+/, `server two 127.0.0.1:${servers[1]}`],
    [/maxconn 8000/, `maxconn 2000\n    stats socket ${socket} mode 600 level admin`],
  ];
  for (const [from, to] of changes) {
    if (!from.test(text)) throw new Error(`deploy/haproxy.cfg has no ${from} any more`);
    text = text.replace(from, to);
  }
  const store = (name, bind, to) => `
listen ${name}
    mode tcp
    timeout client 1h
    timeout server 1h
    bind 127.0.0.1:${bind}
    server primary 127.0.0.1:${to}
`;
  return text + store("postgres", postgres.bind, postgres.to) + store("redis", redis.bind, redis.to);
}

export class Installation {
  static async make() {
    const site = new Installation();
    sites.add(site);
    await site.#make();
    return site;
  }
  #mounts = [];

  async #make() {
    this.folder = mkdtempSync(join(tmpdir(), "tally-drills-"));
    chmodSync(this.folder, 0o755);
    this.authority = new Authority(this.folder);
    this.passwords = Object.fromEntries(["OWNER", "SERVER", "WORKER", "REPORT", "OPERATOR", "REDIS", "DBA"].map((who) => [who, randomBytes(24).toString("hex")]));
    const ports = [];
    for (let count = 0; count < 11; count++) ports.push(await freePort());
    const [pg1, pg2, redis1, redis2] = ports;
    Object.assign(this, { votesPort: ports[4], postgresPort: ports[5], redisPort: ports[6], serverPorts: ports.slice(7, 9), workerPorts: ports.slice(9, 11) });
    this.postgres = new Postgres(this, "postgres_1", pg1);
    this.standby = new Postgres(this, "postgres_2", pg2);
    this.redis = new Redis(this, "redis_1", redis1);
    this.replica = new Redis(this, "redis_2", redis2);
    this.#writeFiles();
    await this.#listen();
    this.operator = new Operator(this);
    await this.postgres.make();
    this.leads = { postgres: this.postgres, redis: this.redis };
    await Promise.all([this.postgres.start(), this.redis.start(), this.#startProxy()]);
    await this.postgres.sql(`alter role postgres password '${this.passwords.DBA}'; create role tally login createrole password '${this.passwords.OWNER}';
grant tally to postgres; create database tally owner tally`, "postgres");
    await this.standby.copy(this.postgres);
    await this.operator.quietly("with owner tally migrate");
    await this.operator.quietly("with passwords sql owner --file=/opt/tally/0.1.0/logins.sql");
    await this.makeRedisUsers();
    await this.replica.start();
    await this.replica.follow(this.redis);
    this.servers = MACHINES.map((machine, at) => this.#program(`server_${machine}`, "server", ["tally", "serve"], { TALLY_LISTEN: `127.0.0.1:${this.serverPorts[at]}` }));
    this.workers = MACHINES.map((machine, at) => this.#program(`worker_${machine}`, "worker", ["sync-worker"], { TALLY_WORKER_LISTEN: `127.0.0.1:${this.workerPorts[at]}` }));
    for (const one of [...this.workers, ...this.servers]) one.start();
    await this.untilReady();
    const key = async (name, scopes) => /tally_[0-9a-f]{64}/.exec(await this.operator.quietly(`with operator tally key create '${name}' --scope ${scopes}`))[0];
    this.keys = { admin: await key("ops", "admin,report"), vote: await key("backend", "vote"), report: await key("prometheus", "report") };
    writeFileSync(join(this.etc, "admin.env"), `TALLY_API_KEY=${this.keys.admin}\n`, { mode: 0o600 });
  }
  // Install 5, on the Redis that the address leads to.
  async makeRedisUsers() {
    await this.operator.quietly("with passwords /opt/tally/0.1.0/redis-users | sed 's/^user/ACL SETUSER/' | redis");
    this.setPassword(true);
    await this.operator.quietly("redis config set maxmemory-policy noeviction; redis config rewrite");
  }
  // Whether the operator's `redis` sends the password.
  setPassword(isSent) {
    writeFileSync(join(this.etc, "redis.env"), `${isSent ? "" : "#"}REDISCLI_AUTH=${this.passwords.REDIS}\n`, { mode: 0o600 });
  }
  // Waits until a program's log has these words, in a line that was not there before.
  logged(kind, words) {
    const programs = kind === "worker" ? this.workers : this.servers;
    return until(`a ${kind} logs: ${words}`, START_LIMIT_S, () => programs.some((one) => readFileSync(one.log, "utf8").slice(this.logSizes?.[one.name] ?? 0).includes(words)));
  }
  // What the logs have so far is of no interest to `logged`.
  noteLogs() {
    this.logSizes = Object.fromEntries([...this.servers, ...this.workers].map((one) => [one.name, readFileSync(one.log, "utf8").length]));
  }
  #writeFiles() {
    this.etc = join(this.folder, "etc");
    this.opt = join(this.folder, "opt");
    this.bin = join(this.folder, "bin");
    for (const one of [this.etc, this.opt, this.bin]) mkdirSync(one);
    const tls = `sslmode=verify-full&sslrootcert=${this.authority.file}`;
    const database = (login, who, name = "tally") => `DATABASE_URL=postgres://${login}:${this.passwords[who]}@127.0.0.1:${this.postgresPort}/${name}?${tls}`;
    const redis = (login, who) => `REDIS_URL=rediss://${login}:${this.passwords[who]}@127.0.0.1:${this.redisPort}/0?sslrootcert=${this.authority.file}`;
    const files = {
      passwords: Object.entries(this.passwords).filter(([who]) => who !== "DBA").map(([who, password]) => `${who}_PASSWORD=${password}`),
      server: [database("server", "SERVER"), redis("server", "SERVER"), "TALLY_LOG_FORMAT=json", "TALLY_PROXIES=127.0.0.1", "TALLY_DRAIN=5s"],
      worker: [database("worker", "WORKER"), redis("worker", "WORKER"), "TALLY_LOG_FORMAT=json"],
      operator: [database("operator", "OPERATOR"), redis("operator", "OPERATOR")],
      owner: [database("tally", "OWNER")],
      dba: [database("postgres", "DBA", "postgres")],
      redis: [],
      admin: [],
    };
    for (const [name, lines] of Object.entries(files)) writeFileSync(join(this.etc, `${name}.env`), lines.map((line) => `${line}\n`).join(""), { mode: 0o600 });
    writeFileSync(join(this.etc, "shell"), shellOfManual(this));
    for (const one of ["redis-users", "logins.sql"]) copyFileSync(join(ROOT, "scripts", one), join(this.opt, one));
    for (const one of ["tally", "sync-worker"]) symlinkSync(join(PROGRAMS, one), join(this.bin, one));
    // What the pages type, and what stands for it here: nothing of this machine's own is touched.
    const script = (name, text) => writeFileSync(join(this.bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    script("sudo", 'if [ "$1" = -u ]; then who=$2; shift 2; if [ "$(id -u)" = 0 ]; then exec setpriv --reuid "$who" --regid "$who" --clear-groups "$@"; fi; fi; exec "$@"');
    script("systemctl", `exec curl -sS --fail-with-body --unix-socket ${this.folder}/control "http://site/$(echo "$*" | tr ' ' '+')?machine=$MACHINE"`);
  }
  #program(name, file, [command, ...args], own) {
    const settings = () => Object.fromEntries(readFileSync(join(this.etc, `${file}.env`), "utf8").trim().split("\n").map((line) => line.split(/=(.*)/s).slice(0, 2)));
    return new Program(name, join(this.folder, `${name}.log`), () => ({ command: join(PROGRAMS, command), args, env: { ...settings(), ...own, ...this.extraEnv?.[name] }, cwd: this.folder }), { restarts: true });
  }
  async #startProxy() {
    const { key, cert } = this.authority.make("votes");
    const pem = join(this.folder, "votes.pem");
    writeFileSync(pem, readFileSync(cert, "utf8") + readFileSync(key, "utf8"), { mode: 0o600 });
    this.socket = join(this.folder, "haproxy.sock");
    const file = join(this.folder, "haproxy.cfg");
    const [postgres, redis] = [{ bind: this.postgresPort, to: this.postgres.port }, { bind: this.redisPort, to: this.redis.port }];
    writeFileSync(file, haproxyOfExample({ port: this.votesPort, pem, servers: this.serverPorts, socket: this.socket, postgres, redis }));
    this.proxy = new Program("haproxy", join(this.folder, "haproxy.log"), () => ({ command: "haproxy", args: ["-db", "-f", file], env: { PATH: `${process.env.PATH}:/usr/sbin` } }));
    this.proxy.start();
    await until("HAProxy answers", START_LIMIT_S, () => this.proxySays("show version"));
  }
  proxySays(text) {
    return new Promise((resolve, reject) => {
      const socket = connect(this.socket, () => socket.end(`${text}\n`));
      let said = "";
      socket.on("data", (data) => { said += data; });
      socket.on("error", reject);
      socket.on("close", () => resolve(said.trim()));
    });
  }
  // Lets the name of a store lead to another machine. Open connections stay, as with DNS, unless they are `cut`.
  async moveName(name, machine, { cut = false } = {}) {
    this.leads[name] = machine;
    await this.proxySays(`set server ${name}/primary addr 127.0.0.1 port ${machine.port}`);
    if (cut) await this.proxySays(`shutdown sessions server ${name}/primary`);
  }
  // The operator's `systemctl`: verb, unit, and on which machine.
  async #listen() {
    this.control = http.createServer(async (request, answer) => {
      const { pathname, searchParams } = new URL(request.url, "http://site");
      try {
        answer.end(await this.#systemctl(pathname.slice(1).split("+").filter((word) => !word.startsWith("-")), searchParams.get("machine")));
      } catch (error) {
        answer.writeHead(500).end(`${error.message}\n`);
      }
    });
    await new Promise((resolve) => this.control.listen(join(this.folder, "control"), resolve));
  }
  async #systemctl([verb, ...units], machine) {
    const here = (programs) => programs.filter((_, at) => !machine || MACHINES[at] === machine);
    const stores = (primary, ...others) => (machine ? [primary, ...others].filter((one) => one.name === machine) : [primary]);
    const known = {
      tally: () => here(this.servers),
      "tally-worker": () => here(this.workers),
      postgresql: () => stores(this.postgres, this.standby),
      "redis-server": () => stores(this.redis, this.replica),
    };
    let said = "";
    for (const unit of units.map((one) => one.replace(/\.service$/, ""))) {
      const programs = known[unit]?.() ?? [];
      if (programs.length === 0) throw new Error(`Unit ${unit}.service not found.`);
      const gone = programs.find(({ name }) => name === this.gone);
      if (gone) throw new Error(`connect to host ${gone.name}: No route to host`);
      await Promise.all(programs.map(async (one) => {
        const program = one.program ?? one;
        if (["status", "is-active"].includes(verb)) said += `${program.name}: ${unit}.service is ${program.runs ? `active (running), process ${program.pid}` : "inactive (dead)"}\n`;
        if (["stop", "restart", "disable"].includes(verb)) await program.stop(unit === "postgresql" ? "SIGINT" : "SIGTERM");
        if (["start", "restart", "enable"].includes(verb)) await one.start();
        if (verb === "reload") program.signal("SIGHUP");
      }));
    }
    return said;
  }
  // Mounts a small disk for a folder. Only root may: gives whether it is there.
  mount(path, mebibytes, { uid = 0, gid = 0 }) {
    if (process.getuid() !== 0) return false;
    try {
      execFileSync("mount", ["-t", "tmpfs", "-o", `size=${mebibytes}m,uid=${uid},gid=${gid},mode=755`, "tally-drills", path], { stdio: "pipe" });
    } catch {
      return false; // as in a container without the right to
    }
    this.#mounts.push(path);
    return true;
  }
  async readyOf(at) {
    const answer = await fetch(`http://127.0.0.1:${this.serverPorts[at]}/health/ready`);
    return answer.json();
  }
  untilReady = () => until("both servers are ready, and HAProxy uses them", START_LIMIT_S, async () => {
    for (const at of [0, 1]) if ((await this.readyOf(at)).status !== "ready") return false;
    return (await this.serversUp()).length === 2;
  });
  // The names of the servers that HAProxy uses.
  async serversUp() {
    const lines = (await this.proxySays("show stat")).split("\n").map((line) => line.split(","));
    return lines.filter(([group, name, ...rest]) => group === "tally" && MACHINES.includes(name) && rest[15] === "UP").map(([, name]) => name);
  }
  async api(path, options = {}) {
    const headers = { authorization: `Bearer ${this.keys.admin}`, "content-type": "application/json" };
    const answer = await fetch(`http://127.0.0.1:${this.serverPorts[0]}${path}`, { headers, ...options });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }
  async end() {
    sites.delete(this);
    this.control?.close();
    this.control?.closeAllConnections();
    await endAll();
    for (const path of this.#mounts) execFileSync("umount", ["--lazy", path]);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

// Types a restart on one machine after the other, and waits between them until the proxy uses the first one again.
export async function restartInTurn(site, command) {
  for (const on of MACHINES) {
    await site.operator.types(command, { on });
    await until(`HAProxy uses ${on} again`, START_LIMIT_S, async () => (await site.serversUp()).includes(on));
  }
}

export async function endAllSites() {
  for (const site of [...sites]) await site.end();
  await endAll();
}
