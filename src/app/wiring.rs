//! How the parts of a program are made and checked.

use metrics_exporter_prometheus::PrometheusHandle;

use super::database_setting;
use crate::domain::{Cell, Cells};
use crate::ledger::{Migrated, OperatorLedger, OwnerLedger, Roles, ServerLedger, WorkerLedger};
use crate::live::{Counters, KeyPrefix, Redis, SERVER_ANSWER_LIMIT, WORKER_ANSWER_LIMIT};
use crate::store_url::StoreUrl;
use crate::sync::{SyncError, SyncOptions, Worker};
use crate::telemetry::Program;
use crate::web::{Server, ServerOptions};

/// The addresses of the stores, and the beginning of the keys in Redis.
#[derive(Clone)]
pub struct StoreUrls {
    /// With the login of the program that uses it.
    pub database_url: StoreUrl,
    pub redis_url: StoreUrl,
    pub key_prefix: KeyPrefix,
}

/// Makes a server that listens. [`Server::run`] makes it answer.
///
/// Postgres shows `application_name` to its operator. Must be called within a Tokio runtime.
///
/// # Errors
/// Fails when a URL is wrong, or the server cannot listen on the address.
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

/// Makes the operator's login of a server. It connects when an operator acts.
///
/// Postgres shows `application_name` to its operator. Fails when the URL is wrong.
pub fn operator(database_url: impl Into<StoreUrl>, application_name: &str) -> anyhow::Result<OperatorLedger> {
    OperatorLedger::beside_server(database_url, application_name).map_err(database_setting::named_operator)
}

/// Makes a worker. It does nothing until [`crate::sync::run`] or a step is called.
///
/// Postgres shows `application_name` to its operator. Fails when a URL is wrong.
pub fn worker(stores: &StoreUrls, options: SyncOptions, application_name: &str) -> anyhow::Result<Worker> {
    let ledger = WorkerLedger::new(&stores.database_url, application_name)?;
    Ok(Worker::new(ledger, counters(stores)?, options))
}

/// Checks whether the stores allow a server to start.
///
/// A store that is unavailable does not prevent the start, because it may return. `asked`: which cell the database must
/// be. `cells`: the cells that the settings name.
///
/// # Errors
/// Fails when a store is not fit for this Tally, the database is another cell, or a URL is wrong.
pub async fn check_for_server(
    stores: &StoreUrls,
    application_name: &str,
    asked: Option<Cell>,
    cells: Cells,
) -> anyhow::Result<()> {
    let ledger = ServerLedger::new(&stores.database_url, application_name)?;
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, SERVER_ANSWER_LIMIT)?;
    let checked = async {
        ledger.check().await?;
        ledger.check_cell(asked, cells).await?;
        redis.check(Program::Server).await?;
        redis.claim(&ledger.owner().await?).await?;
        Ok(())
    };
    let checked = checked.await;
    ledger.close().await;
    unless_unfit(checked)
}

/// Checks whether the stores allow a worker to start, as [`check_for_server`] does.
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

/// Makes the worker's handle on the counters. Fails when the URL is wrong.
pub fn counters(stores: &StoreUrls) -> anyhow::Result<Counters> {
    let redis = Redis::new(&stores.redis_url, &stores.key_prefix, WORKER_ANSWER_LIMIT)?;
    Ok(Counters::new(redis))
}

/// Brings the database's tables up to date and grants the roles.
///
/// The login must own the tables.
///
/// # Errors
/// Fails when the URL is wrong, or a migration that has run was changed.
pub async fn migrate(database_url: impl Into<StoreUrl>, application_name: &str) -> anyhow::Result<Roles> {
    Ok(migrate_as(database_url, application_name, None).await?.roles)
}

/// Migrates as [`migrate`] does. A new database becomes this cell, by default the first.
///
/// # Errors
/// The same. Also when the database is another cell.
pub async fn migrate_as(
    database_url: impl Into<StoreUrl>,
    application_name: &str,
    cell: Option<Cell>,
) -> anyhow::Result<Migrated> {
    let owner = OwnerLedger::new(database_url, application_name)?;
    let migrated = owner.migrate_as(cell).await?;
    owner.close().await;
    Ok(migrated)
}
