// Runs the drills, one after the other, and notes what was seen in target/drills.json and docs/drills.md.
import { readFileSync } from "node:fs";
import { OTHER_DRILLS } from "./other-drills.mjs";
import { endAllSites, Installation } from "./installation.mjs";
import { untilExact } from "./exact.mjs";
import { startLoad, startReady } from "./load.mjs";
import { checkPage } from "./operator.mjs";
import { POSTGRES_DRILLS } from "./postgres-drills.mjs";
import { Prometheus } from "./prometheus.mjs";
import { REDIS_DRILLS } from "./redis-drills.mjs";
import { forgetNotes, note, writeTable } from "./table.mjs";
import { EXACT_LIMIT_S, seconds, START_LIMIT_S, until } from "./waiting.mjs";

const ITEMS = 50;
const RATE = Number(process.env.DRILLS_RATE ?? 200); // votes a second
const VOTES_FIRST = 300; // acknowledged votes before something is broken
const VOTES_AFTER = 100; // and after it is mended, before the load pauses
const READY_LIMIT_MS = 200; // what an answer of /health/ready may take: p99

const ALL = [...REDIS_DRILLS, ...POSTGRES_DRILLS, ...OTHER_DRILLS];
const only = process.env.ONLY ? new RegExp(process.env.ONLY, "i") : undefined;
const isLong = process.env.LONG === "1";

class Session {
  async open() {
    const site = this.site = await Installation.make();
    const items = await Promise.all(Array.from({ length: ITEMS }, async (_, at) => (await site.api("/v1/items", { method: "POST", body: JSON.stringify({ name: `item ${at}` }) })).id));
    const ca = readFileSync(site.authority.file, "utf8");
    this.load = startLoad({ port: site.votesPort, ca, key: site.keys.vote, items, rate: RATE });
    this.ready = startReady({ ports: site.serverPorts });
    this.prometheus = site.prometheus = new Prometheus(site.folder, site.keys.report, site.serverPorts, site.workerPorts);
  }
  async close() {
    await Promise.all([this.load?.end(), this.ready?.end()]);
    [this.load, this.ready] = [];
    await this.site?.end();
    this.site = undefined;
  }
  async #votes(count) {
    const start = await this.load.ask("acknowledgedNow");
    await until(`${count} more votes are acknowledged`, START_LIMIT_S, async () => (await this.load.ask("acknowledgedNow")) >= start + count);
  }
  async drill(one) {
    const { site, load, ready, prometheus } = this;
    const changes = isLong ? [] : one.shortened ?? [];
    const alerts = one.alert ? [one.alert].flat() : [];
    await prometheus.start(alerts[0], changes);
    await load.ask("resume");
    site.operator.typed = [];
    await one.before?.(site, load);
    await load.ask("tallies");
    await this.#votes(VOTES_FIRST);
    const early = await prometheus.firing();
    if (alerts.some((alert) => early.includes(alert))) throw new Error(`${early} fires before anything is broken`);
    await Promise.all([load.ask("tallies"), ready.ask("take")]);

    site.noteLogs();
    let start = performance.now();
    const restart = () => { start = performance.now(); };
    await one.break(site, load, restart);
    const result = { name: one.name, page: one.page, breaks: one.breaks, why: one.why, isShortened: changes.length > 0 };
    if (one.alert) {
      result.alert = await prometheus.fires(alerts);
      result.firedAfter = seconds(start);
    }
    await one.notice?.(site, load);
    const mending = performance.now();
    await one.mend(site, load, result);
    await until("votes are acknowledged, and all is ready", EXACT_LIMIT_S, async () => {
      for (const at of [0, 1]) if ((await site.readyOf(at)).status !== "ready") return false;
      return true;
    });
    await this.#votes(VOTES_AFTER);
    await load.ask("pause");
    result.tallies = await load.ask("tallies");
    await one.reckon?.(site, load, result);
    result.votes = await untilExact(site, load);
    result.exactAfter = seconds(mending);
    result.ready = await ready.ask("take");
    result.typed = site.operator.typed;
    result.fired = await prometheus.firing();
    await one.check?.(site, load, result);
    await one.after?.(site, load);
    await site.untilReady();
    if (result.ready.p99 > READY_LIMIT_MS) throw Object.assign(new Error(`ready answered within ${result.ready.p99.toFixed(0)} ms (p99), not ${READY_LIMIT_MS}`), { result });
    return result;
  }
}

async function main() {
  for (const one of ALL) checkPage(one.page);
  const wanted = ALL.filter((one) => !only || only.test(one.name));
  if (wanted.length === 0) throw new Error(`no drill's name has ${only}`);
  if (!only) forgetNotes();
  const session = new Session();
  let failures = 0;
  for (const one of wanted) {
    const started = performance.now();
    try {
      if (!session.site) await session.open();
      const missing = one.needs?.(session.site);
      if (missing) {
        console.log(`NOT DONE  ${one.name}: ${missing}`);
        note({ name: one.name, page: one.page, breaks: one.breaks, notDone: missing });
        continue;
      }
      const result = await session.drill(one);
      note(result);
      const fired = one.alert ? `${result.alert} after ${result.firedAfter.toFixed(1)} s` : "no alert";
      console.log(`well      ${one.name}: ${fired}; exact after ${result.exactAfter.toFixed(1)} s; ready p99 ${result.ready.p99?.toFixed(1)} ms, worst ${result.ready.worst?.toFixed(1)} ms; ${JSON.stringify(result.tallies)} (${seconds(started).toFixed(0)} s)`);
    } catch (error) {
      failures++;
      console.log(`FAILED    ${one.name}: ${error.stack}`);
      if (session.site) {
        console.log(`typed: ${JSON.stringify(session.site.operator?.typed)}`);
        if (session.load) console.log(`votes: ${JSON.stringify(await session.load.ask("tallies"))}`);
        for (const at of [0, 1]) console.log(await session.site.readyOf(at).catch((error) => error.message));
        console.log(await session.prometheus?.firing().catch(() => ""));
        for (const program of [...session.site.servers ?? [], ...session.site.workers ?? [], session.site.postgres.program, session.site.redis.program]) console.log(`--- ${program.name}\n${program.lastLines(8)}`);
      }
      // The next one begins with an installation that is whole.
      await session.close();
    }
  }
  await session.close();
  writeTable(ALL);
  if (failures) console.log(`${failures} of ${wanted.length} drills failed`);
  return failures ? 1 : 0;
}

let isEnding = false;
async function end(code) {
  if (isEnding) return;
  isEnding = true;
  await endAllSites();
  process.exit(code);
}
for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]]) process.on(signal, () => end(code));
process.on("uncaughtException", (error) => { console.error(error); end(1); });
main().then(end, (error) => { console.error(error.message); return end(1); });
