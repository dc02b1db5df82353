//! What a program says: in its log, in its metrics, in its traces, and on its terminal.

mod build;
mod logs;
mod metrics;
mod output;
mod plain;
mod traces;
mod troubles;
mod upkeep;

pub use build::{commit, version};
pub use logs::{LogFormat, start};
pub(crate) use metrics::{LARGEST_BATCH_BOUND, LARGEST_SECONDS_BOUND};
pub use metrics::{LEDGER_FAILURES, Program, VOTE_OUTCOMES, init_metrics, name};
pub use output::{complain, exit_code, one_line, print};
pub use plain::Plain;
pub(crate) use traces::Span;
pub use traces::Traces;
pub(crate) use troubles::trouble;
pub use troubles::{is_news, keep_reporting};
pub use upkeep::Upkeep;
