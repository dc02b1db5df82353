//! The limits of clients: sizes, times, connections.

use std::time::Duration;

/// The largest body of a request.
pub const BODY_LIMIT_BYTES: usize = 16 * 1024;
/// The largest body of a batch of votes: 131 bytes for each of [`REQUEST_LIMIT_VOTES`].
pub const BATCH_BODY_LIMIT_BYTES: usize = 128 * 1024;
/// The most votes in one request.
pub const REQUEST_LIMIT_VOTES: usize = 1000;
/// How long a client may take to send a request's body.
pub const BODY_LIMIT: Duration = Duration::from_secs(5);
/// The most headers of a request. This limit is actix-http's own and cannot be set. A request with more
/// headers gets 431.
pub const HEAD_LIMIT_HEADERS: usize = 96;
/// The largest head of a request. This limit is actix-http's own and cannot be set. A larger head gets 431; one that
/// is larger by less than what is read at once may be served.
pub const HEAD_LIMIT_BYTES: usize = 128 * 1024;
/// The default of TALLY_CONNECTIONS_LIMIT: connections that are served at once.
pub const CONNECTIONS_LIMIT: usize = 8192;
/// The default of TALLY_STREAMS_LIMIT: live streams of a server. They leave connections for voters.
pub const STREAMS_LIMIT: usize = 6000;
/// The default of TALLY_STREAMS_LIMIT_BY_ADDRESS: live streams of one client address. Many people may share
/// one.
pub const STREAMS_LIMIT_BY_ADDRESS: usize = 100;
/// The most lists, searches and histories that a server reads at once. Few of them reach Postgres at the same
/// time; the others wait.
pub const LISTS_LIMIT: usize = 64;
/// The most of them for one client address. As many reach Postgres at the same time: whoever comes from another
/// address waits for at most one statement of each connection, however many this address asks for.
pub const LISTS_LIMIT_BY_ADDRESS: usize = 2;
/// How many more requests of one address may wait for a place. A backend has as many connections.
pub const LISTS_LIMIT_WAITING_BY_ADDRESS: usize = 256;
/// The quarters of a server's connections that live streams may use at most.
pub const STREAMS_LIMIT_QUARTERS: usize = 3;
/// The most items that one stream watches by their ids.
pub const STREAM_LIMIT_ITEMS: usize = 100;
/// The most polls that one stream watches. Each has up to 100 choices.
pub const STREAM_LIMIT_POLLS: usize = 10;
/// The longest query of a stream. It fits the most and the longest keys, percent-encoded.
/// The `http` crate reads no address beyond 65,534 bytes.
pub const STREAM_LIMIT_QUERY_BYTES: usize = 63_000;
/// After how many ms a client that has lost its stream reconnects. Each client gets a random delay.
pub const RECONNECT_MS: std::ops::RangeInclusive<u32> = 1000..=5000;
/// How much of a stream the system may hold for a client that does not read. Linux doubles it. A slow client
/// gets the newest state after this much older data.
pub const STREAM_UNREAD_LIMIT_BYTES: usize = 16 * 1024;
/// The most threads that serve requests. Each thread has its own connections: four to Postgres (two batch
/// writers, a writer of decisions, a reader) and one to Redis.
pub const THREADS_LIMIT: usize = 8;
/// The longest language tag in a frame's address (RFC 5646, 4.4.1).
pub const LANGUAGE_LIMIT_CHARACTERS: usize = 35;
/// The length of a colour in a frame's address: two digits each for red, green and blue.
pub const ACCENT_LENGTH_CHARACTERS: usize = 6;
/// How long a client should wait after a 503 before it retries.
pub const RETRY_AFTER_SECONDS: u64 = 1;

/// How long a client may take to send a request's head.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may stay open without a request.
pub const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(75);
/// How long a client may leave an answer unread when the buffers cannot hold the rest of it.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a client may take to close a connection that the server has closed.
pub const DISCONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How many connections may wait in the system to be accepted.
pub const BACKLOG_LIMIT_CONNECTIONS: u32 = 1024;
/// How many connections a thread may hold besides those that it serves.
///
/// The thread answers each of them that no connection is free. More connections wait in the system.
pub const REFUSAL_LIMIT_CONNECTIONS_PER_THREAD: usize = 64;
/// The most ballot votes in one batch from a caller without a credential.
///
/// A holder of ballots has one or a few. Without this limit, a few requests with made-up ballots would fill
/// the queue of decisions.
pub const UNCREDENTIALED_LIMIT_BALLOTS: usize = 10;
/// The most refused or failed administrative requests noted in a minute.
///
/// A program that repeats a wrong request, or a caller whose key has another scope, adds at most 86,400 small
/// rows a day.
pub const REFUSED_ACTS_LIMIT_PER_MINUTE: u32 = 60;
/// The longest time for noting a refused act. Its answer waits for the note.
pub const REFUSED_ACT_NOTE_LIMIT: Duration = Duration::from_secs(1);
