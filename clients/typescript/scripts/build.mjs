// Builds the client into dist/: ES modules, which a page can import directly, and CommonJS in dist/cjs/.
//
//   node scripts/build.mjs
//
// `npm pack` runs it first, so that no package is without its programs.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
const compiler = "node_modules/typescript/bin/tsc";
if (!existsSync(compiler)) {
    console.error("TypeScript is not installed; run npm ci in clients/typescript first");
    process.exit(1);
}
rmSync("dist", { recursive: true, force: true });
for (const [project, folder] of [["tsconfig.json", "dist"], ["tsconfig.cjs.json", "dist/cjs"]]) {
    mkdirSync(folder, { recursive: true });
    const { status } = spawnSync(process.execPath, [compiler, "--project", project], { stdio: "inherit" });
    if (status !== 0) process.exit(1);
    copyFileSync("src/schema.d.ts", `${folder}/schema.d.ts`);
}
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
