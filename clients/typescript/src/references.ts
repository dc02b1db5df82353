/** An item or a poll: its id, or `key:` and your own key. */
export type Reference = number | string;

/** An item or a poll. */
export type ItemOrPoll = { item: Reference; poll?: undefined } | { poll: Reference; item?: undefined };

/** What names something: a path, and a query for what a path cannot carry through every proxy. */
export interface Place {
    path: string;
    query?: Record<string, string>;
}

/** Names that every proxy leaves as they are in a path. It may decode or refuse `%2F`. */
const PLAIN = /^[A-Za-z0-9_~-][A-Za-z0-9._~-]*$/;

/** A path below which items or polls are. */
export type Parent = "/v1/items" | "/v1/polls" | "/items" | "/polls";

/**
 * The place of an item or a poll, of what belongs to it, and of a voter's vote there. Throws a RangeError if a
 * name is empty.
 */
export function place(parent: Parent, reference: Reference, rest = "", voter?: string): Place {
    const query: Record<string, string> = {};
    let name = text(reference);
    if (name.startsWith("key:") && !PLAIN.test(name.slice("key:".length))) {
        query["key"] = text(name.slice("key:".length));
        name = "key:";
    } else if (!name.startsWith("key:")) {
        name = encodeURIComponent(name);
    }
    let path = `${parent}/${name}${rest}`;
    if (voter !== undefined && PLAIN.test(voter)) path += `/${voter}`;
    else if (voter !== undefined) query["voter_id"] = text(voter);
    return Object.keys(query).length === 0 ? { path } : { path, query };
}

/** The place of what an item or a poll has. */
export function placeOf(of: ItemOrPoll, rest: string): Place {
    return of.item === undefined ? place("/v1/polls", of.poll, rest) : place("/v1/items", of.item, rest);
}

function text(name: Reference): string {
    if (name === "") throw new RangeError("a name is empty");
    return String(name);
}

/** Joins references with commas, for a query; undefined if there are none. */
export function list(references: readonly Reference[] | null | undefined): string | undefined {
    const texts = (references ?? []).map(String);
    const wrong = texts.find((text) => text.includes(","));
    if (wrong !== undefined) throw new RangeError(`${JSON.stringify(wrong)} has a comma; name it by its id`);
    return texts.length === 0 ? undefined : texts.join(",");
}
