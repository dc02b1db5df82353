// Postgres and Redis, each on two machines in miniature, over TLS with an authority of our own.
import { appendFileSync, chownSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { Program, user } from "./programs.mjs";
import { run, START_LIMIT_S, until } from "./waiting.mjs";

const SEGMENT_TRANSACTIONS = 32 * 32_768; // transactions in a file of Postgres' pg_xact, four a byte
const FAR_SEGMENT = 1200; // 1.26 billion transactions
const DISK_MIB = 400; // of each Postgres' machine: small enough to be filled

const found = ["/usr/lib/postgresql", ""].flatMap((base) => {
  if (!base) return execFileSync("sh", ["-c", "dirname \"$(command -v postgres)\" 2>/dev/null || true"]).toString().trim();
  return existsSync(base) ? readdirSync(base).sort((a, b) => b - a).map((version) => `${base}/${version}/bin`) : [];
});
export const BIN = found.find((one) => existsSync(join(one, "postgres")));

// An authority, and certificates for the stores and the proxy. `ends`: when the certificate ends, in openssl's form.
export class Authority {
  constructor(folder) {
    this.folder = join(folder, "tls");
    mkdirSync(this.folder, { mode: 0o755 });
    this.file = join(this.folder, "authority.pem");
    this.#openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=drills",
      "-keyout", this.#in("authority.key"), "-out", this.file);
    writeFileSync(this.#in("ca.cnf"), `[ca]\ndefault_ca=own\n[own]\ndatabase=${this.#in("index")}\nserial=${this.#in("serial")}\nnew_certs_dir=${this.folder}
default_md=sha256\npolicy=any\nunique_subject=no\nx509_extensions=names\n[any]\ncommonName=supplied\n[names]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n`);
    writeFileSync(this.#in("index"), "");
    writeFileSync(this.#in("serial"), "01\n");
  }
  #in = (name) => join(this.folder, name);
  #openssl = (...args) => execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });

  // Writes NAME.pem and NAME.key, for this user alone.
  make(name, owner = {}, ends = "20491231235959Z") {
    const [key, request, cert] = [`${name}.key`, `${name}.csr`, `${name}.pem`].map(this.#in);
    this.#openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-keyout", `${key}.new`, "-out", request);
    this.#openssl("ca", "-batch", "-notext", "-config", this.#in("ca.cnf"), "-cert", this.file, "-keyfile", this.#in("authority.key"),
      "-startdate", "20200101000000Z", "-enddate", ends, "-in", request, "-out", cert);
    rmSync(key, { force: true });
    writeFileSync(key, readFileSync(`${key}.new`), { mode: 0o600 });
    rmSync(`${key}.new`);
    if (owner.uid !== undefined) chownSync(key, owner.uid, owner.gid);
    return { key, cert };
  }
}

export class Postgres {
  constructor(site, name, port) {
    Object.assign(this, { site, name, port, owner: user("postgres"), bin: BIN });
    this.folder = join(site.folder, name);
    this.data = join(this.folder, "disk", "data");
    this.wal = join(this.folder, "wal");
    this.archive = join(this.folder, "archive");
    for (const one of [this.folder, join(this.folder, "disk"), this.archive]) this.#folder(one);
    // A disk of its own, which a drill can fill without the machine's.
    this.hasDisk = site.mount(join(this.folder, "disk"), DISK_MIB, this.owner);
    this.program = new Program(name, join(site.folder, `${name}.log`), () => ({ command: join(BIN, "postgres"), args: ["-D", this.data] }), { owner: this.owner });
    this.program.stopSignal = "SIGQUIT";
  }
  #folder(path) {
    mkdirSync(path, { recursive: true, mode: 0o755 });
    if (this.owner.uid !== undefined) chownSync(path, this.owner.uid, this.owner.gid);
  }
  #tool = (name, args) => run(join(BIN, name), args, { ...this.owner, cwd: "/" });

  async make() {
    await this.#tool("initdb", ["-D", this.data, "--waldir", this.wal, "-U", "postgres", "-A", "trust", "--no-sync"]);
    const tls = this.site.authority.make(this.name, this.owner);
    writeFileSync(join(this.data, "pg_hba.conf"), "local all all trust\nlocal replication all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n");
    writeFileSync(join(this.data, "postgresql.conf"), `
listen_addresses = '127.0.0.1'
unix_socket_directories = '${this.folder}'
ssl = on
max_connections = 200
max_prepared_transactions = 10
wal_keep_size = '256MB'
max_wal_size = '256MB'
archive_mode = on
log_line_prefix = '%m [%p] %u@%d '
include = 'machine.conf'
`);
    this.#own(tls);
  }
  // What a copy of another machine must not have from there.
  #own(tls = this.site.authority.make(this.name, this.owner)) {
    const own = { port: this.port, unix_socket_directories: `'${this.folder}'`, ssl_cert_file: `'${tls.cert}'`, ssl_key_file: `'${tls.key}'`,
      archive_command: `'cp %p ${this.archive}/%f'` };
    writeFileSync(join(this.data, "machine.conf"), Object.entries(own).map(([name, value]) => `${name} = ${value}\n`).join(""));
  }
  // Makes this machine a standby of another one, which it then copies.
  async copy(primary) {
    await this.program.kill();
    for (const one of [this.data, this.wal]) rmSync(one, { recursive: true, force: true });
    const from = `host=${primary.folder} port=${primary.port} user=postgres application_name=${this.name}`;
    await this.#tool("pg_basebackup", ["-d", from, "-D", this.data, "--waldir", this.wal, "-X", "stream", "-R", "-c", "fast", "--no-sync"]);
    this.#own();
    await this.start();
    await until(`${this.name} follows`, START_LIMIT_S, async () => (await primary.sql("select count(*) from pg_stat_replication where state = 'streaming'")) === "1");
  }
  // Recovers a base backup with the archive of another machine, up to a transaction, and without it.
  async restore(backup, archive, beforeTransaction) {
    await this.program.kill();
    for (const one of [this.data, this.wal]) rmSync(one, { recursive: true, force: true });
    await run("cp", ["-a", backup, this.data], { ...this.owner, cwd: "/" });
    this.#own();
    appendFileSync(join(this.data, "machine.conf"), `restore_command = 'cp ${archive}/%f %p'
recovery_target_xid = '${beforeTransaction}'
recovery_target_inclusive = off
recovery_target_action = promote
`);
    writeFileSync(join(this.data, "recovery.signal"), "");
    await this.start();
    await until("the recovery ends", START_LIMIT_S, async () => (await this.sql("select pg_is_in_recovery()", "postgres")) === "f");
  }
  // Moves the next transaction's id far ahead, as billions of transactions would. It must be stopped.
  async moveTransactionIds() {
    await this.#tool("pg_resetwal", ["-x", String(FAR_SEGMENT * SEGMENT_TRANSACTIONS), "-D", this.data]);
    // What the states of these transactions are read from.
    const path = join(this.data, "pg_xact", FAR_SEGMENT.toString(16).toUpperCase().padStart(4, "0"));
    writeFileSync(path, Buffer.alloc(SEGMENT_TRANSACTIONS / 4));
    if (this.owner.uid !== undefined) chownSync(path, this.owner.uid, this.owner.gid);
  }
  async start() {
    rmSync(join(this.data, "postmaster.pid"), { force: true });
    this.program.start();
    await until(`${this.name} answers`, START_LIMIT_S, () => this.#answers());
  }
  async #answers() {
    if (this.program.runs) return this.sql("select 1", "postgres");
    // The one before may still be at its end, and holds its memory.
    this.program.start();
    throw new Error(this.program.lastLines(4));
  }
  // As the superuser, through the socket, past the movable address.
  async sql(text, database = "tally") {
    const args = ["-h", this.folder, "-p", String(this.port), "-U", "postgres", "-d", database, "-XAtq", "-v", "ON_ERROR_STOP=1"];
    return (await run("psql", args, { input: text })).trim();
  }
}

export class Redis {
  constructor(site, name, port, { isCluster = false } = {}) {
    Object.assign(this, { site, name, port });
    this.folder = join(site.folder, name);
    mkdirSync(this.folder, { mode: 0o755 });
    const tls = site.authority.make(name);
    this.file = join(this.folder, "redis.conf");
    writeFileSync(this.file, `bind 127.0.0.1
port 0
tls-port ${port}
tls-cert-file ${tls.cert}
tls-key-file ${tls.key}
tls-ca-cert-file ${site.authority.file}
tls-auth-clients no
tls-replication yes
masterauth ${site.passwords.REDIS}
dir ${this.folder}
save ""
enable-debug-command local
maxmemory 256mb
maxmemory-policy noeviction
${isCluster ? "cluster-enabled yes\ntls-cluster yes\n" : ""}`);
    this.program = new Program(name, join(site.folder, `${name}.log`), () => ({ command: "redis-server", args: [this.file], cwd: this.folder }));
  }
  async start() {
    this.program.start();
    await until(`${this.name} answers`, START_LIMIT_S, async () => /PONG|NOAUTH/.test(await this.cli("ping")));
  }
  // As `default`, past the movable address, with or without its password.
  async cli(...args) {
    const base = ["-h", "127.0.0.1", "-p", String(this.port), "--tls", "--cacert", this.site.authority.file];
    const ask = (env) => run("redis-cli", [...base, ...args], { env: { ...process.env, ...env } });
    const said = await ask({});
    return /NOAUTH/.test(said) ? ask({ REDISCLI_AUTH: this.site.passwords.REDIS }) : said;
  }
  async follow(primary) {
    await this.cli("replicaof", "127.0.0.1", String(primary.port));
    await until(`${this.name} follows`, START_LIMIT_S, async () => /master_link_status:up/.test(await this.cli("info", "replication")));
  }
}
