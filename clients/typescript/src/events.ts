/** The longest event that the client reads, in characters. Tally's are far shorter. */
export const EVENT_LIMIT_CHARACTERS = 8 * 1024 * 1024;

/** A server-sent event. */
export interface ServerSentEvent {
    type: string;
    data: string;
    /** The last id that the server sent, in this event or before. */
    id: string;
}

/** Reads server-sent events, as the HTML standard defines them, from text that comes in pieces. */
export class EventReader {
    #rest = "";
    #type = "";
    #data: string[] = [];
    #dataCharacters = 0;
    #id: string;
    /** How many ms to wait before a lost stream is opened again, if the server says it. */
    retryMs: number | undefined;

    constructor(lastId = "") {
        this.#id = lastId;
    }

    /** The events that end in this piece. */
    *read(piece: string): Generator<ServerSentEvent> {
        const text = this.#rest + piece;
        const ends = /\r\n|[\r\n]/g;
        let start = 0;
        for (let end = ends.exec(text); end !== null; end = ends.exec(text)) {
            // A CR at the end of the piece may be half of a CR LF.
            if (end[0] === "\r" && ends.lastIndex === text.length) break;
            const event = this.#take(text.slice(start, end.index));
            start = ends.lastIndex;
            if (event !== undefined) yield event;
        }
        this.#rest = text.slice(start);
        if (this.#rest.length + this.#dataCharacters > EVENT_LIMIT_CHARACTERS) {
            throw new RangeError(`an event has more than ${EVENT_LIMIT_CHARACTERS} characters`);
        }
    }

    #take(line: string): ServerSentEvent | undefined {
        if (line === "") {
            const event = { type: this.#type || "message", data: this.#data.join("\n"), id: this.#id };
            const isEvent = this.#data.length > 0;
            this.#type = "";
            this.#data = [];
            this.#dataCharacters = 0;
            return isEvent ? event : undefined;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") this.#type = value;
        else if (field === "id" && !value.includes("\0")) this.#id = value;
        else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
        else if (field === "data") {
            this.#data.push(value);
            this.#dataCharacters += value.length;
        }
        return undefined;
    }
}
