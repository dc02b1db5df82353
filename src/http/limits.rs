//! What a client may take of the server: sizes, times, connections.

use std::time::Duration;

/// How large a request's body may be.
pub const BODY_LIMIT_BYTES: usize = 16 * 1024;
/// How long a client may take to send a request's body.
pub const BODY_LIMIT: Duration = Duration::from_secs(5);
/// How many headers a request may have, and how many bytes its head: actix-http's own
/// limits, which cannot be set. Beyond them it answers 431.
pub const HEAD_LIMIT_HEADERS: usize = 96;
pub const HEAD_LIMIT_BYTES: usize = 128 * 1024;
/// Connections that are served at once, unless TALLY_CONNECTIONS_LIMIT says otherwise.
pub const CONNECTIONS_LIMIT: usize = 8192;
/// Threads that serve requests, at the most. Each has three connections to Postgres of
/// its own, two batch writers for votes and one for reads, and one to Redis.
pub const THREADS_LIMIT: usize = 8;
/// What a client that was turned away should wait.
pub const RETRY_AFTER_SECONDS: u64 = 1;

/// How long a client may take to send a request's head.
pub const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may stay open without a request.
pub const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(75);
/// How long a client may leave an answer unread that does not fit into the buffers.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a client that is closed on may take to close as well.
pub const DISCONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How many connections may wait to be accepted.
pub const BACKLOG_LIMIT_CONNECTIONS: u32 = 1024;
/// How many connections a thread may hold above all that are served: they are answered that there is no free connection. Beyond that no more are accepted.
pub const REFUSAL_LIMIT_CONNECTIONS_PER_THREAD: usize = 64;
