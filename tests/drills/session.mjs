// One installation with its load, which drills break one after the other.
import { readFileSync } from "node:fs";
import { untilExact } from "./exact.mjs";
import { endAllSites, Installation } from "./installation.mjs";
import { startLoad, startReady } from "./load.mjs";
import { OTHER_DRILLS } from "./other-drills.mjs";
import { POSTGRES_DRILLS } from "./postgres-drills.mjs";
import { Prometheus } from "./prometheus.mjs";
import { REDIS_DRILLS } from "./redis-drills.mjs";
import { EXACT_LIMIT_S, seconds, START_LIMIT_S, until } from "./waiting.mjs";

const ITEMS = 50;
const RATE = Number(process.env.DRILLS_RATE ?? 200); // votes a second
const VOTES_FIRST = 300; // acknowledged votes before something is broken
const VOTES_AFTER = 100; // and after it is mended, before the load pauses
const READY_LIMIT_MS = 200; // what an answer of /health/ready may take: p99

export const ALL = [...REDIS_DRILLS, ...POSTGRES_DRILLS, ...OTHER_DRILLS];
export const only = process.env.ONLY ? new RegExp(process.env.ONLY, "i") : undefined;
const isLong = process.env.LONG === "1";

export class Session {
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
  // Breaks it. Gives when that was, and the alerts that then fire.
  async break(one) {
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
    return { alerts, start, isShortened: changes.length > 0 };
  }
  async drill(one) {
    const { site, load, ready, prometheus } = this;
    const { alerts, start, isShortened } = await this.break(one);
    const result = { name: one.name, page: one.page, breaks: one.breaks, why: one.why, isShortened };
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

// Runs until `main` gives an exit code, or a signal comes. Nothing stays behind.
export function runAndEnd(main) {
  let isEnding = false;
  async function end(code) {
    if (isEnding) return;
    isEnding = true;
    await endAllSites();
    process.exit(code);
  }
  for (const [signal, code] of [["SIGINT", 130], ["SIGTERM", 143], ["SIGHUP", 129]]) process.on(signal, () => end(code));
  process.on("uncaughtException", (error) => { console.error(error); end(1); });
  main().then(end, (error) => { if (!isEnding) console.error(error.message); return end(1); });
}
