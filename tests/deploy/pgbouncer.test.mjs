// All programs of Tally through pgbouncer, as deploy/pgbouncer.ini has it, over TLS to a real Postgres.
import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { freePort } from "../ports.mjs";
import { IS_ROOT, Laboratory, PASSWORDS, Postgres, Redis, Server, deployed, eventually, get, installed } from "./stores.mjs";

const skip = !installed("pgbouncer") && "NOT CHECKED: deploy/pgbouncer.ini, pgbouncer is not installed";
const laboratory = new Laboratory();
let bin, postgres, redis, authority;
const url = (login, port) => postgres.url(login, PASSWORDS[`${login === "tally" ? "OWNER" : login.toUpperCase()}_PASSWORD`], "tally", port);

/** A pgbouncer with this file of ours, and its port. */
async function start(name, more = []) {
  const folder = laboratory.subfolder(name);
  const port = await freePort();
  const users = join(folder, "userlist.txt");
  const logins = ["SERVER", "WORKER", "OPERATOR"].map((one) => `"${one.toLowerCase()}" "${PASSWORDS[`${one}_PASSWORD`]}"\n`);
  writeFileSync(users, [...logins, `"tally" "${PASSWORDS.OWNER_PASSWORD}"\n`].join(""));
  const file = join(folder, "pgbouncer.ini");
  writeFileSync(file, deployed("pgbouncer.ini", [
    ["host=db.example.org port=5432", `host=localhost port=${postgres.port}`],
    ["listen_port = 6432", `listen_port = ${port}`],
    ["/etc/pgbouncer/userlist.txt", users],
    ["/etc/ssl/certs/ca-certificates.crt", authority],
    ...more,
  ]));
  chmodSync(users, 0o600);
  if (IS_ROOT) laboratory.run(["chown", "postgres:", users]);
  const program = laboratory.start(name, [installed("pgbouncer"), file], { user: "postgres" });
  await eventually("pgbouncer listens", () => program.said().includes("process up"));
  return { port, program };
}

before(async () => {
  if (skip) return;
  bin = laboratory.programs();
  [postgres, redis] = await Promise.all([Postgres.start(laboratory), Redis.start(laboratory)]);
  authority = postgres.useTls();
});
after(() => laboratory.end());

test("migrate, serve, sync-worker, audit and doctor work through it", { skip }, async () => {
  const { port, program } = await start("pgbouncer");
  laboratory.run([`${bin}/tally`, "migrate"], { env: { DATABASE_URL: url("tally", port) } });
  postgres.makeLogins();
  const redisOf = (login) => ({ DATABASE_URL: url(login, port), REDIS_URL: redis.url(login) });
  const servers = await Promise.all(["server-1", "server-2"].map((name) => Server.start(laboratory, bin, name, redisOf("server"))));
  const listen = await freePort();
  laboratory.start("worker", [`${bin}/sync-worker`], { env: { ...redisOf("worker"), TALLY_WORKER_LISTEN: `127.0.0.1:${listen}` } });
  await eventually("the worker is ready", async () => (await get(`http://127.0.0.1:${listen}/health/ready`)).status === 200);

  const { body: item } = await servers[0].post("/v1/items", { name: "A first item" });
  const votes = 400;
  const answers = await Promise.all(Array.from({ length: votes }, (_, number) => servers[number % 2].post(`/v1/items/${item.id}/votes`, { voter_id: `voter-${number}` })));
  assert.deepEqual(answers.filter((one) => one.status !== 201), []);
  await eventually("all are saved", async () => (await servers[0].item(item.id)).saved.vote_count === votes);
  laboratory.run([`${bin}/tally`, "audit"], { env: redisOf("worker") });
  const doctor = laboratory.run([`${bin}/tally`, "doctor"], { env: redisOf("worker"), mayFail: true });
  assert.doesNotMatch(doctor.stdout + doctor.stderr, /pooler|pgbouncer/);

  const over = postgres.sql("postgres", "select count(*), count(*) filter (where ssl) from pg_stat_ssl join pg_stat_activity using (pid) where usename in ('server', 'worker')").split("|").map(Number);
  assert.ok(over[0] > 0 && over[0] === over[1], `${over[1]} of ${over[0]} connections are over TLS`);
  console.log(`${votes} votes of two servers; ${over[0]} connections to Postgres, all over TLS`);
  assert.doesNotMatch(program.said(), /unsupported startup parameter/);
});

test("without the parameters that it may drop, a program says what to write there", { skip }, async () => {
  const { port } = await start("pgbouncer-strict", [["ignore_startup_parameters = extra_float_digits, options", ""]]);
  const { status, stderr, stdout } = laboratory.run([`${bin}/tally`, "migrate"], { env: { DATABASE_URL: url("tally", port) }, mayFail: true });
  assert.notEqual(status, 0);
  assert.match(stderr + stdout, /ignore_startup_parameters = extra_float_digits, options/);
});
