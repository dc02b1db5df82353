//! Storing a part of a voter's edit, as a batch is stored.

use std::time::Duration;

use tokio::time::timeout;

use super::chunk_deltas::deltas;
use super::vote_writer::{InsertError, VoteWriter};
use crate::domain::{CountDelta, PostgresRun, TransactionId, VoterEditId};
use crate::ledger::LedgerError;
use crate::ledger::connect::ANSWER_MARGIN;
use crate::ledger::safe_commit::{listening, until_safe};

/// The most rows of the voter that one chunk looks for. All voters who change votes wait for it.
const EDIT_LIMIT_ROWS: i32 = 500;
/// The most vote ids that one chunk looks at.
pub const EDIT_LIMIT_IDS: i64 = 50_000;

/// How long one chunk may take. A voter may have very many rows in one poll, and all of them change together.
const EDIT_STATEMENT_LIMIT: Duration = Duration::from_secs(60);

/// A chunk that is stored.
#[derive(Debug)]
pub struct EditedChunk {
    /// Its transaction, committed.
    pub transaction: TransactionId,
    /// What it adds to each item, in the order of items.
    pub deltas: Vec<CountDelta>,
}

impl VoteWriter {
    /// Does the next part of an edit that was read in this run of Postgres. `None`: in any.
    ///
    /// # Errors
    /// As [`VoteWriter::decide`].
    pub async fn edit_voter(
        &mut self,
        edit: VoterEditId,
        run: Option<PostgresRun>,
    ) -> Result<EditedChunk, InsertError> {
        let mut writer = self.begin_in(run).await?;
        let limit = format!("{}ms", EDIT_STATEMENT_LIMIT.as_millis());
        let before = sqlx::query_scalar!(r#"select current_setting('statement_timeout') as "before!""#);
        let set = |limit: String| sqlx::query!("select set_config('statement_timeout', $1, false)", limit);
        let chunk = sqlx::query!(
            r#"select xid as "xid!", items as "items!: Vec<i64>", nets as "nets!: Vec<i64>", downs as "downs!: Vec<i64>"
               from edit_voter($1, $2, $3)"#,
            edit.0,
            EDIT_LIMIT_IDS,
            EDIT_LIMIT_ROWS
        );
        let storing = async {
            let before = before.fetch_one(&mut writer.connection).await?;
            set(limit).fetch_one(&mut writer.connection).await?;
            let (row, has_warned) = listening(chunk.fetch_one(&mut writer.connection)).await;
            let row = until_safe(&mut writer.connection, row, has_warned).await?;
            set(before).fetch_one(&mut writer.connection).await?;
            Ok(row)
        };
        let row = timeout(EDIT_STATEMENT_LIMIT + ANSWER_MARGIN, storing).await;
        // If this program cannot read the reply, nobody counts the rows unless the connection ends.
        let row = self.batch_answer(row)?;
        let deltas: Result<_, LedgerError> = deltas(&row.items, &row.nets, &row.downs);
        let deltas = deltas.map_err(InsertError::Unknown)?;
        self.keep(writer);
        Ok(EditedChunk {
            transaction: TransactionId(row.xid),
            deltas,
        })
    }
}
