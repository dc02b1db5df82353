/**
 * Lets the writes of a voter happen one after the other. A vote that is tried again after the voter's next
 * request would undo it: after a retraction it is a new vote, and in a poll it moves the vote back.
 */
export class Turns {
    readonly #last = new Map<string, Promise<unknown>>();

    /** Runs this when all that was begun before for one of these voters has ended. */
    async take<T>(voters: Iterable<string>, run: () => Promise<T>): Promise<T> {
        const names = [...new Set(voters)];
        const before = names.map((name) => this.#last.get(name));
        const turn = Promise.all(before).then(run);
        // Whether it failed is its own caller's affair.
        const end: Promise<unknown> = turn.then(
            () => undefined,
            () => undefined,
        );
        for (const name of names) this.#last.set(name, end);
        try {
            return await turn;
        } finally {
            for (const name of names) if (this.#last.get(name) === end) this.#last.delete(name);
        }
    }
}
