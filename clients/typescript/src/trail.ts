import { type CallOptions, type Optional, type QueryOf, type Schemas } from "./options.js";
import { each } from "./reads.js";
import type { Requests } from "./requests.js";

export type Act = Schemas["Act"];
export type Trail = Schemas["Trail"];

/** Which administrative acts to list. */
export type TrailFilter = Optional<QueryOf<"listTrail">>;

/** The trail of administrative acts: `tally.trail`. */
export class TrailCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Lists administrative acts, the newest first, a page at a time. */
    list({ signal, ...query }: TrailFilter & CallOptions = {}): Promise<Trail> {
        return this.#requests.ask({ method: "GET", path: "/v1/trail", query, signal });
    }

    /** Lists administrative acts one by one. */
    each({ before, ...filter }: TrailFilter & CallOptions = {}): AsyncGenerator<Act, void, undefined> {
        const page = (at: number | undefined) => this.list({ ...filter, before: at });
        return each(before, page, ({ acts }) => acts, ({ next_before }) => next_before);
    }
}
