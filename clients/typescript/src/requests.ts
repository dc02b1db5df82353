import { Deadline, pause, pauseMs } from "./pauses.js";
import { NoAnswer, Problem } from "./problem.js";

/** How often a request is sent at most: once, and three retries. */
export const TRIES_LIMIT = 4;
/** How long one try may take, in ms. Tally's own limits for a vote are shorter, so Tally answers before that. */
export const TRY_LIMIT_MS = 30_000;
/** The longest pause between two tries, in ms. */
export const PAUSE_LIMIT_MS = 8_000;
/** The longest Retry-After that the client waits for, in ms. After a longer one it throws the problem at once. */
export const RETRY_AFTER_LIMIT_MS = 30_000;

/** The statuses with which a proxy or Tally answers when a retry may succeed. */
const RETRIED_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** How to reach a server. */
export interface Options {
    /** An API key, or a voter's token. Never put an API key into a page: all its visitors can read it. */
    token?: string;
    /** `include`: a page of another origin, one of `TALLY_ORIGINS`, sends the voter's cookie. */
    credentials?: RequestCredentials;
    /** Replaces the global fetch. */
    fetch?: typeof fetch;
    /** How long one try may take, in ms. Defaults to `TRY_LIMIT_MS`. */
    tryLimitMs?: number;
    /** How often a request is sent at most. Defaults to `TRIES_LIMIT`; 1: no retry. */
    triesLimit?: number;
}

/** The options of every call. */
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
    /** Whether a retry is safe: to send it twice has the same effect as to send it once. */
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

    /** Sends a request once, without a time limit. */
    fetch(path: string, query: Query | undefined, init: RequestInit): Promise<Response> {
        const parameters = new URLSearchParams();
        for (const [name, value] of Object.entries(query ?? {})) {
            if (value !== undefined) parameters.set(name, String(value));
        }
        const text = parameters.toString();
        const headers = new Headers(init.headers);
        if (this.#options.token !== undefined) headers.set("authorization", `Bearer ${this.#options.token}`);
        const credentials = this.#options.credentials;
        // A browser's fetch must not be called as a method of another object than the window.
        const send = this.#options.fetch ?? globalThis.fetch;
        return send(`${this.#base}${path}${text && "?"}${text}`, {
            ...init,
            headers,
            ...(credentials === undefined ? {} : { credentials }),
        });
    }

    /** Sends a request, and retries it if that is safe. Returns the answer's body. */
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
            // Clients that were asked to wait equally long must not come back together.
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
