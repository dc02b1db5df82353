//! Storing and counting votes in a program that is no server: chunk after chunk, each like a batch of votes.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch};
use super::batch_counting::BatchCounting;
use super::progress_notes::ProgressNotes;
use crate::domain::{CountDelta, PostgresRun, TransactionId};
use crate::ledger::{InsertError, LedgerError, OperatorLedger, OtherRun, VoteWriter};
use crate::live::{LiveCounts, LiveError, Redis};
use crate::telemetry::{Program, name};

/// The most tries of a chunk that Postgres did not store or confirm.
const CHUNK_LIMIT_TRIES: u32 = 10;
/// The wait between two tries.
const CHUNK_RETRY: Duration = Duration::from_millis(500);
/// How long the program waits for Redis before it begins. Without Redis it goes on, and a sync worker
/// rebuilds the counts.
const REDIS_LIMIT: Duration = Duration::from_secs(5);
/// The time between two looks whether Redis answers.
const REDIS_EVERY: Duration = Duration::from_millis(20);
/// How long to wait at the end until the counted votes are noted. A sync worker rebuilds what is
/// not noted.
const LAST_NOTE_LIMIT: Duration = Duration::from_secs(5);

/// Stores and counts chunks.
pub struct ChunkWriter {
    pub(super) writer: VoteWriter,
    /// The run of Postgres in which the ids were read that chunks name. `None`: any.
    pub(super) run: Option<PostgresRun>,
    live_counts: LiveCounts,
    backoff: SeedBackoff,
    metrics: BatchMetrics,
}

impl ChunkWriter {
    /// With a writer of its own.
    pub fn new(writer: VoteWriter, live_counts: LiveCounts) -> Self {
        Self {
            writer,
            run: None,
            live_counts,
            backoff: SeedBackoff::default(),
            metrics: BatchMetrics::new(metrics::gauge!(name::QUEUE_DEPTH)),
        }
    }

    /// The same for ids that were read in this run of Postgres. In another one, ids may have been given out
    /// again.
    #[must_use]
    pub fn only_in(self, run: PostgresRun) -> Self {
        Self {
            run: Some(run),
            ..self
        }
    }

    /// Counts a chunk that is stored; `None`: none was. `begun` is when its statement was sent.
    pub(super) async fn end_chunk(
        &mut self,
        begun: Instant,
        stored: Option<(TransactionId, Vec<CountDelta>)>,
    ) {
        if let Some((transaction, deltas)) = stored {
            let nobody_waits = StoredBatch::new(Vec::new(), &self.metrics);
            BatchCounting::new(&self.live_counts, &mut self.writer, &self.backoff, begun)
                .finish(transaction, deltas, nobody_waits, ())
                .await;
        }
        self.writer.end_batch();
    }
}

/// Waits until a chunk that Postgres did not store, or did not confirm, may be tried again. `tries`: how often it
/// was tried.
///
/// # Errors
/// When it was tried often enough, or its ids are those of another run of Postgres.
pub(super) async fn before_next_try<E>(tries: &mut u32, error: InsertError) -> Result<(), E>
where
    E: From<LedgerError> + From<InsertError>,
{
    if error.is_of_other_run() {
        return Err(LedgerError::from(OtherRun).into());
    }
    if *tries >= CHUNK_LIMIT_TRIES {
        return Err(error.into());
    }
    *tries += 1;
    tracing::warn!(%error, "Postgres did not store a chunk, or did not confirm it; trying again");
    sleep(CHUNK_RETRY).await;
    Ok(())
}

/// The program was asked to stop.
#[derive(Debug)]
pub(super) struct Stopped;

/// Does work that stores chunks, with live counts and notes of how far its votes are counted. When `stop`
/// resolves, the chunk under way is cut off: it is stored or not, and recovery counts it. All of it is done in
/// the run of Postgres that the ledger is of.
///
/// # Errors
/// When a store does not answer, the work fails, or `stop` came first.
pub(super) async fn alone<T, E>(
    ledger: &OperatorLedger,
    run: PostgresRun,
    redis: &Redis,
    stop: impl Future<Output = ()>,
    work: impl AsyncFnOnce(&mut ChunkWriter) -> Result<T, E>,
) -> Result<T, E>
where
    E: From<LedgerError> + From<LiveError> + From<Stopped>,
{
    let server = ledger.as_server();
    let owner = server.owner().await?;
    if let Err(error) = redis.check(Program::Server).await
        && error.is_unfit()
    {
        return Err(error.into());
    }
    let (_tell, owner) = watch::channel(Some(owner));
    let live_counts = LiveCounts::open_beside(owner, redis.clone());
    let answers = async {
        while !live_counts.answers() {
            sleep(REDIS_EVERY).await;
        }
    };
    if timeout(REDIS_LIMIT, answers).await.is_err() {
        tracing::warn!("Redis does not answer: a sync worker will rebuild the counts");
    }
    let mut progress = ProgressNotes::new(server.clone(), live_counts.clone());
    let mut writer = ChunkWriter::new(server.writer(), live_counts.clone()).only_in(run);
    let ended = {
        let noting = progress.run();
        // A chunk that is cut off is stored or not, and recovery counts it.
        tokio::select! {
            ended = work(&mut writer) => ended,
            () = stop => Err(Stopped.into()),
            () = noting => Err(Stopped.into()),
        }
    };
    drop(writer);
    let noted = async {
        live_counts.repaired().await;
        progress.note_last().await;
    };
    if timeout(LAST_NOTE_LIMIT, noted).await.is_err() {
        tracing::warn!("some counts are left for a sync worker to rebuild");
    }
    let ended = ended?;
    // Another program may have stored the last chunk.
    server.until_earlier_commits_are_safe().await?;
    Ok(ended)
}
