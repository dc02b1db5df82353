// Starts Tally as the manifests of deploy/kubernetes say, on real stores, and does to it what Kubernetes does.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { after, before, test } from "node:test";
import { named, render, seconds } from "./manifests.mjs";
import { Pod } from "./pods.mjs";
import { IS_ROOT, Laboratory, PASSWORDS, Postgres, Redis, eventually, get, sleep } from "./stores.mjs";

// How long a node's kube-proxy or a proxy may go on sending to a pod that ends. A guess: it depends on the cluster.
const ENDPOINTS_LAG_MS = 3_000;
const CLIENTS = 8;

const objects = [...render("example"), ...render("example/migrate")];
const [server, worker, migration] = [named(objects, "Deployment", "tally-server"), named(objects, "Deployment", "tally-worker"), named(objects, "Job", "tally-migrate")].map((one) => one.spec.template);
const drain = seconds(server.spec.containers[0].env.find((one) => one.name === "TALLY_DRAIN").value);

const laboratory = new Laboratory();
let bin, postgres, redis, apiKey;
let servers = [];
let workers = [];
const secrets = {};
const all = [];

before(async () => {
  bin = laboratory.programs();
  [postgres, redis] = await Promise.all([Postgres.start(laboratory), Redis.start(laboratory)]);
  secrets.owner = { "database-url": `${postgres.url("tally", PASSWORDS.OWNER_PASSWORD)}\n` };
  secrets.server = { "database-url": postgres.url("server", PASSWORDS.SERVER_PASSWORD), "redis-url": redis.url("server"), "cookie-keys": "c".repeat(64) };
  secrets.worker = { "database-url": postgres.url("worker", PASSWORDS.WORKER_PASSWORD), "redis-url": redis.url("worker") };
});
after(() => laboratory.end());

async function pod(kind, name) {
  const template = { server, worker, owner: migration }[kind];
  // The proxy of this test is on loopback.
  const env = kind === "server" ? { TALLY_PROXIES: "127.0.0.1/32" } : {};
  const one = await Pod.start(laboratory, bin, name, template, secrets[kind], env);
  all.push(one);
  return one;
}
const isReady = (pods) => pods.every((one) => one.ready);

test("the migration ends well, also the second time, with the owner's secret alone", async () => {
  for (const name of ["migrate-1", "migrate-2"]) {
    const job = await pod("owner", name);
    const { code } = await job.program.exit;
    assert.equal(code, 0, job.program.said());
  }
  postgres.makeLogins();
});

test("two servers and two workers get ready by their probes", async () => {
  servers = await Promise.all([pod("server", "server-1"), pod("server", "server-2")]);
  workers = await Promise.all([pod("worker", "worker-1"), pod("worker", "worker-2")]);
  await eventually("all are ready", () => isReady([...servers, ...workers]), 30_000);
  for (const one of [...servers, ...workers]) assert.doesNotMatch(one.program.said(), /names no setting/);
});

test("the programs have no rights, and cannot write anywhere", { skip: !IS_ROOT && "only root can become another user" }, () => {
  for (const one of [servers[0], workers[0]]) {
    const status = readFileSync(`/proc/${one.program.child.pid}/status`, "utf8");
    const field = (name) => new RegExp(`^${name}:\\s+(\\S+)`, "m").exec(status)[1];
    assert.equal(field("Name"), one.container.command[0]);
    assert.equal(field("Uid"), `${server.spec.securityContext.runAsUser}`);
    assert.match(field("CapEff") + field("CapBnd") + field("CapPrm"), /^0+$/);
    assert.equal(field("NoNewPrivs"), "1");
    const written = one.exec(["sh", "-c", "for at in / /tmp /run /dev/shm /var/tmp . /run/secrets/tally; do touch $at/x 2>/dev/null && echo $at; done; cat /run/secrets/tally/redis-url"]);
    assert.equal(written.stdout, secrets[one.container.name]["redis-url"]);
  }
});

async function post(path, body, token, base = servers[0], agent = undefined, from = "198.51.100.7") {
  return new Promise((resolve) => {
    const headers = { "content-type": "application/json", "x-forwarded-for": from, authorization: `Bearer ${token}`, ...(agent ? {} : { connection: "close" }) };
    const request = http.request(base.url(path), { method: "POST", headers, agent: agent ?? false, timeout: 15_000 }, (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () => resolve({ status: answer.statusCode, text }));
      answer.on("error", (error) => resolve({ status: 0, text: error.code }));
    });
    request.on("timeout", () => request.destroy(new Error("no answer")));
    request.on("error", (error) => resolve({ status: 0, text: error.code ?? error.message }));
    request.end(JSON.stringify(body));
  });
}

test("a rollout loses no vote, though a Service goes on sending to a pod that ends", async () => {
  const made = laboratory.run([`${bin}/tally`, "key", "create", "test", "--scope", "admin,vote,report"], { env: { DATABASE_URL: secrets.owner["database-url"].trim() } });
  apiKey = /tally_[0-9a-f]{64}/.exec(made)[0];
  const item = JSON.parse((await post("/v1/items", { name: "A first item" }, apiKey)).text).id;

  // The endpoints that clients know: late.
  let endpoints = [...servers];
  let goesOn = true;
  const lost = [];
  let stored = 0;
  const client = async (number) => {
    // Half of them keep their connections.
    const agent = number % 2 ? new http.Agent({ keepAlive: true, maxSockets: 1 }) : undefined;
    for (let vote = 0; goesOn; vote += 1) {
      const base = endpoints[(number + vote) % endpoints.length];
      const answer = await post(`/v1/items/${item}/votes`, { voter_id: `voter-${number}-${vote}` }, apiKey, base, agent, `203.0.${number}.${vote % 250}`);
      if (answer.status === 201) stored += 1;
      else lost.push({ ...answer, by: base.name });
      await sleep(10);
    }
    agent?.destroy();
  };
  const clients = Array.from({ length: CLIENTS }, (_, number) => client(number));

  // Meanwhile the workers, one after the other.
  const rolled = (async () => {
    for (const [place, old] of [...workers].entries()) {
      const next = await pod("worker", `worker-${place + 3}`);
      await eventually("the new worker is ready", () => next.ready, 30_000);
      const end = await old.stop();
      assert.equal(end.killed, false, `${old.name} outlived its ${old.grace} s`);
      assert.equal(end.code, 0, old.program.said());
      console.log(`${old.name} ended ${end.seconds.toFixed(1)} s after SIGTERM; it had ${old.grace} s`);
      workers = workers.map((one) => (one === old ? next : one));
    }
  })();

  const ends = [];
  for (const [place, old] of [...servers].entries()) {
    const next = await pod("server", `server-${place + 3}`);
    await eventually("the new server is ready", () => next.ready, 30_000);
    endpoints = [...endpoints, next];
    ends.push(old.stop().then((end) => ({ ...end, old })));
    // At its first look after SIGTERM, readiness says so.
    const answer = await eventually("it drains", async () => (await get(old.url("/health/ready"))).status === 503, 2_000);
    assert.ok(answer);
    await sleep(ENDPOINTS_LAG_MS);
    endpoints = endpoints.filter((one) => one !== old);
    servers = servers.map((one) => (one === old ? next : one));
  }
  for (const { old, code, killed, seconds: took } of await Promise.all(ends)) {
    assert.equal(killed, false, `${old.name} outlived its ${old.grace} s`);
    assert.equal(code, 0, old.program.said());
    assert.ok(took >= drain && took < old.grace, `${old.name} took ${took} s`);
    console.log(`${old.name} ended ${took.toFixed(1)} s after SIGTERM; it had ${old.grace} s`);
  }
  await rolled;
  goesOn = false;
  await Promise.all(clients);
  assert.deepEqual(lost, []);
  console.log(`${stored} votes, none lost`);

  await eventually("all votes are saved", async () => JSON.parse((await get(servers[0].url(`/v1/items/${item}`), 3_000, { authorization: `Bearer ${apiKey}` })).text).saved.vote_count === stored);
  const audit = workers[0].exec(["tally", "audit"]);
  assert.equal(audit.status, 0, audit.stdout + audit.stderr);
});

test("while a store is unavailable no pod is restarted, and one that starts waits", async () => {
  // Redis hangs: the servers stay in the Service.
  redis.program.child.kill("SIGSTOP");
  const { periodSeconds, failureThreshold } = server.spec.containers[0].readinessProbe;
  await sleep((periodSeconds * failureThreshold + 1) * 1_000);
  assert.ok(isReady(servers), "servers go on without Redis");
  redis.program.child.kill("SIGCONT");

  await postgres.program.stop("SIGQUIT");
  const late = await Promise.all([pod("server", "server-late"), pod("worker", "worker-late")]);
  await eventually("nobody is ready", () => ![...servers, ...workers].some((one) => one.ready), 30_000);
  await eventually("the late ones pass their startup probe", () => late.every((one) => one.startedAfterMs));
  await sleep(2_000);
  assert.ok(!late.some((one) => one.ready));
  await postgres.serve();
  await eventually("all are ready again", () => isReady([...servers, ...workers, ...late]), 40_000);
});

test("no probe was slow, and none would have had a container killed", () => {
  const probed = all.filter((one) => one.kubelet);
  for (const one of probed) assert.equal(one.killedFor, undefined, one.name);
  const answers = probed.flatMap((one) => one.answersMs).sort((a, b) => a - b);
  const at = (part) => answers[Math.ceil(answers.length * part) - 1].toFixed(0);
  // Half of what the kubelet waits for an answer. A few may be slower: the test and all programs share few processors.
  assert.ok(at(0.95) < server.spec.containers[0].readinessProbe.timeoutSeconds * 500, `p95 is ${at(0.95)} ms`);
  const most = (pods) => Math.max(...pods.map((one) => /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${one.program.child.pid}/status`, "utf8"))[1] / 1_024)).toFixed(0);
  console.log(`memory: a server at most ${most(servers)} MiB, a worker ${most(workers)} MiB`);
  console.log(`${answers.length} probes: p95 ${at(0.95)} ms, slowest ${at(1)} ms`);
});
