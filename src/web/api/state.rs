//! What the handlers of a thread share.

use metrics_exporter_prometheus::PrometheusHandle;

use crate::admission::Admission;
use crate::cache::Cache;
use crate::counts::{CountReader, TopLists};
use crate::ledger::ServerLedger;
use crate::live::{LiveCounts, Redis};
use crate::votes::VoteQueue;
use crate::watching::Watching;
use crate::web::access::voting::{ItemKeys, PollKeys};
use crate::web::access::{Access, OperatorLogin};
use crate::web::api::conditional::KnownAnswer;
use crate::web::api::stream_places::StreamPlaces;
use crate::web::api::voidings::running::Voidings;
use crate::web::status::Status;

/// What the handlers of a thread share.
pub(crate) struct AppState {
    pub votes: VoteQueue,
    pub counts: CountReader,
    pub top_lists: TopLists,
    pub watching: Watching,
    /// Of all threads.
    pub stream_places: StreamPlaces,
    /// For new items and for `/health/ready`.
    pub ledger: ServerLedger,
    /// For `/health/ready` and `/metrics`.
    pub live_counts: LiveCounts,
    /// For `/health/ready`.
    pub redis: Redis,
    pub metrics: PrometheusHandle,
    pub item_keys: Cache<ItemKeys>,
    pub poll_keys: Cache<PollKeys>,
    /// What was answered lately to reads.
    pub known_answers: Cache<KnownAnswer>,
    pub access: Access,
    /// For what the server's own login in Postgres may not do.
    pub operator: OperatorLogin,
    pub voidings: Voidings,
    pub status: Status,
    pub admission: Admission,
    /// Whether a vote on an unknown key makes its item.
    pub creates_items: bool,
}
