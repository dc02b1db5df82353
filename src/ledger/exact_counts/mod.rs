//! Exact counts: audited counts and the votes beyond the watermark, under one snapshot.
//!
//! - `tail`: the votes beyond the watermark, as one connection has read them.
//!
//! One connection of a program reads for all its tasks. Whoever asks while a read is under way waits for the
//! next one, which answers all who wait: its snapshot is taken after each of them has asked.

mod tail;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use self::tail::{Tail, TailVote, Taken};
use super::connect::{ANSWER_MARGIN, CHECK_LIMIT, Database};
use super::dedicated::DedicatedConnection;
use super::error::{is_certain, is_disconnect};
use super::pool::Pool;
use super::runs::Runs;
use super::safe_vote_id::safe_vote_id;
use super::settings::KEPT_PLANS;
use super::{LedgerError, OtherRun};
use crate::domain::{Count, ExactCount, ItemId, PostgresRun, Revision, Snapshot, VoteId};

/// The most votes that one statement reads: by calculation 2 MB.
const READ_LIMIT_VOTES: usize = 50_000;
/// One read answers those who wait, until it has so many items.
const READ_LIMIT_ITEMS: usize = 10_000;

/// How long a page may take that nobody waits for: then those who wait have their turn.
const READ_ON_LIMIT: Duration = Duration::from_secs(2);

/// How long a read waits until it is known which ids are decided.
const DECIDED_LIMIT: Duration = Duration::from_millis(100);
/// After it did not become known, reads do without for so long.
const UNDECIDED_LIMIT_AGE: Duration = Duration::from_secs(1);

/// How far a program has read the votes beyond the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailProgress {
    pub watermark: VoteId,
    /// Votes up to here were read, or are not beyond the watermark.
    pub read: VoteId,
    /// The last vote id that was drawn.
    pub drawn: VoteId,
}

/// Reads exact counts for all tasks of a program. Cheap to clone. Makes no connection before the first read.
#[derive(Clone)]
pub(super) struct ExactCounts {
    shared: Arc<Shared>,
    /// Only answers of this run of Postgres are taken. `None`: of any.
    only_in: Option<PostgresRun>,
}

struct Shared {
    waiting: Mutex<Vec<Waiting>>,
    reader: tokio::sync::Mutex<Reader>,
    /// Cancels a read.
    pool: Pool,
    /// How long a read may take if the caller does not say.
    answer_limit: Duration,
}

/// Someone who waits for exact counts.
struct Waiting {
    items: Vec<ItemId>,
    /// Items of which only the count is asked for. They exist.
    counts_only: Vec<ItemId>,
    answer: oneshot::Sender<Answer>,
}

/// Exact counts, and the run of Postgres that they are of.
#[derive(Debug)]
struct Answer {
    counts: Vec<ExactCount>,
    run: Option<PostgresRun>,
}

impl std::fmt::Debug for ExactCounts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ExactCounts")
            .field("only_in", &self.only_in)
            .finish_non_exhaustive()
    }
}

impl ExactCounts {
    pub fn new(database: &Database, runs: &Runs) -> Self {
        let answer_limit = database.statement_limit + ANSWER_MARGIN;
        let connection = DedicatedConnection::new(
            database.options.clone().options(KEPT_PLANS),
            database.session.with(&KEPT_PLANS),
            answer_limit,
            runs.clone(),
        );
        let reader = Reader {
            connection,
            process: None,
            undecided_at: None,
            tail: Tail::default(),
        };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                reader: tokio::sync::Mutex::new(reader),
                pool: database.pool.clone(),
                answer_limit,
            }),
            only_in: None,
        }
    }

    /// The same, but a read fails ([`OtherRun`]) if another run of Postgres answers.
    pub fn only_in(&self, run: PostgresRun) -> Self {
        Self {
            only_in: Some(run),
            ..self.clone()
        }
    }

    /// The exact counts of these items, under one snapshot that is taken after this call began. Each id may be
    /// given once. Unknown items are left out.
    ///
    /// # Errors
    /// As [`ExactCounts::read_until`].
    pub async fn read(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        self.read_until(items, &[], Instant::now() + self.shared.answer_limit)
            .await
    }

    /// The same, and the exact counts of further items that exist, without the revisions of their saved
    /// counts: half the work for Postgres. What is not read at `deadline` is given up, and the connection stays.
    ///
    /// # Errors
    /// When the read was given up ([`LedgerError::Cancelled`]), or Postgres is unavailable. When more votes
    /// lie beyond the watermark than can be kept ([`LedgerError::LongTail`]).
    pub async fn read_until(
        &self,
        items: &[ItemId],
        counts_only: &[ItemId],
        deadline: Instant,
    ) -> Result<Vec<ExactCount>, LedgerError> {
        if items.is_empty() && counts_only.is_empty() {
            return Ok(Vec::new());
        }
        let mut mine = self.wait(items, counts_only);
        let answer = loop {
            let mut reader = tokio::select! {
                biased;
                answer = &mut mine => match answer {
                    Ok(answer) => break answer,
                    // Whoever read for this caller has failed or is gone.
                    Err(_) => {
                        mine = self.wait(items, counts_only);
                        continue;
                    }
                },
                reader = self.shared.reader.lock() => reader,
                () = sleep_until(deadline) => return Err(LedgerError::Cancelled),
            };
            match mine.try_recv() {
                Ok(answer) => break answer,
                Err(oneshot::error::TryRecvError::Closed) => mine = self.wait(items, counts_only),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let waiting = self.shared.next();
            let limits = ReadLimits {
                next_page: deadline,
                answer: deadline,
            };
            reader.answer(waiting, limits, &self.shared.pool).await?;
        };
        match self.only_in {
            Some(run) if answer.run != Some(run) => Err(OtherRun.into()),
            _ => Ok(answer.counts),
        }
    }

    /// How far the votes beyond the watermark are read. Reads none.
    pub async fn progress(&self) -> Result<TailProgress, LedgerError> {
        let row = sqlx::query!(r#"select vote_id, last_value as "drawn!" from watermark, vote_id_seq"#)
            .fetch_one(&self.shared.pool)
            .await?;
        let reader = self.shared.reader.lock().await;
        // Over another connection all of it is read again.
        let read_to = match reader.connection.is_kept() {
            true => reader.tail.read_to(),
            false => 0,
        };
        Ok(TailProgress {
            watermark: VoteId::new(row.vote_id),
            read: VoteId::new(read_to.max(row.vote_id)),
            drawn: VoteId::new(row.drawn),
        })
    }

    /// Reads the next votes beyond the watermark, a page of them. Whoever asks for exact counts later finds them read.
    ///
    /// # Errors
    /// As [`ExactCounts::read_until`].
    pub async fn read_on(&self) -> Result<(), LedgerError> {
        let now = Instant::now();
        let limits = ReadLimits {
            next_page: now,
            answer: now + READ_ON_LIMIT,
        };
        let mut reader = self.shared.reader.lock().await;
        match reader.answer(self.shared.next(), limits, &self.shared.pool).await {
            // There are more pages.
            Err(LedgerError::Cancelled) if Instant::now() < limits.answer => Ok(()),
            read => read,
        }
    }

    fn wait(&self, items: &[ItemId], counts_only: &[ItemId]) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        self.shared.lock().push(Waiting {
            items: items.to_vec(),
            counts_only: counts_only.to_vec(),
            answer,
        });
        answered
    }
}

impl Shared {
    /// Those who wait longest.
    fn next(&self) -> Vec<Waiting> {
        let mut waiting = self.lock();
        waiting.retain(|one| !one.answer.is_closed());
        let mut items = 0;
        let fit = waiting.iter().take_while(|one| {
            items += one.items.len() + one.counts_only.len();
            items <= READ_LIMIT_ITEMS
        });
        let fit = fit.count().max(1).min(waiting.len());
        waiting.drain(..fit).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waiting>> {
        // A panic cannot leave the list half changed, so the poison says nothing.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a read gives up.
#[derive(Clone, Copy)]
struct ReadLimits {
    /// No further page of votes is asked for from here on.
    next_page: Instant,
    /// A statement that has no answer by then is cancelled.
    answer: Instant,
}

/// The connection that reads, and what was read over it.
struct Reader {
    connection: DedicatedConnection,
    /// The Postgres process that serves the connection.
    process: Option<i32>,
    /// When it last took too long to know which ids are decided.
    undecided_at: Option<Instant>,
    tail: Tail,
}

impl Reader {
    /// Reads once for all who wait, and answers them.
    async fn answer(
        &mut self,
        waiting: Vec<Waiting>,
        limits: ReadLimits,
        pool: &Pool,
    ) -> Result<(), LedgerError> {
        let deadline = limits.answer;
        let saved = sorted(waiting.iter().flat_map(|one| &one.items));
        let items = sorted(
            waiting
                .iter()
                .flat_map(|one| one.items.iter().chain(&one.counts_only)),
        );
        let read = loop {
            let (mut connection, was_kept) = timeout_at(deadline, self.connection.take())
                .await
                .unwrap_or(Err(LedgerError::Cancelled))?;
            if !was_kept {
                self.tail = Tail::default();
                self.process = Some(process(&mut connection, deadline).await?);
            }
            match self.read(&mut connection, &items, &saved, limits, pool).await {
                Ok(read) => {
                    self.connection.keep(connection);
                    break read;
                }
                // Postgres was restarted, for example. Reading again does no harm.
                Err(LedgerError::Postgres(error)) if was_kept && is_disconnect(&error) => {}
                Err(error) => {
                    let is_whole = match &error {
                        LedgerError::Cancelled | LedgerError::LongTail => true,
                        LedgerError::Postgres(error) => is_certain(error),
                        _ => false,
                    };
                    if is_whole {
                        self.connection.keep(connection);
                    }
                    return Err(error);
                }
            }
        };
        let run = self.connection.run();
        for one in waiting {
            let known = one.items.iter().filter_map(|item| {
                let counted_at = read.saved.get(&item.get())?;
                read.exact(*item, *counted_at)
            });
            let counted = one.counts_only.iter().filter_map(|item| read.exact(*item, None));
            // Whoever no longer waits needs no answer.
            let _ = one.answer.send(Answer {
                counts: known.chain(counted).collect(),
                run,
            });
        }
        Ok(())
    }

    /// Reads until all votes beyond the watermark are known, at the last statement's snapshot.
    async fn read(
        &mut self,
        connection: &mut PgConnection,
        items: &[i64],
        saved: &[i64],
        limits: ReadLimits,
        pool: &Pool,
    ) -> Result<Read, LedgerError> {
        let deadline = limits.answer;
        let mut decided = None;
        let mut was_set_back = false;
        loop {
            let (read_to, open) = (self.tail.read_to(), self.tail.open());
            let reading = sqlx::query_file_as!(
                Row,
                "src/ledger/sql/exact_counts.sql",
                items,
                read_to,
                &open,
                READ_LIMIT_VOTES as i64,
                saved
            );
            let mut reading = std::pin::pin!(reading.fetch_one(&mut *connection));
            let row = match timeout_at(deadline, &mut reading).await {
                Ok(row) => row?,
                Err(_) => ended_by(pool, self.process, reading).await?,
            };
            // Someone has set the sequence back. Ids that were known to be decided may be used now.
            if row.last_id < read_to && !std::mem::replace(&mut was_set_back, true) {
                self.tail = Tail::default();
                continue;
            }
            let known = decided.unwrap_or_default();
            let taken = self
                .tail
                .take(row.watermark, known, row.votes(), READ_LIMIT_VOTES);
            match taken {
                Taken::All(left) => {
                    // It is an answer in any case. But behind so many unused ids, each read would take longer.
                    if !left.is_empty() && decided.is_none() && self.looks_for_decided() {
                        decided = self.decided(pool, deadline).await;
                        if decided.is_some() {
                            continue;
                        }
                    }
                    return row.read(|item| {
                        let left = left.get(&item).copied().unwrap_or_default();
                        self.tail.sum(item) + left
                    });
                }
                Taken::BehindOpenIds if decided.is_none() => {
                    let found = self.decided(pool, deadline).await;
                    decided = Some(found.ok_or(LedgerError::LongTail)?);
                }
                Taken::BehindOpenIds | Taken::TooManyItems => return Err(LedgerError::LongTail),
                Taken::Some | Taken::Outdated if Instant::now() < limits.next_page => {}
                Taken::Some | Taken::Outdated => return Err(LedgerError::Cancelled),
            }
        }
    }

    /// Whether it is worth finding out which ids are decided: it was not in vain a moment ago.
    fn looks_for_decided(&self) -> bool {
        self.undecided_at
            .is_none_or(|at| at.elapsed() >= UNDECIDED_LIMIT_AGE)
    }

    /// Up to which id every vote is committed, or will never be. `None`: that takes too long, since a
    /// transaction that writes votes does not end.
    async fn decided(&mut self, pool: &Pool, deadline: Instant) -> Option<i64> {
        let deadline = deadline.min(Instant::now() + DECIDED_LIMIT);
        match timeout_at(deadline, safe_vote_id(pool)).await {
            Ok(Ok((safe, _))) => Some(safe.get()),
            Ok(Err(_)) | Err(_) => {
                self.undecided_at = Some(Instant::now());
                None
            }
        }
    }
}

/// These items in order, each once.
fn sorted<'a>(items: impl Iterator<Item = &'a ItemId>) -> Vec<i64> {
    let mut items: Vec<i64> = items.map(|id| id.get()).collect();
    items.sort_unstable();
    items.dedup();
    items
}

/// The Postgres process that serves this connection.
async fn process(connection: &mut PgConnection, deadline: Instant) -> Result<i32, LedgerError> {
    let process = sqlx::query_scalar!(r#"select pg_backend_pid() as "process!""#).fetch_one(connection);
    Ok(timeout_at(deadline, process)
        .await
        .map_err(|_| LedgerError::Cancelled)??)
}

/// The end of a read that this process is asked to cancel.
async fn ended_by(
    pool: &Pool,
    process: Option<i32>,
    reading: impl Future<Output = Result<Row, sqlx::Error>>,
) -> Result<Row, LedgerError> {
    let cancelled = async {
        sqlx::query_scalar!("select pg_cancel_backend($1)", process)
            .fetch_one(pool)
            .await?;
        // The read may have just ended.
        reading.await
    };
    match timeout(CHECK_LIMIT, cancelled).await {
        Ok(Ok(row)) => Ok(row),
        Ok(Err(error)) => match LedgerError::from(error) {
            error if error.is_cancelled() => Err(LedgerError::Cancelled),
            error => Err(error),
        },
        Err(_) => Err(LedgerError::Timeout(CHECK_LIMIT)),
    }
}

/// What `exact_counts.sql` answers.
struct Row {
    snapshot: String,
    watermark: i64,
    last_id: i64,
    vote_ids: Option<Vec<i64>>,
    vote_items: Option<Vec<i64>>,
    vote_values: Option<Vec<i16>>,
    vote_changes: Option<Vec<i16>>,
    items: Option<Vec<i64>>,
    vote_counts: Option<Vec<i64>>,
    down_counts: Option<Vec<i64>>,
    saved_items: Option<Vec<i64>>,
    counted_at: Option<Vec<Option<i64>>>,
}

impl Row {
    /// The votes that were read.
    fn votes(&self) -> Vec<TailVote> {
        let (Some(ids), Some(items), Some(values), Some(changes)) = (
            &self.vote_ids,
            &self.vote_items,
            &self.vote_values,
            &self.vote_changes,
        ) else {
            return Vec::new();
        };
        let rows = ids.iter().zip(items).zip(values.iter().zip(changes));
        rows.map(|((id, item), (value, change))| TailVote {
            id: *id,
            item: *item,
            value: *value,
            change_number: *change,
        })
        .collect()
    }

    /// The items, with what `beyond` says of their votes beyond the watermark.
    fn read(self, beyond: impl Fn(i64) -> Count) -> Result<Read, LedgerError> {
        let ids = self.items.unwrap_or_default().into_iter();
        let audited = self
            .vote_counts
            .unwrap_or_default()
            .into_iter()
            .zip(self.down_counts.unwrap_or_default());
        let counts = ids
            .zip(audited)
            .map(|(id, (net, downs))| (id, Count { net, downs } + beyond(id)));
        let saved = self.saved_items.unwrap_or_default().into_iter();
        let saved = saved.zip(self.counted_at.unwrap_or_default());
        Ok(Read {
            snapshot: Snapshot::parse(&self.snapshot)?,
            counts: counts.collect(),
            saved: saved
                .map(|(id, counted_at)| (id, counted_at.map(Revision::from_micros)))
                .collect(),
        })
    }
}

/// What one read found.
struct Read {
    snapshot: Snapshot,
    counts: HashMap<i64, Count>,
    /// The revisions of saved counts. An item that does not exist is not there.
    saved: HashMap<i64, Option<Revision>>,
}

impl Read {
    fn exact(&self, item_id: ItemId, counted_at: Option<Revision>) -> Option<ExactCount> {
        Some(ExactCount {
            item_id,
            count: *self.counts.get(&item_id.get())?,
            counted_at,
            snapshot: self.snapshot.clone(),
        })
    }
}
