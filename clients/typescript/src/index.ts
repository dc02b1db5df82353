/**
 * A client of Tally. Its types are generated from the description of the HTTP interface. The rest is
 * written by hand and needs only `fetch`: it runs in browsers and in Node 18 or later.
 *
 * - `requests`: sends a request, and retries it where that is safe.
 * - `turns`: sends the writes of a voter one after the other.
 * - `watch`, `events`: live counts.
 */
import type { components } from "./schema.js";
import type { Problem } from "./problem.js";
import { type Reference, list, place } from "./references.js";
import { type CallOptions, type Options, Requests } from "./requests.js";
import { Turns } from "./turns.js";
import { type Counts, type Watched, type WatchOptions, watch } from "./watch.js";

export { NoAnswer, Problem, type Slug } from "./problem.js";
export type { Reference } from "./references.js";
export {
    type CallOptions,
    type Options,
    PAUSE_LIMIT_MS,
    RETRY_AFTER_LIMIT_MS,
    TRIES_LIMIT,
    TRY_LIMIT_MS,
} from "./requests.js";
export { FIRST_PAUSE_MS, pauseMs } from "./pauses.js";
export { EVENT_LIMIT_CHARACTERS, EventReader, type ServerSentEvent } from "./events.js";
export {
    type Counts,
    SILENCE_LIMIT_MS,
    STREAM_PAUSE_LIMIT_MS,
    type Watched,
    type WatchOptions,
    againMs,
} from "./watch.js";
export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Item = Schemas["Item"];
export type Items = Schemas["Items"];
export type NewItem = Schemas["NewItem"];
export type TopList = Schemas["TopList"];
export type Vote = Schemas["Vote"];
export type NewVote = Schemas["NewVote"];
export type HeldVote = Schemas["HeldVote"];
export type VoteValue = Schemas["VoteValue"];
export type BatchVote = Schemas["BatchVote"];
export type BatchResult = Schemas["BatchResult"];
export type Poll = Schemas["Poll"];
export type NewPoll = Schemas["NewPoll"];
export type Selection = Schemas["Selection"];
export type Receipt = Schemas["Receipt"];
export type Voter = Schemas["Voter"];

/** Further options of a vote and of a batch. */
export interface CastOptions extends CallOptions {
    /** A request that is repeated with this key and the same body takes effect once. Use a UUID. */
    idempotencyKey?: string;
}

/** Which items to list. */
export interface ListOptions extends CallOptions {
    after?: number;
    limit?: number;
    name?: string;
    ids?: readonly Reference[];
}

/** How to rank items, and which. */
export interface TopOptions extends CallOptions {
    by?: Schemas["TopBy"];
    over?: Schemas["TopOver"];
    poll?: Reference;
    limit?: number;
}

/** Returns whether a vote of a batch was refused. Its result is then the problem's body. */
export function isRefused(result: BatchResult): result is Schemas["Problem"] {
    return "type" in result;
}

/**
 * A client of one server.
 *
 * Every method rejects with a {@link Problem} if the server refuses, with `NoAnswer` if there is no answer, and
 * with the signal's reason if its signal is aborted.
 *
 * The client retries a request after 429, 502, 503, 504 and lost connections, if a retry is safe: if the request
 * reads, sets or takes back, or names a voter, a ballot, an own key or an Idempotency-Key. The first failure of
 * any other request is thrown. The client sends its writes for one voter one after the other.
 */
export class Tally {
    readonly #requests: Requests;
    readonly #turns = new Turns();
    readonly items: ItemCalls;
    readonly polls: PollCalls;
    readonly voter: VoterCalls;

    /** @param base the server's address, such as `https://votes.example.org`; empty for a page's own origin */
    constructor(base: string, options: Options = {}) {
        this.#requests = new Requests(base, options);
        this.items = new ItemCalls(this.#requests);
        this.polls = new PollCalls(this.#requests, this.#turns);
        this.voter = new VoterCalls(this.#requests);
    }

    /**
     * Casts a vote. A vote without `voter_id`, `ballot` and `idempotencyKey` is never retried, since it might
     * count twice. So pass `voter_id` even for a voter with a cookie or a token.
     */
    vote(item: Reference, vote: NewVote = {}, options: CastOptions = {}): Promise<Vote> {
        return this.#turns.take(voters([vote]), () =>
            this.#requests.ask({
                method: "POST",
                ...place("items", item, "/votes"),
                body: vote,
                idempotencyKey: options.idempotencyKey,
                isSafe: isSafe(vote) || options.idempotencyKey !== undefined,
                ...signalOf(options),
            }),
        );
    }

    /** Sets the vote that a voter holds. */
    setVote(item: Reference, voter: string, value: VoteValue, options: CallOptions = {}): Promise<Vote> {
        return this.#ofVoter("PUT", item, voter, options, { value });
    }

    /** Takes a voter's vote back. */
    takeBack(item: Reference, voter: string, options: CallOptions = {}): Promise<Vote> {
        return this.#ofVoter("DELETE", item, voter, options);
    }

    /** Retrieves the vote that a voter holds. Rejects with the problem `no-vote` if there is none. */
    held(item: Reference, voter: string, options: CallOptions = {}): Promise<HeldVote> {
        return this.#ofVoter("GET", item, voter, options);
    }

    #ofVoter<T>(method: "GET" | "PUT" | "DELETE", item: Reference, voter: string, options: CallOptions, body?: unknown) {
        const at = place("items", item, "/votes", voter);
        // A read waits too: it must show the voter's earlier writes.
        return this.#turns.take([voter], () =>
            this.#requests.ask<T>({ method, ...at, body, isSafe: true, ...signalOf(options) }),
        );
    }

    /** Casts up to 1,000 votes. Returns a result for each; {@link isRefused} says which were refused. */
    async castMany(votes: readonly BatchVote[], options: CastOptions = {}): Promise<BatchResult[]> {
        const { results } = await this.#turns.take(voters(votes), () =>
            this.#requests.ask<Schemas["BatchResults"]>({
                method: "POST",
                path: "/v1/votes",
                body: { votes },
                idempotencyKey: options.idempotencyKey,
                isSafe: votes.every(isSafe) || options.idempotencyKey !== undefined,
                ...signalOf(options),
            }),
        );
        return results;
    }

    /** Retrieves the receipt of a vote: what became of it. */
    receipt(vote: number, options: CallOptions = {}): Promise<Receipt> {
        return this.#requests.ask({ method: "GET", path: `/v1/votes/${vote}`, isSafe: true, ...signalOf(options) });
    }

    /**
     * Calls `onCounts` with the counts of all that is watched, and then with each count that changes. Ends when
     * its signal is aborted. Opens a lost or refused stream again, and waits longer after each failure. Rejects
     * with the Problem if waiting does not help, as with an unknown item, and with what `onCounts` throws.
     */
    watch(watched: Watched, onCounts: (counts: Counts) => void, options: WatchOptions = {}): Promise<void> {
        return watch(this.#requests, watched, onCounts, options);
    }
}

class ItemCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Creates an item. If another item has its `key`, returns that one. */
    create(item: NewItem, options: CallOptions = {}): Promise<Item> {
        const isSafe = item.key != null;
        return this.#requests.ask({ method: "POST", path: "/v1/items", body: item, isSafe, ...signalOf(options) });
    }

    get(item: Reference, options: CallOptions = {}): Promise<Item> {
        return this.#requests.ask({ method: "GET", ...place("items", item), isSafe: true, ...signalOf(options) });
    }

    /** Lists items, a page at a time. `next_after` is the next page's `after`. */
    list({ ids, after, limit, name, ...options }: ListOptions = {}): Promise<Items> {
        const query = { after, limit, name, ids: ids && list(ids) };
        return this.#requests.ask({ method: "GET", path: "/v1/items", query, isSafe: true, ...signalOf(options) });
    }

    /** Lists the top items. */
    top({ by, over, poll, limit, ...options }: TopOptions = {}): Promise<TopList> {
        const query = { by, over, poll, limit };
        return this.#requests.ask({ method: "GET", path: "/v1/items/top", query, isSafe: true, ...signalOf(options) });
    }
}

class PollCalls {
    readonly #requests: Requests;
    readonly #turns: Turns;

    constructor(requests: Requests, turns: Turns) {
        this.#requests = requests;
        this.#turns = turns;
    }

    /** Creates a poll. If another poll has its `key`, returns that one. */
    create(poll: NewPoll, options: CallOptions = {}): Promise<Poll> {
        const isSafe = poll.key != null;
        return this.#requests.ask({ method: "POST", path: "/v1/polls", body: poll, isSafe, ...signalOf(options) });
    }

    /** Retrieves a poll and its results. */
    get(poll: Reference, options: CallOptions = {}): Promise<Poll> {
        return this.#requests.ask({ method: "GET", ...place("polls", poll), isSafe: true, ...signalOf(options) });
    }

    /** Sets a voter's choices to these `item_id`s, and no others. */
    select(poll: Reference, voter: string, items: readonly number[], options: CallOptions = {}): Promise<Selection> {
        return this.#ofVoter("PUT", poll, voter, options, { items });
    }

    /** Takes back all that a voter holds in the poll. */
    takeBack(poll: Reference, voter: string, options: CallOptions = {}): Promise<Selection> {
        return this.#ofVoter("DELETE", poll, voter, options);
    }

    /** Retrieves what a voter holds in the poll. */
    selected(poll: Reference, voter: string, options: CallOptions = {}): Promise<Selection> {
        return this.#ofVoter("GET", poll, voter, options);
    }

    #ofVoter(method: "GET" | "PUT" | "DELETE", poll: Reference, voter: string, options: CallOptions, body?: unknown) {
        const at = place("polls", poll, "/votes", voter);
        return this.#turns.take([voter], () =>
            this.#requests.ask<Selection>({ method, ...at, body, isSafe: true, ...signalOf(options) }),
        );
    }
}

/** A browser's voter cookie. */
class VoterCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Returns the voter that this browser is, and gives it a cookie if it has none. A backend names the voter. */
    create(voter: Schemas["NewVoter"] = {}, options: CallOptions = {}): Promise<Voter> {
        // A lost answer leaves only a voter id that nobody uses, so a retry is safe.
        return this.#requests.ask({ method: "POST", path: "/v1/voter", body: voter, isSafe: true, ...signalOf(options) });
    }

    /** Returns the voter that this browser is. Rejects with the problem `no-voter` if it has no cookie. */
    get(options: CallOptions = {}): Promise<Voter> {
        return this.#requests.ask({ method: "GET", path: "/v1/voter", isSafe: true, ...signalOf(options) });
    }

    /** Deletes the browser's cookie. */
    forget(options: CallOptions = {}): Promise<void> {
        return this.#requests.ask({ method: "DELETE", path: "/v1/voter", isSafe: true, ...signalOf(options) });
    }
}

/** Returns whether this vote counts once, however often it is sent. */
function isSafe(vote: NewVote): boolean {
    return vote.voter_id != null || vote.ballot != null;
}

function voters(votes: readonly NewVote[]): string[] {
    return votes.map((vote) => vote.voter_id).filter((voter) => voter != null);
}

function signalOf(options: CallOptions): CallOptions {
    return options.signal === undefined ? {} : { signal: options.signal };
}
