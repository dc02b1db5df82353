// Asks a real Prometheus what the dashboard and the alerts ask, and sees the alerts fire that stores and programs that
// are gone make. alerts.test.mjs has the others.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { alerts, questions } from "./files.mjs";
import { ask, childrenOf, close, ends, fires, firing, get, goOn, hang, open, prometheus, redis, server, serverAgain, stop, stores, streaming, until, worker, workerAgain } from "./installation.mjs";

before(open);
after(close);

test("Prometheus takes the alerts, and none fires while all is well", async () => {
  const { data } = await get(`${prometheus.base}/api/v1/rules`);
  const rules = data.groups.flatMap((group) => group.rules);
  assert.deepEqual(rules.map(({ name }) => name), alerts().map(({ name }) => name));
  await until("each rule was evaluated", async () => {
    const { data: now } = await get(`${prometheus.base}/api/v1/rules`);
    return now.groups.flatMap((group) => group.rules).every(({ health }) => health !== "unknown");
  });
  const { data: seen } = await get(`${prometheus.base}/api/v1/rules`);
  for (const { name, health, lastError } of seen.groups.flatMap((group) => group.rules)) assert.equal(health, "ok", `${name}: ${lastError}`);
  assert.deepEqual(await firing(), []);
});

test("each alert is seen to fire on real metrics: here, or by a drill", () => {
  const filesIn = (folder) => readdirSync(folder).filter((name) => name.endsWith(".mjs")).map((name) => readFileSync(new URL(name, folder), "utf8")).join("");
  const [here, drills] = [new URL(".", import.meta.url), new URL("../drills/", import.meta.url)].map(filesIn);
  for (const { name } of alerts()) assert.ok(here.includes(`fires("${name}"`) || drills.includes(`"${name}"`), name);
});

test("promtool finds nothing wrong with the metrics, and a key that is none gets 401", async () => {
  const url = `http://127.0.0.1:${server.port}/metrics`;
  assert.equal((await fetch(url, { headers: { authorization: `Bearer tally_${"0".repeat(64)}` } })).status, 401);
  const served = await fetch(url, { headers: { authorization: `Bearer ${stores.key}` } });
  for (const answer of [served, await fetch(`http://127.0.0.1:${worker.port}/metrics`)]) {
    const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input: await answer.text(), encoding: "utf8" });
    assert.equal(status, 0, stdout + stderr);
  }
});

test("each metric of an alert has series", async () => {
  const selectors = alerts().flatMap(({ name, expr }) => [...expr.matchAll(/\b(?:tally_|process_|up\b)[a-z_]*(?:\{[^}]*\})?/g)].map(([selector]) => ({ name, selector })));
  assert.ok(selectors.length > alerts().length);
  for (const { name, selector } of selectors) await until(`${name}: ${selector} has series`, async () => (await ask(selector)).length > 0);
});

for (const { panel, expr } of questions()) {
  test(`${panel}: ${expr}`, () =>
    // NaN is no figure: a quantile of nothing.
    until(`${expr} has a value`, async () => (await ask(expr)).some(({ value: [, value] }) => value !== "NaN")));
}

test("a full Redis: TallyRedisFull, and not TallyRedisUnavailable", async () => {
  await redis("CONFIG", "SET", "maxmemory", "1");
  await fires("TallyRedisFull");
  await ends("TallyRedisUnavailable");
  await redis("CONFIG", "SET", "maxmemory", "0");
  await ends("TallyRedisFull");
});

test("a Redis that hangs: TallyRedisUnavailable", async () => {
  const pid = Number(/process_id:(\d+)/.exec(await redis("INFO", "server"))[1]);
  hang(pid);
  await fires("TallyRedisUnavailable");
  goOn();
  await ends("TallyRedisUnavailable");
});

test("no worker: TallyDown and TallyNoWorker", async () => {
  await stop(worker);
  await fires("TallyDown", { job: "tally-worker" });
  await fires("TallyNoWorker");
  await workerAgain();
  await ends("TallyNoWorker");
  await ends("TallyDown");
});

test("a Postgres that hangs: TallyPostgresUnavailable, and votes fail", async () => {
  hang(stores.postgres, ...childrenOf(stores.postgres));
  await fires("TallyPostgresUnavailable");
  await fires("TallyVotesFailed", { why: "no_answer" });
  goOn();
  await ends("TallyPostgresUnavailable");
});

test("no server: TallyNoServer", async () => {
  streaming.abort();
  await stop(server);
  await fires("TallyNoServer");
  await serverAgain();
  await ends("TallyNoServer");
});
