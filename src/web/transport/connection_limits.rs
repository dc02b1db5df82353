//! The limits of clients, as the settings have them.

use std::time::Duration;

use crate::web::limits::{
    ANSWER_LIMIT, HEAD_LIMIT, KEEP_ALIVE_LIMIT, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD, STREAMS_LIMIT,
    STREAMS_LIMIT_BY_ADDRESS, STREAMS_LIMIT_QUARTERS,
};

/// Open files that are not connections of clients: logs, the stores, the runtime.
const FILES_RESERVED: u64 = 128;

/// The limits of clients. `web::limits` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    pub head: Duration,
    pub keep_alive: Duration,
    pub answer: Duration,
    /// The most connections that are served at once.
    pub connections: usize,
    /// The most live streams at once.
    pub streams: usize,
    /// The most live streams of one client address.
    pub streams_by_address: usize,
}

impl ClientLimits {
    /// Returns the limits of `web::limits` with this many connections.
    pub fn with_connections(connections: usize) -> Self {
        Self {
            head: HEAD_LIMIT,
            keep_alive: KEEP_ALIVE_LIMIT,
            answer: ANSWER_LIMIT,
            connections,
            streams: STREAMS_LIMIT,
            streams_by_address: STREAMS_LIMIT_BY_ADDRESS,
        }
    }

    /// Returns the most live streams, which always leave connections for votes.
    pub fn streams_beside_votes(&self) -> usize {
        let share = (self.connections / 4).saturating_mul(STREAMS_LIMIT_QUARTERS);
        self.streams.min(share.max(1))
    }

    /// Raises the process' limit on open files as far as the system allows. Then lowers the number of
    /// connections to what that limit allows. A server without a free file could not even tell a client that
    /// there is no free connection.
    pub fn within_open_files(mut self, threads: usize) -> Self {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return self;
        };
        let refusals = REFUSAL_LIMIT_CONNECTIONS_PER_THREAD.saturating_mul(threads);
        let reserved = FILES_RESERVED.saturating_add(refusals as u64);
        let wanted = (self.connections as u64).saturating_add(reserved);
        let mut files = soft;
        if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok() {
            files = wanted.min(hard);
        }
        let free = usize::try_from(files.saturating_sub(reserved)).unwrap_or(usize::MAX);
        if free < self.connections {
            self.connections = free.max(1);
            tracing::warn!(
                connections = self.connections,
                files,
                "fewer connections than TALLY_CONNECTIONS_LIMIT: the system allows too few open files (ulimit -n)"
            );
        }
        self
    }
}
