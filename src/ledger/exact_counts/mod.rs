//! Exact counts: audited counts and the votes beyond the watermark, under one snapshot.
//!
//! - `reader`: the connection that reads, for all who wait.
//! - `tail`: the votes beyond the watermark, as one connection has read them.
//!
//! One connection of a program reads for all its tasks. Whoever asks while a read is under way waits for the
//! next one, which answers all who wait: its snapshot is taken after each of them has asked.

mod reader;
mod tail;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use self::reader::{Answer, ReadLimits, Reader, Waiting};
use super::connect::{ANSWER_MARGIN, Database};
use super::dedicated::DedicatedConnection;
use super::pool::Pool;
use super::runs::Runs;
use super::settings::KEPT_PLANS;
use super::{LedgerError, OtherRun};
use crate::domain::{ExactCount, ItemId, PostgresRun, VoteId};

/// One read answers those who wait, until it has so many items.
const READ_LIMIT_ITEMS: usize = 10_000;

/// How long a page may take that nobody waits for: then those who wait have their turn.
const READ_ON_LIMIT: Duration = Duration::from_secs(2);

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
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::default(),
                reader: tokio::sync::Mutex::new(Reader::new(connection)),
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
        let read_to = self.shared.reader.lock().await.read_to();
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
