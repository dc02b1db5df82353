//! `tally`: the server, and an operator's commands. Thin: see `tally::app`.

use std::process::ExitCode;

use tally::{app, config, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let settings: config::Tally = config::read();
    telemetry::exit_code("tally", async {
        telemetry::start(settings.logs.log_format, &config::unknown_variables())?;
        app::run(settings.command).await
    })
    .await
}
