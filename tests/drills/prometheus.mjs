// Prometheus with the alerts that Tally ships, with new data for each drill: no alert of an earlier one fires on.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Program } from "./programs.mjs";
import { freePort } from "../ports.mjs";
import { ALERT_LIMIT_S, START_LIMIT_S, until } from "./waiting.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;
// DRILLS_RULES names another file: with your own thresholds, or other alerts.
const RULES = process.env.DRILLS_RULES ?? join(ROOT, "deploy/prometheus/tally-alerts.yml");
const hasAlert = (name) => readFileSync(RULES, "utf8").includes(`- alert: ${name}\n`);

// The first of these lists whose alerts the rules have all. A drill waits for any of that list.
export const known = (...lists) => lists.find((names) => names.every(hasAlert)) ?? lists.at(-1);

// The rules with other times and limits for one alert. Each text that is replaced must be there.
export function shortened(rules, alert, changes) {
  const start = rules.indexOf(`- alert: ${alert}\n`);
  if (start < 0) throw new Error(`${RULES} has no alert ${alert}`);
  const next = rules.indexOf("- alert: ", start + 1);
  const end = next < 0 ? rules.length : next;
  let block = rules.slice(start, end);
  for (const [from, to] of changes) {
    if (!block.includes(from)) throw new Error(`${RULES}: ${alert} has no "${from}"`);
    block = block.replace(from, to);
  }
  return rules.slice(0, start) + block + rules.slice(end);
}

export class Prometheus {
  constructor(folder, key, servers, workers) {
    this.folder = join(folder, "prometheus");
    Object.assign(this, { key, servers, workers });
  }
  async start(alert, changes = []) {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
    mkdirSync(this.folder);
    this.port = await freePort();
    const rules = readFileSync(RULES, "utf8");
    writeFileSync(join(this.folder, "tally-alerts.yml"), changes.length ? shortened(rules, alert, changes) : rules);
    writeFileSync(join(this.folder, "tally.key"), this.key, { mode: 0o600 });
    const targets = (ports) => JSON.stringify(ports.map((port) => `127.0.0.1:${port}`));
    writeFileSync(join(this.folder, "prometheus.yml"), `
global: { scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }
rule_files: [${this.folder}/tally-alerts.yml]
scrape_configs:
  - job_name: tally-server
    authorization: { credentials_file: ${this.folder}/tally.key }
    static_configs: [{ targets: ${targets(this.servers)} }]
  - job_name: tally-worker
    static_configs: [{ targets: ${targets(this.workers)} }]
`);
    const args = [`--config.file=${this.folder}/prometheus.yml`, `--storage.tsdb.path=${this.folder}/data`, `--web.listen-address=127.0.0.1:${this.port}`];
    this.program = new Program("prometheus", join(folder(this.folder), "prometheus.log"), () => ({ command: "prometheus", args }));
    this.program.start();
    const wanted = this.servers.length + this.workers.length;
    await until("Prometheus sees each program", START_LIMIT_S, async () => (await this.query("sum(up)")) === wanted);
  }
  async stop() {
    await this.program?.kill();
  }
  async #get(path) {
    const answer = await fetch(`http://127.0.0.1:${this.port}/api/v1/${path}`);
    return (await answer.json()).data;
  }
  async query(expression) {
    const { result } = await this.#get(`query?query=${encodeURIComponent(expression)}`);
    return result.length ? Number(result[0].value[1]) : undefined;
  }
  // What fires, as Prometheus gives it: with labels and annotations.
  async alerts() {
    const { alerts } = await this.#get("alerts");
    return alerts.filter((one) => one.state === "firing");
  }
  async firing() {
    return [...new Set((await this.alerts()).map((one) => one.labels.alertname))].sort();
  }
  // Waits until one of these fires, and gives it.
  fires = (alerts) => until(`${alerts.join(" or ")} fires`, ALERT_LIMIT_S, async () => {
    const firing = await this.firing();
    return alerts.find((one) => firing.includes(one));
  }, 100);
}

const folder = (of) => join(of, "..");
