//! What each command does.

use std::panic;

use anyhow::Context;

use super::wiring::{self, StoreUrls};
use super::{database_setting, dev, supervisor};
use crate::config::cells::CellCommand;
use crate::config::{self, Command};
use crate::domain::Cell;
use crate::ledger::WorkerLedger;
use crate::live::{Counters, Redis, WORKER_ANSWER_LIMIT};
use crate::sync::{self, Repair};
use crate::telemetry::Plain;
use crate::web::ServerOptions;
use crate::{client, doctor, operator, replay, shutdown, telemetry, web};

/// Runs a command of `tally`. Returns whether all was well.
pub async fn run(command: Command) -> anyhow::Result<bool> {
    // In boxes, here and below: the compiler follows futures only to a depth.
    Box::pin(dispatch(command)).await.map_err(database_setting::named)
}

async fn dispatch(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Serve(settings) => serve(settings).await.map(|()| true),
        Command::Dev(settings) => dev::run(settings).await.map(|()| true),
        Command::Migrate(settings) => migrate(&settings).await.map(|()| true),
        Command::Item(command) => operator::item(command).await,
        Command::Poll(command) => operator::poll(command).await,
        Command::Cell(CellCommand::Make(settings)) => {
            let done =
                wiring::migrate_as(&settings.database_url, "tally cell make", Some(settings.cell)).await?;
            operator::print_next_steps(done.cell);
            Ok(true)
        }
        Command::Cell(CellCommand::Router(router)) => {
            operator::print_router(&router);
            Ok(true)
        }
        Command::Watch(command) => operator::watch(command).await,
        Command::Ballots(command) => operator::ballots(command).await,
        Command::Key(command) => operator::key(command).await,
        Command::Trail(command) => operator::trail(command).await,
        Command::Event(command) => operator::event(command).await,
        Command::Export(command) => operator::export(command).await,
        Command::Import(command) => operator::import(command).await,
        Command::Archive(command) => operator::archive(command).await,
        Command::Void(command) => operator::void(command).await,
        Command::Voter(command) => operator::voter(command).await,
        Command::Replay(settings) => replay::run(settings.into()).await,
        Command::Health(settings) => health(&settings).await,
        Command::Audit(settings) => audit(&settings).await,
        Command::Counter(command) => {
            let redis = Redis::new(&command.redis_url, &command.keys.key_prefix, WORKER_ANSWER_LIMIT)?;
            operator::counter(&Counters::new(redis), command.item).await
        }
        Command::Doctor(settings) => doctor(&settings).await,
        Command::Completions(asked) => {
            telemetry::print(config::completions(&asked));
            Ok(true)
        }
        Command::Man(settings) => {
            let folder = &settings.folder;
            config::write_manual(folder).with_context(|| format!("cannot write to {}", folder.display()))?;
            Ok(true)
        }
        Command::Config => {
            telemetry::print(config::effective().map_err(anyhow::Error::msg)?);
            Ok(true)
        }
        Command::Openapi => {
            telemetry::print(format_args!("{}\n", web::description()));
            Ok(true)
        }
    }
}

/// Ends this process when the HTTP library has lost the time.
///
/// Its task for the time panics in the library httpdate (1.0) while the clock is outside of the years 1970 to
/// 9999, and is gone for good: from then on each request would get 408. A supervisor starts the server again.
fn end_without_the_time() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        hook(panic);
        if panic
            .location()
            .is_some_and(|location| location.file().contains("/httpdate-"))
        {
            tracing::error!(
                "this machine's clock is outside of the years 1970 to 9999: the server ends; set the clock, and start it again"
            );
            std::process::exit(1);
        }
    }));
}

async fn serve(settings: config::Serve) -> anyhow::Result<()> {
    without_huge_pages();
    end_without_the_time();
    let _reporting = tokio::spawn(telemetry::keep_reporting());
    let metrics = telemetry::init_metrics(&[telemetry::Program::Server])?;
    let stores = StoreUrls::from(&settings.stores);
    if settings.migrate {
        wiring::migrate_as(&stores.database_url, "tally serve", settings.which.cell).await?;
    }
    let mut options = ServerOptions::from(&settings.server);
    Box::pin(wiring::check_for_server(
        &stores,
        "tally serve",
        settings.which.cell,
        options.cells,
    ))
    .await?;
    let endpoint = settings.traces.otel_exporter_otlp_endpoint.as_deref();
    let traces = telemetry::Traces::start(endpoint, telemetry::Program::Server)?;
    if let Some(url) = &settings.server.operator_database_url {
        options.operator = Some(wiring::operator(url, "tally serve operator")?);
    }
    let server = wiring::server(&stores, options, "tally serve", metrics)?;
    // Before the server says that it runs: a reader of that line may stop it at once.
    let stop = shutdown::requested_or_deaf();
    let address = server.address()?;
    tracing::info!(%address, "listening");
    let ended = tokio::select! {
        ended = Box::pin(server.run(supervisor::stopping(stop))) => ended,
        never = supervisor::keep_notifying(async || supervisor::answers(address).await) => never,
    };
    traces.end().await;
    ended
}

/// Has the system back this process with small pages.
///
/// The allocator asks for huge pages. All of a huge page is resident once one byte of it is touched, but a
/// connection touches only half of its buffers. With mimalloc's own setting for it, a live stream took 11 KB
/// instead of 20 (docs/decisions/connections/small-pages.md).
fn without_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        // Old kernels and some sandboxes refuse. Then the process only takes more memory.
        tracing::debug!(%error, "huge pages stay allowed");
    }
}

async fn health(settings: &config::Health) -> anyhow::Result<bool> {
    let (is_well, answer) = client::ask(&settings.url, settings.credential.api_key.as_ref()).await?;
    telemetry::print(format_args!("{answer}\n"));
    Ok(is_well)
}

async fn doctor(settings: &config::Doctor) -> anyhow::Result<bool> {
    let stores = StoreUrls::from(&settings.stores);
    let ledger = WorkerLedger::new(&stores.database_url, "tally doctor")?;
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, WORKER_ANSWER_LIMIT)?;
    let report = doctor::look(&ledger, &redis).await;
    if settings.json {
        telemetry::print(format_args!("{}\n", serde_json::to_string(&report)?));
    } else {
        telemetry::print(&report);
    }
    Ok(report.is_well())
}

async fn migrate(settings: &config::Migrate) -> anyhow::Result<()> {
    let done = wiring::migrate_as(&settings.database_url, "tally migrate", settings.which.cell).await?;
    let cell = match done.cell {
        Cell::FIRST => String::new(),
        cell => format!("it is cell {cell}; "),
    };
    telemetry::print(format_args!(
        "the database is up to date; {cell}{}\n",
        Plain(done.roles)
    ));
    if let Some(range_ids) = settings.partition {
        operator::partition(&settings.database_url, range_ids).await?;
    }
    Ok(())
}

async fn audit(settings: &config::AuditCommand) -> anyhow::Result<bool> {
    let stores = StoreUrls::from(&settings.stores);
    let worker = wiring::worker(&stores, (&settings.audit).into(), "tally audit")?;
    Box::pin(wiring::check_for_worker(&worker)).await?;
    let repair = if settings.repair { Repair::Yes } else { Repair::No };
    let report = match repair {
        Repair::No => worker.audit(repair).await?,
        Repair::Yes => worker.audit_and_note("tally audit").await?,
    };
    telemetry::print(report);
    let rules = worker.check_rules().await?;
    telemetry::print(&rules);
    if let Some(lost) = worker.losses().await?.lines() {
        telemetry::print(format_args!("{lost}\n"));
    }
    Ok(report.wrong_items == 0 && rules.faults == 0)
}

/// Runs `sync-worker`. Returns whether all was well.
pub async fn sync_worker(settings: config::SyncWorker) -> anyhow::Result<bool> {
    Box::pin(work(settings)).await.map_err(database_setting::named)
}

async fn work(settings: config::SyncWorker) -> anyhow::Result<bool> {
    let stores = StoreUrls::from(&settings.stores);
    let worker = wiring::worker(&stores, (&settings.worker).into(), "tally sync-worker")?;
    let _reporting = tokio::spawn(telemetry::keep_reporting());
    let metrics = telemetry::init_metrics(&[telemetry::Program::Worker])?;
    let _upkeep = telemetry::Upkeep::start(metrics.clone());
    wiring::check_for_worker(&worker).await?;
    if let Some(listen) = settings.listen {
        web::serve_worker(listen, worker.clone(), metrics)?;
    }
    let endpoint = settings.traces.otel_exporter_otlp_endpoint.as_deref();
    let traces = telemetry::Traces::start(endpoint, telemetry::Program::Worker)?;
    if settings.once {
        let ended = Box::pin(worker.once()).await;
        // Also after a failure: then someone wants the spans.
        traces.end().await;
        let (flushed, audit) = ended?;
        telemetry::print(format_args!("{flushed}{audit}"));
        return Ok(audit.wrong_items == 0);
    }
    // As for a server.
    let stop = shutdown::requested_or_deaf();
    warn_of_eviction(&stores).await?;
    tracing::info!(every = ?settings.worker.flush_every, audit = %settings.worker.audit_cron, "syncing");
    let schedule = (&settings.worker).into();
    let ended = tokio::select! {
        ended = Box::pin(sync::run(worker, &schedule, supervisor::stopping(stop))) => ended,
        // Alive while its tasks get their turns: what its stores do is no reason to start it again.
        never = supervisor::keep_notifying(async || true) => never,
    };
    traces.end().await;
    ended.map(|()| true)
}

/// Warns if this Redis evicts counts when its memory is full.
async fn warn_of_eviction(stores: &StoreUrls) -> anyhow::Result<()> {
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, WORKER_ANSWER_LIMIT)?;
    if let Ok(Some(policy)) = redis.eviction_policy().await
        && policy != "noeviction"
    {
        tracing::warn!(
            policy,
            "this Redis evicts counts when its memory is full; set maxmemory-policy noeviction"
        );
    }
    Ok(())
}
