//! The operator's statements of `tally voter`. The votes are changed by [`VoteWriter`](super::VoteWriter).

use serde::Serialize;
use serde_json::json;

use super::server::EDIT_LIMIT_IDS;
use super::{LedgerError, OperatorLedger};
use crate::domain::{
    ActKind, Moment, NewVoterEdit, VoidingId, VoteId, VoterEdit, VoterEditId, VoterEditKind, VoterId,
    VoterSummary,
};

/// A row of the ledger, as its voter is shown it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowOfVoter {
    pub id: i64,
    pub item_id: i64,
    /// The poll that the item is a choice of.
    pub poll_id: Option<i64>,
    /// 1 or −1: what the row adds to the count.
    pub value: i16,
    /// An even one casts a vote, the next odd one takes it back.
    pub change_number: i16,
    pub number: Option<i64>,
    pub created_at: Moment,
}

/// A voter's rows among some vote ids.
#[derive(Clone, Debug)]
pub struct RowsOfVoter {
    /// The last id that was looked at.
    pub up_to: i64,
    pub summary: VoterSummary,
    pub rows: Vec<RowOfVoter>,
}

/// Why an edit cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditInTheWay {
    /// Another edit of one of these voters has not ended.
    Edit(VoterEditId),
    /// A voiding of one of these voters is not done.
    Voiding(VoidingId),
    /// An archive has not ended.
    Archive(i64),
}

impl OperatorLedger {
    /// Creates an edit of a voter that concerns votes up to `until`, or finds the same one that has not ended.
    /// It changes no vote yet.
    pub async fn create_voter_edit(
        &self,
        new: &NewVoterEdit,
        until: VoteId,
    ) -> Result<Result<VoterEditId, EditInTheWay>, LedgerError> {
        // Without the voters.
        let act = self.act(ActKind::VoterEditCreate).details(json!({
            "kind": new.kind.name(),
            "until_vote_id": until.get(),
        }));
        let made = sqlx::query!(
            "select edit, why, other from create_voter_edit($1, $2, $3, $4, $5)",
            new.kind.name(),
            new.from.as_str(),
            new.to.as_str(),
            until.get(),
            act.to_json()
        )
        .fetch_one(self.as_server().pool())
        .await?;
        let other = made.other.unwrap_or_default();
        Ok(match (made.edit, made.why.as_deref()) {
            (Some(edit), _) => Ok(VoterEditId(edit)),
            (None, Some("voiding")) => Err(EditInTheWay::Voiding(VoidingId(other))),
            (None, Some("archive")) => Err(EditInTheWay::Archive(other)),
            (None, _) => Err(EditInTheWay::Edit(VoterEditId(other))),
        })
    }

    /// This edit; `None`: there is none with this id.
    pub async fn voter_edit(&self, id: VoterEditId) -> Result<Option<VoterEdit>, LedgerError> {
        let found = self.read_voter_edits(Some(id), None, 1).await?;
        Ok(found.into_iter().next())
    }

    /// Edits from before this one, or all; newest first, up to `limit`.
    pub async fn voter_edits(
        &self,
        before: Option<VoterEditId>,
        limit: i64,
    ) -> Result<Vec<VoterEdit>, LedgerError> {
        self.read_voter_edits(None, before, limit).await
    }

    async fn read_voter_edits(
        &self,
        only: Option<VoterEditId>,
        before: Option<VoterEditId>,
        limit: i64,
    ) -> Result<Vec<VoterEdit>, LedgerError> {
        let rows = sqlx::query_file!(
            "src/ledger/sql/voter_edits.sql",
            only.map(|id| id.0),
            limit,
            before.map(|id| id.0)
        )
        .fetch_all(self.as_server().pool())
        .await?;
        let edits = rows.into_iter().map(|row| {
            let kind = row.kind.parse::<VoterEditKind>();
            Ok(VoterEdit {
                id: VoterEditId(row.id),
                kind: kind
                    .map_err(|()| LedgerError::Decision(format!("a voter's edit of kind {}", row.kind)))?,
                from_voter_id: row.from_voter_id,
                to_voter_id: row.to_voter_id,
                created_at: Moment::from_micros(row.created_at),
                until_vote_id: row.until_vote_id,
                looked_vote_id: row.looked_vote_id,
                done_vote_id: row.done_vote_id,
                moved_rows: row.moved_rows,
                taken_back_votes: row.taken_back_votes,
                ended_at: row.ended_at.map(Moment::from_micros),
                is_refused: row.is_refused,
            })
        });
        edits.collect()
    }

    /// The rows of a voter among the next [`EDIT_LIMIT_IDS`] ids beyond `after`. `other`: a voter who may hold votes on
    /// the same items.
    pub async fn rows_of_voter(
        &self,
        voter: &VoterId,
        other: Option<&VoterId>,
        after: i64,
        until: VoteId,
    ) -> Result<RowsOfVoter, LedgerError> {
        // A sequence may have been set far ahead.
        let next = sqlx::query_scalar!("select min(id) from vote where id > $1", after)
            .fetch_one(self.as_server().pool())
            .await?;
        let from = next.map_or(until.get(), |next| next - 1).min(until.get());
        let up_to = until.get().min(from.saturating_add(EDIT_LIMIT_IDS));
        let found = sqlx::query_file!(
            "src/ledger/sql/rows_of_voter.sql",
            voter.as_str(),
            other.map(VoterId::as_str),
            from,
            up_to
        )
        .fetch_all(self.as_server().pool())
        .await?;
        let mut summary = VoterSummary::default();
        let mut rows = Vec::with_capacity(found.len());
        for row in found {
            let at = Some(Moment::from_micros(row.created_at));
            summary.add(&VoterSummary {
                rows: 1,
                held_votes: if row.change_number % 2 == 0 { 1 } else { -1 },
                items: i64::from(row.change_number == 0),
                items_of_both: i64::from(row.is_of_both),
                first_at: at,
                last_at: at,
            });
            rows.push(RowOfVoter {
                id: row.id,
                item_id: row.item_id,
                poll_id: row.poll_id,
                value: row.value,
                change_number: row.change_number,
                number: row.number,
                created_at: Moment::from_micros(row.created_at),
            });
        }
        Ok(RowsOfVoter { up_to, summary, rows })
    }
}
