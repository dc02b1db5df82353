//! What a program says: in its log, in its metrics, and on its terminal.

mod logs;
mod metrics;
mod output;
mod plain;
mod upkeep;

pub use logs::{LogFormat, start};
pub(crate) use metrics::{LARGEST_BATCH_BOUND, LARGEST_SECONDS_BOUND};
pub use metrics::{Program, VOTE_OUTCOMES, init_metrics, name, serve_metrics};
pub use output::{complain, exit_code, one_line, print};
pub use plain::Plain;
pub use upkeep::Upkeep;
