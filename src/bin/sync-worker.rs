//! `sync-worker`: writes live counts behind to their items. Thin: see `tally::sync`.

use std::process::ExitCode;

use tally::config;
use tally::ledger::{self, Ledger};
use tally::live::{self, Counters, Redis};
use tally::{shutdown, sync, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let settings: config::SyncWorker = config::read();
    match run(settings).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sync-worker: {}", telemetry::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

async fn run(settings: config::SyncWorker) -> anyhow::Result<bool> {
    telemetry::start(settings.logs.log_format, &config::unknown_variables())?;
    if let Some(listen) = settings.metrics_listen {
        telemetry::serve_metrics(listen)?;
    }
    let redis = Redis::new(&settings.stores.redis_url, live::WORKER_ANSWER_LIMIT)?;
    let worker = sync::Worker::new(
        Ledger::new(
            &settings.stores.database_url,
            "tally sync-worker",
            ledger::WORKER_STATEMENT_LIMIT,
        )?,
        Counters::new(redis.clone()),
        (&settings.worker).into(),
    );
    if settings.once {
        let (flushed, audit) = worker.once().await?;
        telemetry::print(format_args!(
            "flushed {}, expired {}, recounted {}
{audit}",
            flushed.flushed, flushed.expired, flushed.recounted
        ));
        return Ok(audit.wrong_items == 0);
    }
    if let Ok(Some(policy)) = redis.eviction_policy().await
        && policy != "noeviction"
    {
        tracing::warn!(
            policy,
            "this Redis throws counts away when its memory is full; set maxmemory-policy noeviction"
        );
    }
    tracing::info!(every = ?settings.worker.flush_every, audit = %settings.worker.audit_cron, "syncing");
    let stop = async {
        if let Err(error) = shutdown::requested().await {
            tracing::error!(%error, "cannot listen to signals");
        }
    };
    sync::run(worker, &settings.worker, stop).await?;
    Ok(true)
}
