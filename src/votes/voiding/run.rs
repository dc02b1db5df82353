//! Runs a voiding to its end, chunk after chunk. It ends when all is done or the program is asked
//! to stop. `tally void` runs it in its own program; a server runs it beside the votes of its
//! voters.

use serde_json::json;

use super::Direction;
use crate::domain::{NewAct, Voiding, VoidingId};
use crate::ledger::{InsertError, LedgerError, OperatorLedger};
use crate::live::{LiveError, Redis};
use crate::votes::alone::{ChunkWriter, Stopped, alone, before_next_try};

/// Why a voiding did not run to its end. What is done stays done, and the voiding can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum VoidingError {
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("{0}")]
    Live(#[from] LiveError),
    #[error("{0}")]
    Chunk(#[from] InsertError),
    #[error("there is no voiding {}", .0.0)]
    Unknown(VoidingId),
    #[error("stopped")]
    Stopped,
}

impl From<Stopped> for VoidingError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// Voids or casts again what is left of a voiding. Notes its beginning and its outcome in the
/// trail. `on_chunk` is called with the last vote that was looked at. When `stop` resolves, the
/// chunk under way is cut off: it is stored or not, and recovery counts it. All of it is done in one run of
/// Postgres: in another one, ids of votes may have been given out again.
///
/// # Errors
/// When a store does not answer, or `stop` came first.
pub async fn run_voiding(
    ledger: &OperatorLedger,
    redis: &Redis,
    id: VoidingId,
    direction: Direction,
    stop: impl Future<Output = ()>,
    on_chunk: impl FnMut(i64),
) -> Result<Voiding, VoidingError> {
    let what = direction.act();
    let target = format!("voiding:{}", id.0);
    let begun = ledger.note_begun(what, Some(&target)).await?;
    let ended = chunks(ledger, redis, id, direction, stop, on_chunk).await;
    let describe = |act: NewAct, voiding: &Voiding| {
        act.details(json!({
            "voided_votes": voiding.voided_votes,
            "restored_votes": voiding.restored_votes,
            "left_votes": voiding.left_votes,
        }))
    };
    ledger
        .note_ended(what, begun, Some(&target), &ended, describe)
        .await;
    ended
}

async fn chunks(
    ledger: &OperatorLedger,
    redis: &Redis,
    id: VoidingId,
    direction: Direction,
    stop: impl Future<Output = ()>,
    mut on_chunk: impl FnMut(i64),
) -> Result<Voiding, VoidingError> {
    let (ledger, run) = &ledger.in_this_run().await?;
    let begun = find(ledger, id).await?;
    alone(ledger, *run, redis, stop, async |writer| {
        while let Some(up_to) = chunk(ledger, writer, &begun, direction).await? {
            on_chunk(up_to);
        }
        Ok::<(), VoidingError>(())
    })
    .await?;
    find(ledger, id).await
}

async fn find(ledger: &OperatorLedger, id: VoidingId) -> Result<Voiding, VoidingError> {
    ledger.voiding(id).await?.ok_or(VoidingError::Unknown(id))
}

/// Stores and counts the next chunk. Returns the last vote that it looked at; `None`: there are no
/// more.
async fn chunk(
    ledger: &OperatorLedger,
    writer: &mut ChunkWriter,
    begun: &Voiding,
    direction: Direction,
) -> Result<Option<i64>, VoidingError> {
    let id = begun.id;
    let mut tries = 1;
    loop {
        let voiding = find(ledger, id).await?;
        if voiding.is_finished(direction == Direction::Undo) {
            return Ok(None);
        }
        match writer.voiding_chunk(id, direction).await {
            Ok(chunk) => return Ok(Some(chunk.up_to)),
            // Whether or not the chunk is stored, the next try goes on after it.
            Err(error) => before_next_try::<VoidingError>(&mut tries, error).await?,
        }
    }
}
