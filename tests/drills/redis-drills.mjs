// Drills of the runbook's pages on Redis.
import { copyFileSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { known } from "./prometheus.mjs";
import { Redis } from "./stores.mjs";
import { freePort } from "../ports.mjs";
import { START_LIMIT_S, until } from "./waiting.mjs";

const RUNBOOK = "docs/operating/runbook.md";
const UNAVAILABLE = `${RUNBOOK}#redis-is-unavailable-or-full`;
const VOTES_BETWEEN = 500; // votes that Redis forgets with an old file

// "After a restart of Redis", step 1.
export async function afterRestart({ operator }) {
  const users = await operator.types("redis acl list");
  for (const user of ["server", "worker", "operator"]) if (!users.includes(`user ${user} on`)) throw new Error(`no user ${user}: ${users}`);
  if (!/noeviction/.test(await operator.types("redis config get maxmemory-policy"))) throw new Error("the policy is not noeviction");
}

// Gives a Redis the users, so that its replies are those of a whole installation.
async function makeUsers(site, redis) {
  const address = `-h 127.0.0.1 -p ${redis.port}`;
  if (/user worker on/.test(await redis.cli("acl", "list"))) return;
  await site.operator.quietly(`with passwords /opt/tally/0.1.0/redis-users | sed 's/^user/ACL SETUSER/' | REDISCLI_AUTH= redis-cli ${address} --tls --cacert ${site.authority.file}`);
  await redis.cli("config", "rewrite");
}

// A node of a Redis Cluster, as another team may have one.
export async function makeCluster(site) {
  site.cluster ??= new Redis(site, "redis_3", await freePort(), { isCluster: true });
  await site.cluster.start();
  await makeUsers(site, site.cluster);
}

export const REDIS_DRILLS = [
  {
    name: "Redis killed",
    page: UNAVAILABLE,
    breaks: "`kill -9` of Redis; it stays down",
    alert: "TallyRedisUnavailable",
    break: (site) => site.redis.program.kill(),
    async mend(site) {
      await site.operator.types("sudo systemctl restart redis-server", { on: site.redis.name });
      await afterRestart(site);
    },
  },
  {
    name: "Redis hung",
    page: UNAVAILABLE,
    breaks: "`kill -STOP` of Redis: it takes connections and answers none",
    alert: "TallyRedisUnavailable",
    break: (site) => site.redis.program.signal("SIGSTOP"),
    async mend(site) {
      await site.operator.types("sudo systemctl restart redis-server", { on: site.redis.name });
      await afterRestart(site);
    },
  },
  {
    name: "Redis full",
    page: UNAVAILABLE,
    breaks: "`maxmemory` is what Redis uses",
    alert: known(["TallyRedisFull"], ["TallyRedisUnavailable"]),
    async break(site) {
      await site.redis.cli("config", "set", "maxmemory", "1mb");
    },
    async mend(site) {
      await site.operator.types("redis info memory");
      await site.operator.types("redis config set maxmemory 2gb");
      await site.operator.types("redis config rewrite");
    },
  },
  {
    name: "Redis wiped",
    page: `${RUNBOOK}#after-a-restart-of-redis`,
    breaks: "`FLUSHALL`",
    why: "a worker sees it at its next tick, and all counts are back before one could fire",
    async break(site) {
      await site.redis.cli("flushall");
    },
    notice: (site) => site.logged("worker", "Redis is new or has lost its data"),
    mend: afterRestart,
  },
  {
    name: "Redis failed over",
    page: `${RUNBOOK}#a-failover-of-redis`,
    breaks: "the primary's machine is gone; its replica has neither users nor policy",
    gone: (site) => site.redis.name,
    alert: "TallyRedisUnavailable",
    break: (site) => site.redis.program.kill(),
    async mend(site) {
      const { operator, replica } = site;
      const fill = { MACHINE: `127.0.0.1 -p ${replica.port}` };
      const said = await operator.types("redis -h MACHINE info replication", { fill });
      if (!/role:slave/.test(said)) throw new Error(said);
      await operator.types("redis -h MACHINE replicaof no one", { fill });
      await operator.types("with passwords /opt/tally/0.1.0/redis-users | sed 's/^user/ACL SETUSER/' | redis -h MACHINE", { fill });
      await operator.types("redis -h MACHINE config set maxmemory-policy noeviction", { fill });
      await operator.types("redis -h MACHINE config rewrite", { fill });
      await operator.does("moves the name of Redis to the replica", () => site.moveName("redis", replica));
      [site.redis, site.replica] = [replica, site.redis];
      await afterRestart(site);
    },
    async after(site) {
      await site.replica.start();
      await site.replica.follow(site.redis);
    },
  },
  {
    name: "Redis' name leads to a replica",
    page: `${RUNBOOK}#a-failover-of-redis`,
    breaks: "the name leads to the replica: `READONLY`",
    alert: "TallyRedisUnavailable",
    before: (site) => makeUsers(site, site.replica),
    break: (site) => site.moveName("redis", site.replica, { cut: true }),
    async mend(site) {
      const said = await site.operator.types("redis info replication");
      if (!/role:slave/.test(said)) throw new Error(said);
      await site.operator.does("moves the name of Redis to the primary", () => site.moveName("redis", site.redis));
      // Connections to the replica stay open, as with DNS. Tally closes them.
    },
  },
  {
    name: "Redis' name leads to a Cluster",
    page: "docs/operating/refusals.md#what-a-program-refuses-at-its-start",
    breaks: "the name leads to a node of a Redis Cluster",
    alert: "TallyRedisUnavailable",
    before: makeCluster,
    break: (site) => site.moveName("redis", site.cluster, { cut: true }),
    async mend(site) {
      await until("ready says what it is", START_LIMIT_S, async () => /Cluster/.test((await site.readyOf(0)).detail));
      await site.operator.does("moves the name of Redis back", () => site.moveName("redis", site.redis));
    },
    after: (site) => site.cluster.program.kill(),
  },
  {
    name: "An old file put back in Redis",
    page: `${RUNBOOK}#after-a-restart-of-redis`,
    breaks: "`DEBUG RELOAD` of a copy that lacks some hundred votes",
    alert: "TallyCountsWrong",
    async before(site, load) {
      const more = async () => {
        const start = await load.ask("acknowledgedNow");
        await until("votes come", START_LIMIT_S, async () => (await load.ask("acknowledgedNow")) > start + VOTES_BETWEEN);
      };
      await more();
      await site.redis.cli("save");
      copyFileSync(join(site.redis.folder, "dump.rdb"), join(site.folder, "copy.rdb"));
      await more();
    },
    async break(site) {
      renameSync(join(site.folder, "copy.rdb"), join(site.redis.folder, "dump.rdb"));
      await site.redis.cli("debug", "reload", "nosave");
    },
    async mend(site) {
      await site.operator.types("redis info server");
      await site.operator.types("redis config rewrite");
      await site.operator.types("sudo systemctl restart redis-server", { on: site.redis.name });
      await afterRestart(site);
    },
    after: (site) => rmSync(join(site.redis.folder, "dump.rdb"), { force: true }),
  },
];
