/** The longest pause after the first failure, in ms. */
export const FIRST_PAUSE_MS = 500;

/**
 * How long to wait after this many failures in a row. The pause is drawn from the upper half of a span, so
 * clients that failed together do not come back together. The span doubles with each failure, from `firstMs` up
 * to `limitMs`.
 */
export function pauseMs(failures: number, limitMs: number, firstMs = FIRST_PAUSE_MS, random: () => number = Math.random): number {
    const span = Math.min(firstMs * 2 ** Math.max(0, failures - 1), limitMs);
    return span * (0.5 + 0.5 * random());
}

/** Waits. Rejects with the signal's reason as soon as the signal is aborted. */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason);
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", aborted);
            resolve();
        }, ms);
        function aborted() {
            clearTimeout(timer);
            reject(signal?.reason);
        }
        signal?.addEventListener("abort", aborted, { once: true });
    });
}

/** A time limit that can begin again, joined with a caller's signal. */
export class Deadline {
    readonly #controller = new AbortController();
    readonly #outer: AbortSignal | undefined;
    readonly #onAbort = () => this.#controller.abort(this.#outer?.reason);
    #timer: ReturnType<typeof setTimeout> | undefined;

    constructor(limitMs: number, outer: AbortSignal | undefined) {
        this.#outer = outer;
        if (outer?.aborted) this.#onAbort();
        outer?.addEventListener("abort", this.#onAbort, { once: true });
        this.extend(limitMs);
    }

    /** Aborted when the time is over, or with the outer signal. */
    get signal(): AbortSignal {
        return this.#controller.signal;
    }

    /** Begins the time again. */
    extend(limitMs: number): void {
        clearTimeout(this.#timer);
        const late = () => this.#controller.abort(new DOMException(`nothing came for ${limitMs} ms`, "TimeoutError"));
        this.#timer = setTimeout(late, limitMs);
    }

    /** Aborts at once. */
    abort(reason: unknown): void {
        this.#controller.abort(reason);
    }

    /** Lets go of the timer and of the outer signal. */
    end(): void {
        clearTimeout(this.#timer);
        this.#outer?.removeEventListener("abort", this.#onAbort);
    }
}
