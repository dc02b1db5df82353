/**
 * Lets the writes of a voter happen one after the other. A retry of a vote would undo the voter's next request
 * if it came after it: after a retraction it is a new vote, and in a poll it moves the vote back.
 */
export class Turns {
    readonly #last = new Map<string, Promise<unknown>>();

    /** Calls `run` once all that was begun before for one of these voters has ended. */
    async take<T>(voters: Iterable<string>, run: () => Promise<T>): Promise<T> {
        const names = [...new Set(voters)];
        const before = names.map((name) => this.#last.get(name));
        const turn = Promise.all(before).then(run);
        // A failure concerns only its own caller.
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
