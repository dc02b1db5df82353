import { type CallOptions, type Optional, type QueryOf, type Schemas, signalOf } from "./options.js";
import { each } from "./reads.js";
import type { Requests } from "./requests.js";

export type VoterDryRun = Schemas["VoterDryRun"];
export type VoterEdit = Schemas["VoterEdit"];
export type VoterEdits = Schemas["VoterEdits"];

type Body = Schemas["NewVoterEdit"];
/** What to do with a voter. Only an erased voter has no other voter id afterwards. */
export type NewVoterEdit =
    | { kind: "rename" | "merge"; voter_id: string; to_voter_id: string }
    | { kind: "erase"; voter_id: string; to_voter_id?: null | undefined };
/** Which page of a list. */
export type VoterEditsFilter = Optional<QueryOf<"listVoterEdits">>;

/** Edits of voters: `tally.voterEdits`. */
export class VoterEditCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Renames, merges or erases a voter. The server works on it in the background; `get` says how far it is. */
    create(edit: NewVoterEdit, options: CallOptions = {}): Promise<VoterEdit> {
        const body = { ...edit, dry_run: false };
        // A renaming that is sent again after its end would be a second one, and refused.
        return this.#requests.ask({ method: "POST", path: "/v1/voter-edits", body, ...signalOf(options) });
    }

    /** Shows what the voter has in the ledger. `after` continues a dry run that ran out of time. */
    dryRun(edit: NewVoterEdit, { after, ...options }: Optional<Pick<Body, "after">> & CallOptions = {}): Promise<VoterDryRun> {
        const body = { ...edit, dry_run: true, after };
        return this.#requests.ask({ method: "POST", path: "/v1/voter-edits", body, isSafe: true, ...signalOf(options) });
    }

    /** Lists edits, the newest first, a page at a time. */
    list({ signal, ...query }: VoterEditsFilter & CallOptions = {}): Promise<VoterEdits> {
        return this.#requests.ask({ method: "GET", path: "/v1/voter-edits", query, signal });
    }

    /** Lists edits one by one. */
    each({ before, ...filter }: VoterEditsFilter & CallOptions = {}): AsyncGenerator<VoterEdit, void, undefined> {
        const page = (at: number | undefined) => this.list({ ...filter, before: at });
        return each(before, page, ({ voter_edits }) => voter_edits, ({ next_before }) => next_before);
    }

    /** Retrieves an edit and its progress. */
    get(edit: number, options: CallOptions = {}): Promise<VoterEdit> {
        return this.#requests.ask({ method: "GET", path: `/v1/voter-edits/${edit}`, ...signalOf(options) });
    }

    /** Resumes an edit that was interrupted. */
    resume(edit: number, options: CallOptions = {}): Promise<VoterEdit> {
        const path = `/v1/voter-edits/${edit}/resume`;
        return this.#requests.ask({ method: "POST", path, isSafe: true, ...signalOf(options) });
    }
}
