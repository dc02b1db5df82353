// Votes through HAProxy, some hundred a second, in a thread of its own, with a record of each acknowledged vote:
// by item, the voters. And a question to /health/ready of each server, ten times a second.
import http from "node:http";
import https from "node:https";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const ANSWER_LIMIT_MS = 20_000; // the longest wait for an answer to a vote
const READY_LIMIT_MS = 5_000; // the longest wait for an answer of /health/ready
const READY_EVERY_MS = 100;
const TICK_MS = 10;
const RETRIES_AT_ONCE = 16; // votes
const IN_FLIGHT_LIMIT = 100; // votes; beyond it none is sent

// The thread's other side: each method is a question to the thread, and its answer.
class Remote {
  #waiting = new Map();
  #next = 0;

  constructor(data) {
    this.thread = new Worker(new URL(import.meta.url), { workerData: data });
    this.thread.on("message", ({ id, answer, error }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      error ? reject(new Error(error)) : resolve(answer);
    });
    this.thread.on("error", (error) => { throw error; });
  }
  ask(what, ...args) {
    return new Promise((resolve, reject) => {
      this.#waiting.set(++this.#next, { resolve, reject });
      this.thread.postMessage({ id: this.#next, what, args });
    });
  }
  end() {
    return this.thread.terminate();
  }
}

export const startLoad = (data) => new Remote({ kind: "load", ...data });
export const startReady = (data) => new Remote({ kind: "ready", ...data });

function load({ port, ca, key: firstKey, items, rate }) {
  const agent = new https.Agent({ keepAlive: true, ca, maxSockets: IN_FLIGHT_LIMIT });
  const acknowledged = new Map(items.map((item) => [item, new Map()]));
  let [key, isPaused, inFlight, voters, unknown, due] = [firstKey, true, 0, 0, [], 0];
  let tallies = {};
  const count = (what) => { tallies[what] = (tallies[what] ?? 0) + 1; };

  function send(item, voter) {
    return new Promise((resolve) => {
      const body = JSON.stringify({ voter_id: voter });
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      const options = { host: "127.0.0.1", port, method: "POST", path: `/v1/items/${item}/votes`, agent, headers, servername: "localhost" };
      const request = https.request({ ...options, timeout: ANSWER_LIMIT_MS }, (answer) => {
        const chunks = [];
        answer.on("data", (chunk) => chunks.push(chunk));
        answer.on("error", () => resolve({ status: 0, text: "answer-broken" }));
        answer.on("end", () => resolve({ status: answer.statusCode, text: Buffer.concat(chunks).toString() }));
      });
      request.on("timeout", () => request.destroy(new Error("timeout")));
      request.on("error", (error) => resolve({ status: 0, text: error.code ?? error.message }));
      request.end(body);
    });
  }
  async function vote(item, voter) {
    inFlight++;
    const { status, text } = await send(item, voter);
    inFlight--;
    if (status === 200 || status === 201) {
      acknowledged.get(item).set(voter, Date.now());
      return count("acknowledged");
    }
    let problem;
    try {
      problem = JSON.parse(text);
    } catch {
      problem = undefined; // of the proxy, or none
    }
    count(problem?.type?.split("/").pop() ?? (status ? `proxy ${status}` : `no answer (${text})`));
    // `stored` says "no" or "unknown". HAProxy says 503 by itself only when it asked no server. A vote without an
    // answer may be stored.
    if ((status < 500 && status > 0) || (status === 503 && !problem) || problem?.stored === "no") return;
    unknown.push([item, voter]);
  }
  setInterval(() => {
    if (isPaused) return;
    for (due += rate * TICK_MS / 1000; due >= 1; due--) {
      if (inFlight >= IN_FLIGHT_LIMIT) { count("not sent"); continue; }
      vote(items[Math.floor(Math.random() * items.length)], `voter-${++voters}`);
    }
  }, TICK_MS);

  return {
    resume() { isPaused = false; },
    // Gives how many votes were acknowledged, refused and unanswered since the last call.
    tallies() {
      const since = tallies;
      tallies = {};
      return since;
    },
    acknowledgedNow: () => tallies.acknowledged ?? 0,
    async pause() {
      isPaused = true;
      while (inFlight > 0) await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    },
    // Casts each vote again of which nobody knows whether it is stored. With its voter that is safe.
    async retry() {
      const again = unknown.splice(0);
      const inTurn = async () => { for (let one; (one = again.pop());) await vote(...one); };
      await Promise.all(Array.from({ length: RETRIES_AT_ONCE }, inTurn));
      return unknown.length;
    },
    useKey(another) { key = another; },
    record: () => items.map((item) => [item, [...acknowledged.get(item)]]),
    // What the new primary does not have is forgotten, once it is known to be lost.
    forget(lost) {
      for (const [item, voter] of lost) acknowledged.get(item).delete(voter);
    },
  };
}

function ready({ ports }) {
  let times = [];
  let closed = 0;
  setInterval(() => {
    for (const port of ports) {
      // From the connection: a server that ends leaves new ones alone for a second, on purpose.
      let start = performance.now();
      const request = http.get({ host: "127.0.0.1", port, path: "/health/ready", agent: false, timeout: READY_LIMIT_MS }, (answer) => {
        answer.on("end", () => times.push(performance.now() - start));
        answer.on("error", () => closed++);
        answer.resume();
      });
      request.on("socket", (socket) => socket.on("connect", () => { start = performance.now(); }));
      request.on("timeout", () => { times.push(READY_LIMIT_MS); request.destroy(); });
      // Nobody listens: the server is not started yet, or has ended.
      request.on("error", () => closed++);
    }
  }, READY_EVERY_MS);
  return {
    // Gives p99 and the worst of all answers since the last call, in ms.
    take() {
      const sorted = times.sort((a, b) => a - b);
      const taken = { answers: sorted.length, closed, p99: sorted[Math.ceil(sorted.length * 0.99) - 1] ?? null, worst: sorted.at(-1) ?? null };
      [times, closed] = [[], 0];
      return taken;
    },
  };
}

if (!isMainThread) {
  const own = { load, ready }[workerData.kind](workerData);
  parentPort.on("message", async ({ id, what, args }) => {
    try {
      parentPort.postMessage({ id, answer: await own[what](...args) });
    } catch (error) {
      parentPort.postMessage({ id, error: error.stack });
    }
  });
}
