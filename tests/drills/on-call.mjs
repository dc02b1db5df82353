// An exercise for whoever is on call: one drill, chosen at random, breaks an installation in miniature, and a person mends
// it with the manual alone. It does not say which drill it is before the end. docs/drills.md says how to use it.
import { createHash, randomInt } from "node:crypto";
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { giveClock } from "./clock.mjs";
import { missing, untilExact } from "./exact.mjs";
import { MACHINES } from "./installation.mjs";
import { readme, typedBy, TOOLS, wakingOf, writeShell } from "./on-call-shell.mjs";
import { checkPage } from "./operator.mjs";
import { afterRestart, makeCluster } from "./redis-drills.mjs";
import { ALL, only, runAndEnd, Session } from "./session.mjs";
import { commit } from "./table.mjs";
import { breath, seconds } from "./waiting.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;
const LOOK_EVERY_MS = 2_000;
const NOTES = join(ROOT, "target", "on-call.json"); // a line for each exercise

// Drills that are not for a person.
const LEFT_OUT = [
  "Redis wiped", // a worker has rebuilt all counts before anyone could look
  "Postgres restored to an earlier time", // how Postgres recovers to a time is in its own manual
  "A rolling restart behind HAProxy", // nothing is broken
];

const seed = process.env.SEED ?? String(randomInt(1_000_000));
const number = Number(process.env.NUMBER ?? 1);

// The drill with this number, in an order drawn from the seed.
function choose(site) {
  const rank = ({ name }) => createHash("sha256").update(`${seed}/${name}`).digest("hex");
  const fit = ALL.filter((one) => !LEFT_OUT.includes(one.name) && (!only || only.test(one.name)) && !one.needs?.(site));
  const order = fit.map((one) => [rank(one), one]).sort(([a], [b]) => (a < b ? -1 : 1));
  const one = order[number - 1]?.[1];
  if (!one) throw new Error(`NUMBER is 1 to ${order.length}, not ${process.env.NUMBER ?? number}`);
  return one;
}

class Exercise {
  constructor(session) {
    this.session = session;
    this.site = session.site;
    this.wrong = ["nothing was seen yet"];
    this.early = 0; // how often `done` came before all answered again
    this.end = new Promise((resolve) => { this.finish = resolve; });
  }
  async listen() {
    const socket = join(this.site.folder, "exercise");
    this.server = http.createServer(async (request, answer) => {
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const said = Buffer.concat(chunks).toString().trim();
      try {
        answer.end(`${await this.#asked(request.url.slice(1), said)}\n`);
      } catch (error) {
        answer.writeHead(400).end(`${error.message}\n`);
      }
    });
    await new Promise((resolve) => this.server.listen(socket, resolve));
    return socket;
  }
  async #asked(name, said) {
    const { site, session } = this;
    const words = said.split(/\s+/).filter(Boolean);
    const machines = Object.fromEntries([site.postgres, site.standby, site.redis, site.replica, site.cluster].map((one) => [one.name, one]));
    const usage = (isRight) => {
      const [, given] = TOOLS.find(([tool]) => tool === name);
      if (!isRight) throw new Error(`usage: ${name} ${given}`);
    };
    switch (name) {
      case "alerts":
        return wakingOf(await site.prometheus.alerts(), "No alert fires.");
      case "processes":
        return this.#processes();
      case "move-name": {
        const [store, machine] = words;
        usage(["postgres", "redis"].includes(store) && machines[machine]?.name.startsWith(store));
        await site.moveName(store, machines[machine]);
        return `The host name of ${store} leads to ${machine} now. Connections that are open stay where they are.`;
      }
      case "new-certificate": {
        usage(machines[words[0]]);
        const { key, cert } = site.authority.make(words[0], machines[words[0]].owner);
        return `${cert} and ${key} are new.`;
      }
      case "set-clock":
        usage(site.clocks[words[0]]);
        site.clocks[words[0]].set(0);
        return `The clock of ${words[0]} is right.`;
      case "give-backend":
        usage(/^tally_[0-9a-f]{64}$/.test(words[0]));
        await session.load.ask("useKey", words[0]);
        return "The backend votes with this key now.";
      case "cause":
        return this.#state(said);
      case "done":
        return this.#done(said);
      case "give-up":
        if (!this.wokenAt) throw new Error("Nothing woke you yet. Ctrl-C ends the exercise.");
        return this.#finish({ gaveUp: true });
      default:
        throw new Error(`there is no ${name}`);
    }
  }
  #processes() {
    const { site } = this;
    const programs = [...site.servers, ...site.workers, ...[site.postgres, site.standby, site.redis, site.replica, site.cluster].map((one) => one.program), site.proxy, site.prometheus.program];
    const rows = programs.filter((one) => one.runs).map((one) => {
      const said = execFileSync("ps", ["-o", "pid=,stat=,etime=,args=", "-p", String(one.pid)]).toString().trim();
      return `${one.name.padEnd(12)} ${said}`;
    });
    return ["program        PID STAT ELAPSED COMMAND", ...rows].join("\n");
  }
  // The first cause that is named counts.
  #state(text) {
    if (!this.wokenAt) throw new Error("Nothing woke you yet.");
    if (!text) throw new Error("usage: cause 'what is wrong, in your words'");
    if (this.cause) return `Noted before: ${this.cause}`;
    this.cause = text;
    this.causeAfter = seconds(this.wokenAt);
    return "Noted.";
  }
  async #done(text) {
    if (text) this.#state(text);
    if (!this.cause) throw new Error("Say what was wrong: done 'what was wrong, in your words'");
    await this.#look();
    await breath(LOOK_EVERY_MS);
    await this.#look();
    if (this.wrong.length) {
      this.early++;
      throw new Error(`Not yet: ${this.wrong.join("; ")}. The exercise goes on.`);
    }
    return this.#finish({});
  }
  // What keeps it from being mended, as anyone can see from outside.
  async #look() {
    const wrong = [];
    for (const [at, machine] of MACHINES.entries()) {
      const status = await this.site.readyOf(at).then((answer) => answer.status, () => "does not answer");
      if (status !== "ready") wrong.push(`the server on ${machine}: ${status}`);
      const worker = `http://127.0.0.1:${this.site.workerPorts[at]}/health/ready`;
      if (!await fetch(worker, { signal: AbortSignal.timeout(LOOK_EVERY_MS) }).then((answer) => answer.ok, () => false)) wrong.push(`the worker on ${machine} is not ready`);
    }
    const votes = await this.session.load.ask("acknowledgedNow");
    if (votes === this.votes) wrong.push("no vote is acknowledged");
    this.votes = votes;
    if (wrong.length) this.readyAfter = undefined;
    else this.readyAfter ??= seconds(this.wokenAt);
    this.wrong = wrong;
  }
  async watch() {
    while (!this.isFinished) {
      await this.#look();
      await breath(LOOK_EVERY_MS);
    }
  }
  async #finish(more) {
    if (this.isFinished) throw new Error("The exercise is at its end.");
    this.isFinished = true;
    const { one, cause, causeAfter, readyAfter, early } = this;
    const result = { name: one.name, breaks: one.breaks, page: one.page, cause, causeAfter, doneAfter: seconds(this.wokenAt), readyAfter, early, ...more };
    if (!more.gaveUp) Object.assign(result, await this.#judge());
    result.typed = typedBy(this.site);
    mkdirSync(join(ROOT, "target"), { recursive: true });
    appendFileSync(NOTES, `${JSON.stringify({ at: new Date().toISOString(), commit: commit(), seed, number, only: process.env.ONLY, ...result })}\n`);
    this.finish(result);
    return verdict(result);
  }
  // Whether all is exact, and what is still not as it should be.
  async #judge() {
    const { site, one, session: { load } } = this;
    for (const [a, b] of [["postgres", "standby"], ["redis", "replica"]]) if (site.leads[a] === site[b]) [site[a], site[b]] = [site[b], site[a]];
    await load.ask("pause");
    const lost = await missing(site, load);
    await load.ask("forget", lost);
    const said = await site.api("/v1/status").then(({ lost_votes: { total } }) => total, () => undefined);
    const result = { lost: lost.length, lostByTally: said, left: [] };
    try {
      result.votes = await untilExact(site, load);
    } catch (error) {
      result.inexact = error.message;
    }
    const checks = [
      () => afterRestart(site),
      () => { for (const [machine, { ahead }] of Object.entries(site.clocks)) if (ahead) throw new Error(`the clock of ${machine} is ${ahead} s ahead`); },
      async () => {
        const open = await site.postgres.sql("select pid::text from pg_stat_activity where xact_start < now() - interval '1 minute' and backend_type = 'client backend' union all select gid from pg_prepared_xacts");
        if (open) throw new Error(`a transaction stays open: ${open.replaceAll("\n", ", ")}`);
      },
      async () => { if (/vacuum freeze/.test(await site.operator.quietly("with worker tally doctor || true"))) throw new Error("`tally doctor` still asks for `vacuum freeze`"); },
      () => one.check?.(site, load, result),
      () => one.checkByHand?.(site),
    ];
    for (const check of checks) await Promise.resolve().then(check).catch((error) => result.left.push(error.message));
    return result;
  }
}

function verdict(result) {
  const after = (time) => (time === undefined ? "never" : `${time.toFixed(0)} s after you were woken`);
  const lines = [`It was: ${result.name} (${result.page}). What broke: ${result.breaks}.`, `You said: ${result.cause ?? "nothing"} (${after(result.causeAfter)}).`];
  if (result.gaveUp) lines.push(`You gave up ${after(result.doneAfter)}.`);
  else {
    lines.push(`All programs were ready, and votes taken, ${after(result.readyAfter)}; done ${after(result.doneAfter)}.${result.early ? ` You said so too early: ${result.early}.` : ""}`);
    if (result.lost) lines.push(`${result.lost} acknowledged votes are not in the ledger any more; Tally says ${result.lostByTally}.`);
    lines.push(result.inexact ? `NOT exact: ${result.inexact}` : `All is exact: ${result.votes} votes, each counted once.`);
    for (const left of result.left) lines.push(`NOT as it should be: ${left}`);
  }
  return lines.join("\n");
}

async function main() {
  for (const one of ALL) checkPage(one.page);
  const say = (text) => console.log(text);
  const session = new Session();
  say("An installation starts. Ctrl-C ends everything.");
  await session.open();
  const { site } = session;
  const exercise = new Exercise(session);
  exercise.one = choose(site);
  await makeCluster(site);
  for (const machine of MACHINES) await giveClock(site, machine);
  mkdirSync(join(site.folder, "machines"));
  const socket = await exercise.listen();
  writeShell(site, socket);
  const file = join(site.folder, "README");
  const tell = (waking) => writeFileSync(file, readme(site, waking));
  tell("Nothing woke you yet.");
  say(`${file} says what you have.\nAbout 200 votes a second come. Within some minutes something wakes you.`);

  const { alerts } = await session.break(exercise.one);
  // A script leaves a machine that is gone alone. A person would start it again.
  site.gone = exercise.one.gone?.(site);
  tell("Nothing woke you yet.");
  if (alerts.length) await site.prometheus.fires(alerts);
  else await exercise.one.notice?.(site, session.load);
  exercise.wokenAt = performance.now();
  const firing = alerts.length ? await site.prometheus.alerts() : [];
  tell(wakingOf(firing, exercise.one.report));
  say(`\n${readme(site, wakingOf(firing, exercise.one.report))}`);
  exercise.watch().catch((error) => say(`the watch failed: ${error.message}`));
  const result = await exercise.end;
  say(`\n${verdict(result)}\nAgain: SEED=${seed} NUMBER=${number}${process.env.ONLY ? ` ONLY='${process.env.ONLY}'` : ""}. The next: NUMBER=${number + 1}. Noted in target/on-call.json.`);
  await breath(); // the answer to the person goes first
  exercise.server.close();
  await session.close();
  return 0;
}

runAndEnd(main);
