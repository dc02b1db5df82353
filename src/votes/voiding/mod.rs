//! Voiding: takes votes back for an operator, or casts them again, chunk after chunk. Each chunk is
//! stored and counted like a batch of votes.

mod run;

pub use run::{VoidingError, run_voiding};

use tokio::time::Instant;

use super::alone::ChunkWriter;
use crate::domain::{ActKind, VoidingId};
use crate::ledger::{InsertError, VoidedChunk};

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

impl ChunkWriter {
    /// Stores and counts the next chunk of a voiding.
    ///
    /// # Errors
    /// When Postgres did not store the chunk, or did not confirm it. Then the writer's connection
    /// has ended, and crashed-writer recovery rebuilds what was stored: going on is safe.
    pub async fn voiding_chunk(
        &mut self,
        voiding: VoidingId,
        direction: Direction,
    ) -> Result<VoidedChunk, InsertError> {
        let begun = Instant::now();
        let run = self.run;
        let stored = match direction {
            Direction::Void => self.writer.void(voiding, run).await,
            Direction::Undo => self.writer.undo(voiding, run).await,
        };
        let to_count = stored.as_ref().ok();
        let to_count = to_count.map(|chunk| (chunk.transaction, chunk.deltas.clone()));
        self.end_chunk(begun, to_count).await;
        stored
    }
}
