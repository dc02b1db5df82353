import type { CallOptions, CsvPage, ReadOptions, Tagged } from "./options.js";
import { signalOf } from "./options.js";
import type { Place } from "./references.js";
import type { Query, Requests } from "./requests.js";

/** Reads what is at a place: with `ifNoneMatch`, only if it is not what the caller has. */
export async function read<T>(
    requests: Requests,
    at: Place,
    options: ReadOptions,
    query: Query = {},
): Promise<T | Tagged<T>> {
    const { ifNoneMatch } = options;
    const call = { method: "GET", path: at.path, query: { ...at.query, ...query }, ...signalOf(options) } as const;
    if (ifNoneMatch === undefined) return await requests.ask<T>(call);
    const headers = ifNoneMatch === null ? {} : { "if-none-match": ifNoneMatch };
    const { status, headers: answered, body } = await requests.send<T>({ ...call, headers });
    const etag = answered.get("etag") ?? undefined;
    if (status === 304) return { modified: false, etag: etag ?? String(ifNoneMatch) };
    return { modified: true, value: body, etag };
}

/** Reads a page as CSV. */
export async function readCsv(requests: Requests, at: Place, options: CallOptions, query: Query = {}): Promise<CsvPage> {
    const { headers, body } = await requests.send<string>({
        method: "GET",
        path: at.path,
        query: { ...at.query, ...query },
        accept: "text/csv",
        ...signalOf(options),
    });
    // The last page names no next one.
    const next = /[?&]after=(\d+)[^>]*>;\s*rel="next"/.exec(headers.get("link") ?? "")?.[1];
    return { text: body, next_after: next === undefined ? null : Number(next) };
}

/** Reads page after page, and returns what they hold one by one. */
export async function* each<Page, One>(
    first: number | undefined,
    readPage: (at: number | undefined) => Promise<Page>,
    entries: (page: Page) => readonly One[],
    next: (page: Page) => number | null,
): AsyncGenerator<One, void, undefined> {
    for (let at: number | null | undefined = first; at !== null; ) {
        const page: Page = await readPage(at);
        yield* entries(page);
        at = next(page);
    }
}
