import { type AtLeastOne, type CallOptions, type Optional, type QueryOf, type Schemas, signalOf } from "./options.js";
import { each } from "./reads.js";
import type { Requests } from "./requests.js";

export type DryRun = Schemas["DryRun"];
export type Voiding = Schemas["Voiding"];
export type Voidings = Schemas["Voidings"];

type Body = Schemas["NewVoiding"];
/** Which votes to void, by at least one of their properties, and why. */
export type NewVoiding = AtLeastOne<Pick<Body, "voter_id" | "item" | "from" | "until" | "api_key_id">> & Pick<Body, "reason">;
/** Which page of a list. */
export type VoidingsFilter = Optional<QueryOf<"listVoidings">>;

/** Voidings: `tally.voidings`. */
export class VoidingCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Creates a voiding. The server works on it in the background; `get` says how far it is. */
    create(voiding: NewVoiding, options: CallOptions = {}): Promise<Voiding> {
        const body = { ...voiding, dry_run: false };
        return this.#requests.ask({ method: "POST", path: "/v1/voidings", body, ...signalOf(options) });
    }

    /** Counts the votes that a voiding would void. `after` continues a dry run that ran out of time. */
    dryRun(voiding: NewVoiding, { after, ...options }: Optional<Pick<Body, "after">> & CallOptions = {}): Promise<DryRun> {
        const body = { ...voiding, dry_run: true, after };
        return this.#requests.ask({ method: "POST", path: "/v1/voidings", body, isSafe: true, ...signalOf(options) });
    }

    /** Lists voidings, the newest first, a page at a time. */
    list({ signal, ...query }: VoidingsFilter & CallOptions = {}): Promise<Voidings> {
        return this.#requests.ask({ method: "GET", path: "/v1/voidings", query, signal });
    }

    /** Lists voidings one by one. */
    each({ before, ...filter }: VoidingsFilter & CallOptions = {}): AsyncGenerator<Voiding, void, undefined> {
        const page = (at: number | undefined) => this.list({ ...filter, before: at });
        return each(before, page, ({ voidings }) => voidings, ({ next_before }) => next_before);
    }

    /** Retrieves a voiding and its progress. */
    get(voiding: number, options: CallOptions = {}): Promise<Voiding> {
        return this.#requests.ask({ method: "GET", path: `/v1/voidings/${voiding}`, ...signalOf(options) });
    }

    /** Resumes a voiding, or an undoing, that was interrupted. */
    resume(voiding: number, options: CallOptions = {}): Promise<Voiding> {
        return this.#continue(voiding, "resume", options);
    }

    /** Casts the votes of a voiding again. */
    undo(voiding: number, options: CallOptions = {}): Promise<Voiding> {
        return this.#continue(voiding, "undo", options);
    }

    #continue(voiding: number, how: "resume" | "undo", options: CallOptions): Promise<Voiding> {
        const path = `/v1/voidings/${voiding}/${how}`;
        // Where nothing is left to do, nothing happens.
        return this.#requests.ask({ method: "POST", path, isSafe: true, ...signalOf(options) });
    }
}
