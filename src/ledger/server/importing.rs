//! Storing the votes of an import, as a batch is stored.

use tokio::time::timeout;

use super::chunk_deltas::deltas;
use super::vote_writer::{InsertError, VoteWriter};
use crate::domain::{CountDelta, ImportId, ImportedVote, Moment, PostgresRun, TransactionId, VoterId};
use crate::ledger::LedgerError;
use crate::ledger::safe_commit::{listening, until_safe};

/// The votes of a chunk of a file, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct ImportChunk<'a> {
    pub import: ImportId,
    /// The import is done up to this line.
    pub after_line: i64,
    /// With the chunk, it is done up to this one.
    pub up_to_line: i64,
    /// Lines in between that are refused.
    pub refused: i64,
    pub votes: &'a [ImportedVote],
}

/// What became of a chunk.
#[derive(Debug)]
pub enum ImportOutcome {
    Stored {
        transaction: TransactionId,
        /// What the chunk adds to each item, in the order of items.
        deltas: Vec<CountDelta>,
    },
    /// Nothing is stored. These lines cannot be, and why.
    Refused(Vec<(i64, String)>),
}

impl VoteWriter {
    /// Stores a chunk of an import, with ids that were read in this run of Postgres. `None`: in any.
    ///
    /// # Errors
    /// As [`VoteWriter::decide`]. When another program goes on with the import, or a voter voted meanwhile.
    pub async fn import(
        &mut self,
        chunk: &ImportChunk<'_>,
        run: Option<PostgresRun>,
    ) -> Result<ImportOutcome, InsertError> {
        let mut writer = self.begin_in(run).await?;
        let votes = || chunk.votes.iter();
        let lines: Vec<i64> = votes().map(|vote| vote.line).collect();
        let items: Vec<i64> = votes().map(|vote| vote.item_id.get()).collect();
        let voters: Vec<Option<&str>> = votes()
            .map(|vote| vote.voter_id.as_ref().map(VoterId::as_str))
            .collect();
        let values: Vec<i16> = votes().map(|vote| vote.value).collect();
        let changes: Vec<i16> = votes().map(|vote| vote.change_number).collect();
        let times: Vec<Option<i64>> = votes().map(|vote| vote.cast_at.map(Moment::micros)).collect();
        let numbers: Vec<Option<i64>> = votes().map(|vote| vote.number).collect();
        let asked = sqlx::query_as!(
            Reply,
            r#"select xid as "xid!", refused_lines as "refused_lines!: Vec<i64>", whys as "whys!: Vec<String>",
                      items as "items!: Vec<i64>", nets as "nets!: Vec<i64>", downs as "downs!: Vec<i64>"
               from import_votes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"#,
            chunk.import.0,
            chunk.after_line,
            chunk.up_to_line,
            chunk.refused,
            &lines,
            &items,
            &voters as &[Option<&str>],
            &values,
            &changes,
            &times as &[Option<i64>],
            &numbers as &[Option<i64>]
        );
        let storing = async {
            let (row, has_warned) = listening(asked.fetch_one(&mut writer.connection)).await;
            until_safe(&mut writer.connection, row, has_warned).await
        };
        let reply = timeout(self.answer_limit(), storing).await;
        // If this program cannot read the reply, nobody counts the votes unless the connection ends.
        let outcome = self.batch_answer(reply)?.into_outcome();
        let outcome = outcome.map_err(InsertError::Unknown)?;
        self.keep(writer);
        Ok(outcome)
    }
}

/// The reply of `import_votes`.
struct Reply {
    xid: i64,
    refused_lines: Vec<i64>,
    whys: Vec<String>,
    items: Vec<i64>,
    nets: Vec<i64>,
    downs: Vec<i64>,
}

impl Reply {
    fn into_outcome(self) -> Result<ImportOutcome, LedgerError> {
        if !self.refused_lines.is_empty() {
            let lines = self.refused_lines.into_iter().zip(self.whys);
            return Ok(ImportOutcome::Refused(lines.collect()));
        }
        Ok(ImportOutcome::Stored {
            transaction: TransactionId(self.xid),
            deltas: deltas(&self.items, &self.nets, &self.downs)?,
        })
    }
}
