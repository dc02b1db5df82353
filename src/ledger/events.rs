//! Events as an operator sees them: `tally event`.

use serde_json::{Value, json};

use super::{LedgerError, OperatorLedger};
use crate::domain::{ActKind, Event, EventId, EventState, Moment};

/// The most dead letters that one statement has sent again.
pub const RESEND_LIMIT_EVENTS: i64 = 1000;

impl OperatorLedger {
    /// Events, the newest first, up to `limit`: those before this one, and in this state. `None`: it does not matter.
    pub async fn events(
        &self,
        before: Option<EventId>,
        state: Option<EventState>,
        limit: i64,
    ) -> Result<Vec<Event>, LedgerError> {
        self.read_events(before, state, None, limit).await
    }

    /// This event; `None`: there is none with this id.
    pub async fn event(&self, id: EventId) -> Result<Option<Event>, LedgerError> {
        Ok(self
            .read_events(None, None, Some(id), 1)
            .await?
            .into_iter()
            .next())
    }

    async fn read_events(
        &self,
        before: Option<EventId>,
        state: Option<EventState>,
        only: Option<EventId>,
        limit: i64,
    ) -> Result<Vec<Event>, LedgerError> {
        let rows = sqlx::query_file!(
            "src/ledger/sql/events.sql",
            limit,
            before.map(|id| id.0),
            state.map(EventState::name),
            only.map(|id| id.0)
        )
        .fetch_all(self.as_server().pool())
        .await?;
        let events = rows.into_iter().map(|row| {
            let state = match (row.delivered_at, row.dead_at) {
                (_, Some(_)) => EventState::Dead,
                (Some(_), None) => EventState::Delivered,
                (None, None) => EventState::Waiting,
            };
            Event {
                id: EventId(row.id),
                message_id: row.message_id,
                kind: row.kind,
                subject: row.subject,
                happened_at: Moment::from_micros(row.happened_at),
                state,
                tries: row.tries,
                next_try_at: (state == EventState::Waiting).then(|| Moment::from_micros(row.next_try_at)),
                delivered_at: row.delivered_at.map(Moment::from_micros),
                dead_at: row.dead_at.map(Moment::from_micros),
                last_problem: row.last_problem,
                data: serde_json::from_str(&row.data).unwrap_or(Value::Null),
            }
        });
        Ok(events.collect())
    }

    /// Has an event delivered again, whether it is delivered, dead or waits for its next try. `None`: the next dead
    /// letters, up to [`RESEND_LIMIT_EVENTS`]. Returns how many.
    pub async fn resend_events(&self, only: Option<EventId>) -> Result<i64, LedgerError> {
        let act = self
            .act(ActKind::EventResend)
            .details(json!({ "dead": only.is_none() }));
        let row = sqlx::query_file!(
            "src/ledger/sql/resend_events.sql",
            only.map(|id| id.0),
            RESEND_LIMIT_EVENTS,
            act.to_json()
        )
        .fetch_one(self.as_server().pool())
        .await?;
        Ok(row.total)
    }
}
