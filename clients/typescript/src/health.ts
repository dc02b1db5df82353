import { type CallOptions, type Schemas, signalOf } from "./options.js";
import type { Requests } from "./requests.js";

export type Live = Schemas["Live"];
export type Ready = Schemas["Ready"];

/** How a server is: `tally.health`. These calls are sent once. */
export class HealthCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Checks that the process is alive. */
    live(options: CallOptions = {}): Promise<Live> {
        return this.#requests.ask({ method: "GET", path: "/health/live", isSafe: false, ...signalOf(options) });
    }

    /** Checks that the server is ready. Rejects with the problem `not-ready` if it is not. */
    ready(options: CallOptions = {}): Promise<Ready> {
        return this.#requests.ask({ method: "GET", path: "/health/ready", isSafe: false, ...signalOf(options) });
    }

    /** Retrieves the server's metrics in the text format of Prometheus. */
    metrics(options: CallOptions = {}): Promise<string> {
        const accept = "text/plain";
        return this.#requests.ask({ method: "GET", path: "/metrics", accept, isSafe: false, ...signalOf(options) });
    }
}
