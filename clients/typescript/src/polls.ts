import { type HistoryFilter, type LedgerRow, type LedgerRows, type RowsFilter, queryOf } from "./items.js";
import type { CallOptions, Conditional, CsvPage, Optional, QueryOf, ReadOptions, Schemas, Tagged } from "./options.js";
import { signalOf } from "./options.js";
import { each, read, readCsv } from "./reads.js";
import { type Reference, place } from "./references.js";
import type { Requests } from "./requests.js";
import type { Turns } from "./turns.js";

export type Poll = Schemas["Poll"];
export type Polls = Schemas["Polls"];
export type PollCopy = Schemas["PollCopy"];
export type PollEdit = Schemas["PollEdit"];
export type PollHistory = Schemas["PollHistory"];
export type Selection = Schemas["Selection"];

type Body = Schemas["NewPoll"];
/** A new poll. Only a poll by ballot is secret, and each of its ballots buys one choice. */
export type NewPoll = Omit<Body, "by_ballot" | "secret" | "max_choices"> &
    (
        | ({ by_ballot?: false | null | undefined; secret?: false | null | undefined } & Optional<Pick<Body, "max_choices">>)
        | ({ by_ballot: true; max_choices?: 1 | null | undefined } & Optional<Pick<Body, "secret">>)
    );

/** Which polls to list. */
export type PollsFilter = Optional<QueryOf<"listPolls">>;

/** Polls: `tally.polls`. */
export class PollCalls {
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
    get(poll: Reference, options: CallOptions & Conditional): Promise<Tagged<Poll>>;
    get(poll: Reference, options?: CallOptions): Promise<Poll>;
    get(poll: Reference, options: ReadOptions = {}): Promise<Poll | Tagged<Poll>> {
        return read<Poll>(this.#requests, place("/v1/polls", poll), options);
    }

    /** Retrieves a poll's results as CSV. */
    async csv(poll: Reference, options: CallOptions = {}): Promise<string> {
        return (await readCsv(this.#requests, place("/v1/polls", poll), options)).text;
    }

    /** Changes a poll. What is left out stays. */
    edit(poll: Reference, edit: PollEdit, options: CallOptions = {}): Promise<Poll> {
        const at = place("/v1/polls", poll);
        return this.#requests.ask({ method: "PATCH", ...at, body: edit, isSafe: true, ...signalOf(options) });
    }

    /** Adds a choice, the last one, to a poll that has not closed. If a choice has this name, changes nothing. */
    addChoice(poll: Reference, name: string, options: CallOptions = {}): Promise<Poll> {
        const at = place("/v1/polls", poll, "/choices");
        return this.#requests.ask({ method: "POST", ...at, body: { name }, isSafe: true, ...signalOf(options) });
    }

    /** Creates a poll with the title, choices and rules of another one. If another poll has its `key`, returns that one. */
    copy(poll: Reference, copy: PollCopy = {}, options: CallOptions = {}): Promise<Poll> {
        const isSafe = copy.key != null;
        const at = place("/v1/polls", poll, "/copy");
        return this.#requests.ask({ method: "POST", ...at, body: copy, isSafe, ...signalOf(options) });
    }

    /** Lists polls, the newest first, a page at a time. `next_before` is the next page's `before`. */
    list(filter: PollsFilter & CallOptions & Conditional): Promise<Tagged<Polls>>;
    list(filter?: PollsFilter & CallOptions): Promise<Polls>;
    list(filter: PollsFilter & ReadOptions = {}): Promise<Polls | Tagged<Polls>> {
        return read<Polls>(this.#requests, { path: "/v1/polls" }, filter, queryOf(filter));
    }

    /** Lists polls one by one, and reads page after page for it. */
    each({ before, ...filter }: PollsFilter & CallOptions = {}): AsyncGenerator<Poll, void, undefined> {
        const page = (at: number | undefined) => this.list({ ...filter, before: at });
        return each(before, page, ({ polls }) => polls, ({ next_before }) => next_before);
    }

    /** Retrieves how the counts of a poll's choices changed lately. */
    history(poll: Reference, filter: HistoryFilter & CallOptions & Conditional): Promise<Tagged<PollHistory>>;
    history(poll: Reference, filter?: HistoryFilter & CallOptions): Promise<PollHistory>;
    history(poll: Reference, filter: HistoryFilter & ReadOptions = {}): Promise<PollHistory | Tagged<PollHistory>> {
        return read<PollHistory>(this.#requests, place("/v1/polls", poll, "/history"), filter, queryOf(filter));
    }

    /** Lists a poll's rows of the ledger, with who voted. Needs an API key with the scope `report`. */
    votes(poll: Reference, filter: RowsFilter & CallOptions & Conditional): Promise<Tagged<LedgerRows>>;
    votes(poll: Reference, filter?: RowsFilter & CallOptions): Promise<LedgerRows>;
    votes(poll: Reference, filter: RowsFilter & ReadOptions = {}): Promise<LedgerRows | Tagged<LedgerRows>> {
        return read<LedgerRows>(this.#requests, place("/v1/polls", poll, "/votes"), filter, queryOf(filter));
    }

    /** Lists a poll's rows of the ledger one by one. */
    eachVote(poll: Reference, { after, ...filter }: RowsFilter & CallOptions = {}): AsyncGenerator<LedgerRow, void, undefined> {
        const page = (at: number | undefined) => this.votes(poll, { ...filter, after: at });
        return each(after, page, ({ votes }) => votes, ({ next_after }) => next_after);
    }

    /** Lists a page of a poll's rows of the ledger as CSV. */
    votesCsv(poll: Reference, filter: RowsFilter & CallOptions = {}): Promise<CsvPage> {
        return readCsv(this.#requests, place("/v1/polls", poll, "/votes"), filter, queryOf(filter));
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
        const at = place("/v1/polls", poll, "/votes", voter);
        return this.#turns.take([voter], () =>
            this.#requests.ask<Selection>({ method, ...at, body, ...signalOf(options) }),
        );
    }
}
