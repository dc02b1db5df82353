import { EventReader, type ServerSentEvent } from "./events.js";
import type { Item } from "./items.js";
import type { CallOptions, Optional } from "./options.js";
import { Deadline, pause, pauseMs } from "./pauses.js";
import type { Poll } from "./polls.js";
import { NoAnswer, Problem } from "./problem.js";
import { type Reference, list, place } from "./references.js";
import type { Query, Requests } from "./requests.js";
import { TokenFailure } from "./token.js";
import type { ItemsAndPolls } from "./votes.js";

/** How long a stream may be silent, in ms: three of Tally's heartbeats. */
export const SILENCE_LIMIT_MS = 45_000;
/** The longest pause before a stream is opened again, in ms, even if the server asks for a longer one. */
export const STREAM_PAUSE_LIMIT_MS = 60_000;
/** The shortest pause after the first failure, in ms, if the server names none. */
const STREAM_FIRST_PAUSE_MS = 2_000;

/** What to watch: at least one item or poll, by its id, or by `key:` and your own key. */
export type Watched = ItemsAndPolls;

/** The items and polls that changed, each as `get` returns it; the first time, all that are watched. */
export interface Counts {
    items: Item[];
    polls: Poll[];
}

/** What is watched and does not exist. */
export interface Unknown {
    items: readonly Reference[];
    polls: readonly Reference[];
    /** Whether the first vote on the key of an item creates the item, if the server says so. */
    creates_items?: boolean | undefined;
}

export interface WatchOptions extends CallOptions {
    /** Called when a stream is open. */
    onOpen?: (() => void) | undefined;
    /** Called when a stream was lost or refused. Another opens in `againInMs` ms; until then, shown counts may be old. */
    onLost?: ((why: Problem | NoAnswer, againInMs: number) => void) | undefined;
    /** Called whenever something that is watched does not exist. The client looks for it again in `againInMs` ms. */
    onUnknown?: ((unknown: Unknown, againInMs: number) => void) | undefined;
}

/** Shows counts as they change, until the signal is aborted. Rejects with a Problem if waiting does not help. */
export async function watch(
    requests: Requests,
    watched: Watched,
    onCounts: (counts: Counts) => void,
    options: WatchOptions,
): Promise<void> {
    const { signal } = options;
    const streams = new Streams(requests, watched, onCounts, options);
    while (!signal?.aborted) {
        const againInMs = await streams.follow();
        await pause(againInMs, signal).catch(() => undefined);
    }
}

/** The streams of a watch, one after the other. */
class Streams {
    readonly #requests: Requests;
    readonly #watched: Watched;
    readonly #address: Address;
    readonly #onCounts: (counts: Counts) => void;
    readonly #options: WatchOptions;
    #lastId = "";
    #retryMs = STREAM_FIRST_PAUSE_MS;
    /** How often in a row a stream failed. */
    #failures = 0;
    /** How often in a row something did not exist. */
    #misses = 0;

    constructor(requests: Requests, watched: Watched, onCounts: (counts: Counts) => void, options: WatchOptions) {
        this.#requests = requests;
        this.#watched = watched;
        this.#address = address(watched);
        this.#onCounts = onCounts;
        this.#options = options;
    }

    /** Opens a stream and reads it to its end. Returns how long to wait before the next one, in ms. */
    async follow(): Promise<number> {
        const { signal } = this.#options;
        const deadline = new Deadline(SILENCE_LIMIT_MS, signal);
        try {
            const opened = await open(this.#requests, this.#address, this.#lastId, deadline, this.#failures + 1);
            if (signal?.aborted) return 0;
            if (opened instanceof Stream) {
                this.#options.onOpen?.();
                return await this.#read(opened, deadline);
            }
            if (opened instanceof NoAnswer || opened.status >= 500 || opened.status === 429) return this.#lost(opened);
            if (opened.slug !== "unknown-item" && opened.slug !== "unknown-poll") throw opened;
            return this.#missing({ items: this.#watched.items, polls: this.#watched.polls });
        } finally {
            deadline.end();
        }
    }

    async #read(stream: Stream, deadline: Deadline): Promise<number> {
        const events = new EventReader(this.#lastId);
        let looking: ReturnType<typeof setTimeout> | undefined;
        let isTimeToLook = false;
        try {
            for await (const event of stream.events(events)) {
                this.#failures = 0;
                this.#retryMs = events.retryMs ?? this.#retryMs;
                this.#lastId = event.id;
                if (event.type === "unknown" && looking === undefined) {
                    // The client itself ends this stream, to open one with what exists then.
                    looking = setTimeout(() => {
                        isTimeToLook = true;
                        deadline.abort(new DOMException("what is unknown is looked for again", "AbortError"));
                    }, this.#missing(JSON.parse(event.data) as Unknown));
                }
                if (event.type === "counts") this.#onCounts(JSON.parse(event.data) as Counts);
            }
        } finally {
            clearTimeout(looking);
            this.#retryMs = events.retryMs ?? this.#retryMs;
        }
        if (looking === undefined) this.#misses = 0;
        return isTimeToLook || this.#options.signal?.aborted ? 0 : this.#lost(new NoAnswer(stream.failure, this.#failures + 1));
    }

    #lost(why: Problem | NoAnswer): number {
        this.#failures += 1;
        const againInMs = againMs(this.#failures, this.#retryMs, why instanceof Problem ? why.retryAfterMs : undefined);
        this.#options.onLost?.(why, againInMs);
        return againInMs;
    }

    #missing({ items = [], polls = [], creates_items }: Optional<Unknown>): number {
        this.#misses += 1;
        const againInMs = againMs(this.#misses, this.#retryMs, undefined);
        this.#options.onUnknown?.({ items, polls, ...(creates_items === undefined ? {} : { creates_items }) }, againInMs);
        return againInMs;
    }
}

/** Where a stream is. */
type Address = { path: string; query?: Query };

/** How long to wait, in ms: at least as long as the server asks, and not as long as other clients. */
export function againMs(
    failures: number,
    retryMs: number,
    retryAfterMs: number | undefined,
    random: () => number = Math.random,
): number {
    const pauseOfFailures = pauseMs(failures, STREAM_PAUSE_LIMIT_MS, 2 * retryMs, random);
    return Math.min((retryAfterMs ?? 0) + pauseOfFailures, STREAM_PAUSE_LIMIT_MS);
}

/** Where the stream is. A single item or poll has a path of its own, where its key may have a comma. */
function address(watched: Watched): Address {
    const { items = [], polls = [] } = watched;
    const [item] = items;
    const [poll] = polls;
    if (item !== undefined && items.length === 1 && polls.length === 0) {
        return place("/v1/items", item, "/stream");
    }
    if (poll !== undefined && polls.length === 1 && items.length === 0) {
        return place("/v1/polls", poll, "/stream");
    }
    return { path: "/v1/stream", query: { items: list(items), polls: list(polls) } };
}

async function open(
    requests: Requests,
    stream: Address,
    lastId: string,
    deadline: Deadline,
    tries: number,
): Promise<Stream | Problem | NoAnswer> {
    let answer: Response;
    try {
        answer = await requests.fetch(stream.path, stream.query, {
            headers: { accept: "text/event-stream", ...(lastId && { "last-event-id": lastId }) },
            cache: "no-store",
            signal: deadline.signal,
        });
    } catch (error) {
        // A function that gives no token now may give one later.
        return new NoAnswer(error instanceof TokenFailure ? error.cause : error, tries);
    }
    if (!answer.ok) return await Problem.of(answer, tries);
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || answer.body === null) {
        await answer.body?.cancel().catch(() => undefined);
        throw new TypeError("the answer is no stream of events; is this the address of a Tally?");
    }
    return new Stream(answer.body, deadline);
}

/** An open stream. */
class Stream {
    readonly #body: ReadableStream<Uint8Array>;
    readonly #deadline: Deadline;
    /** Why it ended; undefined if the server ended it. */
    failure: unknown;

    constructor(body: ReadableStream<Uint8Array>, deadline: Deadline) {
        this.#body = body;
        this.#deadline = deadline;
    }

    /** Its events, to its end. */
    async *events(reader: EventReader): AsyncGenerator<ServerSentEvent> {
        const chunks = this.#body.getReader();
        // A chunk may end within a character.
        const decoder = new TextDecoder();
        try {
            for (;;) {
                const chunk = await chunks.read().catch((error: unknown) => {
                    this.failure = error;
                    return { done: true, value: undefined } as const;
                });
                if (chunk.done) return;
                this.#deadline.extend(SILENCE_LIMIT_MS);
                yield* reader.read(decoder.decode(chunk.value, { stream: true }));
            }
        } finally {
            // Frees the connection if nobody reads on.
            await chunks.cancel().catch(() => undefined);
        }
    }
}
