// What the person on call has: a shell of the operator, the pages' commands, and a README that says how to use them.
// All of it is there in each exercise, so that nothing tells which drill it is.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { MACHINES } from "./installation.mjs";
import { wordsHere } from "./operator.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;

// What pages say in words, or leave to other programs than Tally's: name, what is given to it, what it does.
export const TOOLS = [
  ["alerts", "", "shows what fires now"],
  ["processes", "", "shows the processes of all machines; `ps` and `kill` work with their numbers"],
  ["move-name", "postgres|redis MACHINE", "lets the host name of a store lead to another machine, as DNS does"],
  ["new-certificate", "MACHINE", "makes a new certificate and key for a store, and puts them in the place of the old ones"],
  ["set-clock", "one|two", "sets the machine's clock right (`date` shows it)"],
  ["give-backend", "KEY", "gives the backend another API key: it votes with this one from then on"],
];

const LOOK = "You look at the installation, as each week.";

const sedOf = (words) => words.map(([from, to]) => `s|${from.replaceAll(".", "\\.")}|${to}|g\n`).join("");

const JOURNALCTL = (folder) => `#!/usr/bin/env bash
# The logs of this machine's units, as journalctl shows them with -o cat.
units=() lines=+1 since='' follow=''
while [ $# -gt 0 ]; do
  case $1 in
    -u|--unit) units+=("$2"); shift ;;
    --unit=*) units+=("\${1#*=}") ;;
    -n|--lines) lines=$2; shift ;;
    -n*) lines=\${1#-n} ;;
    -S|--since) since=$2; shift ;;
    --since=*) since=\${1#*=} ;;
    -f|--follow) follow=1 ;;
    -o) shift ;;
    -e|-q|-x|--no-pager|--output=*) ;;
    *) echo "Here, journalctl knows no $1." >&2; exit 1 ;;
  esac
  shift
done
files=()
has() { [ ! -f "${folder}/$1.log" ] || files+=("${folder}/$1.log"); }
[ \${#units[@]} -gt 0 ] || units=(tally tally-worker postgresql redis-server)
for unit in "\${units[@]}"; do
  case \${unit%.service} in
    tally) has "server_$MACHINE" ;;
    tally-worker) has "worker_$MACHINE" ;;
    postgresql*) [[ $MACHINE != postgres_* ]] || has "$MACHINE" ;;
    redis*) [[ $MACHINE != redis_* ]] || has "$MACHINE" ;;
    haproxy|prometheus) has "\${unit%.service}" ;;
  esac
done
[ \${#files[@]} -gt 0 ] || { echo "-- No entries --"; exit; }
[ -z "$follow" ] || exec tail -qF "\${files[@]}"
start=0
[ -z "$since" ] || start=$(/bin/date -u -d "$since" +%FT%T) || exit
cat "\${files[@]}" | awk -v start="$start" '
  match($0, /20[0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ][0-9:]+/) { at = substr($0, RSTART, 19); sub(" ", "T", at); if (RSTART < 20 && at < start) next }
  1' | tail -n "$lines"
`;

const OPERATOR = (folder) => `#!/usr/bin/env bash
# The operator's shell: operator [on MACHINE] [-c 'command']. It puts this installation's paths and ports in the place of
# those that the pages have.
machine=one
if [ "$1" = on ]; then machine=$2; shift 2; fi
here=${folder}
[ -f "$here/machines/$machine" ] || { echo "There is no machine $machine." >&2; exit 2; }
set -a; . "$here/machines/$machine"; set +a
unset DATABASE_URL REDIS_URL REDISCLI_AUTH TALLY_API_KEY
export HOME=$here/home PATH=$here/bin:$PATH:/usr/sbin
cd "$HOME" || exit
. "$here/etc/shell"
replaced() { sed -f "$here/machines/$machine.sed" <<<"$1"; }
note() { printf '%s: %s\\n' "$machine" "$1" >>"$here/home/.typed"; }
if [ "$1" = -c ]; then note "$2"; set -o pipefail; eval "$(replaced "$2")"; exit; fi
[ $# = 0 ] || { echo "usage: operator [on MACHINE] [-c 'command']" >&2; exit 2; }
trap : INT
prompt="operator@$machine$ "
text=
while true; do
  IFS= read -r -e -p "$prompt" line || { [ $? -gt 128 ] && { text= prompt="operator@$machine$ "; echo; continue; }; break; }
  text+=\${text:+$'\\n'}$line
  if bash -n -c "$text" 2>&1 | grep -qE 'unexpected (EOF|end of file)|delimited by end-of-file' || [[ $line == *\\\\ ]]; then prompt='> '; continue; fi
  [ -z "$text" ] || { history -s "$text"; note "$text"; eval "$(replaced "$text")"; }
  text= prompt="operator@$machine$ "
done
`;

// Writes the scripts. `socket`: where the exercise listens.
export function writeShell(site, socket) {
  const { folder, bin } = site;
  const script = (path, text) => writeFileSync(path, text, { mode: 0o755 });
  const ask = (name) => `#!/bin/sh\nprintf %s "$*" | curl -s --fail-with-body --unix-socket ${socket} --data-binary @- http://site/${name}
code=$?
case $code in 0 | 22) ;; *) echo "The exercise has ended." >&2 ;; esac
exit $code\n`;
  for (const [name] of TOOLS) script(join(bin, name), ask(name));
  for (const name of ["cause", "done", "give-up"]) script(join(folder, name), ask(name));
  script(join(folder, "operator"), OPERATOR(folder));
  script(join(bin, "journalctl"), JOURNALCTL(folder));
  script(join(bin, "sudoedit"), '#!/bin/sh\nexec "${EDITOR:-vi}" "$@"\n');
  script(join(bin, "date"), `#!/bin/sh\n[ -f "${folder}/clock_$MACHINE" ] || exec /bin/date "$@"\nLD_PRELOAD=${folder}/clock.so TALLY_TEST_CLOCK="${folder}/clock_$MACHINE" exec /bin/date "$@"\n`);
  const tally = join(bin, "tally");
  rmSync(tally);
  const programs = process.env.DRILLS_PROGRAMS;
  script(tally, `#!/bin/sh\n# \`tally health\` asks the server of this machine.\ncase "$*" in health) set -- health --url "$SERVER/health/ready" ;; esac\nexec ${programs}/tally "$@"\n`);
  const stores = [site.postgres, site.standby, site.redis, site.replica, site.cluster];
  const hosts = stores.map((one) => [`-h ${one.name}`, `-h ${one.data ? one.folder : "127.0.0.1"} -p ${one.port}`]);
  for (const machine of [...MACHINES, ...stores.map((one) => one.name)]) {
    const at = Math.max(MACHINES.indexOf(machine), 0);
    const store = [site.postgres, site.standby].find((one) => one.name === machine);
    const env = { MACHINE: machine, SERVER: `http://127.0.0.1:${site.serverPorts[at]}`, ...(store && { PGHOST: store.folder, PGPORT: store.port, PGUSER: "postgres" }) };
    writeFileSync(join(folder, "machines", machine), Object.entries(env).map(([name, value]) => `${name}=${value}\n`).join(""));
    writeFileSync(join(folder, "machines", `${machine}.sed`), sedOf([...wordsHere(site, at), ...hosts]));
  }
}

// What the person typed.
export function typedBy({ folder }) {
  try {
    return readFileSync(join(folder, "home", ".typed"), "utf8").trim().split("\n");
  } catch {
    return []; // nothing yet
  }
}

// What woke the person: the alerts as Prometheus gives them, or what someone reports.
export function wakingOf(alerts, report = LOOK) {
  if (alerts.length === 0) return report;
  return alerts.map(({ labels: { alertname, ...labels }, annotations }) => {
    const lines = Object.entries({ ...annotations, labels: Object.entries(labels).map(([name, value]) => `${name}="${value}"`).join(", ") });
    return [`The alert ${alertname} fires.`, ...lines.filter(([, text]) => text).map(([name, text]) => `  ${name}: ${text}`)].join("\n");
  }).join("\n");
}

export function readme(site, waking) {
  const { folder, serverPorts, workerPorts, votesPort, prometheus } = site;
  const server = (at) => `a server (http://127.0.0.1:${serverPorts[at]}) and a worker (http://127.0.0.1:${workerPorts[at]})`;
  const width = Math.max(...TOOLS.map(([name, given]) => `${name} ${given}`.length));
  return `# You are on call

${waking}

Find out what is wrong, and mend it, with the manual alone: ${ROOT}docs/operating/README.md (runbook.md is beside it).
What is in tests/, and the table in docs/drills.md, would tell you too much.

## When you know, and when it is mended

  ${folder}/cause 'what is wrong, in your words'     as soon as you know
  ${folder}/done                                     when it is mended
  ${folder}/give-up                                  ends it, and says what it was

## The installation

  one           ${server(0)}
  two           ${server(1)}
  postgres_1    the primary, and postgres_2 its standby: each has a disk of its own, ${folder}/postgres_N/disk
  redis_1       the primary, and redis_2 its replica: ${folder}/redis_N/redis.conf
  redis_3       is of another team: a node of a Redis Cluster
  HAProxy       https://127.0.0.1:${votesPort} (votes of the backend come here), ${folder}/haproxy.cfg
                It also stands for DNS: the host name of each store leads to one machine.
  Prometheus    ${prometheus.port ? `http://127.0.0.1:${prometheus.port}` : "starts soon"}; it asks each program once a second

## The operator's shell

  ${folder}/operator                      a shell on machine one
  ${folder}/operator on postgres_1        on another machine
  ${folder}/operator on two -c 'tally health'      one command

Type there what the pages say: \`with\`, \`sql\`, \`redis\`, \`api\` are loaded. /etc/tally, /opt/tally/0.1.0, 127.0.0.1:8080
and 127.0.0.1:9090 lead to this installation's, and \`-h redis_2\` or \`-h postgres_2\` to a machine. A file that you name
in an editor's own prompt, or inside psql, has its real path: ${folder}/etc for /etc/tally.

- \`sudo systemctl status|start|stop|restart|reload UNIT\` on the machine that has it: tally, tally-worker, postgresql,
  redis-server. \`sudo -u postgres psql\` on postgres_1 and postgres_2.
- \`journalctl -u UNIT\` on that machine (-n, -f, --since). Also haproxy, prometheus.
- \`df\`, \`ls\`, \`mv\`, \`openssl\`, \`curl\` are those of your machine: all files of the installation are below ${folder}.
- What stands here for things that pages say in words:

${TOOLS.map(([name, given, does]) => `  ${`${name} ${given}`.padEnd(width + 2)}${does}`).join("\n")}
`;
}
