import { type CallOptions, type Optional, type QueryOf, type Schemas, signalOf } from "./options.js";
import { type Reference, place } from "./references.js";
import type { Query, Requests } from "./requests.js";

/** What the server shows to people, as text: `tally.pages`. */
export class PageCalls {
    readonly #requests: Requests;

    constructor(requests: Requests) {
        this.#requests = requests;
    }

    /** The page of polls and items, in HTML. */
    home({ signal, ...query }: Optional<QueryOf<"showPage">> & CallOptions = {}): Promise<string> {
        return this.#text("/", { signal }, "text/html", query);
    }

    /** The page of an item, in HTML. */
    item(item: Reference, options: CallOptions = {}): Promise<string> {
        const { path, query } = place("/items", item);
        return this.#text(path, options, "text/html", query);
    }

    /** The page of a poll, in HTML. */
    poll(poll: Reference, options: CallOptions = {}): Promise<string> {
        const { path, query } = place("/polls", poll);
        return this.#text(path, options, "text/html", query);
    }

    /** The page of an item for a frame, in HTML. */
    itemFrame(item: Reference, { signal, ...look }: Optional<QueryOf<"showItemFrame">> & CallOptions = {}): Promise<string> {
        const { path, query } = place("/items", item, "/frame");
        return this.#text(path, { signal }, "text/html", { ...query, ...look });
    }

    /** The page of a poll for a frame, in HTML. */
    pollFrame(poll: Reference, { signal, ...look }: Optional<QueryOf<"showPollFrame">> & CallOptions = {}): Promise<string> {
        const { path, query } = place("/polls", poll, "/frame");
        return this.#text(path, { signal }, "text/html", { ...query, ...look });
    }

    /** The frame for the address of a page: oEmbed 1.0. */
    oembed({ signal, ...query }: QueryOf<"showOEmbed"> & CallOptions): Promise<Schemas["OEmbed"]> {
        return this.#requests.ask({ method: "GET", path: "/oembed", query, ...signalOf({ signal }) });
    }

    /** The page that makes snippets, in HTML. */
    embed(options: CallOptions = {}): Promise<string> {
        return this.#text("/embed", options);
    }

    /** The operator's page, in HTML. */
    operator(options: CallOptions = {}): Promise<string> {
        return this.#text("/ops", options);
    }

    /** The description of the HTTP interface, in HTML. */
    docs(options: CallOptions = {}): Promise<string> {
        return this.#text("/docs", options);
    }

    /** The description of the HTTP interface: OpenAPI 3.1. */
    description(options: CallOptions = {}): Promise<Record<string, unknown>> {
        return this.#requests.ask({ method: "GET", path: "/openapi.json", ...signalOf(options) });
    }

    /** The list of problem types, in Markdown. */
    problems(options: CallOptions = {}): Promise<string> {
        return this.#text("/problems", options, "text/markdown");
    }

    /** What a problem type means and what to do, in Markdown. */
    problem(slug: Schemas["ProblemSlug"], options: CallOptions = {}): Promise<string> {
        return this.#text(`/problems/${slug}`, options, "text/markdown");
    }

    #text(path: string, options: CallOptions, accept = "text/html", query?: Query): Promise<string> {
        return this.#requests.ask({ method: "GET", path, query, accept, ...signalOf(options) });
    }
}
