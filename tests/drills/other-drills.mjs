// Drills of servers, workers, the proxy and secrets.
import https from "node:https";
import { giveClock } from "./clock.mjs";
import { restartInTurn } from "./installation.mjs";
import { NOT_READY } from "./postgres-drills.mjs";
import { known } from "./prometheus.mjs";
import { START_LIMIT_S, until } from "./waiting.mjs";

const RUNBOOK = "docs/operating/runbook.md";
const SECURITY = "docs/security.md";
const AHEAD_S = 60; // how far the server's clock is wrong
const STOLEN_VOTES = 300;
const REMEMBERED_S = 70; // a server remembers a key for 60 s

// Votes with any key, as whoever has it may. Gives the status.
function vote(site, key, item, voter) {
  const body = JSON.stringify({ voter_id: voter });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const options = { host: "127.0.0.1", port: site.votesPort, path: `/v1/items/${item}/votes`, method: "POST", headers, agent: false, rejectUnauthorized: false };
    const request = https.request(options, (answer) => { answer.resume(); resolve(answer.statusCode); });
    request.on("error", reject);
    request.end(body);
  });
}

const here = {};

export const OTHER_DRILLS = [
  {
    name: "Workers wedged",
    page: `${RUNBOOK}#workers-are-gone-or-behind`,
    breaks: "`kill -STOP` of both workers",
    alert: known(["TallyNoWorker"], ["TallyDown"]),
    break: (site) => site.workers.forEach((one) => one.signal("SIGSTOP")),
    async mend({ operator }) {
      const said = await operator.types("api http://127.0.0.1:8080/v1/status");
      if (JSON.parse(said).workers.some((one) => one.alive)) throw new Error(said);
      await operator.types("sudo systemctl restart tally-worker");
    },
  },
  {
    name: "A server's clock off",
    page: `${RUNBOOK}#a-wrong-clock`,
    breaks: `one server's clock steps ${AHEAD_S} s ahead`,
    alert: "TallyClockWrong",
    shortened: [["for: 5m", "for: 20s"]],
    before: (site) => giveClock(site, "one"),
    break: ({ clocks }) => clocks.one.set(AHEAD_S),
    mend: ({ operator, clocks }) => operator.does("sets the clock", () => clocks.one.set(0)),
    async after(site) {
      site.extraEnv = {};
      site.clocks = {};
      await site.operator.quietly("sudo systemctl restart tally", "one");
    },
  },
  {
    name: "A key leaked",
    page: `${SECURITY}#an-api-key-leaked`,
    breaks: `someone casts ${STOLEN_VOTES} votes with the backend's API key`,
    why: "to Tally they look like the backend's",
    report: "The team of the backend says: the item “bought” has votes that we never cast.",
    async break(site) {
      here.item = (await site.api("/v1/items", { method: "POST", body: JSON.stringify({ name: "bought" }) })).id;
      here.stolen = site.keys.vote;
      here.from = new Date(Date.now() - 1000).toISOString();
      for (let at = 0; at < STOLEN_VOTES; at++) {
        const status = await vote(site, site.keys.vote, here.item, `bot-${at}`);
        if (status !== 201) throw new Error(`a stolen vote got ${status}`);
      }
    },
    async mend(site, load) {
      const { operator } = site;
      const list = await operator.types("with operator tally key list");
      const id = /id (\d+) .*name backend /.exec(list)?.[1];
      if (!id) throw new Error(list);
      await operator.types("with operator tally key revoke 3", { fill: { "revoke 3": `revoke ${id}` } });
      await operator.types("api -X DELETE http://127.0.0.1:8080/v1/api-keys/3", { fill: { "api-keys/3": `api-keys/${id}` } });
      const made = await operator.types("with operator tally key create backend --scope vote");
      const stolen = site.keys.vote;
      site.keys.vote = /tally_[0-9a-f]{64}/.exec(made)[0];
      await operator.does("gives the backend the new key", () => load.ask("useKey", site.keys.vote));
      let refused = 0;
      await until("both servers refuse the stolen key", REMEMBERED_S, async () => {
        refused = (await vote(site, stolen, here.item, "bot-last")) === 401 ? refused + 1 : 0;
        return refused >= 10;
      });
      // The backend has gone on voting with the same key, on other items.
      const fill = { "--api-key 3": `--api-key ${id}`, ITEM: here.item, TIME: here.from };
      const words = "with operator tally void --api-key 3 --from TIME --reason 'it leaked'";
      const dry = await operator.types(words, { fill, add: " --item ITEM" });
      if (!new RegExp(`\\b${STOLEN_VOTES}|${STOLEN_VOTES + 1}\\b`).test(dry)) throw new Error(dry);
      await operator.types(words, { fill, add: " --item ITEM --apply" });
    },
    async check(site) {
      await until("the stolen votes count no more", START_LIMIT_S, async () => {
        const item = await site.api(`/v1/items/${here.item}`);
        return item.vote_count === 0 && item.saved.vote_count === 0;
      });
    },
    async checkByHand(site) {
      if ((await vote(site, here.stolen, here.item, "bot-last")) !== 401) throw new Error("the stolen key still votes");
    },
  },
  {
    name: "A store's certificate expired",
    page: `${SECURITY}#rotating-secrets`,
    breaks: "Postgres' certificate is of yesterday, and connections end",
    alert: NOT_READY,
    async break(site) {
      const { postgres, authority } = site;
      const yesterday = new Date(Date.now() - 86_400_000).toISOString().replaceAll(/[-:T]/g, "").slice(0, 14);
      authority.make(postgres.name, postgres.owner, `${yesterday}Z`);
      await postgres.sql("select pg_reload_conf()", "postgres");
      await postgres.sql("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename in ('server', 'worker')", "postgres");
    },
    async mend(site) {
      const { operator, postgres, authority } = site;
      await operator.does("puts new files in the place of the old ones", () => authority.make(postgres.name, postgres.owner));
      await operator.types("sudo systemctl reload postgresql", { on: postgres.name });
    },
  },
  {
    name: "A rolling restart behind HAProxy",
    page: "docs/operating/proxy.md#without-losing-a-request",
    breaks: "nothing: each server is restarted at full load",
    why: "a drain is too short for one",
    break: () => {},
    mend: (site) => restartInTurn(site, "sudo systemctl restart tally"),
    check(site, load, result) {
      const lost = Object.entries(result.tallies).filter(([what]) => what !== "acknowledged");
      if (lost.length) throw new Error(`requests were lost: ${JSON.stringify(result.tallies)}`);
      result.then = `0 of ${result.tallies.acknowledged.toLocaleString("en")} requests lost`;
    },
  },
];
