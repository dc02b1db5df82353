// What the manifests of deploy/kubernetes name exists, and what they say fits together.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FOLDER, imageEnvironment, imageUser, named, render, renderOwn, secretVariables, seconds, settings } from "./manifests.mjs";
import { ROOT } from "./stores.mjs";

const MANUAL = readFileSync(join(ROOT, "docs/operating/kubernetes.md"), "utf8");
const [base, migrate, example, exampleMigrate] = ["base", "migrate", "example", "example/migrate"].map(render);
const all = [...example, ...exampleMigrate];
const workloads = all.filter((one) => one.spec?.template);
const podOf = (workload) => workload.spec.template.spec;
const containers = workloads.flatMap((workload) => podOf(workload).containers.map((container) => ({ workload, pod: podOf(workload), container })));
const PROGRAMS = { server: ["server", "serve"], worker: ["worker", "sync-worker"], migrate: ["migrate"] };

const selects = (labels, workload) => Object.entries(labels).every(([name, value]) => workload.spec.template.metadata.labels[name] === value);
const selected = (labels) => workloads.filter((workload) => selects(labels, workload)).map((one) => one.metadata.name);
const portNames = (names) => containers.filter(({ workload }) => names.includes(workload.metadata.name)).map(({ container }) => (container.ports ?? []).map((port) => port.name));
const valueOf = (container, name) => container.env.find((one) => one.name === name)?.value;

test("the renderings have what they should", () => {
  const kinds = (objects) => objects.map((one) => `${one.kind} ${one.metadata.name}`).sort();
  assert.deepEqual(kinds(base), [
    "Deployment tally-server", "Deployment tally-worker", "NetworkPolicy tally-server", "NetworkPolicy tally-stores", "NetworkPolicy tally-worker",
    "PodDisruptionBudget tally-server", "PodDisruptionBudget tally-worker", "Service tally",
  ]);
  assert.deepEqual(kinds(migrate), ["Job tally-migrate"]);
  assert.deepEqual(kinds(exampleMigrate), ["Job tally-migrate"]);
  assert.deepEqual(kinds(example), [...kinds(base), "HorizontalPodAutoscaler tally-server", "Ingress tally", "PodMonitor tally-server", "PodMonitor tally-worker"].sort());
});

test("all are in one namespace, and all programs are one image of one version", () => {
  assert.deepEqual(new Set(all.map((one) => one.metadata.namespace)), new Set(["tally"]));
  const images = new Set(containers.map(({ container }) => container.image));
  assert.equal(images.size, 1);
  assert.match([...images][0], /:(?!latest$)[\w.]+$/);
  assert.ok(MANUAL.includes([...images][0].split(":")[0]), "the manual names the image that the example has");
});

test("each selector selects the workload of its name", () => {
  for (const one of all) {
    const labels = one.spec.selector?.matchLabels ?? (one.kind === "Service" ? one.spec.selector : one.spec.podSelector?.matchLabels);
    if (!labels) continue;
    const found = selected(labels);
    if (one.metadata.name === "tally-stores") assert.deepEqual(found.sort(), ["tally-migrate", "tally-server", "tally-worker"]);
    else assert.deepEqual(found, [one.kind === "Service" ? "tally-server" : one.metadata.name], `${one.kind} ${one.metadata.name}`);
  }
  for (const workload of workloads.filter((one) => one.kind === "Deployment")) {
    const spread = podOf(workload).topologySpreadConstraints;
    assert.deepEqual(spread.map((one) => one.topologyKey), ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    for (const one of spread) assert.deepEqual(selected(one.labelSelector.matchLabels), [workload.metadata.name]);
  }
});

test("each port that is named exists, and the programs listen on it", () => {
  const server = named(all, "Deployment", "tally-server");
  const service = named(all, "Service", "tally");
  const ofServer = podOf(server).containers[0].ports.map((one) => one.name);
  for (const port of service.spec.ports) assert.ok(ofServer.includes(port.targetPort));
  for (const rule of named(all, "Ingress", "tally").spec.rules)
    for (const path of rule.http.paths) {
      assert.equal(path.backend.service.name, service.metadata.name);
      assert.ok(service.spec.ports.some((port) => port.name === path.backend.service.port.name));
    }
  for (const one of all.filter((one) => ["NetworkPolicy", "PodMonitor"].includes(one.kind))) {
    const labels = (one.spec.podSelector ?? one.spec.selector).matchLabels;
    const ports = (one.spec.ingress ?? []).flatMap((rule) => rule.ports.map((port) => port.port)).concat((one.spec.podMetricsEndpoints ?? []).map((end) => end.port));
    for (const names of portNames(selected(labels))) for (const port of ports) assert.ok(names.includes(port), `${one.kind} ${one.metadata.name}: ${port}`);
  }
  for (const { container } of containers) {
    for (const probe of ["startupProbe", "livenessProbe", "readinessProbe"])
      if (container[probe]) assert.ok(container.ports.some((port) => port.name === container[probe].httpGet.port), probe);
    const listen = valueOf(container, "TALLY_LISTEN") ?? valueOf(container, "TALLY_WORKER_LISTEN");
    if (container.ports) assert.equal(listen, `0.0.0.0:${container.ports[0].containerPort}`);
  }
});

test("each variable is a setting of its program, and no manifest holds a secret", () => {
  const known = settings();
  const secrets = secretVariables();
  for (const { container } of containers) {
    const names = container.env.map((one) => one.name);
    assert.equal(new Set(names).size, names.length, `${container.name} sets a variable twice`);
    for (const [name, value] of [...container.env.map((one) => [one.name, one.value]), ...(container.name === "server" ? Object.entries(imageEnvironment()) : [])]) {
      const setting = name.replace(/_FILE$/, "");
      const row = known.get(setting);
      assert.ok(row, `${name} is no setting`);
      assert.ok(row.of.includes("all") || row.of.some((of) => PROGRAMS[container.name].includes(of)), `${name} is not of ${container.name}`);
      assert.equal(secrets.has(setting), name.endsWith("_FILE"), `${name}: secrets are in files, others are not`);
      assert.equal(typeof value, "string", name);
    }
  }
  assert.ok(!all.some((one) => one.kind === "Secret"));
});

test("each file of a secret is mounted, and the manual makes its key", () => {
  const made = new Set();
  for (const [, name, rest] of MANUAL.matchAll(/create secret generic (\S+)((?:.*\\\n)*.*)/g)) for (const [, key] of rest.matchAll(/--from-file=([\w-]+)=/g)) made.add(`${name}/${key}`);
  const used = new Set();
  for (const { pod, container } of containers)
    for (const { name, value } of container.env.filter((one) => one.name.endsWith("_FILE"))) {
      const mount = container.volumeMounts.find((one) => value.startsWith(`${one.mountPath}/`));
      assert.ok(mount?.readOnly, `${name}: ${value} is not mounted`);
      const { secret } = pod.volumes.find((one) => one.name === mount.name);
      assert.equal(secret.defaultMode, 0o440);
      used.add(`${secret.secretName}/${value.slice(mount.mountPath.length + 1)}`);
    }
  for (const monitor of all.filter((one) => one.kind === "PodMonitor"))
    for (const { authorization } of monitor.spec.podMetricsEndpoints) if (authorization) used.add(`${authorization.credentials.name}/${authorization.credentials.key}`);
  assert.deepEqual([...made].sort(), [...used].sort());
  const holders = workloads.filter((one) => podOf(one).volumes.some((volume) => volume.secret?.secretName === "tally-owner"));
  assert.deepEqual(holders.map((one) => one.metadata.name), ["tally-migrate"], "the owner's login is the migration's alone");
});

test("a pod may do no more than it must", () => {
  for (const { pod, container } of containers) {
    assert.equal(pod.securityContext.runAsNonRoot, true);
    assert.equal(`${pod.securityContext.runAsUser}:${pod.securityContext.runAsGroup}`, imageUser());
    for (const id of ["runAsUser", "runAsGroup", "fsGroup"]) assert.ok(pod.securityContext[id] > 0);
    assert.equal(pod.securityContext.seccompProfile.type, "RuntimeDefault");
    assert.equal(pod.automountServiceAccountToken, false);
    // Otherwise Kubernetes sets TALLY_PORT and others for the Service.
    assert.equal(pod.enableServiceLinks, false);
    assert.deepEqual(container.securityContext, { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ["ALL"] } });
    assert.ok(!pod.hostNetwork && !pod.hostPID && !pod.hostIPC);
    assert.ok(container.resources.requests.cpu && container.resources.limits.memory === container.resources.requests.memory);
  }
});

test("a pod has longer to stop than its program takes, and a rollout never stops the last one", () => {
  const known = settings();
  const limit = (container, name) => seconds(valueOf(container, name) ?? known.get(name).fallback);
  for (const { workload, pod, container } of containers.filter(({ workload }) => workload.kind === "Deployment")) {
    const longest = container.name === "server" ? limit(container, "TALLY_DRAIN") + 3 * limit(container, "TALLY_SHUTDOWN_LIMIT") : limit(container, "TALLY_LAST_FLUSH_LIMIT");
    assert.ok(pod.terminationGracePeriodSeconds > longest + 5, `${container.name}: ${pod.terminationGracePeriodSeconds} s for ${longest} s`);
    assert.equal(workload.spec.strategy.rollingUpdate.maxUnavailable, 0);
    assert.ok(!container.lifecycle, "server.yaml says why there is no preStop");
  }
  const server = named(all, "Deployment", "tally-server");
  assert.ok(server.spec.minReadySeconds > limit(podOf(server).containers[0], "TALLY_DRAIN"));
  for (const name of ["tally-server", "tally-worker"]) {
    assert.equal(named(base, "Deployment", name).spec.replicas, 2);
    assert.equal(named(base, "PodDisruptionBudget", name).spec.maxUnavailable, 1);
  }
});

test("more servers come by processor time or by the queue, and the number is then the autoscaler's", () => {
  const scaler = named(example, "HorizontalPodAutoscaler", "tally-server");
  const target = scaler.spec.scaleTargetRef;
  const server = named(example, target.kind, target.name);
  assert.equal(server.spec.replicas, undefined);
  assert.ok(scaler.spec.minReplicas >= 2);
  const queued = named(renderOwn({ resources: ["base"], components: ["components/autoscaling", "components/autoscaling-queue"] }), "HorizontalPodAutoscaler", "tally-server");
  assert.deepEqual(queued.spec.metrics.map((one) => one.resource?.name ?? one.pods.metric.name), ["cpu", "tally_queue_depth_votes"]);
  const adapter = readFileSync(join(FOLDER, "components/autoscaling-queue/adapter.yaml"), "utf8");
  const metrics = readFileSync(join(ROOT, "docs/operating/metrics.md"), "utf8");
  for (const [, name] of adapter.matchAll(/(?:seriesQuery|matches): (\w+)/g)) {
    assert.equal(name, "tally_queue_depth_votes");
    assert.ok(metrics.includes(`| \`${name}\` | server | gauge | votes |`));
  }
});

test("the scrape jobs have the names that the alerts look for", () => {
  const alerts = readFileSync(join(ROOT, "deploy/prometheus/tally-alerts.yml"), "utf8");
  const pattern = new RegExp(`^(?:${/job=~"([^"]+)"/.exec(alerts)[1]})$`);
  for (const monitor of all.filter((one) => one.kind === "PodMonitor"))
    for (const end of monitor.spec.podMetricsEndpoints) {
      const job = end.relabelings.find((one) => one.targetLabel === "job").replacement;
      assert.match(job, pattern);
      assert.equal(job, monitor.metadata.name);
    }
});
