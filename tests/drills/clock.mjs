// A wall clock for one server, which can be stepped: testkit/src/clock.c.
import { execFileSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MACHINES } from "./installation.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;

class Clock {
  ahead = 0; // seconds

  constructor(folder, machine) {
    this.library = join(folder, "clock.so");
    this.file = join(folder, `clock_${machine}`);
    if (!existsSync(this.library)) execFileSync("cc", ["-O2", "-shared", "-fPIC", "-o", this.library, join(ROOT, "testkit/src/clock.c")]);
    this.set(0);
  }
  set(seconds) {
    this.ahead = seconds;
    const offset = Buffer.alloc(8);
    offset.writeBigInt64LE(BigInt(seconds));
    // In its place: the server has the file mapped.
    writeFileSync(this.file, offset, { flag: existsSync(this.file) ? "r+" : "w" });
  }
  get env() {
    return { LD_PRELOAD: this.library, TALLY_TEST_CLOCK: this.file };
  }
}

// Starts the server of a machine with a clock of its own, unless it has one.
export async function giveClock(site, machine) {
  site.clocks ??= {};
  if (site.clocks[machine]) return;
  site.clocks[machine] = new Clock(site.folder, machine);
  site.extraEnv = { ...site.extraEnv, [site.servers[MACHINES.indexOf(machine)].name]: site.clocks[machine].env };
  await site.operator.quietly("sudo systemctl restart tally", machine);
  await site.untilReady();
}
