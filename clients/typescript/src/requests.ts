import { Deadline, pause, pauseMs } from "./pauses.js";
import { NoAnswer, Problem } from "./problem.js";

/** How often a request is sent, at the most: once, and three times again. */
export const TRIES_LIMIT = 4;
/** How long one try may take, in ms. Tally's own limits for a vote are shorter, so its answer comes first. */
export const TRY_LIMIT_MS = 30_000;
/** The longest pause between two tries, in ms. */
export const PAUSE_LIMIT_MS = 8_000;
/** The longest Retry-After that is waited for, in ms. With a longer one the problem is thrown at once. */
export const RETRY_AFTER_LIMIT_MS = 30_000;

/** What a proxy or Tally answers when another try may succeed. */
const RETRIED_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** How to reach a server. */
export interface Options {
    /** An API key, or a voter's token. Never put an API key into a page: all its visitors can read it. */
    token?: string;
    /** `include`: a page of another origin of `TALLY_ORIGINS` sends the voter's cookie. */
    credentials?: RequestCredentials;
    /** In place of the global fetch. */
    fetch?: typeof fetch;
    /** How long one try may take, in ms; `TRY_LIMIT_MS` without it. */
    tryLimitMs?: number;
    /** How often a request is sent, at the most; `TRIES_LIMIT` without it; 1: never again. */
    triesLimit?: number;
}

/** What each call takes. */
export interface CallOptions {
    /** Ends the call and its tries. The call rejects with the signal's reason. */
    signal?: AbortSignal;
}

/** The parameters of a request. */
export type Query = Record<string, string | number | undefined>;

/** A request as this client sends it. */
export interface Call extends CallOptions {
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
    path: string;
    query?: Query;
    body?: unknown;
    idempotencyKey?: string | undefined;
    /** Whether sending it twice has no other effect than sending it once. */
    isSafe: boolean;
}

/** Sends requests to one server. */
export class Requests {
    readonly #base: string;
    readonly #options: Options;

    constructor(base: string, options: Options) {
        this.#base = base.replace(/\/+$/, "");
        this.#options = options;
    }

    /** Asks once, without a limit of time. */
    fetch(path: string, query: Query | undefined, init: RequestInit): Promise<Response> {
        const parameters = new URLSearchParams();
        for (const [name, value] of Object.entries(query ?? {})) {
            if (value !== undefined) parameters.set(name, String(value));
        }
        const text = parameters.toString();
        const headers = new Headers(init.headers);
        if (this.#options.token !== undefined) headers.set("authorization", `Bearer ${this.#options.token}`);
        const credentials = this.#options.credentials;
        // Not as a method: a browser's fetch belongs to the window.
        const send = this.#options.fetch ?? globalThis.fetch;
        return send(`${this.#base}${path}${text && "?"}${text}`, {
            ...init,
            headers,
            ...(credentials === undefined ? {} : { credentials }),
        });
    }

    /** Asks until there is an answer, if that is safe. Returns its body. */
    async ask<T>(call: Call): Promise<T> {
        const triesLimit = call.isSafe ? (this.#options.triesLimit ?? TRIES_LIMIT) : 1;
        for (let tries = 1; ; tries++) {
            let refused: Problem | undefined;
            let failed: unknown;
            try {
                const answer = await this.#try(call, tries);
                if (!(answer instanceof Problem)) return answer as T;
                refused = answer;
            } catch (error) {
                if (call.signal?.aborted) throw call.signal.reason;
                failed = error;
            }
            if (refused !== undefined && !RETRIED_STATUSES.has(refused.status)) throw refused;
            const askedMs = refused?.retryAfterMs ?? 0;
            if (tries >= triesLimit || askedMs > RETRY_AFTER_LIMIT_MS) throw refused ?? new NoAnswer(failed, tries);
            // Those who are asked to wait as long do not come back at once either.
            await pause(askedMs + pauseMs(tries, PAUSE_LIMIT_MS), call.signal);
        }
    }

    async #try(call: Call, tries: number): Promise<unknown> {
        const headers: Record<string, string> = { accept: "application/json" };
        if (call.body !== undefined) headers["content-type"] = "application/json";
        if (call.idempotencyKey !== undefined) headers["idempotency-key"] = call.idempotencyKey;
        const deadline = new Deadline(this.#options.tryLimitMs ?? TRY_LIMIT_MS, call.signal);
        try {
            const answer = await this.fetch(call.path, call.query, {
                method: call.method,
                headers,
                body: call.body === undefined ? null : JSON.stringify(call.body),
                signal: deadline.signal,
            });
            if (!answer.ok) return await Problem.of(answer, tries);
            // An answer without a body has 204.
            return answer.status === 204 ? undefined : await answer.json();
        } finally {
            deadline.end();
        }
    }
}
