import { AccessCalls } from "./access.js";
import { ApiKeyCalls } from "./api_keys.js";
import { BallotCalls } from "./ballots.js";
import { HealthCalls } from "./health.js";
import { ItemCalls } from "./items.js";
import { PageCalls } from "./pages.js";
import { PollCalls } from "./polls.js";
import { type Answer, type Call, type Options, Requests } from "./requests.js";
import { StatusCalls } from "./status.js";
import { TrailCalls } from "./trail.js";
import { Turns } from "./turns.js";
import { VoidingCalls } from "./voidings.js";
import { VoteCalls } from "./votes.js";
import { VoterCalls } from "./voter.js";
import { VoterEditCalls } from "./voter_edits.js";
import { type Counts, type WatchOptions, type Watched, watch } from "./watch.js";

/**
 * A client of one server.
 *
 * Every method rejects with a `Problem` if the server refuses, with `NoAnswer` if there is no answer, and with the
 * signal's reason if its signal is aborted.
 *
 * The client retries a request after 429, 502, 503, 504 and lost connections, if a retry is safe: if the request
 * reads, sets or takes back, or names a voter, a ballot, an own key or an Idempotency-Key. The first failure of
 * any other request is thrown. The client sends its writes for one voter one after the other.
 */
export class Tally extends VoteCalls {
    readonly #requests: Requests;
    readonly items: ItemCalls;
    readonly polls: PollCalls;
    readonly ballots: BallotCalls;
    readonly access: AccessCalls;
    readonly voter: VoterCalls;
    readonly apiKeys: ApiKeyCalls;
    readonly status: StatusCalls;
    readonly voidings: VoidingCalls;
    readonly voterEdits: VoterEditCalls;
    readonly trail: TrailCalls;
    readonly health: HealthCalls;
    readonly pages: PageCalls;

    /** @param base the server's address, such as `https://votes.example.org`; empty for a page's own origin */
    constructor(base: string, options: Options = {}) {
        const requests = new Requests(base, options);
        const turns = new Turns();
        super(requests, turns);
        this.#requests = requests;
        this.items = new ItemCalls(requests);
        this.polls = new PollCalls(requests, turns);
        this.ballots = new BallotCalls(requests);
        this.access = new AccessCalls(requests);
        this.voter = new VoterCalls(requests);
        this.apiKeys = new ApiKeyCalls(requests);
        this.status = new StatusCalls(requests);
        this.voidings = new VoidingCalls(requests);
        this.voterEdits = new VoterEditCalls(requests);
        this.trail = new TrailCalls(requests);
        this.health = new HealthCalls(requests);
        this.pages = new PageCalls(requests);
    }

    /** Sends any request, with this client's token, retries and errors: for what has no method here. */
    request<T = unknown>(call: Call): Promise<Answer<T>> {
        return this.#requests.send<T>(call);
    }

    /**
     * Calls `onCounts` with the counts of all that is watched, and then with each count that changes. Ends when
     * its signal is aborted. Opens a lost or refused stream again, and waits longer after each failure. Looks for
     * unknown items and polls again until they exist. Rejects with the Problem if waiting does not help, as when
     * too much is watched, and with what `onCounts` throws.
     */
    watch(watched: Watched, onCounts: (counts: Counts) => void, options: WatchOptions = {}): Promise<void> {
        return watch(this.#requests, watched, onCounts, options);
    }
}
