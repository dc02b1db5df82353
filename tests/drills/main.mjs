// Runs the drills, one after the other, and notes what was seen in target/drills.json and docs/drills.md.
import { checkPage } from "./operator.mjs";
import { ALL, only, runAndEnd, Session } from "./session.mjs";
import { forgetNotes, note, writeTable } from "./table.mjs";
import { seconds } from "./waiting.mjs";

async function main() {
  for (const one of ALL) checkPage(one.page);
  const wanted = ALL.filter((one) => !only || only.test(one.name));
  if (wanted.length === 0) throw new Error(`no drill's name has ${only}`);
  if (!only) forgetNotes();
  const session = new Session();
  let failures = 0;
  for (const one of wanted) {
    const started = performance.now();
    try {
      if (!session.site) await session.open();
      const missing = one.needs?.(session.site);
      if (missing) {
        console.log(`NOT DONE  ${one.name}: ${missing}`);
        note({ name: one.name, page: one.page, breaks: one.breaks, notDone: missing });
        continue;
      }
      const result = await session.drill(one);
      note(result);
      const fired = one.alert ? `${result.alert} after ${result.firedAfter.toFixed(1)} s` : "no alert";
      console.log(`well      ${one.name}: ${fired}; exact after ${result.exactAfter.toFixed(1)} s; ready p99 ${result.ready.p99?.toFixed(1)} ms, worst ${result.ready.worst?.toFixed(1)} ms; ${JSON.stringify(result.tallies)} (${seconds(started).toFixed(0)} s)`);
    } catch (error) {
      failures++;
      console.log(`FAILED    ${one.name}: ${error.stack}`);
      if (session.site) {
        console.log(`typed: ${JSON.stringify(session.site.operator?.typed)}`);
        if (session.load) console.log(`votes: ${JSON.stringify(await session.load.ask("tallies"))}`);
        for (const at of [0, 1]) console.log(await session.site.readyOf(at).catch((error) => error.message));
        console.log(await session.prometheus?.firing().catch(() => ""));
        for (const program of [...session.site.servers ?? [], ...session.site.workers ?? [], session.site.postgres.program, session.site.redis.program]) console.log(`--- ${program.name}\n${program.lastLines(8)}`);
      }
      // The next one begins with an installation that is whole.
      await session.close();
    }
  }
  await session.close();
  writeTable(ALL);
  if (failures) console.log(`${failures} of ${wanted.length} drills failed`);
  return failures ? 1 : 0;
}

runAndEnd(main);
