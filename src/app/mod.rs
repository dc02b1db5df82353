//! Wiring: settings → ledger and Redis → server or worker → run → stop. The binaries,
//! `tally dev`, the tests and the bench all put Tally together here.

mod commands;
mod database_setting;
mod dev;
mod options;

use metrics_exporter_prometheus::PrometheusHandle;

pub use commands::{run, sync_worker};

use crate::ledger::{OperatorLedger, OwnerLedger, Roles, ServerLedger, WorkerLedger};
use crate::live::{Counters, KeyPrefix, Redis, SERVER_ANSWER_LIMIT, WORKER_ANSWER_LIMIT};
use crate::sync::{SyncError, SyncOptions, Worker};
use crate::telemetry::Program;
use crate::web::{Server, ServerOptions};

/// Where the stores are, and what the keys in Redis begin with.
#[derive(Clone)]
pub struct StoreUrls {
    /// With the login for the program in question.
    pub database_url: String,
    pub redis_url: String,
    pub key_prefix: KeyPrefix,
}

/// A server that listens; [`Server::run`] makes it answer. Postgres shows
/// `application_name` to its operator. Call it within a runtime of tokio.
///
/// # Errors
/// When a URL is wrong, or the address cannot be listened on.
pub fn server(
    stores: &StoreUrls,
    options: ServerOptions,
    application_name: &str,
    metrics: PrometheusHandle,
) -> anyhow::Result<Server> {
    let ledger = ServerLedger::new(&stores.database_url, application_name)?;
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, SERVER_ANSWER_LIMIT)?;
    Server::bind(options, ledger, redis, metrics)
}

/// The operator's login of a server, which makes no connection until an operator acts. Postgres shows
/// `application_name` to its operator.
///
/// # Errors
/// When the URL is wrong.
pub fn operator(database_url: &str, application_name: &str) -> anyhow::Result<OperatorLedger> {
    OperatorLedger::beside_server(database_url, application_name).map_err(database_setting::named_operator)
}

/// A worker that does nothing until a step is called, or [`crate::sync::run`]. Postgres
/// shows `application_name` to its operator.
///
/// # Errors
/// When a URL is wrong.
pub fn worker(stores: &StoreUrls, options: SyncOptions, application_name: &str) -> anyhow::Result<Worker> {
    let ledger = WorkerLedger::new(&stores.database_url, application_name)?;
    Ok(Worker::new(ledger, counters(stores)?, options))
}

/// Lets a server start, unless the stores say that it must not: a store that is unavailable is
/// waited for.
///
/// # Errors
/// When a store is not fit for this Tally, or a URL is wrong.
pub async fn check_for_server(stores: &StoreUrls, application_name: &str) -> anyhow::Result<()> {
    let ledger = ServerLedger::new(&stores.database_url, application_name)?;
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, SERVER_ANSWER_LIMIT)?;
    let checked = async {
        ledger.check().await?;
        redis.check(Program::Server).await?;
        redis.claim(&ledger.owner().await?).await?;
        Ok(())
    };
    let checked = checked.await;
    ledger.close().await;
    unless_unfit(checked)
}

/// Lets a worker start, as [`check_for_server`].
///
/// # Errors
/// When a store is not fit for this Tally.
pub async fn check_for_worker(worker: &Worker) -> anyhow::Result<()> {
    unless_unfit(worker.check().await)
}

fn unless_unfit(checked: Result<(), SyncError>) -> anyhow::Result<()> {
    match checked {
        Err(error) if error.is_unfit() => Err(error.into()),
        Err(error) => {
            tracing::debug!(%error, "the stores could not be checked at the start");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The worker's handle on the counters.
///
/// # Errors
/// When the URL is wrong.
pub fn counters(stores: &StoreUrls) -> anyhow::Result<Counters> {
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, WORKER_ANSWER_LIMIT)?;
    Ok(Counters::new(redis))
}

/// Brings the database's tables up to date and grants the roles. The login must own the
/// tables.
///
/// # Errors
/// When the URL is wrong, Postgres is unavailable, or a migration that has run was changed.
pub async fn migrate(database_url: &str, application_name: &str) -> anyhow::Result<Roles> {
    let owner = OwnerLedger::new(database_url, application_name)?;
    let roles = owner.migrate().await?;
    owner.close().await;
    Ok(roles)
}
