//! A writer of votes: its connection, and the rules for each batch.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::OwnedMutexGuard;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use super::ServerLedger;
use super::acknowledged::Acknowledged;
use super::known_items::{BlockReads, KnownItems};
use super::writer_progress::{Batches, WriterName, Writers};
use crate::domain::{ExactCount, ItemId, PostgresRun, VoteId};
use crate::ledger::connect::{ANSWER_MARGIN, CHECK_LIMIT};
use crate::ledger::error::is_certain;
use crate::ledger::exact_counts::ExactCounts;
use crate::ledger::lost_waits::end_connections;
use crate::ledger::runs::Runs;
use crate::ledger::session::{CONNECT_LIMIT, SessionSetup, check_name};
use crate::ledger::{LedgerError, OtherRun};

/// How long a connection may be idle and still be used without a check. A Postgres that restarts
/// closes its idle connections, and a statement over a closed one has an unknown outcome. No
/// restart is faster than this, and a busy batch writer does not pause for as long.
const IDLE_LIMIT: Duration = Duration::from_millis(20);

/// Why a batch has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// It is certain that nothing was stored.
    #[error("{0}")]
    NotStored(#[source] LedgerError),
    /// The batch may be stored, now or later.
    #[error("{0} (the batch may have been stored)")]
    Unknown(#[source] LedgerError),
}

impl InsertError {
    /// Why it failed, for metrics: one of [`LEDGER_FAILURES`](crate::telemetry::LEDGER_FAILURES).
    pub fn failure(&self) -> &'static str {
        match self {
            Self::NotStored(error) | Self::Unknown(error) => error.failure(),
        }
    }

    /// Whether nothing was stored because what a statement goes on with has changed
    /// (object_not_in_prerequisite_state).
    pub fn is_of_other_state(&self) -> bool {
        match self {
            Self::NotStored(LedgerError::Postgres(error)) => error
                .as_database_error()
                .is_some_and(|error| error.code().as_deref() == Some("55000")),
            _ => false,
        }
    }

    /// Whether nothing was stored because the ids are those of another run of Postgres.
    pub fn is_of_other_run(&self) -> bool {
        matches!(self, Self::NotStored(LedgerError::OtherRun(_)))
    }
}

/// Stores batches of votes, over a connection of its own. A connection whose state is uncertain is
/// closed. Every call fails when Postgres is unavailable.
pub struct VoteWriter {
    options: PgConnectOptions,
    /// Reads exact counts for all writers.
    exact: ExactCounts,
    session: SessionSetup,
    answer_limit: Duration,
    writers: Writers,
    batches: Batches,
    runs: Runs,
    acknowledged: Acknowledged,
    items: KnownItems,
    kept: Option<WriterConnection>,
    /// The name of a connection that was taken, and not kept again. Before there is another one, it may
    /// have to be ended.
    lent: Option<String>,
}

/// A vote writer with its connection, ready for one batch.
pub struct ReadyWriter<'w> {
    pub(super) writer: &'w mut VoteWriter,
    pub(super) connection: WriterConnection,
}

/// A batch writer's connection.
pub(super) struct WriterConnection {
    pub connection: PgConnection,
    /// What all writers of the server know of items.
    pub items: KnownItems,
    /// No plain votes were stored over it yet.
    pub is_new: bool,
    /// The block of items to read after this batch, or a later one.
    pub block_to_read: Option<i64>,
    name: WriterName,
    used_at: Instant,
    /// [`Writers::failures`] when it was known to be open.
    failures: u64,
    /// The run of Postgres that it reaches.
    run: PostgresRun,
    /// [`Runs::changes`] when it was made.
    changes: u64,
}

/// sqlx's options would show their password.
impl std::fmt::Debug for VoteWriter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("VoteWriter")
            .field("is_connected", &self.kept.is_some())
            .finish_non_exhaustive()
    }
}

impl VoteWriter {
    /// A writer of this ledger, which makes its connections with these options.
    pub(super) fn new(ledger: &ServerLedger, options: PgConnectOptions, session: SessionSetup) -> Self {
        Self {
            options,
            exact: ledger.exact.clone(),
            session,
            answer_limit: ledger.database.statement_limit + ANSWER_MARGIN,
            batches: ledger.writers.add(),
            writers: ledger.writers.clone(),
            runs: ledger.runs.clone(),
            acknowledged: ledger.acknowledged.clone(),
            items: ledger.items.clone(),
            kept: None,
            lent: None,
        }
    }

    /// Gets ready for a batch: over the kept connection or a new one. The caller can then leave out
    /// of the batch what belongs to another run of Postgres.
    ///
    /// # Errors
    /// When there is no connection. Nothing was stored.
    pub async fn ready(&mut self) -> Result<ReadyWriter<'_>, InsertError> {
        let connection = self
            .begin()
            .await
            .inspect_err(|_| self.writers.outcomes().note_failed())?;
        Ok(ReadyWriter {
            writer: self,
            connection,
        })
    }

    /// Begins a batch, over the kept connection or a new one. The caller keeps the connection again
    /// only after a clean end. A connection whose statement failed or was given up is never used
    /// again.
    pub(super) async fn begin(&mut self) -> Result<WriterConnection, InsertError> {
        self.batches.begin();
        let kept = match self.take_kept() {
            Some(kept) => self.if_open(kept).await,
            None => None,
        };
        match kept {
            Some(writer) => Ok(writer),
            None => self.connect().await.map_err(InsertError::NotStored),
        }
    }

    /// The same for what names ids of this run of Postgres. `None`: the caller named the ids.
    ///
    /// # Errors
    /// Also when it would reach another run. Nothing was stored.
    pub(super) async fn begin_in(
        &mut self,
        run: Option<PostgresRun>,
    ) -> Result<WriterConnection, InsertError> {
        let writer = self.begin().await?;
        if run.is_none_or(|run| writer.run == run) {
            return Ok(writer);
        }
        self.keep(writer);
        Err(InsertError::NotStored(OtherRun.into()))
    }

    /// What the end of a statement says about its batch. When a statement has an answer, its
    /// transaction has ended: sqlx waits for ReadyForQuery, which Postgres sends after the commit.
    pub(super) fn batch_answer<Answer>(
        &mut self,
        ended: Result<Result<Answer, sqlx::Error>, Elapsed>,
    ) -> Result<Answer, InsertError> {
        if matches!(ended, Ok(Err(_))) {
            self.lent = None;
        }
        match ended {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_certain(&error) => Err(InsertError::NotStored(error.into())),
            Ok(Err(error)) => {
                self.writers.connection_failed();
                Err(InsertError::Unknown(error.into()))
            }
            Err(_) => Err(InsertError::Unknown(LedgerError::Timeout(self.answer_limit))),
        }
    }

    /// Notes that votes were stored.
    pub(super) fn note_stored(&self) {
        self.writers.outcomes().note_stored();
    }

    /// Remembers rows that were stored, because their voters are answered.
    pub(super) fn note_acknowledged(
        &self,
        writer: &WriterConnection,
        created_at: i64,
        rows: impl Iterator<Item = (VoteId, ItemId)>,
    ) {
        self.acknowledged.note(writer.run, created_at, rows);
    }

    /// Notes that a batch of plain votes failed.
    pub(super) fn note_failed(&self) {
        self.writers.outcomes().note_failed();
    }

    /// How long to wait for a statement's answer.
    pub(super) fn answer_limit(&self) -> Duration {
        self.answer_limit
    }

    /// Says that the last batch has ended: its votes are counted, or their items are suspect.
    pub fn end_batch(&self) {
        self.batches.end();
    }

    /// The exact counts of these items, under one snapshot, from the run of Postgres that stored the last
    /// batch. Each id may be given once. Unknown items are left out. And the exact counts of `cold` items,
    /// which exist, without `counted_at`. What is not read at `deadline` is given up.
    ///
    /// # Errors
    /// When the read was given up ([`LedgerError::Cancelled`]).
    pub async fn exact_counts(
        &self,
        items: &[ItemId],
        cold: &[ItemId],
        deadline: Instant,
    ) -> Result<Vec<ExactCount>, LedgerError> {
        match self.kept_run() {
            Some(run) => self.exact.only_in(run).read_until(items, cold, deadline).await,
            None => self.exact.read_until(items, cold, deadline).await,
        }
    }

    /// The kept connection, if there is one. Postgres may have closed it.
    pub(super) fn take_kept(&mut self) -> Option<WriterConnection> {
        let kept = self.kept.take();
        if let Some(kept) = &kept {
            self.lent = Some(kept.name.name().to_owned());
        }
        kept
    }

    /// Keeps the connection after a failed read, if it is still good.
    pub(super) fn keep_after(&mut self, error: &sqlx::Error, writer: WriterConnection) {
        if is_certain(error) {
            self.keep(writer);
        } else {
            self.lent = None;
            self.writers.connection_failed();
        }
    }

    /// Keeps a connection after a clean end.
    pub(super) fn keep(&mut self, writer: WriterConnection) {
        self.lent = None;
        self.kept = Some(WriterConnection {
            used_at: Instant::now(),
            ..writer
        });
    }

    /// The block of items that is to be read now, over the kept connection, and leave to do so.
    pub(super) fn block_to_read(&self) -> Option<(i64, OwnedMutexGuard<BlockReads>)> {
        let number = self.kept.as_ref()?.block_to_read?;
        Some((number, self.items.may_read(Instant::now())?))
    }

    /// The run of Postgres that the kept connection reaches.
    pub fn kept_run(&self) -> Option<PostgresRun> {
        self.kept.as_ref().map(|kept| kept.run)
    }

    /// This connection, unless it is abandoned, Postgres has closed it, or another connection has
    /// reached another run of Postgres since. Postgres is asked only
    /// after a pause, or after another batch writer's connection has failed: in both cases Postgres
    /// may have restarted.
    async fn if_open(&mut self, mut writer: WriterConnection) -> Option<WriterConnection> {
        if !writer.name.is_noted() || writer.changes != self.runs.changes() {
            self.lent = None;
            return None;
        }
        let failures = self.writers.failures();
        if writer.used_at.elapsed() < IDLE_LIMIT && writer.failures == failures {
            return Some(writer);
        }
        match timeout(CHECK_LIMIT, writer.connection.ping()).await {
            Ok(Ok(())) => {
                writer.failures = failures;
                Some(writer)
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "an idle connection to Postgres was closed: a new one is made");
                self.lent = None;
                self.writers.connection_failed();
                None
            }
            Err(_) => None,
        }
    }

    async fn connect(&mut self) -> Result<WriterConnection, LedgerError> {
        timeout(CONNECT_LIMIT, self.connect_without_limit())
            .await
            .unwrap_or(Err(LedgerError::Timeout(CONNECT_LIMIT)))
    }

    async fn connect_without_limit(&mut self) -> Result<WriterConnection, LedgerError> {
        let failures = self.writers.failures();
        let name = fresh_name();
        let options = self.options.clone().application_name(&name);
        let mut connection = self.session.connect(&options).await?;
        check_name(&mut connection, &name).await?;
        // The last one was given up. It may wait for a standby or a lock: one at a time is enough.
        if let Some(lost) = self.lent.clone() {
            end_connections(&mut connection, &[lost]).await?;
        }
        self.lent = Some(name.clone());
        let run = PostgresRun::new(announce(&mut connection, &name).await?);
        let changes = self.runs.note(run);
        Ok(WriterConnection {
            connection,
            run,
            changes,
            items: self.items.clone(),
            is_new: true,
            block_to_read: None,
            name: self.writers.connected(name),
            used_at: Instant::now(),
            failures,
        })
    }
}

impl WriterConnection {
    /// The run of Postgres that it reaches.
    pub fn run(&self) -> PostgresRun {
        self.run
    }
}

impl ReadyWriter<'_> {
    /// The run of Postgres that the batch will reach.
    pub fn run(&self) -> PostgresRun {
        self.connection.run
    }

    /// Keeps the connection: there is no batch.
    pub fn keep(self) {
        self.writer.keep(self.connection);
    }
}

/// A writer that ends between two batches leaves nothing uncertain. One that ends while a stored
/// batch is being counted leaves it to crashed-writer recovery.
impl Drop for VoteWriter {
    fn drop(&mut self) {
        if let Some(kept) = &mut self.kept
            && !self.batches.is_under_way()
        {
            kept.name.keep();
        }
    }
}

/// A name that no other connection has. Postgres keeps the first 63 bytes of an application's
/// name.
fn fresh_name() -> String {
    format!("tally writer {:032x}", rand::random::<u128>())
}

/// Adds this connection to the table `writer_connection`, before its first vote.
/// Returns the run of Postgres that it reaches.
async fn announce(connection: &mut PgConnection, name: &str) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        r#"insert into writer_connection (name, counted_vote_id, knows_rules)
           select $1, case when is_called then last_value else last_value - 1 end, true from vote_id_seq
           returning postgres_run() as "run!""#,
        name
    )
    .fetch_one(connection)
    .await
}
