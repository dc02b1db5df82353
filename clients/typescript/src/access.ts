import { type CallOptions, type Schemas, signalOf } from "./options.js";
import { type ItemOrPoll, placeOf } from "./references.js";
import type { Requests } from "./requests.js";

export type Access = Schemas["Access"];
export type OpenTo = Schemas["OpenTo"];

/** To whom an item or a poll is open: `tally.access`. */
export class AccessCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Retrieves the access of an item or a poll. */
    get(of: ItemOrPoll, options: CallOptions = {}): Promise<Access> {
        return this.#requests.ask({ method: "GET", ...placeOf(of, "/access"), ...signalOf(options) });
    }

    /** Sets the access of an item, or of a poll and its choices. */
    set(of: ItemOrPoll, open: readonly OpenTo[], options: CallOptions = {}): Promise<Access> {
        return this.#requests.ask({ method: "PUT", ...placeOf(of, "/access"), body: { open }, ...signalOf(options) });
    }
}
