import { type CallOptions, type Schemas, signalOf } from "./options.js";
import type { Requests } from "./requests.js";

export type Voter = Schemas["Voter"];
export type NewVoter = Schemas["NewVoter"];

/** The voter that the caller is, by a cookie or a token: `tally.voter`. */
export class VoterCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Returns the voter that this browser is, and gives it a cookie if it has none. A backend names the voter. */
    create(voter: NewVoter = {}, options: CallOptions = {}): Promise<Voter> {
        // A lost answer leaves only a voter id that nobody uses, so a retry is safe.
        return this.#requests.ask({ method: "POST", path: "/v1/voter", body: voter, isSafe: true, ...signalOf(options) });
    }

    /** Returns the voter that the caller is. Rejects with the problem `no-voter` if it is none. */
    get(options: CallOptions = {}): Promise<Voter> {
        return this.#requests.ask({ method: "GET", path: "/v1/voter", ...signalOf(options) });
    }

    /** Deletes the browser's cookie. */
    forget(options: CallOptions = {}): Promise<void> {
        return this.#requests.ask({ method: "DELETE", path: "/v1/voter", ...signalOf(options) });
    }
}
