// The manifests of deploy/kubernetes as kubectl renders them.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { ROOT } from "./stores.mjs";

export const FOLDER = join(ROOT, "deploy/kubernetes");

function kubectl(words, input) {
  const done = spawnSync("kubectl", words, { input, encoding: "utf8", cwd: FOLDER });
  if (done.error) throw done.error;
  if (done.status !== 0) throw new Error(`kubectl ${words.join(" ")}: ${done.stderr}`);
  return done.stdout;
}

/** The objects of a kustomization. Node reads no YAML, so kubectl says them in JSON: by a label that is taken off again. */
export function render(folder) {
  const text = kubectl(["label", "--local", "-f", "-", "read-by=test", "-o", "json"], kubectl(["kustomize", folder]));
  return text
    .split(/(?<=^\})\n/m)
    .filter((part) => part.trim())
    .map((part) => {
      const object = JSON.parse(part);
      delete object.metadata.labels["read-by"];
      return object;
    });
}

/** The objects of a kustomization of one's own, of these folders of deploy/kubernetes. */
export function renderOwn(parts) {
  const own = realpathSync(mkdtempSync(join(tmpdir(), "tally-kustomize-")));
  try {
    // kustomize takes no absolute path.
    const lines = Object.entries(parts).map(([part, folders]) => `${part}: ${JSON.stringify(folders.map((one) => relative(own, join(realpathSync(FOLDER), one))))}`);
    writeFileSync(join(own, "kustomization.yaml"), ["apiVersion: kustomize.config.k8s.io/v1beta1", "kind: Kustomization", ...lines, ""].join("\n"));
    return render(own);
  } finally {
    rmSync(own, { recursive: true });
  }
}

export const named = (objects, kind, name) => {
  const found = objects.filter((one) => one.kind === kind && one.metadata.name === name);
  if (found.length !== 1) throw new Error(`${found.length} objects are ${kind} ${name}`);
  return found[0];
};

/** Seconds of a duration of Tally's settings. */
export function seconds(text) {
  const parts = /^(\d+)(ms|s|m|h)$/.exec(text);
  if (!parts) throw new Error(`${text} is no duration`);
  return parts[1] * { ms: 0.001, s: 1, m: 60, h: 3600 }[parts[2]];
}

/** The rows of docs/operating/settings.md: what each variable's default is, and which programs it is of. */
export function settings() {
  const rows = readFileSync(join(ROOT, "docs/operating/settings.md"), "utf8").split("\n");
  const found = new Map();
  for (const row of rows) {
    const [, names, fallback, of] = row.split(/(?<!\\)\|/).map((cell) => cell.trim());
    for (const [, name] of names?.matchAll(/`([A-Z_]+)`/g) ?? []) found.set(name, { fallback: fallback.replaceAll("`", ""), of: of.split(", ") });
  }
  if (found.size < 40) throw new Error("docs/operating/settings.md has no table of settings any more");
  return found;
}

/** The variables that a file may hold, as docs/operating/settings.md lists them. */
export function secretVariables() {
  const text = readFileSync(join(ROOT, "docs/operating/settings.md"), "utf8");
  // The rest of the sentence that gives the example names the others.
  const list = /`DATABASE_URL_FILE=[^`]*`([^.\n]*)\./.exec(text)?.[1] ?? "";
  const others = [...list.matchAll(/`([A-Z_]+)`/g)].map(([, name]) => name);
  if (others.length < 5) throw new Error("docs/operating/settings.md no longer lists the secrets after its example of DATABASE_URL_FILE");
  return new Set(["DATABASE_URL", ...others]);
}

/** The user of the image, as its Dockerfile has it. */
export const imageUser = () => /^USER (\S+)$/m.exec(readFileSync(join(ROOT, "Dockerfile"), "utf8"))[1];

/** What the image sets, as its Dockerfile has it. */
export function imageEnvironment() {
  const stage = readFileSync(join(ROOT, "Dockerfile"), "utf8").split(/^FROM /m).at(-1);
  const pairs = [...stage.matchAll(/^ENV (.*)$/gm)].flatMap(([, line]) => line.split(" "));
  return Object.fromEntries(pairs.map((pair) => pair.split(/=(.*)/s).slice(0, 2)));
}
