//! What only the integration tests share. `testkit` has the rest.

pub mod answers;
pub mod cells;
pub mod metrics;
pub mod pooler;
pub mod programs;
pub mod stores;
pub mod tally;
pub mod tls;

pub use testkit::eventually;
