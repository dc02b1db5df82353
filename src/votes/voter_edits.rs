//! Edits of voters: gives a voter's votes another voter id, chunk after chunk. A chunk that takes votes back is
//! counted like a batch of votes. `tally voter` runs an edit in its own program; a server runs it beside the
//! votes of its voters.

use serde_json::json;
use tokio::time::Instant;

use super::alone::{ChunkWriter, Stopped, alone, before_next_try};
use crate::domain::{ActKind, ActOutcome, NewAct, VoterEdit, VoterEditId};
use crate::ledger::{InsertError, LedgerError, OperatorLedger};
use crate::live::{LiveError, Redis};

/// Why an edit did not reach its end. What is done stays done, and the edit can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum VoterEditError {
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("{0}")]
    Live(#[from] LiveError),
    #[error("{0}")]
    Chunk(#[from] InsertError),
    #[error("there is no edit {}", .0.0)]
    Unknown(VoterEditId),
    #[error("the new voter id has votes")]
    Taken,
    #[error("stopped")]
    Stopped,
}

impl From<Stopped> for VoterEditError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl ChunkWriter {
    /// Stores and counts the next chunk of an edit.
    ///
    /// # Errors
    /// As for a voiding: going on is safe.
    pub async fn voter_edit_chunk(&mut self, edit: VoterEditId) -> Result<(), InsertError> {
        let begun = Instant::now();
        let run = self.run;
        let stored = self.writer.edit_voter(edit, run).await;
        let to_count = stored.as_ref().ok();
        let to_count = to_count.map(|chunk| (chunk.transaction, chunk.deltas.clone()));
        self.end_chunk(begun, to_count).await;
        stored.map(drop)
    }
}

/// Does what is left of an edit. Notes its beginning and its outcome in the trail. `on_chunk` is called with how
/// far it is. When `stop` resolves, the chunk under way is cut off: it is stored or not, and recovery counts it.
/// All of it is done in one run of Postgres.
///
/// # Errors
/// When a store does not answer, or `stop` came first.
pub async fn run_voter_edit(
    ledger: &OperatorLedger,
    redis: &Redis,
    id: VoterEditId,
    stop: impl Future<Output = ()>,
    on_chunk: impl FnMut(&VoterEdit),
) -> Result<VoterEdit, VoterEditError> {
    let what = ActKind::VoterEditRun;
    let target = format!("voter_edit:{}", id.0);
    let begun = ledger.note_begun(what, Some(&target)).await?;
    let ended = chunks(ledger, redis, id, stop, on_chunk).await;
    let describe = |act: NewAct, edit: &VoterEdit| match edit.is_refused {
        true => act.outcome(ActOutcome::Refused, Some("voter-taken")),
        false => act.details(json!({
            "kind": edit.kind.name(),
            "moved_rows": edit.moved_rows,
            "taken_back_votes": edit.taken_back_votes,
        })),
    };
    ledger
        .note_ended(what, begun, Some(&target), &ended, describe)
        .await;
    ended
}

async fn chunks(
    ledger: &OperatorLedger,
    redis: &Redis,
    id: VoterEditId,
    stop: impl Future<Output = ()>,
    mut on_chunk: impl FnMut(&VoterEdit),
) -> Result<VoterEdit, VoterEditError> {
    let (ledger, run) = &ledger.in_this_run().await?;
    alone(ledger, *run, redis, stop, async |writer| {
        loop {
            let edit = find(ledger, id).await?;
            on_chunk(&edit);
            if edit.ended_at.is_some() {
                return Ok(edit);
            }
            chunk(writer, id).await?;
        }
    })
    .await
}

async fn find(ledger: &OperatorLedger, id: VoterEditId) -> Result<VoterEdit, VoterEditError> {
    ledger.voter_edit(id).await?.ok_or(VoterEditError::Unknown(id))
}

/// Stores and counts the next chunk.
async fn chunk(writer: &mut ChunkWriter, id: VoterEditId) -> Result<(), VoterEditError> {
    let mut tries = 1;
    loop {
        match writer.voter_edit_chunk(id).await {
            Ok(()) => return Ok(()),
            // Whether or not the chunk is stored, the next try goes on after it. One of the voters may just have
            // voted: then the next try sees it.
            Err(error) => before_next_try::<VoterEditError>(&mut tries, error).await?,
        }
    }
}
