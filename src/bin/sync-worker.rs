//! `sync-worker`: writes live counts behind to their items. Thin: see `tally::app`.

use std::process::ExitCode;

use tally::{app, config, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let settings: config::SyncWorker = config::read();
    telemetry::exit_code("sync-worker", async {
        telemetry::start(settings.logs.log_format, &config::unknown_variables())?;
        app::sync_worker(settings).await
    })
    .await
}
