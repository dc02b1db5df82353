//! Edits of items and polls.

use std::sync::atomic::Ordering;

use super::ServerLedger;
use crate::domain::{Edit, EditRefusal, ItemId, ItemName, Moment, PollId};
use crate::ledger::LedgerError;

fn micros(time: Option<Option<Moment>>) -> Option<i64> {
    time.flatten().map(Moment::micros)
}

impl ServerLedger {
    /// Edits an item. This server's readers show it at once, those of others within
    /// `ITEM_CACHE_LIMIT`.
    ///
    /// # Errors
    /// When Postgres is unavailable. The inner error: the edit is refused.
    pub async fn edit_item(&self, item: ItemId, edit: &Edit) -> Result<Result<(), EditRefusal>, LedgerError> {
        let times = &edit.times;
        let outcome = sqlx::query_file_scalar!(
            "src/ledger/sql/edit_item.sql",
            item.get(),
            edit.name.as_ref().map(ItemName::as_str),
            edit.is_hidden,
            times.opens_at.is_some(),
            micros(times.opens_at),
            times.closes_at.is_some(),
            micros(times.closes_at)
        )
        .fetch_one(&self.database.pool)
        .await?;
        self.edited(&outcome, EditRefusal::UnknownItem)
    }

    /// Edits a poll, as [`ServerLedger::edit_item`].
    ///
    /// # Errors
    /// When Postgres is unavailable. The inner error: the edit is refused.
    pub async fn edit_poll(&self, poll: PollId, edit: &Edit) -> Result<Result<(), EditRefusal>, LedgerError> {
        let times = &edit.times;
        let outcome = sqlx::query_file_scalar!(
            "src/ledger/sql/edit_poll.sql",
            poll.get(),
            edit.name.as_ref().map(ItemName::as_str),
            edit.is_hidden,
            times.opens_at.is_some(),
            micros(times.opens_at),
            times.closes_at.is_some(),
            micros(times.closes_at)
        )
        .fetch_one(&self.database.pool)
        .await?;
        self.edited(&outcome, EditRefusal::UnknownPoll)
    }

    /// The words are those of migrations/0018_keys.sql.
    fn edited(&self, outcome: &str, unknown: EditRefusal) -> Result<Result<(), EditRefusal>, LedgerError> {
        Ok(Err(match outcome {
            "edited" => {
                self.edits.fetch_add(1, Ordering::Relaxed);
                return Ok(Ok(()));
            }
            "unknown" => unknown,
            "closed" => EditRefusal::Closed,
            "order" => EditRefusal::Order,
            "plain" => EditRefusal::Plain,
            "choice" => EditRefusal::Choice,
            "hidden_results" => EditRefusal::HiddenResults,
            other => return Err(LedgerError::Decision(other.to_owned())),
        }))
    }
}
