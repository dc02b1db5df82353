// The files for Prometheus and Grafana, read: nothing runs. dashboards.test.mjs asks a real Prometheus.
import assert from "node:assert/strict";
import { test } from "node:test";
import { alerts, dashboard, metrics, questions, text } from "./files.mjs";

const documented = text("docs/operating/metrics.md");

// A metric that the manual has, or what a histogram or the client of the process adds.
function isMetric(name) {
  return name === "up" || documented.includes(`\`${name}\``) || documented.includes(`\`${name.replace(/_(bucket|sum|count)$/, "")}\``);
}

// The anchors that GitHub gives the headings of a page.
function anchors(page) {
  const headings = text(page).match(/^#+ .+$/gm) ?? [];
  return headings.map((one) => one.replace(/^#+ /, "").toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-"));
}

test("each alert names a page and a heading of the manual", () => {
  assert.ok(alerts().length > 20);
  for (const { name, runbook } of alerts()) {
    const [page, anchor] = runbook.split("#");
    assert.ok(anchors(page).includes(anchor), `${name}: ${runbook} does not exist`);
  }
});

test("the manual's table has each alert once, with its severity", () => {
  const table = text("docs/operating/watching.md").split("\n## Alerts\n")[1].split("\n## ")[0];
  const rows = table.split("\n").filter((line) => line.startsWith("| `Tally")).map((line) => line.split("|").map((cell) => cell.trim()));
  const listed = rows.flatMap(([, names, severity]) => names.match(/\w+/g).map((name) => `${name} ${severity}`));
  assert.deepEqual(listed.sort(), alerts().map(({ name, severity }) => `${name} ${severity}`).sort());
});

test("each alert has a case that fires, with its labels and annotations, and a near miss", () => {
  const cases = text("deploy/prometheus/tally-alerts.test.yml").split(/^ +- name: /m).slice(1);
  for (const { name } of alerts()) {
    const own = cases.filter((one) => one.includes(`alertname: ${name}`));
    const fires = own.filter((one) => new RegExp(`alertname: ${name}\\n +exp_alerts:\\n +- exp_labels: \\{ severity:`).test(one));
    assert.ok(fires.length > 0, `${name}: no case fires`);
    // Another time at which it must not fire, or another series of the same case that must not.
    const misses = own.filter((one) => new RegExp(`alertname: ${name} \\}`).test(one) || /instance="(?:[sw][2-9]|n1)"/.test(one));
    assert.ok(misses.length > 0, `${name}: no near miss`);
  }
});

test("alerts and panels ask for metrics that the manual has", () => {
  for (const { name, panel, expr } of [...alerts(), ...questions()]) {
    for (const metric of metrics(expr)) assert.ok(isMetric(metric), `${name ?? panel}: ${metric}`);
  }
});

test("the dashboard is in the form that Grafana provisions from files", () => {
  const { panels, uid, title, templating, schemaVersion, ...rest } = dashboard();
  assert.ok(uid && title && schemaVersion > 30 && !("apiVersion" in rest), "a classic dashboard");
  assert.deepEqual(templating.list.map(({ name }) => name), ["datasource", "instance"]);
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length, "an id stands twice");
  for (const panel of panels.filter(({ type }) => type !== "row")) {
    const { title, description, fieldConfig, targets, datasource } = panel;
    assert.ok(/^[A-Z].+\.$/.test(description ?? "") && !description.includes("\n"), `${title}: a description of one line`);
    assert.ok(fieldConfig.defaults.unit && fieldConfig.defaults.thresholds.steps.length > 0, `${title}: a unit and thresholds`);
    assert.ok(targets.length > 0, `${title}: no expression`);
    for (const one of [panel, ...targets]) assert.equal(one.datasource.uid, "${datasource}", `${title}: the variable's source`);
    for (const { legendFormat } of targets) assert.ok(legendFormat || panel.type === "table", `${title}: no legend`);
    assert.equal(datasource.type, "prometheus");
  }
});

test("no two panels lie upon each other", () => {
  const taken = new Map();
  for (const { title, gridPos: { x, y, w, h } } of dashboard().panels) {
    assert.ok(x >= 0 && x + w <= 24, `${title}: beyond the width`);
    for (let column = x; column < x + w; column += 1) {
      for (let line = y; line < y + h; line += 1) {
        const at = `${column} ${line}`;
        assert.ok(!taken.has(at), `${title} lies upon ${taken.get(at)}`);
        taken.set(at, title);
      }
    }
  }
});
