//! `tally`: the server, and an operator's commands. Thin: each is a call into the house.

use std::process::ExitCode;

use tally::config::{self, Command};
use tally::http::{Limits, Server};
use tally::ledger::{self, Ledger};
use tally::live::{self, Counters, Redis};
use tally::{client, dev, replay, shutdown, sync, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let settings: config::Tally = config::read();
    if let Err(error) = telemetry::start(settings.logs.log_format, &config::unknown_variables()) {
        return fail(&error);
    }
    let done = match settings.command {
        Command::Serve(settings) => serve(settings).await.map(|()| true),
        Command::Dev(settings) => dev::run(settings).await.map(|()| true),
        Command::Migrate(settings) => migrate(&settings).await.map(|()| true),
        Command::Replay(settings) => replay::run(settings).await,
        Command::Health(settings) => health(&settings).await,
        Command::Audit(settings) => audit(settings).await,
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("tally: {}", telemetry::one_line(error));
    ExitCode::FAILURE
}

async fn serve(settings: config::Serve) -> anyhow::Result<()> {
    let metrics = telemetry::init_metrics()?;
    let ledger = Ledger::new(
        &settings.stores.database_url,
        "tally serve",
        ledger::SERVER_STATEMENT_LIMIT,
    )?;
    if settings.migrate {
        ledger.migrate().await?;
    }
    let redis = Redis::new(&settings.stores.redis_url, live::SERVER_ANSWER_LIMIT)?;
    let server = Server::bind(
        settings.server.listen,
        settings.server.shutdown_limit,
        ledger,
        redis,
        metrics,
    )?
    .limited_to(Limits::with_connections(settings.server.connections_limit));
    tracing::info!(address = %server.address()?, "listening");
    server
        .run(async {
            if let Err(error) = shutdown::requested().await {
                tracing::error!(%error, "cannot listen to signals");
            }
        })
        .await
}

async fn health(settings: &config::Health) -> anyhow::Result<bool> {
    let (is_well, answer) = client::ask(&settings.url).await?;
    telemetry::print(format_args!("{answer}\n"));
    Ok(is_well)
}

async fn migrate(settings: &config::Migrate) -> anyhow::Result<()> {
    let ledger = Ledger::new(
        &settings.database_url,
        "tally migrate",
        ledger::WORKER_STATEMENT_LIMIT,
    )?;
    let roles = ledger.migrate().await?;
    telemetry::print(format_args!("the database is up to date; {roles}\n"));
    Ok(())
}

async fn audit(settings: config::AuditCommand) -> anyhow::Result<bool> {
    let worker = sync::Worker::new(
        Ledger::new(
            &settings.stores.database_url,
            "tally audit",
            ledger::WORKER_STATEMENT_LIMIT,
        )?,
        Counters::new(Redis::new(&settings.stores.redis_url, live::WORKER_ANSWER_LIMIT)?),
        (&settings.audit).into(),
    );
    let repair = if settings.repair {
        sync::Repair::Yes
    } else {
        sync::Repair::No
    };
    let report = worker.audit(repair).await?;
    if report.repaired_items > 0 {
        worker.flush_to_rest().await?;
    }
    telemetry::print(report);
    Ok(report.wrong_items == 0)
}
