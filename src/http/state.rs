//! What the handlers of one thread work with.

use metrics_exporter_prometheus::PrometheusHandle;

use crate::counts::CountReader;
use crate::ledger::ServerLedger;
use crate::live::{LiveCounts, Redis};
use crate::votes::VoteQueue;

/// What the handlers of one thread work with.
pub(crate) struct AppState {
    pub votes: VoteQueue,
    pub counts: CountReader,
    /// For new items, and for the probe.
    pub ledger: ServerLedger,
    /// For the probe.
    pub live_counts: LiveCounts,
    /// For the probe.
    pub redis: Redis,
    pub metrics: PrometheusHandle,
}
