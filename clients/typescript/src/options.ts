import type { components, operations } from "./schema.js";

export type Schemas = components["schemas"];

/** The options of every call. */
export interface CallOptions {
    /** Ends the call and its tries. The call rejects with the signal's reason. */
    signal?: AbortSignal | undefined;
}

/** Asks only for an answer that the caller does not have. */
export interface Conditional {
    /** The `etag` of the answer that the caller has; null: the caller has none yet. */
    ifNoneMatch: string | null;
}

/** The options of a read: {@link Conditional} if the caller may have its answer. */
export type ReadOptions = CallOptions & Partial<Conditional>;

/** The answer to a conditional read. */
export type Tagged<T> =
    | { modified: true; value: T; /** Names this answer. */ etag: string | undefined }
    | { modified: false; value?: undefined; etag: string };

/** A page in CSV, without a byte-order mark. */
export interface CsvPage {
    text: string;
    /** The `after` of the next page. Null on the last page. */
    next_after: number | null;
}

/** Names that must not be given. */
export type None<Names extends PropertyKey> = { readonly [name in Names]?: null | undefined };

/** Properties that may be left out, and may be undefined. */
export type Optional<T> = { [name in keyof T]?: T[name] | undefined };

/** At least one of the properties. */
export type AtLeastOne<T> = { [name in keyof T]-?: { [one in name]-?: NonNullable<T[one]> } & Optional<Omit<T, name>> }[keyof T];

/** The query that an operation takes. */
export type QueryOf<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** Returns the options of a request, without those of what it asks for. */
export function signalOf({ signal }: CallOptions): CallOptions {
    return signal === undefined ? {} : { signal };
}
