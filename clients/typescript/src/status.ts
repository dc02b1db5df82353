import { type CallOptions, type Optional, type QueryOf, type Schemas, signalOf } from "./options.js";
import type { Requests } from "./requests.js";

export type Status = Schemas["Status"];
export type StatusHistory = Schemas["History"];

/** The state of a server and its workers: `tally.status`. */
export class StatusCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Retrieves the state of the server, the stores, the workers and their jobs. */
    get(options: CallOptions = {}): Promise<Status> {
        return this.#requests.ask({ method: "GET", path: "/v1/status", ...signalOf(options) });
    }

    /** Retrieves the samples of the last hour. */
    history({ signal, ...query }: Optional<QueryOf<"showHistory">> & CallOptions = {}): Promise<StatusHistory> {
        return this.#requests.ask({ method: "GET", path: "/v1/status/history", query, signal });
    }

    /** Requests an audit, which a worker runs within seconds. `get` shows its result as the job `audit`. */
    requestAudit(options: CallOptions = {}): Promise<Schemas["AskedAudit"]> {
        return this.#requests.ask({ method: "POST", path: "/v1/audits", isSafe: true, ...signalOf(options) });
    }
}
