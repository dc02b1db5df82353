//! Voiding: takes votes back for an operator, or casts them again, chunk after chunk. Each chunk is
//! stored and counted like a batch of votes.

mod run;

pub use run::{VoidingError, run_voiding};

use tokio::time::Instant;

use super::backoff::SeedBackoff;
use super::batch::{BatchMetrics, StoredBatch};
use super::batch_counting::BatchCounting;
use crate::domain::{ActKind, PostgresRun, VoidingId};
use crate::ledger::{InsertError, VoidedChunk, VoteWriter};
use crate::live::LiveCounts;
use crate::telemetry::name;

/// Which way a voiding goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Votes are taken back.
    Void,
    /// Votes are cast again.
    Undo,
}

impl Direction {
    /// The administrative act of this direction.
    pub fn act(self) -> ActKind {
        match self {
            Self::Void => ActKind::VoidingRun,
            Self::Undo => ActKind::VoidingUndo,
        }
    }
}

/// Takes votes back, and casts them again.
pub struct Voider {
    writer: VoteWriter,
    /// The run in which the voidings were read. `None`: any.
    run: Option<PostgresRun>,
    live_counts: LiveCounts,
    backoff: SeedBackoff,
    metrics: BatchMetrics,
}

impl Voider {
    /// A voider with a writer of its own.
    pub fn new(writer: VoteWriter, live_counts: LiveCounts) -> Self {
        Self {
            writer,
            run: None,
            live_counts,
            backoff: SeedBackoff::default(),
            metrics: BatchMetrics::new(metrics::gauge!(name::QUEUE_DEPTH)),
        }
    }

    /// The same for voidings that were read in this run of Postgres. In another one, their ids and those of
    /// their votes may have been given out again.
    #[must_use]
    pub fn only_in(self, run: PostgresRun) -> Self {
        Self {
            run: Some(run),
            ..self
        }
    }

    /// Stores and counts the next chunk of a voiding.
    ///
    /// # Errors
    /// When Postgres did not store the chunk, or did not confirm it. Then the writer's connection
    /// has ended, and crashed-writer recovery rebuilds what was stored: going on is safe.
    pub async fn chunk(
        &mut self,
        voiding: VoidingId,
        direction: Direction,
    ) -> Result<VoidedChunk, InsertError> {
        let begun = Instant::now();
        let stored = match direction {
            Direction::Void => self.writer.void(voiding, self.run).await,
            Direction::Undo => self.writer.undo(voiding, self.run).await,
        };
        if let Ok(chunk) = &stored {
            let deltas = chunk.deltas.clone();
            let nobody_waits = StoredBatch::new(Vec::new(), &self.metrics);
            BatchCounting::new(&self.live_counts, &mut self.writer, &self.backoff, begun)
                .finish(chunk.transaction, deltas, nobody_waits)
                .await;
        }
        self.writer.end_batch();
        stored
    }
}
