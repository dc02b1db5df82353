/**
 * A client of Tally. Its types are generated from the description of the HTTP interface. The rest is
 * written by hand and needs only `fetch`: it runs in browsers and in Node 18 or later.
 *
 * - `tally`: the client. Each of its resources has a file of its own: `items`, `polls`, `votes` …
 * - `options`, `references`: what calls take.
 * - `requests`, `token`: sends a request, and retries it where that is safe.
 * - `reads`: conditional reads, CSV, page after page.
 * - `turns`: sends the writes of a voter one after the other.
 * - `watch`, `events`: live counts.
 * - `problem`, `pauses`: refusals; waiting.
 */
export { Tally } from "./tally.js";

export type { Access, OpenTo } from "./access.js";
export type { ApiKey, MadeApiKey, NewApiKey, Rotation } from "./api_keys.js";
export type { Ballots, NewBallots } from "./ballots.js";
export type { Live, Ready } from "./health.js";
export type {
    HistoryFilter,
    Item,
    ItemEdit,
    ItemHistory,
    Items,
    ItemsByIds,
    ItemsFilter,
    ItemsPage,
    LedgerRow,
    LedgerRows,
    NewItem,
    RowsFilter,
    TopFilter,
    TopList,
} from "./items.js";
export type { NewPoll, Poll, PollCopy, PollEdit, PollHistory, Polls, PollsFilter, Selection } from "./polls.js";
export type { Status, StatusHistory } from "./status.js";
export type { Act, Trail, TrailFilter } from "./trail.js";
export type { DryRun, NewVoiding, Voiding, Voidings, VoidingsFilter } from "./voidings.js";
export {
    type BatchResult,
    type BatchVote,
    type CastOptions,
    type HeldVote,
    type Feed,
    type HeldVotes,
    type ItemsAndPolls,
    type NewVote,
    type Receipt,
    type Vote,
    type VoteValue,
    isRefused,
} from "./votes.js";
export type { NewVoter, Voter } from "./voter.js";
export type { NewVoterEdit, VoterDryRun, VoterEdit, VoterEdits, VoterEditsFilter } from "./voter_edits.js";

export type { CallOptions, Conditional, CsvPage, Tagged } from "./options.js";
export { NoAnswer, Problem, type Slug } from "./problem.js";
export type { ItemOrPoll, Reference } from "./references.js";
export {
    type Answer,
    type Call,
    type Options,
    PAUSE_LIMIT_MS,
    type Query,
    RETRY_AFTER_LIMIT_MS,
    TRIES_LIMIT,
    TRY_LIMIT_MS,
} from "./requests.js";
export type { Token } from "./token.js";
export { FIRST_PAUSE_MS, pauseMs } from "./pauses.js";
export { EVENT_LIMIT_CHARACTERS, EventReader, type ServerSentEvent } from "./events.js";
export {
    type Counts,
    SILENCE_LIMIT_MS,
    STREAM_PAUSE_LIMIT_MS,
    type Unknown,
    type WatchOptions,
    type Watched,
    againMs,
} from "./watch.js";
export type { components, operations, paths } from "./schema.js";
