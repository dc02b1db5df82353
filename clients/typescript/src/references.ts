/** An item or a poll: its id, or `key:` and your own key. */
export type Reference = number | string;

/** A part of a path. Throws a RangeError if no URL can name it: `.` and `..` mean something else there. */
export function part(value: Reference): string {
    const text = String(value);
    if (text === "" || text === "." || text === "..") throw new RangeError(`no URL can name ${JSON.stringify(text)}`);
    return encodeURIComponent(text);
}

/** Joins references with commas, for a query; undefined if there are none. */
export function list(references: readonly Reference[]): string | undefined {
    const texts = references.map(String);
    const wrong = texts.find((text) => text.includes(","));
    if (wrong !== undefined) throw new RangeError(`${JSON.stringify(wrong)} has a comma; name it by its id`);
    return texts.length === 0 ? undefined : texts.join(",");
}
