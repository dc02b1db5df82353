//! Edits of items and polls.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use super::ServerLedger;
use crate::domain::{ActKind, Actor, Edit, EditRefusal, ItemName, Moment, NewAct, TimeEdits, VotedOn};
use crate::ledger::LedgerError;

fn micros(time: Option<Option<Moment>>) -> Option<i64> {
    time.flatten().map(Moment::micros)
}

/// The act of an edit, with what is to change.
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
    /// Edits an item or a poll: an administrative act. This server's readers show the edit at once,
    /// others within `ITEM_CACHE_LIMIT`.
    ///
    /// # Errors
    /// The inner error says why the edit is refused.
    pub async fn edit(
        &self,
        actor: Actor,
        of: VotedOn,
        edit: &Edit,
    ) -> Result<Result<(), EditRefusal>, LedgerError> {
        let name = edit.name.as_ref().map(ItemName::as_str);
        let TimeEdits { opens_at, closes_at } = edit.times;
        let outcome = match of {
            VotedOn::Item(item) => {
                sqlx::query_file!(
                    "src/ledger/sql/edit_item.sql",
                    item.get(),
                    name,
                    edit.is_hidden,
                    opens_at.is_some(),
                    micros(opens_at),
                    closes_at.is_some(),
                    micros(closes_at),
                    act(actor, ActKind::ItemEdit, edit)
                )
                .fetch_one(&self.database.pool)
                .await?
                .outcome
            }
            VotedOn::Poll(poll) => {
                sqlx::query_file!(
                    "src/ledger/sql/edit_poll.sql",
                    poll.get(),
                    name,
                    edit.is_hidden,
                    opens_at.is_some(),
                    micros(opens_at),
                    closes_at.is_some(),
                    micros(closes_at),
                    act(actor, ActKind::PollEdit, edit)
                )
                .fetch_one(&self.database.pool)
                .await?
                .outcome
            }
        };
        // The words are those of migrations/functions/edit_item.sql, edit_poll.sql and edit_times.sql.
        Ok(Err(match outcome.as_str() {
            "edited" => {
                self.edits.fetch_add(1, Ordering::Relaxed);
                return Ok(Ok(()));
            }
            "unknown" => EditRefusal::Unknown,
            "closed" => EditRefusal::Closed,
            "order" => EditRefusal::Order,
            "plain" => EditRefusal::Plain,
            "choice" => EditRefusal::Choice,
            "hidden_results" => EditRefusal::HiddenResults,
            "same_choice" => EditRefusal::SameChoice,
            other => return Err(LedgerError::Decision(other.to_owned())),
        }))
    }
}
