// The elements <tally-count>, <tally-vote>, <tally-poll> and <tally-history>, for any page of an allowed origin.
// One stream serves all elements of a page; it is closed while the page is hidden. docs/embed.md says how to use them.

// Where this script came from: a host, and a path such as /tally that a proxy removes.
const SERVER = import.meta.url.split(/[?#]/)[0].replace(/\/(assets\/)?embed[^/]*$/, "");
const STREAM_LIMIT_ITEMS = 100; // the server's limit
const STREAM_LIMIT_POLLS = 10;
const DELAY_MS = 30; // elements that are added together share one request
const OFTEN_MS = 5000; // within which the next request comes the later, the more there were
const ANSWER_LIMIT_MS = 10_000;
const RETRY_LEAST_MS = 1000;
const RETRY_MOST_MS = 30_000;
const OTHERS_EVERY_MS = 10_000; // for what is beyond the limits of a stream
const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const MINUTES_FROM_MS = HOUR_MS; // before an end, how long it takes is shown, in minutes …
const SECONDS_FROM_MS = 5 * MINUTE_MS; // … and in seconds
const CLOCK_LEAST_MS = 2 * SECOND_MS; // by which a browser's clock is wrong: the server's is given in whole seconds
const MESSAGE_MS = 5000;
const MESSAGE_LONG_MS = 20_000; // what a voter may have to do something about
const ABSENT_EVERY_MS = 30_000; // what does not exist may be created
const HELD_LIMIT_ITEMS = 1000; // in one request, the server's limit
const HELD_LIMIT_POLLS = 100;
const STORED_WITHIN_MS = 250; // until other tabs see what one has stored
const KEY_LIMIT_BYTES = 200;
const LARGEST_ID = 2n ** 63n - 1n;
const STORED_VOTER = "tally-voter";
const STORED_CHANGE = "tally-vote-changed-at"; // tells other tabs

// What a host page may set. `token` is a function that returns a voter's token (docs/operating/voters.md). `words` are
// the page's own, by language and key: `{ de: { counted: "Danke!" } }`; words/en.js has the keys.
const settings = { token: null, words: null };
let login = {}; // another one for each voter whom the page knows
export function configure(changes) {
  Object.assign(settings, changes);
  if (changes.token) settings.token = () => answered(changes.token());
  if ("words" in changes) learnAll();
  if (!("token" in changes)) return;
  login = {};
  voter.asked = voter.known = null; // the stored voter is this browser's without a token
  watch.changes += 1; // answers under way belong to the earlier voter
  watch.hold([]);
  watch.votes = null;
  watch.soon(); // the votes of the new voter
  for (const element of watch.elements()) element.signedIn?.();
}

// A request without an answer. `word` says why, to voters.
class Unanswered extends Error {
  constructor(word) {
    super(ENGLISH[word]);
    this.word = word;
  }
}

class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

// What is not there in time is not waited for: others may wait for their turn.
const answered = (work) => Promise.race([work, new Promise((resolve, reject) => setTimeout(reject, ANSWER_LIMIT_MS, new Unanswered("noAnswer")))]);

// Imports a file of this server. Some browsers remember that an address had no answer, so the next one is another.
let again = "";
const load = (file) => answered(import(SERVER + file + again));

// Names that every proxy leaves as they are in a path. It may decode or refuse %2F; other names go into the query.
const isPlain = (name) => /^[\w~-][\w.~-]*$/.test(name);

// The path of an item or a poll, and of what belongs to it.
function pathOf(kind, reference, rest = "", query = {}) {
  const key = reference.startsWith("key:") ? reference.slice(4) : null;
  const all = new URLSearchParams(key === null || isPlain(key) ? query : { key, ...query });
  const asked = String(all); // not `size`, which Safari has since 17
  return `/v1/${kind}/${all.has("key") ? "key:" : reference}${rest}${asked && `?${asked}`}`;
}

// The path of a voter's vote on an item or in a poll.
const ofVoter = (kind, reference, id) => (isPlain(id) ? pathOf(kind, reference, `/votes/${id}`) : pathOf(kind, reference, "/votes", { voter_id: id }));

let isRead = false; // whether this page has read an answer
export async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const token = await settings.token?.();
  if (token) headers.authorization = `Bearer ${token}`;
  const signal = AbortSignal.timeout(ANSWER_LIMIT_MS);
  // Not every text may be a token.
  const asked = { method, headers: new Headers(headers), signal, credentials: "include" };
  if (body !== undefined) asked.body = JSON.stringify(body);
  let response, answer;
  try {
    response = await fetch(SERVER + path, asked);
    answer = response.status === 204 ? {} : await response.json();
    isRead = true;
    clock.note(response.headers.get("date"));
  } catch (error) {
    const isUnread = !isRead && !response && error.name !== "TimeoutError";
    throw new Unanswered(isUnread ? await whyNoAnswer() : "noAnswer");
  }
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

// A browser does not say whether the server is unavailable or forbids this page to read its answers.
async function whyNoAnswer() {
  if (new URL(SERVER).origin !== location.origin) {
    try {
      // Any page may read this answer.
      const { ok } = await fetch(`${SERVER}/embed.js`, { method: "HEAD", signal: AbortSignal.timeout(ANSWER_LIMIT_MS) });
      if (ok) return "originRefused";
    } catch {
      // The server is unavailable.
    }
  }
  return "noAnswer";
}
