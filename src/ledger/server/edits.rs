//! Edits of items and polls.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::ServerLedger;
use crate::domain::{ActKind, Actor, Edit, EditRefusal, ItemId, ItemName, Moment, NewAct, PollId};
use crate::ledger::LedgerError;

fn micros(time: Option<Option<Moment>>) -> Option<i64> {
    time.flatten().map(Moment::micros)
}

/// The act of an edit: what is to change.
fn act(actor: Actor, what: ActKind, edit: &Edit) -> String {
    let mut details = Map::new();
    let mut add = |field: &str, value: Value| details.insert(field.to_owned(), value);
    if let Some(name) = &edit.name {
        add("name", json!(name.as_str()));
    }
    if let Some(is_hidden) = edit.is_hidden {
        add("hidden", json!(is_hidden));
    }
    if let Some(time) = edit.times.opens_at {
        add("opens_at", json!(time));
    }
    if let Some(time) = edit.times.closes_at {
        add("closes_at", json!(time));
    }
    NewAct::over_http(actor, what)
        .details(Value::Object(details))
        .to_json()
}

impl ServerLedger {
    /// Edits an item: an administrative act. This server's readers show it at once, those of others within
    /// `ITEM_CACHE_LIMIT`.
    ///
    /// # Errors
    /// When Postgres is unavailable. The inner error: the edit is refused.
    pub async fn edit_item(
        &self,
        actor: Actor,
        item: ItemId,
        edit: &Edit,
    ) -> Result<Result<(), EditRefusal>, LedgerError> {
        let times = &edit.times;
        let outcome = sqlx::query_file!(
            "src/ledger/sql/edit_item.sql",
            item.get(),
            edit.name.as_ref().map(ItemName::as_str),
            edit.is_hidden,
            times.opens_at.is_some(),
            micros(times.opens_at),
            times.closes_at.is_some(),
            micros(times.closes_at),
            act(actor, ActKind::ItemEdit, edit)
        )
        .fetch_one(&self.database.pool)
        .await?
        .outcome;
        self.edited(&outcome, EditRefusal::UnknownItem)
    }

    /// Edits a poll, as [`ServerLedger::edit_item`].
    ///
    /// # Errors
    /// When Postgres is unavailable. The inner error: the edit is refused.
    pub async fn edit_poll(
        &self,
        actor: Actor,
        poll: PollId,
        edit: &Edit,
    ) -> Result<Result<(), EditRefusal>, LedgerError> {
        let times = &edit.times;
        let outcome = sqlx::query_file!(
            "src/ledger/sql/edit_poll.sql",
            poll.get(),
            edit.name.as_ref().map(ItemName::as_str),
            edit.is_hidden,
            times.opens_at.is_some(),
            micros(times.opens_at),
            times.closes_at.is_some(),
            micros(times.closes_at),
            act(actor, ActKind::PollEdit, edit)
        )
        .fetch_one(&self.database.pool)
        .await?
        .outcome;
        self.edited(&outcome, EditRefusal::UnknownPoll)
    }

    /// The words are those of migrations/functions/edit_times.sql.
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
