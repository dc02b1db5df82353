// Both stores fail over behind deploy/haproxy-stores.cfg: Redis by Sentinel, with the rights that scripts/redis-users
// gives to replicas and Sentinel and no others; Postgres by a person who promotes the standby.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { freePort } from "../ports.mjs";
import { Laboratory, PASSWORDS, Postgres, Redis, Server, deployed, eventually, get, installed, redisUsers } from "./stores.mjs";

const skip = !installed("haproxy") && "NOT CHECKED: deploy/haproxy-stores.cfg, haproxy is not installed";
const SENTINELS = 3;
const laboratory = new Laboratory();
let bin, postgres, standby, one, two, ports, server, item;
const sentinels = [];
const usersOf = Object.fromEntries(["server", "worker", "tally"].map((login) => [login, PASSWORDS[`${login === "tally" ? "OWNER" : login.toUpperCase()}_PASSWORD`]]));
const environment = (login) => ({ DATABASE_URL: postgres.url(login, usersOf[login], "tally", ports.postgres), REDIS_URL: one.url(login, ports.redis) });
const seconds = (since) => ((Date.now() - since) / 1_000).toFixed(1);

async function startSentinel(number) {
  const folder = laboratory.subfolder(`sentinel-${number}`);
  const file = join(folder, "sentinel.conf");
  const port = await freePort();
  writeFileSync(file, [
    `port ${port}`, "bind 127.0.0.1", `dir ${folder}`,
    `sentinel monitor tally 127.0.0.1 ${one.port} 2`,
    "sentinel auth-user tally sentinel", `sentinel auth-pass tally ${PASSWORDS.SENTINEL_PASSWORD}`,
    "sentinel down-after-milliseconds tally 2000", "sentinel failover-timeout tally 10000", "",
  ].join("\n"));
  sentinels.push({ port, program: laboratory.start(`sentinel-${number}`, [installed("redis-server"), file, "--sentinel"]) });
}
const vote = async (voter) => (await server.post(`/v1/items/${item}/votes`, { voter_id: voter })).body;
/** Waits until votes are taken and counted, and returns the last one. */
const votesAgain = (name) => {
  let number = 0;
  return eventually("a vote is counted", async () => {
    const answer = await vote(`${name}-${(number += 1)}`);
    return Number.isInteger(answer.vote_count) && answer;
  }, 40_000);
};
const audit = () => laboratory.run([`${bin}/tally`, "audit"], { env: environment("worker") });

before(async () => {
  if (skip) return;
  bin = laboratory.programs();
  const replicas = ["masteruser replica", `masterauth ${PASSWORDS.REPLICA_PASSWORD}`, "repl-diskless-sync-delay 0"];
  [postgres, one] = await Promise.all([Postgres.start(laboratory), Redis.start(laboratory, "redis-1", replicas)]);
  two = await Redis.start(laboratory, "redis-2", [...replicas, `replicaof 127.0.0.1 ${one.port}`]);
  // As the file says.
  postgres.sql("postgres", "create role proxy login connection limit 10");
  postgres.allow("host postgres proxy 127.0.0.1/32 trust");
  postgres.allow("host replication replica 127.0.0.1/32 scram-sha-256");
  standby = await postgres.standby();
  await Promise.all(Array.from({ length: SENTINELS }, (_, number) => startSentinel(number + 1)));

  ports = { postgres: await freePort(), redis: await freePort() };
  const file = join(laboratory.folder, "haproxy.cfg");
  writeFileSync(file, deployed("haproxy-stores.cfg", [
    ["127.0.0.1:5432", `127.0.0.1:${ports.postgres}`], ["127.0.0.1:6379", `127.0.0.1:${ports.redis}`],
    ["10.0.0.21:5432", `127.0.0.1:${postgres.port}`], ["10.0.0.22:5432", `127.0.0.1:${standby.port}`],
    ["10.0.0.31:6379", `127.0.0.1:${one.port}`], ["10.0.0.32:6379", `127.0.0.1:${two.port}`],
    ["PROXY_PASSWORD", PASSWORDS.PROXY_PASSWORD],
  ]));
  laboratory.run([installed("haproxy"), "-c", "-f", file]);
  laboratory.start("haproxy", [installed("haproxy"), "-db", "-f", file]);
  await eventually("haproxy leads to the primary", () => postgres.sql("postgres", "select pg_is_in_recovery()", ports.postgres) === "f");

  laboratory.run([`${bin}/tally`, "migrate"], { env: environment("tally") });
  postgres.makeLogins();
  server = await Server.start(laboratory, bin, "server", environment("server"));
  laboratory.start("worker", [`${bin}/sync-worker`], { env: environment("worker") });
  item = (await server.post("/v1/items", { name: "A first item" })).body.id;
});
after(() => laboratory.end());

test("scripts/redis-users prints no further user without a further password", () => {
  const without = Object.fromEntries(Object.entries(PASSWORDS).filter(([name]) => !/REPLICA|SENTINEL|PROXY/.test(name)));
  const [all, fewer] = [redisUsers(laboratory), redisUsers(laboratory, without)];
  assert.ok(all.startsWith(fewer));
  const names = (text) => [...text.matchAll(/^user (\S+)/gm)].map(([, name]) => name);
  assert.deepEqual(names(fewer), ["default", "server", "worker", "operator"]);
  assert.deepEqual(names(all).slice(4), ["replica", "sentinel", "proxy"]);
});

test("Redis fails over by Sentinel, and the proxy follows", { skip }, async () => {
  await eventually("the replica is there", () => /master_link_status:up/.test(two.ask("info", "replication")));
  // All three know of each other, over Redis' channel.
  const asked = (port, ...words) => laboratory.run([installed("redis-cli"), "-p", `${port}`, "sentinel", ...words]);
  await eventually("the Sentinels know of each other and of the replica", () =>
    sentinels.every(({ port }) => /num-other-sentinels\n2\n/.test(asked(port, "master", "tally")) && /num-slaves\n1\n/.test(asked(port, "master", "tally"))), 40_000);
  await votesAgain("before");

  const begin = Date.now();
  await one.program.stop();
  await eventually("the replica is the primary", () => /role:master/.test(two.ask("info", "replication")), 40_000);
  const promoted = seconds(begin);
  await votesAgain("after-redis");
  await eventually("the server is ready", async () => (await get(`${server.url}/health/ready`)).text.includes('"ready"'));
  console.log(`Redis killed: promoted after ${promoted} s, votes counted again after ${seconds(begin)} s`);

  await one.serve();
  await eventually("the old primary is a replica now", () => /role:slave[\s\S]*master_link_status:up/.test(one.ask("info", "replication")), 40_000);
  await votesAgain("with-the-old-one");
  // Neither a replica nor Sentinel nor the proxy wanted a right that it does not have.
  for (const redis of [one, two]) assert.doesNotMatch(redis.ask("acl", "log"), /username\n(replica|sentinel|proxy)/);
  // Redis notes who is refused, so the line above sees something.
  const refused = laboratory.run([installed("redis-cli"), "-p", `${two.port}`, "--user", "proxy", "get", "x"], { env: { REDISCLI_AUTH: PASSWORDS.PROXY_PASSWORD }, mayFail: true });
  assert.match(refused.stdout + refused.stderr, /NOPERM/);
  assert.match(two.ask("acl", "log"), /username\nproxy/);
  await eventually("an audit finds nothing wrong", () => audit());
});

test("Postgres fails over by hand, the proxy follows, and two primaries are one too many", { skip }, async () => {
  await eventually("the standby has everything", () => postgres.sql("postgres", "select count(*) from pg_stat_replication where pg_current_wal_lsn() = replay_lsn") === "1");
  const begin = Date.now();
  await postgres.program.stop("SIGQUIT");
  standby.sql("postgres", "select pg_promote()");
  await votesAgain("after-postgres");
  console.log(`Postgres stopped and its standby promoted: votes stored and counted again after ${seconds(begin)} s`);
  await eventually("an audit finds nothing wrong", () => audit());
  // The old one comes back, and is a primary too.
  await postgres.serve();
  const through = () => laboratory.run([installed("psql"), postgres.url("admin", "admin0pw", "tally", ports.postgres), "-XAtqc", "select 1"], { env: { PGCONNECT_TIMEOUT: "3" }, mayFail: true });
  await eventually("nobody new is let in", () => through().status !== 0);
  const before = postgres.sql("tally", "select count(*) from vote");
  const answers = [];
  for (let number = 0; number < 20; number += 1) answers.push((await server.post(`/v1/items/${item}/votes`, { voter_id: `with-two-${number}` })));
  // Connections that were let in before go on with the new primary; a vote that needs a new one gets 503.
  console.log(`20 votes beside two primaries: ${answers.filter((one) => one.status === 201).length} stored; ${JSON.stringify(answers.find((one) => one.status !== 201)?.body)}`);
  assert.equal(postgres.sql("tally", "select count(*) from vote"), before, "no vote goes to the old primary");
  await postgres.program.stop("SIGQUIT");
  await eventually("new ones are let in again", () => through().status === 0);
  await votesAgain("with-one");
  assert.equal(Number(standby.sql("tally", "select count(*) from vote")), (await server.item(item)).vote_count);
});
