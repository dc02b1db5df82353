import type { components } from "./schema.js";

/** The name of one of Tally's problem types, as in docs/problems.md. */
export type Slug = components["schemas"]["ProblemSlug"];

/** The beginning of a problem type's address. */
const ADDRESS = "/problems/";

/** Tally, or a proxy in front of it, refused a request. */
export class Problem extends Error {
    override readonly name = "Problem";
    /** The address of its explanation, on the server; `about:blank` if the answer did not come from Tally. */
    readonly type: string;
    /** The last part of `type`, such as `full`; undefined if the answer did not come from Tally. */
    readonly slug: Slug | undefined;
    readonly status: number;
    readonly title: string;
    /** What is wrong this time, and what would be right. The wording may change. */
    readonly detail: string;
    /** What whoever wrote the program can do about it. */
    readonly hint: string | undefined;
    /** The part of the request that is wrong. */
    readonly field: string | undefined;
    /** Whether this try stored the vote, if the answer was 503. */
    readonly stored: components["schemas"]["Stored"] | undefined;
    /** How many ms to wait before a retry makes sense. */
    readonly retryAfterMs: number | undefined;
    /**
     * How many times the request was sent, but for those that 401 answered before the last token. If more than
     * once, an earlier try may have succeeded: 409 `ballot-not-valid` then means that the ballot has bought its vote.
     */
    readonly tries: number;

    constructor(answer: Partial<components["schemas"]["Problem"]> & { status: number }, retryAfterMs: number | undefined, tries: number) {
        const title = answer.title ?? `HTTP ${answer.status}`;
        super(answer.detail ?? title);
        this.type = answer.type ?? "about:blank";
        this.slug = this.type.startsWith(ADDRESS) ? (this.type.slice(ADDRESS.length) as Slug) : undefined;
        this.status = answer.status;
        this.title = title;
        this.detail = answer.detail ?? title;
        this.hint = answer.hint;
        this.field = answer.field;
        this.stored = answer.stored;
        this.retryAfterMs = retryAfterMs;
        this.tries = tries;
    }

    /** Reads the body of an answer that is no success. */
    static async of(answer: Response, tries: number): Promise<Problem> {
        let body: Partial<components["schemas"]["Problem"]> = {};
        if (answer.headers.get("content-type")?.startsWith("application/problem+json")) {
            // If the body is cut off, the status is enough.
            body = await answer.json().catch(() => ({}));
        } else {
            // Nobody waits for that: with a clone of the answer elsewhere it would not end.
            answer.body?.cancel().catch(() => undefined);
        }
        return new Problem({ ...body, status: answer.status }, retryAfterMs(answer, body.retry_after_seconds), tries);
    }
}

/** There was no answer, or none that could be read. The request may have succeeded. */
export class NoAnswer extends Error {
    override readonly name = "NoAnswer";
    /** How many times the request was sent. */
    readonly tries: number;

    constructor(cause: unknown, tries: number) {
        super(`no answer after ${tries} ${tries === 1 ? "try" : "tries"}`, { cause });
        this.tries = tries;
    }
}

/** Retry-After has seconds, or, from some proxies, a date. */
function retryAfterMs(answer: Response, seconds: number | undefined): number | undefined {
    if (typeof seconds === "number") return 1000 * seconds;
    const text = answer.headers.get("retry-after");
    if (text === null) return undefined;
    if (/^\d+$/.test(text)) return 1000 * Number(text);
    const until = Date.parse(text);
    return Number.isNaN(until) ? undefined : Math.max(0, until - Date.now());
}
