import type { components } from "./schema.js";
import { EventReader, type ServerSentEvent } from "./events.js";
import { Deadline, pause, pauseMs } from "./pauses.js";
import { NoAnswer, Problem } from "./problem.js";
import { type Reference, list, place } from "./references.js";
import type { CallOptions, Query, Requests } from "./requests.js";

/** How long a stream may be silent, in ms: three of Tally's heartbeats. */
export const SILENCE_LIMIT_MS = 45_000;
/** The longest pause before a stream is opened again, in ms, even if the server asks for a longer one. */
export const STREAM_PAUSE_LIMIT_MS = 60_000;
/** The shortest pause after the first failure, in ms, if the server names none. */
const STREAM_FIRST_PAUSE_MS = 2_000;

/** What to watch: at least one item or poll, by its id, or by `key:` and your own key. */
export interface Watched {
    items?: readonly Reference[];
    polls?: readonly Reference[];
}

/** The items and polls that changed, each as `get` returns it; the first time, all that are watched. */
export interface Counts {
    items: components["schemas"]["Item"][];
    polls: components["schemas"]["Poll"][];
}

export interface WatchOptions extends CallOptions {
    /** Called when a stream is open. */
    onOpen?: () => void;
    /** Called when a stream was lost or refused. Another opens in `againInMs` ms; until then, shown counts may be old. */
    onLost?: (why: Problem | NoAnswer, againInMs: number) => void;
}

/** Shows counts as they change, until the signal is aborted. Rejects with a Problem if waiting does not help. */
export async function watch(
    requests: Requests,
    watched: Watched,
    onCounts: (counts: Counts) => void,
    options: WatchOptions,
): Promise<void> {
    const { signal } = options;
    const stream = address(watched);
    let lastId = "";
    let retryMs = STREAM_FIRST_PAUSE_MS;
    let failures = 0;
    while (!signal?.aborted) {
        let why: Problem | NoAnswer;
        const deadline = new Deadline(SILENCE_LIMIT_MS, signal);
        try {
            const opened = await open(requests, stream, lastId, deadline, failures + 1);
            if (opened instanceof Error) {
                why = opened;
            } else {
                options.onOpen?.();
                const events = new EventReader(lastId);
                for await (const event of opened.events(events)) {
                    failures = 0;
                    if (event.type === "counts") onCounts(JSON.parse(event.data) as Counts);
                    lastId = event.id;
                }
                retryMs = events.retryMs ?? retryMs;
                why = new NoAnswer(opened.failure, failures + 1);
            }
        } finally {
            deadline.end();
        }
        if (signal?.aborted) return;
        if (why instanceof Problem && why.status < 500 && why.status !== 429) throw why;
        failures += 1;
        const againInMs = againMs(failures, retryMs, why instanceof Problem ? why.retryAfterMs : undefined);
        options.onLost?.(why, againInMs);
        await pause(againInMs, signal).catch(() => undefined);
    }
}

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
function address(watched: Watched): { path: string; query?: Query } {
    const { items = [], polls = [] } = watched;
    const [item] = items;
    const [poll] = polls;
    if (item !== undefined && items.length === 1 && polls.length === 0) {
        return place("items", item, "/stream");
    }
    if (poll !== undefined && polls.length === 1 && items.length === 0) {
        return place("polls", poll, "/stream");
    }
    return { path: "/v1/stream", query: { items: list(items), polls: list(polls) } };
}

async function open(
    requests: Requests,
    stream: { path: string; query?: Query },
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
        return new NoAnswer(error, tries);
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
