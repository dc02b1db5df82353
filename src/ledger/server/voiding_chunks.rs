//! Storing what a voiding takes back, as a batch is stored.

use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::chunk_deltas::deltas;
use super::vote_writer::{InsertError, VoteWriter, WriterConnection};
use crate::domain::{CountDelta, PostgresRun, TransactionId, VoidingId};
use crate::ledger::LedgerError;
use crate::ledger::safe_commit::{listening, until_safe};

/// The most votes that one chunk takes back. Voters under the same rules wait for it.
pub const VOID_LIMIT_VOTES: i32 = 1000;
/// The most vote ids that one chunk looks at.
pub const VOID_LIMIT_IDS: i64 = 50_000;

/// A chunk that is stored.
#[derive(Debug)]
pub struct VoidedChunk {
    /// Its transaction, committed.
    pub transaction: TransactionId,
    /// The last vote that was looked at.
    pub up_to: i64,
    pub votes: i64,
    /// What it adds to each item, in the order of items.
    pub deltas: Vec<CountDelta>,
}

impl VoteWriter {
    /// Takes back the next votes of a voiding that was read in this run of Postgres. `None`: in any.
    ///
    /// # Errors
    /// As [`VoteWriter::decide`].
    pub async fn void(
        &mut self,
        voiding: VoidingId,
        run: Option<PostgresRun>,
    ) -> Result<VoidedChunk, InsertError> {
        let mut writer = self.begin_in(run).await?;
        let chunk = sqlx::query_as!(
            ChunkRow,
            r#"select xid as "xid!", up_to as "up_to!", voided_votes as "voided_votes!",
                      items as "items!: Vec<i64>", nets as "nets!: Vec<i64>", downs as "downs!: Vec<i64>"
               from void_votes($1, $2, $3)"#,
            voiding.0,
            VOID_LIMIT_VOTES,
            VOID_LIMIT_IDS
        );
        let storing = async {
            let (row, has_warned) = listening(chunk.fetch_one(&mut writer.connection)).await;
            until_safe(&mut writer.connection, row, has_warned).await
        };
        let row = timeout(self.answer_limit(), storing).await;
        self.stored_chunk(writer, row)
    }

    /// Casts the next votes of a voiding again where that is possible, as [`VoteWriter::void`]
    /// takes them back. `votes` is how many.
    ///
    /// # Errors
    /// As [`VoteWriter::decide`].
    pub async fn undo(
        &mut self,
        voiding: VoidingId,
        run: Option<PostgresRun>,
    ) -> Result<VoidedChunk, InsertError> {
        let mut writer = self.begin_in(run).await?;
        let chunk = sqlx::query_as!(
            ChunkRow,
            r#"select xid as "xid!", up_to as "up_to!", voided_votes as "voided_votes!",
                      items as "items!: Vec<i64>", nets as "nets!: Vec<i64>", downs as "downs!: Vec<i64>"
               from undo_votes($1, $2)"#,
            voiding.0,
            VOID_LIMIT_VOTES
        );
        let storing = async {
            let (row, has_warned) = listening(chunk.fetch_one(&mut writer.connection)).await;
            until_safe(&mut writer.connection, row, has_warned).await
        };
        let row = timeout(self.answer_limit(), storing).await;
        self.stored_chunk(writer, row)
    }

    /// Reads the rows of a stored chunk. If this program cannot read them, nobody counts them
    /// unless the connection ends, as in [`VoteWriter::decide`].
    fn stored_chunk(
        &mut self,
        writer: WriterConnection,
        row: Result<Result<ChunkRow, sqlx::Error>, Elapsed>,
    ) -> Result<VoidedChunk, InsertError> {
        let chunk = self
            .batch_answer(row)?
            .into_chunk()
            .map_err(InsertError::Unknown)?;
        self.keep(writer);
        Ok(chunk)
    }
}

/// The reply of `void_votes` and `undo_votes`.
struct ChunkRow {
    xid: i64,
    up_to: i64,
    voided_votes: i32,
    items: Vec<i64>,
    nets: Vec<i64>,
    downs: Vec<i64>,
}

impl ChunkRow {
    fn into_chunk(self) -> Result<VoidedChunk, LedgerError> {
        Ok(VoidedChunk {
            transaction: TransactionId(self.xid),
            up_to: self.up_to,
            votes: self.voided_votes.into(),
            deltas: deltas(&self.items, &self.nets, &self.downs)?,
        })
    }
}
