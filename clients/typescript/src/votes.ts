import { type AtLeastOne, type CallOptions, type Optional, type Schemas, signalOf } from "./options.js";
import { type Reference, list, place } from "./references.js";
import type { Requests } from "./requests.js";
import type { Turns } from "./turns.js";

export type BatchResult = Schemas["BatchResult"];
export type Feed = Schemas["Feed"];
export type HeldVote = Schemas["HeldVote"];
export type HeldVotes = Schemas["HeldVotes"];
export type Receipt = Schemas["Receipt"];
export type Vote = Schemas["Vote"];
export type VoteValue = Schemas["VoteValue"];

type Body = Schemas["NewVote"];
/** A vote: of a voter, with a ballot, or anonymous. A vote with a ballot has no voter. */
export type NewVote = Optional<Pick<Body, "value">> &
    (
        | (Optional<Pick<Body, "voter_id">> & { ballot?: null | undefined })
        | { ballot: string; voter_id?: null | undefined }
    );
/** A vote of a batch: it names its item. */
export type BatchVote = NewVote & Pick<Schemas["BatchVote"], "item_id">;

/** Further options of a vote and of a batch. */
export interface CastOptions extends CallOptions {
    /** A request that is repeated with this key and the same body takes effect once. Use a UUID. */
    idempotencyKey?: string | undefined;
}

/** Items and polls, at least one of them. */
export type ItemsAndPolls = AtLeastOne<{ items: readonly Reference[]; polls: readonly Reference[] }>;

/** Returns whether a vote of a batch was refused. Its result is then the problem's body. */
export function isRefused(result: BatchResult): result is Schemas["Problem"] {
    return "type" in result;
}

/** Votes: the methods of `tally` itself. */
export class VoteCalls {
    readonly #requests: Requests;
    readonly #turns: Turns;

    constructor(requests: Requests, turns: Turns) {
        this.#requests = requests;
        this.#turns = turns;
    }

    /**
     * Casts a vote. A vote without `voter_id`, `ballot` and `idempotencyKey` is never retried, since it might
     * count twice. So pass `voter_id` even for a voter with a cookie or a token.
     */
    vote(item: Reference, vote: NewVote = {}, options: CastOptions = {}): Promise<Vote> {
        return this.#turns.take(voters([vote]), () =>
            this.#requests.ask({
                method: "POST",
                ...place("/v1/items", item, "/votes"),
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
        const at = place("/v1/items", item, "/votes", voter);
        // A read waits too: it must show the voter's earlier writes.
        return this.#turns.take([voter], () => this.#requests.ask<T>({ method, ...at, body, ...signalOf(options) }));
    }

    /** Lists the votes that a voter holds on these items and in these polls: up to 1,000 and 100. */
    async heldMany(voter: string, of: ItemsAndPolls, options: CallOptions = {}): Promise<HeldVotes> {
        const query = { voter_id: voter, items: list(of.items), polls: list(of.polls) };
        // Of nothing a voter holds nothing; the server would call the request wrong.
        if (query.items === undefined && query.polls === undefined) return { voter_id: voter, votes: [] };
        return await this.#turns.take([voter], () =>
            this.#requests.ask<HeldVotes>({ method: "GET", path: "/v1/votes", query, ...signalOf(options) }),
        );
    }

    /** Retrieves items and polls, up to 1,000 and 100, with what a voter holds on each, and says what does not exist. */
    feed(voter: string, of: ItemsAndPolls, options: CallOptions = {}): Promise<Feed> {
        const query = { voter_id: voter, items: list(of.items), polls: list(of.polls) };
        return this.#turns.take([voter], () =>
            this.#requests.ask<Feed>({ method: "GET", path: "/v1/feed", query, ...signalOf(options) }),
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
        return this.#requests.ask({ method: "GET", path: `/v1/votes/${vote}`, ...signalOf(options) });
    }
}

/** Returns whether this vote counts once, however often it is sent. */
function isSafe(vote: NewVote): boolean {
    return vote.voter_id != null || vote.ballot != null;
}

function voters(votes: readonly NewVote[]): string[] {
    return votes.map((vote) => vote.voter_id).filter((voter) => voter != null);
}
