//! Storing votes.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::item_cache::ItemCache;
use super::progress::{Batches, WriterName, Writers};
use crate::domain::{
    ExactCount, ItemId, NewVote, Refusal, StoredVote, TransactionId, Value, VoteId, VoteOutcome, VoterId,
};
use crate::ledger::LedgerError;
use crate::ledger::connect::{ANSWER_MARGIN, CHECK_LIMIT, CONNECT_LIMIT, Database};
use crate::ledger::error::is_certain;
use crate::ledger::exact_counts::exact_counts;
use crate::ledger::session::{SessionCheck, check_name};

/// Items in the cache of one batch writer's connection, at the most: a good megabyte.
pub(crate) const ITEM_CACHE_LIMIT_ITEMS: usize = 100_000;

/// How long a connection may be idle and still be used without a check. A Postgres that
/// restarts closes its idle connections, and a statement that meets a closed one has an unknown
/// outcome. No restart takes less, and a busy batch writer does not pause for as long.
const IDLE_LIMIT: Duration = Duration::from_millis(20);

/// What became of a batch.
#[derive(Debug)]
pub struct Inserted {
    /// The batch's transaction, committed.
    pub transaction: TransactionId,
    /// An outcome for each vote, in the order given.
    pub outcomes: Vec<VoteOutcome>,
}

/// Why a batch has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// Nothing was stored; this is certain.
    #[error("{0}")]
    NotStored(#[source] LedgerError),
    /// The batch may have been stored, or may be stored yet.
    #[error("{0} (the batch may have been stored)")]
    Unknown(#[source] LedgerError),
}

/// Stores batches of votes, over a connection of its own. A connection whose state is
/// uncertain is closed.
pub struct VoteWriter {
    options: PgConnectOptions,
    /// Cancels a statement on this writer's connection.
    pool: PgPool,
    session: SessionCheck,
    answer_limit: Duration,
    writers: Writers,
    batches: Batches,
    kept: Option<WriterConnection>,
}

/// A batch writer's connection, and the items that were read over it.
pub(super) struct WriterConnection {
    pub connection: PgConnection,
    /// The process of Postgres that serves it.
    pid: i32,
    items: ItemCache<ItemKind>,
    name: WriterName,
    used_at: Instant,
    /// [`Writers::failures`] when it was known to be open.
    failures: u64,
}

/// How the votes on an item are stored. It never changes (migrations/0015_rules.sql).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    /// By these statements.
    Plain,
    /// By these statements, and it takes no down-votes.
    UpOnly,
    /// By `decide`: it has a rule.
    Ruled,
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
    pub(super) fn new(options: PgConnectOptions, database: &Database, writers: Writers) -> Self {
        Self {
            options,
            pool: database.pool.clone(),
            session: database.session.clone(),
            answer_limit: database.statement_limit + ANSWER_MARGIN,
            batches: writers.add(),
            writers,
            kept: None,
        }
    }

    /// Stores a batch, all of it or nothing, with one autocommitted statement.
    ///
    /// # Errors
    /// When the batch was not stored, or possibly not: the error says which.
    pub async fn insert(&mut self, votes: &[NewVote]) -> Result<Inserted, InsertError> {
        let mut writer = self.begin().await?;
        let ended = timeout(self.answer_limit, insert(&mut writer, votes)).await;
        let Batch {
            transaction,
            mut outcomes,
        } = self.ended(ended)?;
        // From here on the batch is committed: it must be counted, whatever fails.
        let looked_up = if outcomes.contains(&None) {
            match timeout(
                self.answer_limit,
                find_last_votes(&mut writer.connection, votes, &mut outcomes),
            )
            .await
            {
                Ok(looked_up) => looked_up.map_err(LedgerError::from),
                Err(_) => Err(LedgerError::Timeout(self.answer_limit)),
            }
        } else {
            Ok(())
        };
        match looked_up {
            Ok(()) => self.keep(writer),
            Err(error) => tracing::error!(%error, "the votes that some repeats repeat could not be read"),
        }
        let outcomes = outcomes
            .into_iter()
            .map(|one| one.unwrap_or(VoteOutcome::UnresolvedRepeat))
            .collect();
        Ok(Inserted {
            transaction,
            outcomes,
        })
    }

    /// Begins a batch: over the connection that was kept, or over a new one. The caller keeps
    /// it again only after a clean end: a connection whose statement failed or was given up is
    /// never used again.
    pub(super) async fn begin(&mut self) -> Result<WriterConnection, InsertError> {
        self.batches.begin();
        let kept = match self.kept.take() {
            Some(kept) => self.if_open(kept).await,
            None => None,
        };
        match kept {
            Some(writer) => Ok(writer),
            None => self.connect().await.map_err(InsertError::NotStored),
        }
    }

    /// What the end of a statement says of its batch. When a statement has an answer, its
    /// transaction has ended: sqlx waits for ReadyForQuery, which Postgres sends after the commit.
    pub(super) fn ended<Answer>(
        &self,
        ended: Result<Result<Answer, sqlx::Error>, Elapsed>,
    ) -> Result<Answer, InsertError> {
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

    /// How long a statement may take until its answer.
    pub(super) fn answer_limit(&self) -> Duration {
        self.answer_limit
    }

    /// Says that the batch which was inserted last has ended: its votes are counted, or their
    /// items are suspect.
    pub fn end_batch(&self) {
        self.batches.end();
    }

    /// The exact counts of these items, all under one snapshot. Over the same connection,
    /// which is free between two batches. Each id may be given once; unknown items are left
    /// out. A read that goes on at `deadline` is cancelled, and the connection stays.
    ///
    /// # Errors
    /// When Postgres is unavailable, or the read was cancelled ([`LedgerError::Cancelled`]).
    pub async fn exact_counts(
        &mut self,
        items: &[ItemId],
        deadline: Instant,
    ) -> Result<Vec<ExactCount>, LedgerError> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let mut writer = match self.kept.take() {
            Some(writer) => writer,
            None => timeout(limit, self.connect())
                .await
                .unwrap_or(Err(LedgerError::Timeout(limit)))?,
        };
        let counts = read_until(deadline, &mut writer, &self.pool, items).await;
        if matches!(counts, Ok(_) | Err(LedgerError::Cancelled)) {
            self.keep(writer);
        }
        counts
    }

    /// Keeps a connection after a clean end.
    pub(super) fn keep(&mut self, writer: WriterConnection) {
        self.kept = Some(WriterConnection {
            used_at: Instant::now(),
            ..writer
        });
    }

    /// This connection, unless it is abandoned or Postgres has closed it. Postgres is asked only after a pause, or after
    /// another batch writer's connection has failed: in between, Postgres may have restarted.
    async fn if_open(&self, mut writer: WriterConnection) -> Option<WriterConnection> {
        if !writer.name.is_noted() {
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
                self.writers.connection_failed();
                None
            }
            Err(_) => None,
        }
    }

    async fn connect(&self) -> Result<WriterConnection, LedgerError> {
        let failures = self.writers.failures();
        let connecting = async {
            let name = fresh_name();
            let options = self.options.clone().application_name(&name);
            let mut connection = self.session.connect(&options).await?;
            check_name(&mut connection, &name).await?;
            let pid = announce(&mut connection, &name).await?;
            Ok(WriterConnection {
                connection,
                pid,
                items: ItemCache::new(ITEM_CACHE_LIMIT_ITEMS),
                name: self.writers.connected(name),
                used_at: Instant::now(),
                failures,
            })
        };
        match timeout(CONNECT_LIMIT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(LedgerError::Timeout(CONNECT_LIMIT)),
        }
    }
}

/// Ended between two batches: nothing that was stored over the connection is uncertain.
impl Drop for VoteWriter {
    fn drop(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.name.keep();
        }
    }
}

/// A name that no other connection has. Postgres keeps the first 63 bytes of an application's
/// name.
fn fresh_name() -> String {
    format!("tally writer {:032x}", rand::random::<u128>())
}

/// Adds this connection to the table `writer_connection`, before its first vote. Returns the
/// process of Postgres that serves it.
async fn announce(connection: &mut PgConnection, name: &str) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar!(
        r#"insert into writer_connection (name, counted_vote_id, knows_rules)
           select $1, case when is_called then last_value else last_value - 1 end, true from vote_id_seq
           returning pg_backend_pid() as "pid!""#,
        name
    )
    .fetch_one(connection)
    .await
}

/// Reads exact counts; cancels the read when it goes on at `deadline`.
async fn read_until(
    deadline: Instant,
    writer: &mut WriterConnection,
    pool: &PgPool,
    items: &[ItemId],
) -> Result<Vec<ExactCount>, LedgerError> {
    let mut reading = pin!(exact_counts(&mut writer.connection, items));
    if let Ok(counts) = timeout_at(deadline, &mut reading).await {
        return counts;
    }
    let cancelled = async {
        cancel(pool, writer.pid).await?;
        // It may have just ended.
        reading.await
    };
    match timeout(CHECK_LIMIT, cancelled).await {
        Ok(Err(error)) if error.is_cancelled() => Err(LedgerError::Cancelled),
        Ok(counts) => counts,
        Err(_) => Err(LedgerError::Timeout(CHECK_LIMIT)),
    }
}

/// Cancels the statement that this process of Postgres runs, if it runs one.
async fn cancel(pool: &PgPool, pid: i32) -> Result<(), LedgerError> {
    sqlx::query_scalar!("select pg_cancel_backend($1)", pid)
        .fetch_one(pool)
        .await?;
    Ok(())
}

/// A committed batch; an outcome is `None` for a repeat.
struct Batch {
    transaction: TransactionId,
    outcomes: Vec<Option<VoteOutcome>>,
}

/// No transaction: a batch that stored nothing.
const NO_TRANSACTION: TransactionId = TransactionId(0);

fn item_and_voter(vote: &NewVote) -> (i64, Option<&str>) {
    (vote.item_id.get(), vote.voter_id.as_ref().map(VoterId::as_str))
}

/// What becomes of a vote on an item of this kind, if these statements do not store it.
fn refusal(kind: ItemKind, vote: &NewVote) -> Option<VoteOutcome> {
    match kind {
        ItemKind::Ruled => Some(VoteOutcome::NeedsDecision),
        ItemKind::UpOnly if vote.value == Value::DOWN => Some(VoteOutcome::Refused(Refusal::NoDownVotes)),
        ItemKind::Plain | ItemKind::UpOnly => None,
    }
}

async fn insert(writer: &mut WriterConnection, votes: &[NewVote]) -> Result<Batch, sqlx::Error> {
    let kinds = writer.items.of(votes.iter().map(|vote| vote.item_id.get()));
    let refused = |at: usize| kinds[at].and_then(|kind| refusal(*kind, &votes[at]));
    // Mostly, all are to be sent.
    let Some(first) = (0..votes.len()).find(|at| refused(*at).is_some()) else {
        let unknown = unknown_among(votes, &kinds);
        return insert_sent(writer, votes, &unknown).await;
    };
    let mut outcomes: Vec<Option<VoteOutcome>> = vec![None; votes.len()];
    let mut sent: Vec<usize> = (0..first).collect();
    for (at, outcome) in outcomes.iter_mut().enumerate().skip(first) {
        *outcome = refused(at);
        if outcome.is_none() {
            sent.push(at);
        }
    }
    let unknown = unknown_among(votes, &kinds);
    if sent.is_empty() {
        return Ok(Batch {
            transaction: NO_TRANSACTION,
            outcomes,
        });
    }
    let to_send: Vec<NewVote> = sent.iter().map(|at| votes[*at].clone()).collect();
    let batch = insert_sent(writer, &to_send, &unknown).await?;
    for (at, outcome) in sent.into_iter().zip(batch.outcomes) {
        outcomes[at] = outcome;
    }
    Ok(Batch { outcomes, ..batch })
}

/// The items of these votes that are not cached, each once, in order.
fn unknown_among(votes: &[NewVote], kinds: &[Option<&ItemKind>]) -> Vec<i64> {
    let missing = votes.iter().zip(kinds).filter(|(_, kind)| kind.is_none());
    let mut unknown: Vec<i64> = missing.map(|(vote, _)| vote.item_id.get()).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

async fn insert_sent(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    unknown: &[i64],
) -> Result<Batch, sqlx::Error> {
    if votes.iter().all(|vote| vote.voter_id.is_none()) {
        insert_anonymous(writer, votes, unknown).await
    } else {
        insert_any(writer, votes, unknown).await
    }
}

/// Stores votes without voters: none of them can be a repeat.
async fn insert_anonymous(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    unknown: &[i64],
) -> Result<Batch, sqlx::Error> {
    let (item_ids, values): (Vec<i64>, Vec<i16>) = votes
        .iter()
        .map(|vote| (vote.item_id.get(), vote.value.get()))
        .unzip();
    let batch = sqlx::query_file!(
        "src/ledger/sql/insert_anonymous_votes.sql",
        &item_ids,
        &values,
        unknown
    )
    .fetch_one(&mut writer.connection)
    .await?;
    let looked_up = LookedUp::new(unknown, batch.plain, batch.up_only, batch.ruled);
    writer
        .items
        .add(looked_up.found.iter().map(|(id, kind)| (*id, *kind)));
    let mut inserted = batch.inserted;
    // They should be in order already.
    inserted.sort_unstable();
    let mut ids = inserted.into_iter();
    let outcomes = votes
        .iter()
        .map(|vote| {
            // There is an id for each other: as many rows were inserted.
            looked_up
                .refusal(vote)
                .or_else(|| ids.next().map(|id| accepted(id, vote.value.get())))
        })
        .collect();
    Ok(Batch {
        transaction: TransactionId(batch.xid),
        outcomes,
    })
}

fn accepted(id: i64, value: i16) -> VoteOutcome {
    VoteOutcome::Accepted(StoredVote {
        id: VoteId::new(id),
        value,
        number: None,
    })
}

/// The items of a batch that were not cached, and what was found of them.
struct LookedUp<'a> {
    unknown: &'a [i64],
    found: HashMap<i64, ItemKind>,
}

impl<'a> LookedUp<'a> {
    /// None of a kind comes as null.
    fn new(
        unknown: &'a [i64],
        plain: Option<Vec<i64>>,
        up_only: Option<Vec<i64>>,
        ruled: Option<Vec<i64>>,
    ) -> Self {
        let of = |ids: Option<Vec<i64>>, kind| ids.unwrap_or_default().into_iter().map(move |id| (id, kind));
        let found = of(plain, ItemKind::Plain)
            .chain(of(up_only, ItemKind::UpOnly))
            .chain(of(ruled, ItemKind::Ruled));
        Self {
            unknown,
            found: found.collect(),
        }
    }

    /// What becomes of a vote whose item was looked up, if it was not stored for that.
    fn refusal(&self, vote: &NewVote) -> Option<VoteOutcome> {
        if self.unknown.is_empty() {
            return None;
        }
        match self.found.get(&vote.item_id.get()) {
            Some(kind) => refusal(*kind, vote),
            None => {
                let is_absent = self.unknown.binary_search(&vote.item_id.get()).is_ok();
                is_absent.then_some(VoteOutcome::UnknownItem)
            }
        }
    }
}

/// Stores votes of which some have voters.
async fn insert_any(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    unknown: &[i64],
) -> Result<Batch, sqlx::Error> {
    let (item_ids, voter_ids): (Vec<i64>, Vec<Option<&str>>) = votes.iter().map(item_and_voter).unzip();
    let values: Vec<i16> = votes.iter().map(|vote| vote.value.get()).collect();
    let batch = sqlx::query_file!(
        "src/ledger/sql/insert_votes.sql",
        &item_ids,
        &voter_ids as &[Option<&str>],
        &values,
        unknown
    )
    .fetch_one(&mut writer.connection)
    .await?;
    let looked_up = LookedUp::new(unknown, batch.plain, batch.up_only, batch.ruled);
    writer
        .items
        .add(looked_up.found.iter().map(|(id, kind)| (*id, *kind)));
    let all_inserted = batch.inserted.len() == votes.len();
    let inserted: HashSet<i64> = if all_inserted {
        HashSet::new()
    } else {
        batch.inserted.into_iter().collect()
    };
    let outcomes = batch
        .candidates
        .iter()
        .zip(votes)
        .map(|(id, vote)| match id {
            None => looked_up.refusal(vote),
            Some(id) if all_inserted || inserted.contains(id) => Some(accepted(*id, vote.value.get())),
            Some(_) => None,
        })
        .collect();
    Ok(Batch {
        transaction: TransactionId(batch.xid),
        outcomes,
    })
}

/// Finds the votes that the repeats repeat: the voters' last rows. These were committed before
/// the batch or while it ran, or are part of it. A statement of its own, since the snapshot of
/// the batch's statement does not see them all. A voter whose last row takes a vote back holds
/// none: that needs a decision.
async fn find_last_votes(
    connection: &mut PgConnection,
    votes: &[NewVote],
    outcomes: &mut [Option<VoteOutcome>],
) -> Result<(), sqlx::Error> {
    let open: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
    let (items, voters): (Vec<i64>, Vec<Option<&str>>) =
        open.iter().map(|at| item_and_voter(&votes[*at])).unzip();
    let rows = sqlx::query_file!(
        "src/ledger/sql/last_votes.sql",
        &items,
        &voters as &[Option<&str>]
    )
    .fetch_all(connection)
    .await?;
    for row in rows {
        if let Some(open) = at(row.position).and_then(|at| open.get(at)) {
            outcomes[*open] = Some(if row.change_number % 2 == 0 {
                VoteOutcome::Repeated(StoredVote {
                    id: VoteId::new(row.id),
                    value: row.value,
                    number: None,
                })
            } else {
                VoteOutcome::NeedsDecision
            });
        }
    }
    Ok(())
}

/// An index, from a position in SQL, which counts from 1.
fn at(position: i64) -> Option<usize> {
    usize::try_from(position - 1).ok()
}
