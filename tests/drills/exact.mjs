// Whether every acknowledged vote is counted, and none twice: by the ledger, by both servers, by the audit.
import { EXACT_LIMIT_S, until } from "./waiting.mjs";

const PAGE = 1_000; // items of a list

// Who holds a vote in the ledger: by item, the voters.
async function ledger(site) {
  const rows = await site.postgres.sql("select item_id, voter_id from vote group by item_id, voter_id having sum(value) > 0");
  const held = new Map();
  for (const line of rows.split("\n").filter(Boolean)) {
    const [item, voter] = line.split(/\|(.*)/s);
    if (!held.has(Number(item))) held.set(Number(item), new Set());
    held.get(Number(item)).add(voter);
  }
  return held;
}

async function recorded(load) {
  return new Map((await load.ask("record")).map(([item, voters]) => [item, new Map(voters)]));
}

// The acknowledged votes that the ledger does not have: [item, voter, when it was acknowledged].
export async function missing(site, load) {
  const held = await ledger(site);
  const lost = [];
  for (const [item, voters] of await recorded(load))
    for (const [voter, at] of voters) if (!held.get(item)?.has(voter)) lost.push([item, voter, at]);
  return lost;
}

async function faults(site, record) {
  const held = await ledger(site);
  const ids = [...record.keys()].slice(0, PAGE).join(",");
  const found = [];
  for (const [item, voters] of record) {
    const rows = held.get(item) ?? new Set();
    const lost = [...voters.keys()].filter((voter) => !rows.has(voter)).length;
    if (lost || rows.size !== voters.size) found.push(`item ${item}: ${voters.size} acknowledged, ${rows.size} in the ledger, ${lost} missing`);
  }
  for (const port of site.serverPorts) {
    const answer = await fetch(`http://127.0.0.1:${port}/v1/items?ids=${ids}`);
    const { items } = await answer.json();
    if (!items) return [`the list of items: ${answer.status}`];
    for (const { id, vote_count: live, current, saved } of items) {
      const votes = record.get(id).size;
      if (live !== votes || saved.vote_count !== votes || !current) found.push(`item ${id}: ${votes} acknowledged, ${live} live, ${saved.vote_count} saved`);
    }
  }
  return found;
}

// Waits until all of it is exact. The load must be paused.
export async function untilExact(site, load) {
  await until("each vote without an answer is cast again", EXACT_LIMIT_S, async () => (await load.ask("retry")) === 0);
  const record = await recorded(load);
  await until("each acknowledged vote is counted once", EXACT_LIMIT_S, async () => {
    const found = await faults(site, record);
    if (found.length) throw new Error(`${found.length} faults: ${found.slice(0, 3).join("; ")}`);
    const said = await site.operator.quietly("with worker tally audit");
    if (!/^wrong +0 items, by 0 votes/m.test(said)) throw new Error(said);
    return true;
  });
  return [...record.values()].reduce((sum, voters) => sum + voters.size, 0);
}
