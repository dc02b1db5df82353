import type { CallOptions } from "./options.js";
import { Deadline, pause, pauseMs } from "./pauses.js";
import { NoAnswer, Problem } from "./problem.js";
import { type Token, TokenFailure, tokenOf } from "./token.js";

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
const JSON_TYPE = "application/json";

/** How to reach a server. */
export interface Options {
    /** An API key, or a voter's token. Never put an API key into a page: all its visitors can read it. */
    token?: Token | undefined;
    /** `include`: a page of another origin, one of `TALLY_ORIGINS`, sends the voter's cookie. */
    credentials?: "include" | "omit" | "same-origin" | undefined;
    /** Replaces the global fetch. */
    fetch?: typeof fetch | undefined;
    /** How long one try may take, in ms. Defaults to `TRY_LIMIT_MS`. */
    tryLimitMs?: number | undefined;
    /** How often a request is sent at most. Defaults to `TRIES_LIMIT`; 1: no retry. */
    triesLimit?: number | undefined;
}

/** The parameters of a request. Those that are null or undefined are left out. */
export type Query = { readonly [name: string]: string | number | boolean | null | undefined };

/** A request. */
export interface Call extends CallOptions {
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
    /** The path on the server, such as `/v1/items/5`. */
    path: string;
    query?: Query | undefined;
    headers?: { readonly [name: string]: string } | undefined;
    /** It is sent as JSON. */
    body?: unknown;
    /** What the answer shall be. Defaults to JSON; what is not JSON is returned as text. */
    accept?: string | undefined;
    idempotencyKey?: string | undefined;
    /**
     * Whether a retry is safe: to send the request twice has the same effect as to send it once. Defaults to true
     * for GET, PUT and DELETE, and with an `idempotencyKey`.
     */
    isSafe?: boolean | undefined;
}

/** The answer to a request that succeeded. */
export interface Answer<T> {
    status: number;
    headers: Headers;
    /** Undefined if the answer has none: with 204 and 304. */
    body: T;
}

/** Sends requests to one server. */
export class Requests {
    readonly #base: string;
    readonly #options: Options;

    constructor(base: string, options: Options) {
        // `localhost:8080` would be an address with the scheme `localhost`.
        if (!/^(https?:\/\/[^/]|\/|$)/i.test(base)) {
            throw new TypeError("a server's address begins with https:// or http://, or with / on a page of its own host");
        }
        this.#base = base.replace(/\/+$/, "");
        this.#options = options;
    }

    /** Sends a request once, without a time limit; once more if a function has another token after 401. */
    async fetch(path: string, query: Query | undefined, init: RequestInit & { signal: AbortSignal }): Promise<Response> {
        const token = await tokenOf(this.#options.token, undefined, init.signal);
        const answer = await this.#fetch(path, query, init, token);
        if (answer.status !== 401 || token === undefined) return answer;
        const other = await tokenOf(this.#options.token, token, init.signal);
        if (other === undefined || other === token) return answer;
        // Nobody waits for that: with a clone of the answer elsewhere it would not end.
        answer.body?.cancel().catch(() => undefined);
        return await this.#fetch(path, query, init, other);
    }

    #fetch(path: string, query: Query | undefined, init: RequestInit, token: string | undefined): Promise<Response> {
        const parameters = new URLSearchParams();
        for (const [name, value] of Object.entries(query ?? {})) {
            if (value !== undefined && value !== null) parameters.set(name, String(value));
        }
        const text = parameters.toString();
        const headers = new Headers(init.headers);
        if (token !== undefined) authorize(headers, token);
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
        return (await this.send<T>(call)).body;
    }

    /** Sends a request, and retries it if that is safe. */
    async send<T>(call: Call): Promise<Answer<T>> {
        const isSafe = call.isSafe ?? (call.idempotencyKey !== undefined || !["POST", "PATCH"].includes(call.method));
        const triesLimit = isSafe ? (this.#options.triesLimit ?? TRIES_LIMIT) : 1;
        for (let tries = 1; ; tries++) {
            let refused: Problem | undefined;
            let failed: unknown;
            try {
                const answer = await this.#try<T>(call, tries);
                if (!(answer instanceof Problem)) return answer;
                refused = answer;
            } catch (error) {
                if (call.signal?.aborted) throw call.signal.reason;
                if (error instanceof TokenFailure) throw error.cause;
                failed = error;
            }
            if (refused !== undefined && !RETRIED_STATUSES.has(refused.status)) throw refused;
            const askedMs = refused?.retryAfterMs ?? 0;
            if (tries >= triesLimit || askedMs > RETRY_AFTER_LIMIT_MS) throw refused ?? new NoAnswer(failed, tries);
            // Clients that were asked to wait equally long must not come back together.
            await pause(askedMs + pauseMs(tries, PAUSE_LIMIT_MS), call.signal);
        }
    }

    async #try<T>(call: Call, tries: number): Promise<Answer<T> | Problem> {
        const headers = new Headers(call.headers);
        const accept = call.accept ?? JSON_TYPE;
        headers.set("accept", accept);
        if (call.body !== undefined) headers.set("content-type", JSON_TYPE);
        if (call.idempotencyKey !== undefined) headers.set("idempotency-key", call.idempotencyKey);
        const deadline = new Deadline(this.#options.tryLimitMs ?? TRY_LIMIT_MS, call.signal);
        try {
            const answer = await this.fetch(call.path, call.query, {
                method: call.method,
                headers,
                body: call.body === undefined ? null : JSON.stringify(call.body),
                signal: deadline.signal,
            });
            const { status } = answer;
            const isKnown = status === 304 && headers.has("if-none-match");
            if (!answer.ok && !isKnown) return await Problem.of(answer, tries);
            const body = isKnown || status === 204 ? undefined : await (accept === JSON_TYPE ? answer.json() : answer.text());
            return { status, headers: answer.headers, body: body as T };
        } finally {
            deadline.end();
        }
    }
}

/** Throws a {@link TokenFailure} without the token, which the error of `set` would show. */
function authorize(headers: Headers, token: string): void {
    try {
        headers.set("authorization", `Bearer ${token}`);
    } catch {
        const cause = new TypeError("the token has characters that no header takes, such as a line break");
        throw new TokenFailure("the token is not usable", { cause });
    }
}
