#!/usr/bin/env node
// Writes target/sbom.json: all crates that are compiled into the programs for Linux, each with its version, licence and
// checksum, in CycloneDX 1.5. It says nothing of the image's base, whose own list of packages scanners read. Crates
// that only tests, benches or the build use are left out. The same commit gives the same file.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";

process.chdir(new URL("..", import.meta.url).pathname);
const run = (program, ...words) => execFileSync(program, words, { encoding: "utf8", maxBuffer: 1 << 28 });
const TARGET = "x86_64-unknown-linux-gnu";

// What is in the programs, with the features that they are built with: `cargo metadata` alone would add those of tests.
const tree = run("cargo", "tree", "--locked", "--package", "tally", "--edges", "normal,no-proc-macro", "--target", TARGET, "--prefix", "none", "--format", "{p}");
const included = new Set(tree.split("\n").filter(Boolean).map((line) => line.split(" ").slice(0, 2).join(" ").replace(" v", "@")));

const metadata = JSON.parse(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET));
const packages = new Map(metadata.packages.map((one) => [one.id, one]));
const nameOf = (one) => `${one.name}@${one.version}`;
const checksums = new Map(
  [...readFileSync("Cargo.lock", "utf8").matchAll(/\[\[package\]\]\nname = "(.*)"\nversion = "(.*)"\n(?:source = .*\nchecksum = "(.*)"\n)?/g)].map(([, name, version, sum]) => [`${name}@${version}`, sum]),
);

const tally = metadata.packages.find((one) => one.name === "tally" && one.source === null);
const components = [];
for (const one of metadata.packages) {
  if (one === tally || !included.has(nameOf(one))) continue;
  // Before SPDX, some wrote a slash for OR.
  const licence = one.license?.replaceAll(/\s*\/\s*/g, " OR ");
  const checksum = checksums.get(nameOf(one));
  if (!licence || !checksum) throw new Error(`${nameOf(one)} has no ${licence ? "checksum in Cargo.lock" : "licence"}`);
  components.push({
    type: "library",
    "bom-ref": `pkg:cargo/${nameOf(one)}`,
    name: one.name,
    version: one.version,
    ...(one.description ? { description: one.description.replaceAll(/\s+/g, " ").trim() } : {}),
    hashes: [{ alg: "SHA-256", content: checksum }],
    licenses: [{ expression: licence }],
    purl: `pkg:cargo/${nameOf(one)}`,
  });
}
components.sort((a, b) => (a["bom-ref"] < b["bom-ref"] ? -1 : 1));
const missing = [...included].filter((name) => name !== nameOf(tally) && !components.some((one) => one.purl === `pkg:cargo/${name}`));
if (components.length < 50 || missing.length) throw new Error(`${components.length} crates are found; missing: ${missing.join(", ")}`);

const root = `tally@${tally.version}`;
const refOf = (one) => (one === tally ? root : `pkg:cargo/${nameOf(one)}`);
const dependencies = metadata.resolve.nodes
  .map((node) => ({ one: packages.get(node.id), deps: node.deps }))
  .filter(({ one }) => one === tally || included.has(nameOf(one)))
  .map(({ one, deps }) => ({
    ref: refOf(one),
    dependsOn: deps
      .filter((dep) => dep.dep_kinds.some((kind) => kind.kind === null))
      .map((dep) => packages.get(dep.pkg))
      .filter((dep) => included.has(nameOf(dep)))
      .map(refOf)
      .sort(),
  }))
  .sort((a, b) => (a.ref < b.ref ? -1 : 1));

const git = (...words) => { try { return run("git", ...words).trim(); } catch { return ""; } };
const epoch = process.env.SOURCE_DATE_EPOCH || git("log", "-1", "--format=%ct");
const commit = git("rev-parse", "HEAD");
const bom = {
  bomFormat: "CycloneDX",
  specVersion: "1.5",
  version: 1,
  metadata: {
    ...(epoch ? { timestamp: new Date(epoch * 1_000).toISOString() } : {}),
    component: {
      type: "application",
      "bom-ref": root,
      name: "tally",
      version: tally.version,
      description: tally.description,
      ...(commit ? { properties: [{ name: "commit", value: commit }] } : {}),
    },
  },
  components,
  dependencies,
};
// The number is drawn from the content, so that it is the same again.
const digest = createHash("sha256").update(JSON.stringify(bom)).digest("hex");
bom.serialNumber = `urn:uuid:${digest.slice(0, 8)}-${digest.slice(8, 12)}-5${digest.slice(13, 16)}-8${digest.slice(17, 20)}-${digest.slice(20, 32)}`;
mkdirSync("target", { recursive: true });
writeFileSync("target/sbom.json", `${JSON.stringify(bom, null, 2)}\n`);
console.log(`target/sbom.json: ${components.length} crates, each with its licence and checksum`);
