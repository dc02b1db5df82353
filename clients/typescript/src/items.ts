import type { CallOptions, Conditional, CsvPage, None, Optional, QueryOf, ReadOptions, Schemas, Tagged } from "./options.js";
import { signalOf } from "./options.js";
import { each, read, readCsv } from "./reads.js";
import { type Reference, list, place } from "./references.js";
import type { Query, Requests } from "./requests.js";

export type Item = Schemas["Item"];
export type Items = Schemas["Items"];
export type ItemEdit = Schemas["ItemEdit"];
export type ItemHistory = Schemas["ItemHistory"];
export type LedgerRow = Schemas["LedgerRow"];
export type LedgerRows = Schemas["LedgerRows"];
export type NewItem = Schemas["NewItem"];
export type TopList = Schemas["TopList"];

type ListQuery = QueryOf<"listItems">;

/** These items, hidden or not, in this order. */
export type ItemsByIds = { ids: readonly Reference[] } & None<Exclude<keyof ListQuery, "ids">>;
/** A page of all items, of those with a name, or of those that a search finds. */
export type ItemsPage =
    | ({ name: string; choices?: true | undefined } & Optional<Pick<ListQuery, "after" | "limit">> & None<"ids" | "search">)
    | (Optional<Omit<ListQuery, "ids" | "name">> & None<"ids" | "name">);
/** Which items to list. */
export type ItemsFilter = ItemsByIds | ItemsPage;

type TopQuery = QueryOf<"listTopItems">;
type Ranking = "by" | "over" | "limit";
/** How to rank items, and which: those of a poll, or those that the other parameters choose. */
export type TopFilter =
    | ({ poll: Reference } & Optional<Pick<TopQuery, Ranking>> & None<Exclude<keyof TopQuery, Ranking | "poll">>)
    | (Optional<Omit<TopQuery, "poll">> & None<"poll">);
/** The time of a history. */
export type HistoryFilter = Optional<QueryOf<"showItemHistory">>;
/** Which page of the ledger's rows. */
export type RowsFilter = Optional<QueryOf<"listItemVotes">>;

/** Items: `tally.items`. */
export class ItemCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** Creates an item. If another item has its `key`, returns that one. */
    create(item: NewItem, options: CallOptions = {}): Promise<Item> {
        const isSafe = item.key != null;
        return this.#requests.ask({ method: "POST", path: "/v1/items", body: item, isSafe, ...signalOf(options) });
    }

    /** Retrieves an item and its live counts. */
    get(item: Reference, options: CallOptions & Conditional): Promise<Tagged<Item>>;
    get(item: Reference, options?: CallOptions): Promise<Item>;
    get(item: Reference, options: ReadOptions = {}): Promise<Item | Tagged<Item>> {
        return read<Item>(this.#requests, place("/v1/items", item), options);
    }

    /** Changes an item. What is left out stays. */
    edit(item: Reference, edit: ItemEdit, options: CallOptions = {}): Promise<Item> {
        const at = place("/v1/items", item);
        return this.#requests.ask({ method: "PATCH", ...at, body: edit, isSafe: true, ...signalOf(options) });
    }

    /** Lists items, a page at a time. `next_after` is the next page's `after`. */
    list(filter: ItemsFilter & CallOptions & Conditional): Promise<Tagged<Items>>;
    list(filter?: ItemsFilter & CallOptions): Promise<Items>;
    async list(filter: ItemsFilter & ReadOptions = {}): Promise<Items | Tagged<Items>> {
        const query = queryOf(filter);
        // No ids are no items, and not all of them.
        const none: Items = { items: [], next_after: null };
        if (filter.ids?.length === 0) return filter.ifNoneMatch === undefined ? none : { modified: true, value: none, etag: undefined };
        return await read<Items>(this.#requests, { path: "/v1/items" }, filter, query);
    }

    /** Lists items one by one, and reads page after page for it. */
    each({ after, ...filter }: ItemsPage & CallOptions = {}): AsyncGenerator<Item, void, undefined> {
        const page = (at: number | undefined) => this.list({ ...filter, after: at } as ItemsPage & CallOptions);
        return each(after ?? undefined, page, ({ items }) => items, ({ next_after }) => next_after);
    }

    /** Lists a page of items as CSV. */
    async csv(filter: ItemsFilter & CallOptions = {}): Promise<CsvPage> {
        if (filter.ids?.length === 0) throw new RangeError("ids is empty; give at least one item");
        return await readCsv(this.#requests, { path: "/v1/items" }, filter, queryOf(filter));
    }

    /** Lists the top items. */
    top(filter: TopFilter & CallOptions & Conditional): Promise<Tagged<TopList>>;
    top(filter?: TopFilter & CallOptions): Promise<TopList>;
    top(filter: TopFilter & ReadOptions = {}): Promise<TopList | Tagged<TopList>> {
        return read<TopList>(this.#requests, { path: "/v1/items/top" }, filter, queryOf(filter));
    }

    /** Lists the top items as CSV. */
    async topCsv(filter: TopFilter & CallOptions = {}): Promise<string> {
        return (await readCsv(this.#requests, { path: "/v1/items/top" }, filter, queryOf(filter))).text;
    }

    /** Retrieves how an item's counts changed lately. */
    history(item: Reference, filter: HistoryFilter & CallOptions & Conditional): Promise<Tagged<ItemHistory>>;
    history(item: Reference, filter?: HistoryFilter & CallOptions): Promise<ItemHistory>;
    history(item: Reference, filter: HistoryFilter & ReadOptions = {}): Promise<ItemHistory | Tagged<ItemHistory>> {
        return read<ItemHistory>(this.#requests, place("/v1/items", item, "/history"), filter, queryOf(filter));
    }

    /** Lists an item's rows of the ledger, with who voted. Needs an API key with the scope `report`. */
    votes(item: Reference, filter: RowsFilter & CallOptions & Conditional): Promise<Tagged<LedgerRows>>;
    votes(item: Reference, filter?: RowsFilter & CallOptions): Promise<LedgerRows>;
    votes(item: Reference, filter: RowsFilter & ReadOptions = {}): Promise<LedgerRows | Tagged<LedgerRows>> {
        return read<LedgerRows>(this.#requests, place("/v1/items", item, "/votes"), filter, queryOf(filter));
    }

    /** Lists an item's rows of the ledger one by one. */
    eachVote(item: Reference, { after, ...filter }: RowsFilter & CallOptions = {}): AsyncGenerator<LedgerRow, void, undefined> {
        const page = (at: number | undefined) => this.votes(item, { ...filter, after: at });
        return each(after, page, ({ votes }) => votes, ({ next_after }) => next_after);
    }

    /** Lists a page of an item's rows of the ledger as CSV. */
    votesCsv(item: Reference, filter: RowsFilter & CallOptions = {}): Promise<CsvPage> {
        return readCsv(this.#requests, place("/v1/items", item, "/votes"), filter, queryOf(filter));
    }
}

/** The parameters among the options. */
export function queryOf(filter: object): Query {
    const { signal, ifNoneMatch, ids, ...query } = filter as ReadOptions & { ids?: readonly Reference[] } & Query;
    return ids == null ? query : { ...query, ids: list(ids) };
}
