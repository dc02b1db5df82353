// Starts the whole example: Tally (`tally dev`, with a private Postgres and Redis) and the site. Ctrl-C stops both.
// README.md has the variables that change it.
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const STOP_LIMIT_MS = 30_000; // then what still runs is killed
const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../..");
const {
  SITE_PROGRAM = join(root, "target/debug/tally"),
  SITE_FOLDER = join(root, ".tally/site"),
  SITE_PORT = "8000",
  SITE_TALLY_PORT = "8080",
  SITE_OPEN = "visitors",
} = process.env;
const folder = resolve(SITE_FOLDER);
const site = `http://127.0.0.1:${SITE_PORT}`;
const tally = `http://127.0.0.1:${SITE_TALLY_PORT}`;

if (!existsSync(SITE_PROGRAM)) {
  console.error(`There is no ${SITE_PROGRAM}. \`make site\` builds it; or name another one with SITE_PROGRAM.`);
  process.exit(1);
}

// A key stays the same over restarts: with a new one, everyone would be logged out and could vote again.
async function key(name) {
  const file = join(folder, name);
  const kept = await readFile(file, "utf8").catch(() => null);
  if (kept) return kept;
  const made = randomBytes(32).toString("hex");
  await writeFile(file, made, { mode: 0o600 });
  return made;
}

// React is for one page alone. It comes from npm's registry, once.
function installReact() {
  if (existsSync(join(here, "node_modules/react-dom"))) return;
  console.log("Fetching React from npm's registry, once …");
  const { status } = spawnSync("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: here, stdio: "inherit" });
  if (status !== 0) console.error("npm could not install React. All pages work but /pictures, which is in React: start again once npm's registry can be reached.");
}

const running = new Map();
let stopping = false;

function run(name, program, args, options) {
  const child = spawn(program, args, options);
  running.set(name, child);
  child.on("error", (error) => console.error(`${name} cannot start: ${error.message}`));
  child.on("close", (code) => {
    running.delete(name);
    if (!stopping) {
      console.error(`${name} ended${code ? ` with exit code ${code}` : ""}.`);
      process.exitCode = 1;
      stop();
    }
  });
  return child;
}

function stop() {
  if (stopping) return;
  stopping = true;
  for (const child of running.values()) child.kill("SIGTERM");
  setTimeout(() => running.forEach((child) => child.kill("SIGKILL")), STOP_LIMIT_MS).unref();
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, stop);

await mkdir(folder, { recursive: true });
installReact();
const [cookieKey, tokenSecret, sessionKey] = await Promise.all(["cookie-key", "token-secret", "session-key"].map(key));
if (stopping) process.exit();

// `tally dev` takes the stores of DATABASE_URL and REDIS_URL, if a shell has both. The example has its own.
const { DATABASE_URL, REDIS_URL, ...env } = process.env;
const server = run("Tally", SITE_PROGRAM, ["dev"], {
  env: {
    RUST_LOG: "warn",
    ...env,
    TALLY_DEV_FOLDER: folder,
    TALLY_LISTEN: `127.0.0.1:${SITE_TALLY_PORT}`,
    // Pages of the site may vote, and may show a framed poll.
    TALLY_ORIGINS: site,
    TALLY_FRAME_ORIGINS: site,
    // Each browser may become a voter, known by a cookie. A reader who logs in is known by a token of the site.
    TALLY_OPEN: SITE_OPEN,
    TALLY_COOKIE_KEYS: cookieKey,
    TALLY_JWT_SECRET: tokenSecret,
    TALLY_JWT_AUDIENCE: "votes",
    TALLY_JWT_ISSUER: "harbour-post",
    // The first like or reaction makes its item, which takes no down-votes. So anyone can make items: not without a throttle.
    TALLY_CREATE_ITEMS: "likes",
    TALLY_THROTTLE: "address:600/1m",
  },
  stdio: ["ignore", "pipe", "inherit"],
});

// What Tally prints when it is ready has the API key for the site's server.
const LAST_WORDS = "Ctrl-C stops everything";
let printed = "";
server.stdout.setEncoding("utf8").on("data", (text) => {
  const wasReady = printed.includes(LAST_WORDS);
  printed += text;
  if (wasReady || !printed.includes(LAST_WORDS) || stopping) return;
  const [apiKey] = /\btally_[0-9a-f]{64}\b/.exec(printed) ?? [];
  run("The site", process.execPath, [join(here, "server.mjs")], {
    env: { ...env, SITE_PORT, SITE_FOLDER: folder, SITE_SESSION_KEY: sessionKey, TALLY_URL: tally, TALLY_API_KEY: apiKey, TALLY_JWT_SECRET: tokenSecret },
    stdio: "inherit",
  });
});
