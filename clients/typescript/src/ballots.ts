import { type CallOptions, type Schemas, signalOf } from "./options.js";
import { type ItemOrPoll, placeOf } from "./references.js";
import type { Requests } from "./requests.js";

export type Ballots = Schemas["Ballots"];
export type NewBallots = Schemas["NewBallots"];

/** Ballots: `tally.ballots`. */
export class BallotCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Creates ballots for an item or a poll with `by_ballot`. The server shows them this once. */
    create(of: ItemOrPoll, ballots: NewBallots, options: CallOptions = {}): Promise<Ballots> {
        return this.#requests.ask({ method: "POST", ...placeOf(of, "/ballots"), body: ballots, ...signalOf(options) });
    }
}
