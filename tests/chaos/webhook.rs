//! A receiver of the workers' events, which fails some. Each event that is in the ledger at the end, it must have
//! taken, and those about the same in their order; and there must be an event of all that the ledger says has
//! happened.

use std::collections::HashMap;

use sqlx::PgPool;
use testkit::receiver::{Answer, Receiver};
use tokio::time::{Instant, sleep};

use crate::quiescence::{LOOK_EVERY, QUIESCENCE_LIMIT};

/// The key of the workers' signatures.
const KEY: &str = "1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100";
/// Counts that many items reach in a round.
const THRESHOLDS: &str = "1,5,20,100,500,2000";
/// One delivery in so many fails.
const FAILS: usize = 6;
/// The most problems that are reported.
const SHOWN: usize = 10;

/// Events that are not delivered, and what has happened, as the ledger says, without one.
const MISSING: &str = "
    select format('event %s about %s is not delivered: %s', id, subject, last_problem) from event
    where delivered_at is null
    union all
    select format('there is no event that item %s reached %s', item_id, threshold)
    from audited_count, (select unnest(thresholds) as threshold from outbox) as wanted
    where vote_count >= threshold
      and not exists (select from event where once_key = 'item.threshold:' || item_id || ':' || threshold)
      and not exists (select from item join rule on rule.id = item.rule_id where item.id = item_id and not rule.shows_results)
    union all
    select format('there is no event that item %s is full', item_id) from place
    where taken >= max_votes
      and not exists (select from event where kind = 'item.full' and subject = 'item:' || item_id)
    union all
    select format('there is no event that voiding %s is done', voiding.id) from voiding
    where done_vote_id >= until_vote_id
      and not exists (select from event where once_key = 'voiding.done:' || voiding.id)
    union all
    select format('there is no event that poll %s is final', rule.id) from rule
    where title is not null and closes_at between (select since from outbox) and clock_timestamp()
      and not exists (select from event where once_key = 'poll.final:' || rule.id)";

/// The receiver of a round.
pub struct Webhook(Receiver);

impl Webhook {
    /// Starts one.
    pub async fn start() -> Self {
        let receiver = Receiver::answering(|_, before| match before.len() % (2 * FAILS) {
            0 => Answer::Status(503, String::new()),
            FAILS => Answer::Status(409, String::new()),
            _ => Answer::ok(),
        });
        Self(receiver.await)
    }

    /// The workers' settings.
    pub fn settings(&self) -> [(&'static str, String); 3] {
        [
            ("TALLY_WEBHOOK_URL", self.0.url.clone()),
            ("TALLY_WEBHOOK_KEYS", KEY.to_owned()),
            ("TALLY_WEBHOOK_THRESHOLDS", THRESHOLDS.to_owned()),
        ]
    }

    /// How many deliveries there were.
    pub fn deliveries(&self) -> u64 {
        self.0.deliveries().len() as u64
    }

    /// Switches events on, before anything happens.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn want_events(owner: &PgPool) -> anyhow::Result<()> {
        sqlx::raw_sql(&format!("select want_events('{{{THRESHOLDS}}}')"))
            .execute(owner)
            .await?;
        Ok(())
    }

    /// Waits until there is an event of everything, and all are delivered; then judges the order.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(&self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let deadline = Instant::now() + QUIESCENCE_LIMIT;
        loop {
            let mut missing: Vec<String> = sqlx::query_scalar(MISSING).fetch_all(owner).await?;
            if missing.is_empty() {
                return self.wrong_order(owner).await;
            }
            if Instant::now() > deadline {
                missing.truncate(SHOWN);
                return Ok(missing);
            }
            // Waits are up to an hour.
            sqlx::query("update event set next_try_at = clock_timestamp() where delivered_at is null")
                .execute(owner)
                .await?;
            sleep(LOOK_EVERY).await;
        }
    }

    /// Events that were never taken, or before an earlier one about the same.
    async fn wrong_order(&self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        // When each was first taken.
        let mut taken: HashMap<String, usize> = HashMap::new();
        for (at, delivery) in self.0.deliveries().iter().enumerate() {
            if delivery.is_taken {
                taken.entry(delivery.id().to_owned()).or_insert(at);
            }
        }
        // Polls may close after all was delivered: their events are under way.
        let events: Vec<(i64, String, String)> = sqlx::query_as(
            "select id, message_id, subject from event where delivered_at is not null order by id",
        )
        .fetch_all(owner)
        .await?;
        let mut last: HashMap<&str, usize> = HashMap::new();
        for (id, message, subject) in &events {
            let Some(at) = taken.get(message) else {
                problems.push(format!("event {id} about {subject} was never taken"));
                continue;
            };
            if last.insert(subject, *at).is_some_and(|before| before > *at) {
                problems.push(format!(
                    "event {id} about {subject} was taken before an earlier one"
                ));
            }
        }
        if events.is_empty() {
            problems.push("there is no event".to_owned());
        }
        problems.truncate(SHOWN);
        Ok(problems)
    }
}
