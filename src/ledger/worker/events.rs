//! Events: made in the transaction of what happened, and delivered to the webhook under the lease of
//! [`super::Job::DeliverEvents`].

use std::time::Duration;

use serde_json::json;

use super::WorkerLedger;
use super::delete_old_rows::{DELETE_LIMIT_ROWS, ended, seconds};
use super::jobs::{JobLease, hold, micros};
use crate::domain::{EventId, ItemId, Moment, Thresholds};
use crate::ledger::LedgerError;

/// The longest that an event waits for its next try.
pub const EVENT_LIMIT_WAIT: Duration = Duration::from_secs(60 * 60);
/// An event is given up if it is not delivered so long after its first try.
pub const EVENT_LIMIT_AGE: Duration = Duration::from_secs(3 * 24 * 60 * 60);
/// An event is given up when the webhook has refused it so often: by waits that double up to an hour, after some
/// two hours.
pub const EVENT_LIMIT_REFUSALS: i32 = 16;
/// How long a delivered event is kept.
pub const EVENT_DELIVERED_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a dead letter is kept.
pub const EVENT_DEAD_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The most polls whose final results one transaction reads.
const FINAL_LIMIT_POLLS: i32 = 100;
/// The most items that an event about an audit names.
const DRIFT_LIMIT_ITEMS: usize = 20;

/// An event that is to be delivered now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEvent {
    pub id: EventId,
    /// What the webhook calls it.
    pub message_id: String,
    pub kind: String,
    /// What it is about.
    pub subject: String,
    pub happened_at: Moment,
    /// A JSON object.
    pub data: String,
    /// How often it was sent without success.
    pub tries: u32,
}

/// How a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedDelivery {
    /// Whether the webhook answered with a status of 400 to 499 that a later try does not change by itself.
    pub is_refusal: bool,
    /// How long to wait for the next try.
    pub wait: Duration,
    pub problem: String,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFacts {
    pub waiting: i64,
    /// How long ago the oldest of them happened.
    pub oldest_waiting: Duration,
    /// Dead letters.
    pub dead: i64,
}

impl WorkerLedger {
    /// Notes that events are wanted, and at which counts of items.
    pub async fn want_events(&self, thresholds: &Thresholds) -> Result<(), LedgerError> {
        sqlx::query!("select want_events($1)", thresholds.as_slice())
            .execute(&self.database.pool)
            .await?;
        Ok(())
    }

    /// Makes the events of polls that have closed. Returns whether there may be more. Where the watermark stands far
    /// back, each reads many votes: if they take too long together, makes that of the first alone.
    ///
    /// # Errors
    /// When the lease is lost ([`Overtaken::LeaseLost`](crate::ledger::Overtaken::LeaseLost)).
    pub async fn make_poll_events(&self, lease: &JobLease) -> Result<bool, LedgerError> {
        match self.make_events_of_polls(lease, FINAL_LIMIT_POLLS).await {
            Err(error) if error.is_cancelled() => self.make_events_of_polls(lease, 1).await,
            made => made,
        }
    }

    async fn make_events_of_polls(&self, lease: &JobLease, polls: i32) -> Result<bool, LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let made = async {
            hold(&mut *transaction, lease).await?;
            let made = sqlx::query_scalar!("select note_poll_events($1)", polls)
                .fetch_one(&mut *transaction)
                .await?;
            Ok(made.is_none())
        };
        let made = made.await;
        transaction.end(made).await
    }

    /// Makes the event that an audit found wrong counts, if events are made.
    pub async fn make_drift_event(&self, items: &[ItemId], wrong_votes: u64) -> Result<(), LedgerError> {
        let named: Vec<i64> = items
            .iter()
            .take(DRIFT_LIMIT_ITEMS)
            .map(|item| item.get())
            .collect();
        let data = json!({ "wrong_items": items.len(), "wrong_votes": wrong_votes, "item_ids": named });
        sqlx::query_scalar!(
            "select note_event('audit.drift', 'audit', null, $1::text::jsonb)",
            data.to_string()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(())
    }

    /// The next events to deliver, at most `limit`, of different subjects.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn due_events(&self, lease: &JobLease, limit: i64) -> Result<Vec<DueEvent>, LedgerError> {
        lease.check()?;
        let rows = sqlx::query_file!(
            "src/ledger/sql/due_events.sql",
            limit,
            lease.number(),
            lease.holder(),
            micros(EVENT_LIMIT_WAIT)
        )
        .fetch_all(&self.database.pool)
        .await?;
        let events = rows.into_iter().map(|row| DueEvent {
            id: EventId(row.id),
            message_id: row.message_id,
            kind: row.kind,
            subject: row.subject,
            happened_at: Moment::from_micros(row.happened_at),
            data: row.data,
            tries: u32::try_from(row.tries).unwrap_or(0),
        });
        Ok(events.collect())
    }

    /// Notes that an event is delivered.
    ///
    /// # Errors
    /// When the lease is lost: the event will be delivered again.
    pub async fn note_delivered(&self, lease: &JobLease, event: EventId) -> Result<(), LedgerError> {
        let is_held = sqlx::query_scalar!(
            r#"with held as (
                   select from job where name = 'deliver_events' and fencing_number = $2 and holder = $3 for share
               ), delivered as (
                   update event set delivered_at = clock_timestamp(), dead_at = null, last_problem = null
                   where id = $1 and exists (select from held)
               )
               select exists (select from held) as "is_held!""#,
            event.0,
            lease.number(),
            lease.holder()
        )
        .fetch_one(&self.database.pool)
        .await?;
        if is_held { Ok(()) } else { Err(lease.lost()) }
    }

    /// Notes that an event was sent without success. Returns whether it is given up.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn note_failed_delivery(
        &self,
        lease: &JobLease,
        event: EventId,
        failed: &FailedDelivery,
    ) -> Result<bool, LedgerError> {
        let noted = sqlx::query_file!(
            "src/ledger/sql/note_failed_delivery.sql",
            event.0,
            lease.number(),
            lease.holder(),
            micros(failed.wait.min(EVENT_LIMIT_WAIT)),
            failed.is_refusal,
            EVENT_LIMIT_REFUSALS,
            micros(EVENT_LIMIT_AGE),
            failed.problem
        )
        .fetch_one(&self.database.pool)
        .await?;
        if noted.is_held {
            Ok(noted.is_dead)
        } else {
            Err(lease.lost())
        }
    }

    /// Deletes events that were delivered long ago, and old dead letters. Returns how many, and whether there may
    /// be more.
    ///
    /// # Errors
    /// When the lease is lost.
    pub async fn delete_old_events(&self, lease: &JobLease) -> Result<(i64, bool), LedgerError> {
        let deleted = sqlx::query_file!(
            "src/ledger/sql/delete_old_events.sql",
            seconds(EVENT_DELIVERED_AGE),
            seconds(EVENT_DEAD_AGE),
            DELETE_LIMIT_ROWS,
            lease.number(),
            lease.holder()
        )
        .fetch_one(&self.database.pool)
        .await?;
        let (total, _) = ended(lease, deleted.is_held, deleted.events)?;
        Ok((total, total >= DELETE_LIMIT_ROWS))
    }

    /// What waits, by Postgres' clock.
    pub async fn event_facts(&self) -> Result<EventFacts, LedgerError> {
        let row = sqlx::query!(
            r#"select (select count(*) from event where delivered_at is null and dead_at is null) as "waiting!",
                      (select (extract(epoch from clock_timestamp() - happened_at) * 1000000)::bigint
                       from event where delivered_at is null and dead_at is null
                       order by id limit 1) as oldest,
                      (select count(*) from event where dead_at is not null) as "dead!""#
        )
        .fetch_one(&self.database.pool)
        .await?;
        let oldest = u64::try_from(row.oldest.unwrap_or(0)).unwrap_or(0);
        Ok(EventFacts {
            waiting: row.waiting,
            oldest_waiting: Duration::from_micros(oldest),
            dead: row.dead,
        })
    }
}
