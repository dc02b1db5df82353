// The operator: types what the pages of the manual say, in the operator's shell of docs/operating/install.md.
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "./waiting.mjs";

const ROOT = new URL("../../", import.meta.url).pathname;
const pages = ["docs", "docs/operating"].flatMap((folder) =>
  readdirSync(join(ROOT, folder)).filter((name) => name.endsWith(".md") && name !== "drills.md").map((name) => join(folder, name)));
const texts = new Map(pages.map((page) => [page, readFileSync(join(ROOT, page), "utf8")]));

// The anchors of a page's headings, by GitHub's rules.
function anchors(text) {
  const prose = text.replaceAll(/^ *```.*?^ *```/gms, "");
  return [...prose.matchAll(/^#+ (.*)$/gm)].map(([, title]) => title.toLowerCase().replaceAll(/[^\p{L}\p{N}\s_-]/gu, "").trim().replaceAll(" ", "-"));
}

// Fails if a page, or a heading in it, is not there.
export function checkPage(link) {
  const [page, anchor] = link.split("#");
  if (!texts.has(page)) throw new Error(`there is no page ${page}`);
  if (!anchors(texts.get(page)).includes(anchor)) throw new Error(`${page} has no heading #${anchor}`);
}

// A page has a `|` in a table as `\|`, and indents what stands in a list.
const plain = (text) => text.replaceAll("\\|", "|").replaceAll(/\s+/g, " ");
const all = [...texts.values()].map(plain).join("\n");

// The shell of the page, with this installation's addresses.
export function shellOfManual(site) {
  const block = /```bash\n(export PGSSLROOTCERT.*?)```/s.exec(texts.get("docs/operating/install.md"))?.[1];
  if (!block) throw new Error("docs/operating/install.md has no operator's shell");
  const changes = [
    [/PGSSLROOTCERT=\S+/, `PGSSLROOTCERT=${site.authority.file}`],
    [/-h redis.example.org -p 6379 --tls/, `-h 127.0.0.1 -p ${site.redisPort} --tls --cacert ${site.authority.file}`],
    [/\/etc\/tally/g, site.etc],
  ];
  return changes.reduce((text, [from, to]) => {
    if (!from.test(text)) throw new Error(`the operator's shell has no ${from} any more`);
    return text.replace(from, to);
  }, block);
}

// What the pages type as they do everywhere, and what stands for it here. `at`: the machine with a server and a worker.
export function wordsHere({ etc, opt, serverPorts, workerPorts }, at = 0) {
  return [["/etc/tally", etc], ["/opt/tally/0.1.0", opt],
    ["http://127.0.0.1:8080", `http://127.0.0.1:${serverPorts[at]}`], ["http://127.0.0.1:9090", `http://127.0.0.1:${workerPorts[at]}`]];
}

export class Operator {
  typed = [];

  constructor(site) {
    this.site = site;
    this.home = join(site.folder, "home");
    mkdirSync(this.home);
  }
  #here = (text) => wordsHere(this.site).reduce((line, [from, to]) => line.replaceAll(from, to), text);
  async #bash(text, on) {
    const { bin, etc, postgres, standby } = this.site;
    const store = [postgres, standby].find((one) => one.name === on) ?? postgres;
    const env = { PATH: `${bin}:${process.env.PATH}`, HOME: this.home, LANG: "C.UTF-8", MACHINE: on ?? "", PGHOST: store.folder, PGPORT: String(store.port), PGUSER: "postgres" };
    return run("bash", ["-o", "pipefail", "-c", `. ${etc}/shell\n${this.#here(text)}`], { cwd: this.home, env });
  }
  // Types a command of the pages; `fill` puts values in the place of what the page leaves open (PID, MACHINE …).
  // `add`: what the page says in words. `on`: the machine. Fails if no page has the command, or if it fails.
  async types(text, { fill = {}, on, add = "", mayFail = false } = {}) {
    if (!all.includes(plain(text))) throw Object.assign(new Error(`no page has: ${text}`), { fatal: true });
    this.typed.push({ text: text + add, on });
    const filled = Object.entries(fill).reduce((line, [name, value]) => line.replaceAll(name, value), text + add);
    try {
      return await this.#bash(filled, on);
    } catch (error) {
      if (mayFail) return error.said;
      throw error;
    }
  }
  // Types SQL of the pages with one of the logins.
  async sql(login, text, { fill = {} } = {}) {
    if (!all.includes(plain(text))) throw Object.assign(new Error(`no page has: ${text}`), { fatal: true });
    this.typed.push({ text: `sql ${login}: ${text}` });
    const filled = Object.entries(fill).reduce((line, [name, value]) => line.replaceAll(name, value), text);
    return run("bash", ["-c", `. ${this.site.etc}/shell\nsql ${login} -XAt -v ON_ERROR_STOP=1`], { cwd: this.home, input: filled, env: { PATH: `${this.site.bin}:${process.env.PATH}`, HOME: this.home } });
  }
  // Does what a page says in words: an editor, another program of the operator.
  async does(words, act) {
    this.typed.push({ words });
    return act();
  }
  // What is no part of a drill: it is not in the table.
  quietly = (text, on) => this.#bash(text, on);
}
