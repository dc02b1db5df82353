// What the files for Prometheus and Grafana hold, as far as the tests ask.
import { readFileSync } from "node:fs";

export const ROOT = new URL("../../", import.meta.url);
export const text = (path) => readFileSync(new URL(path, ROOT), "utf8");

// The alerts in the order of their file. The file has one form for all: this reads it without a parser of YAML.
export function alerts() {
  const rules = text("deploy/prometheus/tally-alerts.yml").split(/^ +- alert: /m).slice(1);
  return rules.map((rule) => {
    const one = (pattern, what) => {
      const found = pattern.exec(rule);
      if (!found) throw new Error(`${rule.split("\n")[0]} has no ${what}`);
      return found[1].trim().replace(/^"(.*)"$/, "$1");
    };
    return {
      name: one(/^(\w+)$/m, "name"),
      expr: one(/^ +expr: (?:>-\n)?((?:.|\n)*?)\n +(?:for|labels):/m, "expr").replace(/\s+/g, " "),
      severity: one(/^ +labels: \{ severity: (\w+) \}$/m, "severity"),
      summary: one(/^ +summary: (.+)$/m, "summary"),
      runbook: one(/^ +runbook: (.+)$/m, "runbook"),
    };
  });
}

export const dashboard = () => JSON.parse(text("deploy/grafana/tally.json"));

// What a panel asks Prometheus, with the variables as Grafana would fill them for all programs.
export function questions() {
  return dashboard().panels.flatMap((panel) =>
    (panel.targets ?? []).map(({ expr }) => ({
      panel: panel.title,
      expr: expr.replaceAll("$__rate_interval", "1m").replaceAll("$__range", "1h").replaceAll("$instance", ".+"),
    })));
}

// The metrics that an expression names.
export const metrics = (expr) => [...new Set(expr.match(/\b(?:tally|process)_[a-z_]+|\bup\b/g) ?? [])].filter((name) => !["process", "tally"].includes(name));
