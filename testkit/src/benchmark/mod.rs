//! The results of `make bench`: rows, medians, targets, and tables in documents.
//!
//! The bench itself (`benches/compare`) measures, and writes `target/bench/results.json`. Nothing
//! here measures. `make bench-tables` reads that file and writes all tables from one run. So no
//! page can say that an old run meets today's targets.

mod medians;
mod numbers;
mod pages;
mod results;
mod rows;
mod run_page;
mod stamp;
mod system;
mod tables;
pub mod targets;

pub use medians::{Line, median_row};
pub use pages::{between, replace, write_pages};
pub use results::{Machine, Results, Run, Which, Workload};
pub use rows::{
    CpuEach, CredentialRow, DeafRow, DiskBytes, Latency, OpenLatency, Row, SnapshotCost, SplitCost, Spread,
    StreamRow, With, WorkerRow,
};
pub use run_page::run_page;
pub use stamp::{Stamp, stamp};
pub use system::{System, Topology};
pub use tables::{now, targets as targets_table, ways};
pub use targets::Target;
