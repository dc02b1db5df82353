// Packs the client as npm does, installs it elsewhere, and calls it from there: from ES modules, CommonJS and
// TypeScript, on the oldest and the newest Node that test/nodes names, and on this one.
import assert from "node:assert/strict";
import { type SpawnSyncReturns, spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { RealServer } from "./servers.js";

const folder = fileURLToPath(new URL("..", import.meta.url));
const temporary = mkdtempSync(join(tmpdir(), "tally-client-"));
const consumer = join(temporary, "consumer");
const compiler = join(folder, "node_modules/typescript/bin/tsc");
/** What each of the programs in test/package prints. */
const PRINTED = '[1,true,"unknown-item",1]\n';

/** The Nodes that are here. `scripts/client` installs them, and says so if it cannot. */
const nodes = ["oldest", "newest"]
    .map((which) => join(folder, `test/nodes/node_modules/node-${which}/bin/node`))
    .filter((node) => existsSync(node))
    .concat(process.execPath);

let server: RealServer;
before(async () => {
    server = await RealServer.start();
});
after(async () => {
    await server.stop();
    rmSync(temporary, { recursive: true });
});

const said = ({ stdout, stderr }: SpawnSyncReturns<string>) => `${stdout}${stderr}`;
const run = (command: string, args: string[], cwd: string) => spawnSync(command, args, { cwd, encoding: "utf8" });
const done = (command: string, args: string[], cwd: string) => {
    const ended = run(command, args, cwd);
    assert.equal(ended.status, 0, `${command} ${args.join(" ")}: ${said(ended)}`);
    return ended.stdout;
};

/** Runs a program to its end with each Node. The server, in a process of its own, answers meanwhile. */
async function runWithEach(file: string, environment: Record<string, string> = {}): Promise<void> {
    for (const node of nodes) {
        const program = spawn(node, [file], {
            cwd: consumer,
            env: { ...process.env, ...environment, TALLY_BASE: server.base },
            stdio: ["ignore", "pipe", "pipe"],
        });
        let output = "";
        let errors = "";
        program.stdout.setEncoding("utf8").on("data", (text) => (output += text));
        program.stderr.setEncoding("utf8").on("data", (text) => (errors += text));
        const status = await new Promise((resolve) => program.once("close", resolve));
        assert.deepEqual([status, output], [0, PRINTED], `${node} ${file}: ${errors}`);
    }
}

/** A folder as it is after a clone: nothing is built. */
function clone(name: string): string {
    const copy = join(temporary, name);
    mkdirSync(copy);
    for (const part of ["src", "scripts", "elements", "package.json", "README.md", "tsconfig.json", "tsconfig.cjs.json"]) {
        cpSync(join(folder, part), join(copy, part), { recursive: true });
    }
    return copy;
}

test("a package is packed from a folder in which nothing is built, and not without what builds it", () => {
    const bare = clone("bare");
    const refused = run("npm", ["pack"], bare);
    assert.notEqual(refused.status, 0);
    assert.match(said(refused), /TypeScript is not installed; run npm ci/);

    const copy = clone("copy");
    symlinkSync(join(folder, "node_modules"), join(copy, "node_modules"));
    const [packed] = JSON.parse(done("npm", ["pack", "--silent", "--json", "--pack-destination", temporary], copy)) as [
        { filename: string; files: { path: string }[] },
    ];
    const files = packed.files.map(({ path }) => path);
    for (const file of ["index.js", "index.d.ts", "cjs/index.js", "cjs/index.d.ts", "schema.d.ts", "cjs/schema.d.ts"]) {
        assert.ok(files.includes(`dist/${file}`), `dist/${file} is in ${files.join(" ")}`);
    }
    const elements = ["index.d.ts", "package.json", "preact.d.ts", "react.d.ts", "solid.d.ts"];
    const asWritten = ["README.md", "package.json", ...elements.map((name) => `elements/${name}`)];
    assert.deepEqual(files.filter((file) => !file.startsWith("dist/")).sort(), asWritten.sort());

    cpSync(join(folder, "test/package"), consumer, { recursive: true });
    writeFileSync(join(consumer, "package.json"), '{ "private": true }\n');
    const install = ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"];
    done("npm", [...install, join(temporary, packed.filename)], consumer);
});

test("it is called from ES modules and from CommonJS", async () => {
    await runWithEach("program.mjs");
    await runWithEach("program.cjs");
});

/** How TypeScript finds a package, and what a program compiles to. */
const PROJECTS = {
    "node16-esm": { as: "mts", module: "node16", moduleResolution: "node16" },
    "node16-cjs": { as: "cts", module: "node16", moduleResolution: "node16" },
    bundler: { as: "mts", module: "esnext", moduleResolution: "bundler" },
    node10: { as: "cts", module: "commonjs", moduleResolution: "node10" },
};
const STRICT = {
    target: "es2022",
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: true,
    lib: ["es2022"],
    types: ["node"],
    typeRoots: [join(folder, "node_modules/@types")],
};

const BROWSERS = { lib: ["es2022", "dom", "dom.iterable"], types: [] };

/** Compiles a program in the consumer's folder. Returns the folder of what is made. */
function compile(name: string, files: string[], options: object): string {
    const config = { compilerOptions: { ...STRICT, ...options, rootDir: ".", outDir: name }, files };
    writeFileSync(join(consumer, `${name}.json`), JSON.stringify(config));
    done(process.execPath, [compiler, "--project", `${name}.json`], consumer);
    return name;
}

test("it is called from TypeScript, however that finds packages", async () => {
    const program = readFileSync(join(consumer, "typed.ts"), "utf8");
    for (const [name, { as, ...options }] of Object.entries(PROJECTS)) {
        const file = `typed.${as}`;
        writeFileSync(join(consumer, file), program);
        const made = compile(name, [file], options);
        await runWithEach(join(made, file.replace("ts", "js")));
    }
});

test("its types are whole with those of browsers alone, and with those of Node alone", () => {
    const { as: _, ...options } = PROJECTS["node16-esm"];
    const isWhole = { ...options, skipLibCheck: false, noEmit: true };
    writeFileSync(join(consumer, "whole.mts"), 'export { Tally } from "tally-client";\n');
    compile("browsers", ["whole.mts"], { ...isWhole, ...BROWSERS });
    compile("node", ["whole.mts"], isWhole);
});

test("the types of the elements are found, however TypeScript finds packages", () => {
    const program = `
import type { TallyEventDetails } from "tally-client/elements";
const name: string | undefined = document.querySelector("tally-vote")?.dataset["name"];
const voted = (detail: TallyEventDetails["tally-counts"]): number => detail.id;
void [name, voted];
`;
    for (const [name, { as, ...options }] of Object.entries(PROJECTS)) {
        const file = `elements.${as}`;
        writeFileSync(join(consumer, file), program);
        compile(`elements-${name}`, [file], { ...options, ...BROWSERS, skipLibCheck: false, noEmit: true });
    }
});

/** What the snippets in the README use and do not say. */
const BEFORE = `
import { Tally } from "tally-client";
const tally = new Tally(String(process.env["TALLY_BASE"]));
await tally.items.create({ name: "A post", key: "post-42" });
await tally.items.create({ name: "Another post", key: "post-43" });
await tally.polls.create({ title: "Lunch?", key: "lunch", choices: ["soup", "salad"] });
`;
const AFTER = `
function show(...shown: unknown[]): void {
    if (shown.length === 0) throw new Error("nothing to show");
}
async function signIn(): Promise<string> {
    return "a token";
}
void [show, signIn];
console.log(${JSON.stringify(PRINTED.trim())});
export {};
`;

test("the README's snippets compile, and do what they say", async () => {
    const readme = readFileSync(join(folder, "README.md"), "utf8");
    const snippets = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, snippet]) => String(snippet));
    assert.ok(snippets.length >= 7, `${snippets.length} snippets`);
    const files = snippets.map((snippet, at) => {
        const file = `snippet-${at + 1}.mts`;
        const isWhole = /^import /m.test(snippet);
        const text = snippet.replaceAll('"https://votes.example.org"', 'String(process.env["TALLY_BASE"])');
        writeFileSync(join(consumer, file), `${isWhole ? "" : BEFORE}${text}${AFTER}`);
        return file;
    });
    const made = compile("snippets", files, { module: "node16", moduleResolution: "node16" });
    for (const file of files) await runWithEach(join(made, file.replace("mts", "mjs")));
});
