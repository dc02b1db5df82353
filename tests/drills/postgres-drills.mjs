// Drills of the runbook's pages on Postgres.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { missing } from "./exact.mjs";
import { known } from "./prometheus.mjs";
import { run, START_LIMIT_S, until } from "./waiting.mjs";

const RUNBOOK = "docs/operating/runbook.md";
const FAILOVER = "docs/operating/failover.md";
const BEHIND = 300; // votes that the standby lacks
const SPACING_S = 3; // 0.05 × 60 s: a transaction of a minute, as the page asks for
const NOT_POSTGRES = "export.csv"; // someone's file on Postgres' disk
const HOUR_SPACING_S = 59; // the most that a worker waits, which an hour's transaction reaches

// Without Postgres a server takes no key that it has not seen for a minute, Prometheus' one included: then Prometheus
// sees neither `tally_ready` nor anything else of it.
export const NOT_READY = known(["TallyPostgresUnavailable"], ["TallyNotReady", "TallyVotesFailed", "TallyDown"]);
// Votes that fit into the files are still stored, so a server is ready on and off.
const DISK_FULL = known(["TallyPostgresDiskFull", "TallyPostgresUnavailable", "TallyNotReady", "TallyVotesFailed"], NOT_READY);
const STAYS_OPEN = known(["TallyTransactionStaysOpen"], []);

// Someone's session, which holds what its statements took. It ends with the drill.
async function session(site, name, statements) {
  const { folder, port } = site.postgres;
  const child = spawn("psql", ["-h", folder, "-p", String(port), "-U", "postgres", "-d", "tally", "-XAtq"],
    { env: { ...process.env, PGAPPNAME: name }, stdio: ["pipe", "pipe", "ignore"] });
  child.stdin.on("error", () => {}); // the operator ended it
  child.stdin.write(`${statements};\nselect 'held';\n`);
  const [said] = await once(child.stdout, "data");
  if (!/held/.test(said)) await until("the session holds", START_LIMIT_S, async () => /held/.test((await once(child.stdout, "data"))[0]));
  return child;
}
const endSession = (child) => { child.stdin.end(); child.kill(); };

const ROLL_BACK = `sql dba -c '\\c tally' -c "rollback prepared 'GID'"`;
const LOOK = `select pid, usename, application_name, state, now() - xact_start as since, left(query, 60) as query
from pg_stat_activity where xact_start < now() - interval '1 minute' order by xact_start;`;

// Ends the session with this name, as the page says.
async function terminate({ operator }, name) {
  const said = await operator.sql("dba", LOOK);
  const line = said.split("\n").find((one) => one.split("|")[2] === name);
  if (!line) throw new Error(`the page's query does not show ${name}: ${said}`);
  await operator.sql("dba", "select pg_terminate_backend(PID)", { fill: { PID: line.split("|")[0] } });
}

async function synchronous(site, name) {
  await site.postgres.sql(`alter system set synchronous_standby_names = '${name}'`, "postgres");
  await site.postgres.sql("select pg_reload_conf()", "postgres");
  if (name) await until("the standby is synchronous", START_LIMIT_S, async () => (await site.postgres.sql("select sync_state from pg_stat_replication")) === "sync");
}

// "Fail over", on the standby's machine.
async function failOver(site) {
  const { operator, standby } = site;
  await operator.types("sudo systemctl disable --now postgresql", { on: site.postgres.name });
  const promote = "sudo -u postgres psql -c 'select pg_last_xact_replay_timestamp()' -c 'select pg_promote()' -c 'select pg_is_in_recovery()' -c 'show synchronous_standby_names'";
  const said = await operator.types(promote, { on: standby.name });
  if (!/^ f$/m.test(said)) throw new Error(`still in recovery: ${said}`);
  await operator.does("moves the name of Postgres to the new primary", () => site.moveName("postgres", standby));
  [site.postgres, site.standby] = [standby, site.postgres];
}

// The old primary's disk is not needed any more: it becomes the standby.
const rebuildStandby = (site) => site.standby.copy(site.postgres);

const whileLocked = {};

export const POSTGRES_DRILLS = [
  {
    name: "Postgres killed",
    page: `${RUNBOOK}#postgres-is-unavailable`,
    breaks: "`kill -9` of Postgres; it stays down",
    alert: NOT_READY,
    break: (site) => site.postgres.program.kill(),
    mend: (site) => site.operator.types("sudo systemctl start postgresql", { on: site.postgres.name }),
  },
  {
    name: "Postgres failed over, standby synchronous",
    page: `${FAILOVER}#fail-over`,
    breaks: "the primary is gone; its standby has each vote",
    gone: (site) => site.postgres.name,
    alert: NOT_READY,
    before: (site) => synchronous(site, site.standby.name),
    break: (site) => site.postgres.program.kill(),
    mend: failOver,
    async check(site, load, result) {
      const { lost_votes: lost } = await site.api("/v1/status");
      if (lost.total !== 0) throw new Error(`${lost.total} votes are lost`);
      result.then = "0 votes lost";
    },
    after: rebuildStandby,
  },
  {
    name: "Postgres failed over, standby behind",
    page: `${FAILOVER}#votes-were-lost`,
    breaks: "the primary is gone; its standby lacks some hundred votes",
    gone: (site) => site.postgres.name,
    alert: NOT_READY,
    async break(site, load, restart) {
      await site.standby.sql("alter system set primary_conninfo = ''", "postgres");
      await site.standby.sql("select pg_reload_conf()", "postgres");
      await until("the standby receives nothing", START_LIMIT_S, async () => (await site.standby.sql("select count(*) from pg_stat_wal_receiver", "postgres")) === "0");
      const start = await load.ask("acknowledgedNow");
      await until("the standby is behind", START_LIMIT_S, async () => (await load.ask("acknowledgedNow")) > start + BEHIND);
      await site.postgres.program.kill();
      restart();
    },
    async mend(site, load, result) {
      await failOver(site);
      const moved = performance.now();
      await site.prometheus.fires(["TallyVotesLost"]);
      result.then = `then \`TallyVotesLost\`, ${((performance.now() - moved) / 1000).toFixed(1)} s after the name was moved`;
      await site.operator.sql("owner", "select found_at, vote_total, item_total, first_stored_at, last_stored_at, last_vote_id, is_whole from loss order by id;");
    },
    // What is missing must be what Tally says is lost, on each item.
    async reckon(site, load, result) {
      const lost = await missing(site, load);
      const said = await until("Tally says what is lost", START_LIMIT_S, async () => {
        const { lost_votes: { total } } = await site.api("/v1/status");
        if (total !== lost.length) throw new Error(`lost_votes ${total}, missing ${lost.length}`);
        return total;
      });
      const byItem = await site.operator.sql("owner", "select item_id, sum(vote_total) from loss_item group by item_id order by 2 desc limit 20;");
      const rows = await site.postgres.sql("select item_id, sum(vote_total) from loss_item group by item_id");
      for (const line of rows.split("\n")) {
        const [item, votes] = line.split("|").map(Number);
        const really = lost.filter(([one]) => one === item).length;
        if (really !== votes) throw new Error(`item ${item}: loss_item says ${votes}, missing are ${really}`);
      }
      if (!byItem) throw new Error("loss_item is empty");
      result.then += `; ${said} votes lost, each of them in \`lost_votes\` of \`/v1/status\` and by item`;
      await load.ask("forget", lost);
      await site.operator.sql("owner", "truncate loss, loss_item");
    },
    after: rebuildStandby,
  },
  {
    name: "The synchronous standby is gone",
    page: `${RUNBOOK}#the-synchronous-standby-is-gone`,
    breaks: "the standby is killed, and the primary waits for it",
    alert: NOT_READY,
    before: (site) => synchronous(site, site.standby.name),
    break: (site) => site.standby.program.kill(),
    async mend({ operator }) {
      const waits = await operator.sql("dba", "show synchronous_standby_names;\nselect application_name, state, sync_state from pg_stat_replication;");
      if (!waits.trim()) throw new Error("no standby is named");
      await operator.sql("dba", "alter system set synchronous_standby_names = '';\nselect pg_reload_conf();");
    },
    after: (site) => site.standby.start(),
  },
  {
    name: "A table locked",
    page: `${RUNBOOK}#a-lock-or-a-transaction-that-stays-open`,
    breaks: "`lock table vote` in a psql that stays open",
    alert: NOT_READY,
    async break(site, load, restart) {
      whileLocked.child = await session(site, "someone", "begin; lock table vote in access exclusive mode");
      restart();
    },
    mend: (site) => terminate(site, "someone"),
    after: () => endSession(whileLocked.child),
  },
  {
    name: "A report for an hour",
    page: `${RUNBOOK}#a-lock-or-a-transaction-that-stays-open`,
    breaks: "a transaction holds a snapshot: for a minute here, with `LONG=1` for 20",
    ...(STAYS_OPEN.length
      ? { alert: STAYS_OPEN, shortened: [["tally_save_spacing_seconds >= 60", `tally_save_spacing_seconds >= ${SPACING_S}`], ["for: 10m", "for: 2s"]] }
      : { why: "votes and live counts go on; saved counts get late by at most a minute (`tally_save_spacing_seconds`), and below the limits of all alerts" }),
    async break(site) {
      whileLocked.child = await session(site, "report", "begin isolation level repeatable read; select count(*) from item");
    },
    async notice(site) {
      const wanted = process.env.LONG === "1" ? HOUR_SPACING_S : SPACING_S;
      await until("saves are further apart", wanted * 25, async () => (await site.prometheus.query("max(tally_save_spacing_seconds)")) >= wanted + 0.1);
    },
    mend: (site) => terminate(site, "report"),
    after: () => endSession(whileLocked.child),
  },
  {
    name: "A prepared transaction forgotten",
    page: `${RUNBOOK}#a-lock-or-a-transaction-that-stays-open`,
    breaks: "`prepare transaction` with a lock on an item's row",
    alert: ["TallyPreparedTransactionOpen", "TallySavedCountsOld"],
    async break(site) {
      await site.postgres.sql("begin; select 1 from item order by id limit 1 for update; prepare transaction 'forgotten'");
    },
    async mend({ operator }) {
      const said = await operator.sql("dba", "select gid, prepared, owner from pg_prepared_xacts;");
      if (!/^forgotten\|/m.test(said)) throw new Error(said);
      await operator.types(ROLL_BACK, { fill: { GID: "forgotten" } });
    },
  },
  {
    name: "Postgres' disk full",
    page: `${RUNBOOK}#postgres-disk-is-full`,
    breaks: "something fills the disk of the tables; the WAL has another one",
    alert: DISK_FULL,
    needs: (site) => (site.postgres.hasDisk ? undefined : "only root can mount a small disk"),
    break(site) {
      const file = openSync(join(site.postgres.folder, "disk", NOT_POSTGRES), "w");
      const block = Buffer.alloc(64 * 1024);
      for (let size = block.length; size >= 1024;) {
        try {
          writeSync(file, block, 0, size);
        } catch (error) {
          if (error.code !== "ENOSPC") throw error;
          size = Math.floor(size / 2);
        }
      }
      closeSync(file);
    },
    async mend(site) {
      const { operator, postgres } = site;
      await operator.does("makes space: moves what is not Postgres'", () => rmSync(join(postgres.folder, "disk", NOT_POSTGRES)));
      await operator.sql("owner", "select failed_count, last_failed_wal, last_failed_time from pg_stat_archiver;");
    },
  },
  {
    name: "Postgres restored to an earlier time",
    page: "docs/operating/backup.md#restore",
    breaks: "someone drops the table `vote`",
    alert: NOT_READY,
    async before(site) {
      const { folder, port } = site.postgres;
      const to = join(site.postgres.folder, "backup");
      execFileSync("rm", ["-rf", to]);
      await run(join(site.postgres.bin, "pg_basebackup"), ["-d", `host=${folder} port=${port} user=postgres`, "-D", to, "-X", "none", "-c", "fast", "--no-sync", "--no-manifest"], { ...site.postgres.owner, cwd: "/" });
    },
    async break(site, load, restart) {
      // The number of this transaction, which Postgres' log of statements would show.
      whileLocked.xid = (await site.postgres.sql("begin; lock table vote in access exclusive mode; select pg_current_xact_id(); drop table vote cascade; commit")).split("\n")[0];
      restart();
    },
    async mend(site) {
      const { operator, postgres, standby } = site;
      await operator.types("sudo systemctl stop tally tally-worker");
      await operator.does("recovers a base backup and the archive to just before the `drop`, as Postgres' manual says", async () => {
        await postgres.sql("select pg_switch_wal()");
        await until("the WAL is archived", START_LIMIT_S, async () => (await postgres.sql("select last_archived_wal >= pg_walfile_name(pg_current_wal_lsn() - 1) from pg_stat_archiver")) !== "f");
        await postgres.program.stop("SIGINT");
        await standby.restore(join(postgres.folder, "backup"), postgres.archive, whileLocked.xid);
      });
      await operator.does("moves the name of Postgres", () => site.moveName("postgres", standby));
      [site.postgres, site.standby] = [standby, postgres];
      await operator.types("with owner tally migrate");
      await operator.types("with passwords sql owner --file=/opt/tally/0.1.0/logins.sql");
      await operator.types("redis --scan --pattern 'tally:*' | sed 's/^/UNLINK /' | redis");
      await operator.types("with worker sync-worker --once");
      await operator.types("with worker tally audit");
      await operator.types("sudo systemctl start tally-worker");
      await operator.types("sudo systemctl start tally");
    },
    async check(site, load, result) {
      result.then = `${(await missing(site, load)).length} votes lost`;
    },
    after: rebuildStandby,
  },
  {
    name: "Wraparound near",
    page: `${RUNBOOK}#postgres-disk-is-full`,
    breaks: "transaction ids are 1.26 billion further (`pg_resetwal`), and the slot of a standby that is gone keeps vacuum from them",
    alert: "TallyTransactionIdsRunOut",
    shortened: [["for: 10m", "for: 20s"]],
    async break(site, load, restart) {
      const { postgres, standby } = site;
      await load.ask("pause");
      await postgres.sql("select pg_create_physical_replication_slot('forgotten')", "postgres");
      for (const setting of ["primary_slot_name = 'forgotten'", "hot_standby_feedback = on"]) await standby.sql(`alter system set ${setting}`, "postgres");
      await standby.sql("select pg_reload_conf()", "postgres");
      await until("the slot holds a snapshot", START_LIMIT_S, async () => (await postgres.sql("select count(*) from pg_replication_slots where xmin is not null")) === "1");
      await standby.program.stop("SIGINT");
      await postgres.program.stop("SIGINT");
      await postgres.moveTransactionIds();
      await postgres.start();
      await standby.copy(postgres);
      await site.untilReady();
      await load.ask("resume");
      restart();
    },
    notice: (site) => until("the doctor finds both", START_LIMIT_S, async () => {
      const said = await site.operator.quietly("with worker tally doctor || true");
      return /vacuum freeze/.test(said) && /slots that nobody uses \(forgotten\)/.test(said);
    }, 1000),
    async mend(site) {
      const { operator } = site;
      await operator.types("with worker tally doctor", { mayFail: true });
      await operator.sql("dba", "select slot_name, active, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) as keeps from pg_replication_slots;");
      await operator.sql("dba", "select pg_drop_replication_slot('…')", { fill: { "…": "forgotten" } });
      await operator.does("`vacuum freeze` in each database, as `tally doctor` says", async () => {
        for (const name of ["tally", "postgres", "template1"]) await site.postgres.sql("vacuum freeze", name);
      });
      await until("the doctor is content", START_LIMIT_S * 2, async () => !/vacuum freeze/.test(await operator.quietly("with worker tally doctor || true")), 1000);
    },
  },
];
