//! The connection that reads exact counts, and who waits for it.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::tail::{Tail, TailVote, Taken};
use crate::domain::{Count, ExactCount, ItemId, PostgresRun, Revision, Snapshot};
use crate::ledger::LedgerError;
use crate::ledger::connect::CHECK_LIMIT;
use crate::ledger::dedicated::DedicatedConnection;
use crate::ledger::error::{is_certain, is_disconnect};
use crate::ledger::pool::Pool;
use crate::ledger::safe_vote_id::safe_vote_id;

/// The most votes that one statement reads: by calculation 2 MB.
const READ_LIMIT_VOTES: usize = 50_000;

/// How long a read waits until it is known which ids are decided.
const DECIDED_LIMIT: Duration = Duration::from_millis(100);
/// After it did not become known, reads do without for so long.
const UNDECIDED_LIMIT_AGE: Duration = Duration::from_secs(1);

/// Someone who waits for exact counts.
pub(super) struct Waiting {
    pub items: Vec<ItemId>,
    /// Items of which only the count is asked for. They exist.
    pub counts_only: Vec<ItemId>,
    pub answer: oneshot::Sender<Answer>,
}

/// Exact counts, and the run of Postgres that they are of.
#[derive(Debug)]
pub(super) struct Answer {
    pub counts: Vec<ExactCount>,
    pub run: Option<PostgresRun>,
}

/// When a read gives up.
#[derive(Clone, Copy)]
pub(super) struct ReadLimits {
    /// No further page of votes is asked for from here on.
    pub next_page: Instant,
    /// A statement that has no answer by then is cancelled.
    pub answer: Instant,
}

/// The connection that reads, and what was read over it.
pub(super) struct Reader {
    connection: DedicatedConnection,
    /// The Postgres process that serves the connection.
    process: Option<i32>,
    /// When it last took too long to know which ids are decided.
    undecided_at: Option<Instant>,
    tail: Tail,
}

impl Reader {
    /// Has read nothing yet.
    pub fn new(connection: DedicatedConnection) -> Self {
        Self {
            connection,
            process: None,
            undecided_at: None,
            tail: Tail::default(),
        }
    }

    /// Up to which id votes beyond the watermark were read. Over another connection all are read again.
    pub fn read_to(&self) -> i64 {
        if self.connection.is_kept() {
            self.tail.read_to()
        } else {
            0
        }
    }

    /// Reads once for all who wait, and answers them.
    pub async fn answer(
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
