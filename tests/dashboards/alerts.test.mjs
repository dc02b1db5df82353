// Sees the alerts fire that neither dashboards.test.mjs nor the drills see, on the metrics of real programs: each after
// what it means was brought about. `for` is 0 here; promtool's tests hold the times.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { close, ends, fires, goOn, hang, open, post, redis, server, serverAgain, session, sql, stores, until, worker, workerAgain } from "./installation.mjs";

const HANG_MS = 400; // less than a server waits for Redis
const FEW_CONNECTIONS = 20;
const BURST_MS = 200;
const SLOW_VOTES = 40;
const SLOW_MS = 700; // less than a vote waits for a lock
const QUEUED_VOTES = 1000;
const QUEUED_REQUESTS = 12; // more votes than wait in a server's queue
const TAKEN_OVER = 5; // the alert's limit is 3
const ANSWER_DELAY_MS = 800; // a flush asks nearly twenty times; the alert's limit is 10 s
const WORKER = { TALLY_SCAN_EVERY: "1s" };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Connections that stay open. `end` closes them.
function connections(port, number) {
  const all = Array.from({ length: number }, () => connect(port, "127.0.0.1").on("error", () => {}));
  return { end: () => all.forEach((one) => one.destroy()) };
}

// A way to this port on which answers come after `delay`.
async function slowed(port) {
  const late = { delay: 0 };
  const proxy = createServer((client) => {
    const store = connect(port, "127.0.0.1");
    client.pipe(store);
    store.on("data", (data) => setTimeout(() => client.writable && client.write(data), late.delay));
    for (const [one, other] of [[client, store], [store, client]]) one.on("error", () => {}).on("close", () => other.destroy());
  });
  proxy.listen(0, "127.0.0.1").unref();
  await once(proxy, "listening");
  late.port = proxy.address().port;
  return late;
}

before(open);
after(close);

test("someone without the right tries again and again: TallyActsRefused", async () => {
  const made = execFileSync(join(process.env.DASHBOARDS_TEST_PROGRAMS, "tally"), ["key", "create", "voting", "--scope", "vote", "--json"], { env: { ...process.env, ...stores.env } });
  const { key } = JSON.parse(made);
  for (let at = 0; at < 20; at++) assert.equal(await post("/v1/items", { name: "x" }, key), 403);
  await fires("TallyActsRefused");
});

test("votes wait for a lock: TallyVotesSlow", async () => {
  for (let round = 0; round < 4; round++) {
    const lock = await session("begin; lock table vote in access exclusive mode");
    const votes = Array.from({ length: SLOW_VOTES }, (_, at) => post("/v1/items/1/votes", { voter_id: `slow-${round}-${at}` }));
    await pause(SLOW_MS);
    await lock.end();
    await Promise.all(votes);
  }
  await fires("TallyVotesSlow");
});

test("more votes than a server's queue takes: TallyVotesRefused", async () => {
  for (let round = 0; round < 3; round++) {
    const lock = await session("begin; lock table vote in access exclusive mode");
    const all = Array.from({ length: QUEUED_REQUESTS }, (_, request) => {
      const votes = Array.from({ length: QUEUED_VOTES }, (_, at) => ({ item_id: 1, voter_id: `queued-${round}-${request}-${at}` }));
      return post("/v1/votes", { votes }).catch(() => {});
    });
    await pause(SLOW_MS);
    await lock.end();
    await Promise.all(all);
    await pause(2000); // until Prometheus has looked again
  }
  await fires("TallyVotesRefused");
});

test("Redis cuts connections again and again: TallyRedisComesAndGoes", async () => {
  for (let cut = 0; cut < 12; cut++) {
    await redis("CLIENT", "KILL", "TYPE", "normal");
    await pause(1000);
  }
  await fires("TallyRedisComesAndGoes");
});

test("Redis answers slowly: TallyStreamsBehind", async () => {
  const pid = Number(/process_id:(\d+)/.exec(await redis("INFO", "server"))[1]);
  let isSlow = true;
  const slow = (async () => {
    while (isSlow) {
      hang(pid);
      await pause(HANG_MS);
      goOn();
      await pause(HANG_MS / 20);
    }
  })();
  await fires("TallyStreamsBehind");
  isSlow = false;
  await slow;
});

test("an item whose row is locked cannot be rebuilt: TallyCountsWait", async () => {
  await workerAgain(WORKER);
  const item = sql("insert into item (name) values ('x') returning id");
  const lock = await session(`begin; select from item where id = ${item} for update`);
  await redis("SET", `tally:{${item}}`, "written-by-someone-else");
  // Whoever reads it finds that nobody can read its count.
  await fetch(`http://127.0.0.1:${server.port}/v1/items/${item}`);
  await fires("TallyCountsWait");
  await lock.end();
  await ends("TallyCountsWait");
});

test("a setting that loses votes, little memory for Redis, and most connections taken: what the doctor sees", async () => {
  const used = Number(/used_memory:(\d+)/.exec(await redis("INFO", "memory"))[1]);
  await redis("CONFIG", "SET", "maxmemory", String(Math.ceil(used * 1.1)));
  sql("alter database tally set synchronous_commit = off");
  const free = Number(sql("select current_setting('max_connections')::int * 0.9 - (select count(*) from pg_stat_activity where backend_type = 'client backend')"));
  const others = await Promise.all(Array.from({ length: Math.ceil(free) }, () => session("select 1")));
  // It looks when it starts, and then each minute.
  await workerAgain(WORKER);
  await fires("TallyRedisMemoryRunsOut");
  await fires("TallyConnectionsRunOut");
  await fires("TallyDoctorFindsFaults");
  await Promise.all(others.map((one) => one.end()));
  sql("alter database tally reset synchronous_commit");
  await redis("CONFIG", "SET", "maxmemory", "0");
});

test("a worker that was started again three times: TallyRestarts", async () => {
  for (let at = 0; at < 3; at++) {
    await workerAgain(WORKER);
    await until("it was scraped", async () => (await fetch(`http://127.0.0.1:${worker.port}/metrics`)).ok);
    await pause(2500); // two scrapes
  }
  await fires("TallyRestarts");
});

test("a webhook that nobody answers: TallyEventsLate and TallyEventsDead", async () => {
  await workerAgain({ ...WORKER, TALLY_WEBHOOK_URL: "http://127.0.0.1:9/", TALLY_WEBHOOK_KEYS: "1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100" });
  sql("select want_events('{}'); select note_event('x', 'item:' || number, null, '{}') from generate_series(1, 2) as number");
  sql("update event set happened_at = clock_timestamp() - interval '1 hour'");
  await fires("TallyEventsLate");
  sql("update event set dead_at = clock_timestamp()");
  await fires("TallyEventsDead");
});

test("an audit that was not done for hours: TallyJobNotDone", async () => {
  await workerAgain({ ...WORKER, TALLY_AUDIT_CRON: "0 0 0 1 1 *" });
  sql("update job set succeeded_at = clock_timestamp() - interval '2 hours' where name = 'audit'");
  await workerAgain({ ...WORKER, TALLY_AUDIT_CRON: "0 0 0 1 1 *" });
  await fires("TallyJobNotDone", { job_name: "audit" });
});

test("a table that nobody may write: TallyPassesFail", async () => {
  await workerAgain(WORKER);
  const lock = await session("begin; lock table item in exclusive mode");
  await fires("TallyPassesFail");
  await lock.end();
});

test("more clients than are allowed: TallyConnectionsRefused", async () => {
  await serverAgain({ TALLY_CONNECTIONS_LIMIT: String(FEW_CONNECTIONS) });
  // Prometheus needs a connection too, in between.
  const bursts = setInterval(async () => {
    const open = connections(server.port, FEW_CONNECTIONS * 2);
    await pause(BURST_MS);
    open.end();
  }, 10 * BURST_MS);
  await fires("TallyConnectionsRefused");
  clearInterval(bursts);
  await serverAgain();
});

// A vote that is being written: roll-ups wait for its transaction.
const writer = () => session("begin; insert into vote (item_id, value) values (1, 1)");

test("a worker whose roll-ups are taken over again and again: TallyJobsLost", async () => {
  await workerAgain(WORKER);
  const lost = async () => {
    const metrics = await (await fetch(`http://127.0.0.1:${worker.port}/metrics`)).text();
    return Number(/^tally_job_runs_total\{job_name="roll_up",outcome="lost"\} (\d+)$/m.exec(metrics)[1]);
  };
  // Some runs are those of the stores' own worker, which is not scraped.
  for (let at = 0; await lost() < TAKEN_OVER; at++) {
    assert.ok(at < 10 * TAKEN_OVER, "its runs are not the ones that are taken over");
    const vote = await writer();
    const taken = "update job set fencing_number = fencing_number + 1, holder = 'another', lease_until = clock_timestamp() where name = 'roll_up' and holder <> 'another' returning name";
    // It has the job for longer than a roll-up takes that waits for nobody.
    await until("a roll-up waits", async () => Number(sql("select count(*) from job_run where job = 'roll_up' and ended_at is null and started_at < clock_timestamp() - interval '500 milliseconds'")) > 0 && sql(taken) !== "");
    await vote.end();
    await pause(1000);
  }
  await fires("TallyJobsLost");
});

test("votes that wait for a transaction to be rolled up: TallyWatermarkLags", async () => {
  await workerAgain(WORKER);
  const vote = await writer();
  sql("select setval('vote_id_seq', (select last_value + 600000 from vote_id_seq))");
  await fires("TallyWatermarkLags");
  await vote.end();
  await ends("TallyWatermarkLags");
});

test("a Redis that answers each question late: TallyPassHangs", async () => {
  const late = await slowed(stores.redisPort);
  const url = stores.env.REDIS_URL.replace(`:${stores.redisPort}/`, `:${late.port}/`);
  await workerAgain({ ...WORKER, REDIS_URL: url });
  late.delay = ANSWER_DELAY_MS;
  await fires("TallyPassHangs", { job_name: "flush" });
  late.delay = 0;
  await ends("TallyPassHangs");
});

test("a program with few open files: TallyFilesRunOut", async () => {
  const pid = server.child.pid;
  const files = Number(execFileSync("sh", ["-c", `ls /proc/${pid}/fd | wc -l`]));
  execFileSync("prlimit", ["--pid", String(pid), `--nofile=${Math.ceil(files * 1.1)}`]);
  await fires("TallyFilesRunOut");
});
