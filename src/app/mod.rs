//! Wiring: settings → ledger and Redis → server or worker → run → stop. The binaries, `tally dev`, the tests
//! and the bench all put Tally together here.

mod commands;
mod database_setting;
mod dev;
mod greeting;
mod options;
mod supervisor;
mod wiring;

pub use commands::{run, sync_worker};
pub use wiring::{
    StoreUrls, check_for_server, check_for_worker, counters, migrate, migrate_as, operator, server, worker,
};
