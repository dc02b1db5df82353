/**
 * Types of the elements that a Tally server has at `/embed.js`: their attributes, their events, and `configure`.
 * Importing this file gives `document.querySelector`, `document.createElement` and `addEventListener` their types. For
 * TSX, import the file of the framework instead, such as `tally-client/elements/react`.
 */
import type { components } from "../dist/cjs/schema.js";

type Schemas = components["schemas"];

/** The `detail` of each event. */
export interface TallyEventDetails {
    /** The item or the poll, each time it is read or changes. */
    "tally-counts": Schemas["Item"] | Schemas["Poll"];
    /** The answer to a vote of this browser. For a poll of one choice it says what the voter holds now. */
    "tally-vote": Schemas["Vote"] | Schemas["Selection"];
    /** What went wrong, in words, and as the server says it; null if the server did not answer. */
    "tally-error": { message: string; problem: Schemas["Problem"] | null };
    /** The server takes votes from known voters alone; null if the element had asked before. */
    "tally-sign-in": { problem: Schemas["Problem"] | null };
}

/** The events of elements. They bubble. */
export type TallyEvents = { [Name in keyof TallyEventDetails]: CustomEvent<TallyEventDetails[Name]> };

/** The event of `document` when the connection is lost or comes back. */
export interface TallyDocumentEvents {
    "tally-connection": CustomEvent<{ connected: boolean; reason: string }>;
}

/**
 * An attribute that is there or not. `false` is no value of it, because React 18 writes it as the text "false":
 * write `isShort || undefined`.
 */
export type Flag = true | "";

/** An id, or `key:` and your own key. */
export type TallyReference = string | number;

/** `<tally-poll>`. */
export interface TallyPollAttributes {
    poll: TallyReference;
    /** Without the title. */
    "no-title"?: Flag | undefined;
    /** The level of the title's heading, from 1 to 6. */
    "heading-level"?: 1 | 2 | 3 | 4 | 5 | 6 | "1" | "2" | "3" | "4" | "5" | "6" | undefined;
    /** Counts without words. */
    "no-words"?: Flag | undefined;
    /** What a choice's percentage is of. The default is all votes. */
    "share-of"?: "votes" | "voters" | undefined;
}

/** `<tally-vote>`. */
export interface TallyVoteAttributes {
    item: TallyReference;
    /** Without the name. */
    "no-name"?: Flag | undefined;
    /** Without the button to vote down. */
    likes?: Flag | undefined;
}

/** `<tally-reactions>`: to what has your own key, or to a poll with emoji as its choices. */
export type TallyReactionsAttributes = (
    | { to: string; emoji: string; poll?: undefined }
    | { poll: TallyReference; to?: undefined; emoji?: undefined }
) & {
    /** At most one reaction for each voter. */
    single?: Flag | undefined;
};

/** `<tally-count>`. */
export interface TallyCountAttributes {
    item: TallyReference;
    /** Only the up-votes, or only the down-votes. */
    show?: "up" | "down" | undefined;
}

/** `<tally-history>`: of an item or of a poll. */
export type TallyHistoryAttributes = (
    | { item: TallyReference; poll?: undefined }
    | { poll: TallyReference; item?: undefined }
) & {
    /** The time of the chart. The default is the last day. */
    over?: "hour" | "day" | undefined;
};

/** The attributes of each element. */
export interface TallyAttributes {
    "tally-poll": TallyPollAttributes;
    "tally-vote": TallyVoteAttributes;
    "tally-reactions": TallyReactionsAttributes;
    "tally-count": TallyCountAttributes;
    "tally-history": TallyHistoryAttributes;
}

/** The text of a word: one for all numbers, or one for each plural category of the language. */
export type TallyWord = string | Partial<Record<Intl.LDMLPluralRule, string>>;

/** What a page may set. What is left out stays as it is. */
export interface TallySettings {
    /** Returns the voter's token; nothing: nobody has signed in. Null: voters have no tokens. */
    token?: (() => string | null | undefined | Promise<string | null | undefined>) | null;
    /** The page's own words, by language and key. */
    words?: Record<string, Record<string, TallyWord>> | null;
}

/** Sets what the elements of this page use. It comes from the same address as the elements. */
export declare function configure(changes: TallySettings): void;

declare global {
    interface HTMLElementTagNameMap extends Record<keyof TallyAttributes, HTMLElement> {}
    interface GlobalEventHandlersEventMap extends TallyEvents {}
    interface DocumentEventMap extends TallyDocumentEvents {}
}
