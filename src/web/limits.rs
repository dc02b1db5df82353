//! What a client may take of the server: sizes, times, connections.

use std::time::Duration;

/// The largest body of a request.
pub const BODY_LIMIT_BYTES: usize = 16 * 1024;
/// The largest body of a batch of votes: 131 bytes for each of [`BATCH_LIMIT_VOTES`].
pub const BATCH_BODY_LIMIT_BYTES: usize = 128 * 1024;
/// The most votes in one request.
pub const BATCH_LIMIT_VOTES: usize = 1000;
/// How long a client may take to send a request's body.
pub const BODY_LIMIT: Duration = Duration::from_secs(5);
/// The most headers of a request. It is actix-http's own limit and cannot be set; a request
/// with more gets 431.
pub const HEAD_LIMIT_HEADERS: usize = 96;
/// The largest head of a request. It is actix-http's own limit and cannot be set; a larger
/// head gets 431.
pub const HEAD_LIMIT_BYTES: usize = 128 * 1024;
/// Connections that are served at once, unless TALLY_CONNECTIONS_LIMIT says otherwise.
pub const CONNECTIONS_LIMIT: usize = 8192;
/// Live streams of a server, unless TALLY_STREAMS_LIMIT says otherwise: they leave connections for
/// those who vote.
pub const STREAMS_LIMIT: usize = 6000;
/// Live streams of one client address, unless TALLY_STREAMS_LIMIT_BY_ADDRESS says otherwise: many
/// people may share one.
pub const STREAMS_LIMIT_BY_ADDRESS: usize = 100;
/// The part of its connections that a server has for live streams, in quarters, whatever
/// TALLY_STREAMS_LIMIT says.
pub const STREAMS_LIMIT_QUARTERS: usize = 3;
/// The most items that one stream watches by their ids.
pub const STREAM_LIMIT_ITEMS: usize = 100;
/// The most polls that one stream watches: each has up to 100 choices.
pub const STREAM_LIMIT_POLLS: usize = 10;
/// The longest query of a stream: as many of the longest keys as it takes, percent-encoded, fit.
/// The `http` crate reads no address beyond 65,534 bytes.
pub const STREAM_LIMIT_QUERY_BYTES: usize = 63_000;
/// Within what time, in ms, a client comes back that has lost its stream; each gets another one.
pub const RECONNECT_MS: std::ops::RangeInclusive<u32> = 1000..=5000;
/// What the system may hold of a stream that its client has not read. Linux doubles it. Whoever
/// reads slowly gets the newest behind that much of the older.
pub const STREAM_UNREAD_LIMIT_BYTES: usize = 16 * 1024;
/// The most threads that serve requests. Each thread has connections of its own: four to
/// Postgres (two batch writers, a writer of what needs a decision, a reader) and one to Redis.
pub const THREADS_LIMIT: usize = 8;
/// How long a client should wait after a 503 before it tries again.
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
/// How many connections a thread may hold besides those that it serves. It answers each of
/// them that there is no free connection. Further connections wait in the system.
pub const REFUSAL_LIMIT_CONNECTIONS_PER_THREAD: usize = 64;
/// Votes with a ballot in one batch of who has no credential and may not vote otherwise. Who holds a
/// ballot has one or a few; without this limit a few requests with made-up ballots would fill the
/// queue of decisions.
pub const UNCREDENTIALED_LIMIT_BALLOTS: usize = 10;
/// Administrative requests that were refused or failed and that a server notes in the trail, in a
/// minute. A program that goes on and on with a wrong request, or whoever has a key of another
/// scope, adds 86,400 small rows a day at the most.
pub const REFUSED_ACTS_LIMIT_PER_MINUTE: u32 = 60;
/// How long the note of one may take; its answer waits for it.
pub const REFUSED_ACT_NOTE_LIMIT: Duration = Duration::from_secs(1);
