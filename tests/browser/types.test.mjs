// The types of the elements (clients/typescript/elements) in pages, React, Preact and Solid.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { examples } from "./documented.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const root = here("../../");
const client = join(root, "clients/typescript");
const COMPILER = here("node_modules/typescript/bin/tsc");
const folders = [];
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

// Makes a project that has the client, these packages, and these files. Returns its folder.
async function project(packages, files) {
  const folder = await mkdtemp(join(tmpdir(), "tally-types-"));
  folders.push(folder);
  await mkdir(join(folder, "node_modules/@types"), { recursive: true });
  for (const [name, installed = name] of packages) await symlink(here(`node_modules/${installed}`), join(folder, "node_modules", name));
  // What the client's package.json says that its package has.
  const { files: parts } = JSON.parse(await readFile(join(client, "package.json"), "utf8"));
  const own = join(folder, "node_modules/tally-client");
  for (const part of ["package.json", ...parts.filter((part) => part !== "dist")]) await cp(join(client, part), join(own, part), { recursive: true });
  // The client is not built here. This is all of dist that the elements' types read.
  await cp(join(client, "src/schema.d.ts"), join(own, "dist/cjs/schema.d.ts"));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

// Compiles a project as a bundler would have it. Returns what the compiler says: nothing if all is right.
async function compile(folder, options = {}) {
  const settings = {
    target: "ES2022", lib: ["ES2022", "DOM", "DOM.Iterable"], types: [], module: "ESNext", moduleResolution: "bundler", preserveSymlinks: true,
    strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true, ...options,
  };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: settings }));
  try {
    await promisify(execFile)(process.execPath, [COMPILER], { cwd: folder });
    return "";
  } catch ({ stdout, stderr }) {
    return stdout + stderr;
  }
}

const uses = (name) => readFile(here(`types/${name}`), "utf8");
const react = (installed) => [["@types/react", `@types/${installed}`], ["csstype"]];
const TSX = { jsx: "react-jsx" };

test("a page's script knows the elements, their events and their settings", async () => {
  const folder = await project([], { "page.ts": await uses("page.ts") });
  assert.equal(await compile(folder), "");
});

for (const [name, packages, file, options] of [
  ["React 19", react("react"), "react.tsx", TSX],
  ["React 18", [...react("react-18"), ["@types/prop-types"]], "react.tsx", TSX],
  ["Preact 11", [["preact"]], "preact.tsx", { ...TSX, jsxImportSource: "preact" }],
  ["Preact 10", [["preact", "preact-10"]], "preact.tsx", { ...TSX, jsxImportSource: "preact" }],
  ["Solid", [["solid-js"], ["csstype"], ["seroval"], ["seroval-plugins"]], "solid.tsx", { jsx: "preserve", jsxImportSource: "solid-js" }],
]) {
  test(`TSX of ${name} takes the elements' attributes and events, and nothing else`, async () => {
    const folder = await project(packages, { [file]: await uses(file) });
    assert.equal(await compile(folder, options), "");
  });
}

test("what docs/react.md shows compiles with React 19 and 18", async () => {
  const shown = (await examples()).map((text, at) => [`example-${at}.tsx`, text]);
  assert.ok(shown.length >= 3, String(shown.length));
  for (const packages of [react("react"), [...react("react-18"), ["@types/prop-types"]]]) {
    assert.equal(await compile(await project(packages, Object.fromEntries(shown)), TSX), "");
  }
});

// An attribute of each element of HTML, and those that say what state an element is in: a page sets none of them.
const OF_ALL = ["lang", "stale", "full", "closed", "not-open", "sign-in"];

test("the types have each attribute that the scripts read and that docs/embed.md names", async () => {
  const types = await readFile(join(root, "clients/typescript/elements/index.d.ts"), "utf8");
  const attributes = (name) => {
    const [, parents, own] = new RegExp(`(?:interface|type) ${name}(?: extends (\\w+))?[ =]+([^]*?)\\n(?:\\}|\\};)\\n`).exec(types);
    const found = [...own.matchAll(/^ {4}"?([a-z-]+)"?\??:|[{;] ([a-z-]+)\??:/gm)].map(([, first, second]) => first ?? second);
    return [...found, ...(parents ? attributes(parents) : [])];
  };
  const tags = [...types.matchAll(/^ {4}"(tally-[a-z]+)": (\w+Attributes);$/gm)];
  assert.ok(tags.length >= 5, String(tags));
  const typed = new Map(tags.map(([, tag, name]) => [tag, new Set(attributes(name))]));
  const all = new Set([...typed.values()].flatMap((names) => [...names]));

  const scripts = join(root, "src/web/pages/embed");
  const read = new Set();
  for (const file of (await readdir(scripts)).filter((name) => name.endsWith(".js") && name !== "page.js")) {
    const text = await readFile(join(scripts, file), "utf8");
    for (const [, list] of text.matchAll(/observedAttributes = \[([^\]]*)\]/g)) for (const [, name] of list.matchAll(/"([a-z-]+)"/g)) read.add(name);
    for (const [, name] of text.matchAll(/this\.(?:get|has)Attribute\("([a-z-]+)"\)/g)) read.add(name);
  }
  assert.ok(read.size >= 6, [...read].join());
  assert.deepEqual([...read].filter((name) => !OF_ALL.includes(name) && !all.has(name)), []);

  const guide = await readFile(join(root, "docs/embed.md"), "utf8");
  const rows = [...guide.matchAll(/^\| `<(tally-[a-z]+)([^>]*)>`(.*)$/gm)];
  assert.ok(rows.length >= 4, String(rows.length));
  for (const [, tag, inside, rest] of rows) {
    const named = [...inside.matchAll(/([a-z-]+)="/g), ...rest.matchAll(/`([a-z-]+)(?:="[^"]*")?`/g)].map(([, name]) => name);
    assert.deepEqual(named.filter((name) => !OF_ALL.includes(name) && !typed.get(tag)?.has(name)), [], tag);
  }
});
