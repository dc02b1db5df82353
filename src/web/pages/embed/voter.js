// Who votes in this browser: the voter of a cookie or token if the server gives one. Otherwise a name that
// the browser chooses. Otherwise the votes are anonymous.
const voter = {
  known: null,
  asked: null,
  isKept: false, // between visits
  forget() {
    if (this.isKept) keep(null);
    this.known = null;
  },
  // Without asking the server: null for a browser that has not voted yet. A token names a voter of its own; a page
  // whose function returns none has a guest, who is remembered.
  async remembered() {
    if (this.known || (await settings.token?.())) return this.known;
    try {
      const kept = JSON.parse(localStorage.getItem(STORED_VOTER));
      if (typeof kept?.id === "string") [this.known, this.isKept] = [kept, true];
    } catch {
      // Without storage, each visit has its own voter.
    }
    return this.known;
  },
  // Asks once for a page, and for all tabs: two answers would be two voters, and two votes.
  async identify() {
    if (await this.remembered()) return this.known;
    this.asked ??= oneTabAtATime(() => this.make()).finally(() => (this.asked = null));
    return this.asked;
  },
  // A token names its voter, even if the server gives no cookies.
  async given() {
    if (settings.token) {
      try {
        return await ask("GET", "/v1/voter");
      } catch (error) {
        if (error.status !== 404) throw error; // no token: nobody has logged in
      }
    }
    return ask("POST", "/v1/voter", {});
  },
  async make() {
    if (await this.remembered()) return this.known;
    const { token } = settings;
    const earlier = login;
    let known;
    try {
      known = { id: (await this.given()).voter_id, own: true };
    } catch (error) {
      const without = token ? [404] : [401, 403, 404];
      if (!(error instanceof Refused) || !without.includes(error.status)) throw error;
      known = { id: `page-${crypto.getRandomValues(new BigUint64Array(2)).join("-")}`, own: false };
    }
    if (login !== earlier) return this.make(); // the voter has changed meanwhile
    [this.known, this.isKept] = [known, !(await token?.())];
    if (this.isKept) keep(known);
    return known;
  },
};

// Takes turns between tabs, if the browser can; that needs https. The next tab waits until it is sure to see
// what was stored, because a browser may show it a little later.
function oneTabAtATime(work) {
  return new Promise((resolve, reject) => {
    const mine = async () => {
      await work().then(resolve, reject);
      await new Promise((resume) => setTimeout(resume, STORED_WITHIN_MS));
    };
    if (!navigator.locks) return work().then(resolve, reject);
    // The browser may refuse, as it does without storage. After the turn this does nothing.
    navigator.locks.request(STORED_VOTER, mine).catch(() => work().then(resolve, reject));
  });
}

function keep(known) {
  try {
    if (known) localStorage.setItem(STORED_VOTER, JSON.stringify(known));
    else localStorage.removeItem(STORED_VOTER);
  } catch {
    // Without storage, each visit has its own voter.
  }
}

// Votes as this browser's voter. Replaces a credential that is no longer valid, once. With tokens, someone may have
// signed in meanwhile. `changes` says which items have which values then, for what the page shows.
async function asVoter(work, changes) {
  let by = login;
  const known = await voter.identify();
  let answer;
  try {
    answer = await work(known.id);
  } catch (error) {
    if (!(error instanceof Refused) || ![401, 403].includes(error.status) || !(known.own || settings.token)) throw error;
    voter.forget();
    by = login;
    answer = await work((await voter.identify()).id);
  }
  // The vote of an earlier voter is not the present one's.
  if (login === by) watch.changed(new Map(changes(answer)));
  return answer;
}
