//! The state that the handlers of a thread share.

use actix_web::web;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::cache::Cache;
use crate::counts::{CountReader, TopLists};
use crate::ledger::ServerLedger;
use crate::live::LiveCounts;
use crate::votes::VoteQueue;
use crate::watching::Watching;
use crate::web::access::{Access, OperatorLogin, Voting};
use crate::web::api::background::{RunningEdit, RunningVoiding};
use crate::web::api::known_answers::KnownAnswer;
use crate::web::api::runner::Runner;
use crate::web::api::stream_places::StreamPlaces;
use crate::web::readiness::Readiness;
use crate::web::references::References;
use crate::web::status::Status;

/// The state that the handlers of a thread share.
pub(crate) struct AppState {
    pub votes: VoteQueue,
    pub counts: CountReader,
    pub top_lists: TopLists,
    pub watching: Watching,
    /// Shared by all threads.
    pub stream_places: StreamPlaces,
    /// For new items.
    pub ledger: ServerLedger,
    /// For `/v1/status` and `/metrics`.
    pub live_counts: LiveCounts,
    pub readiness: Readiness,
    pub metrics: PrometheusHandle,
    /// Finds the items and polls that requests name.
    pub references: web::Data<References>,
    /// Decides who may vote on what.
    pub voting: Voting,
    /// Recent answers to reads.
    pub known_answers: Cache<KnownAnswer>,
    pub access: web::Data<Access>,
    /// For what the server's own Postgres login may not do.
    pub operator: OperatorLogin,
    pub voidings: Runner<RunningVoiding>,
    pub voter_edits: Runner<RunningEdit>,
    pub status: Status,
}
