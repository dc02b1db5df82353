//! Sends events to the webhook: one worker at a time, several events at once, those about the same one after the
//! other. Beside everything else that a worker does: a webhook that hangs holds up no flush.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::webhook::{Delivery, Webhook};
use super::{SyncError, Worker};
use crate::ledger::{DueEvent, Job, JobLease, LedgerError};
use crate::telemetry::{name, trouble};

/// The most events of one round.
const ROUND_LIMIT_EVENTS: i64 = 100;
/// The most requests to the webhook at once.
const REQUESTS_LIMIT: usize = 8;
/// How often a worker looks for events.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a run of the job lasts, about: then the next worker may take its turn.
const RUN_LIMIT: Duration = Duration::from_secs(10);
/// After a look that took long, the worker rests this many times as long.
const REST_TIMES: u32 = 3;
/// An event that was read so long ago is not sent any more: another worker may have taken the job over.
pub(crate) const EVENT_SEND_LIMIT_AGE: Duration = Duration::from_secs(5);

impl Worker {
    /// Sends events again and again, until the worker stops. Waits for another worker that does it.
    pub(super) async fn keep_delivering(&self, webhook: &Webhook) {
        while !self.is_stopping() {
            let step = async {
                self.ledger.want_events(webhook.thresholds()).await?;
                self.show_events().await?;
                if let Some(run) = self.begin_job(Job::DeliverEvents).await? {
                    run.end_with(self.deliver_under(run.lease(), webhook)).await?;
                }
                Ok::<(), SyncError>(())
            };
            if let Err(error) = step.await {
                trouble!(warn, %error; "events are not delivered; trying again");
            }
            sleep(LOOK_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
        }
    }

    /// Makes the events of polls that have closed, and delivers what is due, until nothing is. For tests.
    /// Returns how many were delivered.
    ///
    /// # Errors
    /// When another worker does not end its delivery in time.
    pub async fn deliver_events(&self, webhook: &Webhook) -> Result<usize, SyncError> {
        self.ledger.want_events(webhook.thresholds()).await?;
        let run = self.begin_job_when_free(Job::DeliverEvents).await?;
        let delivering = async {
            let mut delivered = 0;
            loop {
                let round = self.round(run.lease(), webhook).await?;
                delivered += round.delivered;
                if round.sent == 0 {
                    return Ok((delivered, json!({ "delivered": delivered })));
                }
            }
        };
        run.end_with(delivering).await
    }

    /// Shows what waits.
    async fn show_events(&self) -> Result<(), SyncError> {
        let facts = self.ledger.event_facts().await?;
        metrics::gauge!(name::EVENTS_WAITING).set(facts.waiting as f64);
        metrics::gauge!(name::EVENTS_OLDEST_SECONDS).set(facts.oldest_waiting.as_secs_f64());
        metrics::gauge!(name::EVENTS_DEAD).set(facts.dead as f64);
        Ok(())
    }

    async fn deliver_under(&self, lease: &JobLease, webhook: &Webhook) -> Result<((), Value), SyncError> {
        let began = Instant::now();
        let (mut delivered, mut failed) = (0, 0);
        while began.elapsed() < RUN_LIMIT && !self.is_stopping() {
            let started = Instant::now();
            let round = self.round(lease, webhook).await?;
            delivered += round.delivered;
            failed += round.sent - round.delivered;
            if round.sent == 0 {
                sleep(LOOK_EVERY.max(started.elapsed() * REST_TIMES)).await;
            }
        }
        let mut deleted = 0;
        loop {
            let started = Instant::now();
            let (events, is_more) = self.ledger.delete_old_events(lease).await?;
            deleted += events;
            if !is_more || self.is_stopping() {
                break;
            }
            sleep(started.elapsed() * REST_TIMES).await;
        }
        let details = json!({ "delivered": delivered, "failed": failed, "deleted": deleted });
        Ok(((), details))
    }

    /// Makes events of polls, and sends what is due, once.
    async fn round(&self, lease: &JobLease, webhook: &Webhook) -> Result<Round, SyncError> {
        match self.ledger.make_poll_events(lease).await {
            Ok(_) => {}
            Err(error) if error.is_lock_timeout() => {
                trouble!(warn, %error; "the final results of polls wait for a lock");
            }
            Err(error) if error.is_cancelled() => {
                trouble!(warn, %error; "a final result of a poll takes too long; other events are sent");
            }
            Err(error) => return Err(error.into()),
        }
        let limit = webhook.may_send(ROUND_LIMIT_EVENTS);
        if limit == 0 {
            return Ok(Round::default());
        }
        let read_at = Instant::now();
        // One connection at a time: someone's lock on events leaves the others to flushes.
        let noting = Mutex::new(());
        let due = self.ledger.due_events(lease, limit).await?;
        let sending: Vec<_> = due
            .iter()
            .map(|event| self.deliver_event(lease, webhook, event, read_at, &noting))
            .collect();
        let ended: Vec<Result<Option<Delivery>, LedgerError>> = stream::iter(sending)
            .buffer_unordered(REQUESTS_LIMIT)
            .collect()
            .await;
        let ended: Result<Vec<Option<Delivery>>, LedgerError> = ended.into_iter().collect();
        let round: Vec<Delivery> = ended?.into_iter().flatten().collect();
        webhook.note_round(&round);
        Ok(Round {
            sent: round.len(),
            delivered: round.iter().filter(|one| **one == Delivery::Delivered).count(),
        })
    }

    /// Sends one event, and notes how that ended. `None`: it is too late to send it.
    async fn deliver_event(
        &self,
        lease: &JobLease,
        webhook: &Webhook,
        event: &DueEvent,
        read_at: Instant,
        noting: &Mutex<()>,
    ) -> Result<Option<Delivery>, LedgerError> {
        lease.check()?;
        if read_at.elapsed() >= EVENT_SEND_LIMIT_AGE || self.is_stopping() {
            return Ok(None);
        }
        let delivery = webhook.deliver(event).await;
        let _noting = noting.lock().await;
        let outcome = match &delivery {
            Delivery::Delivered => {
                self.ledger.note_delivered(lease, event.id).await?;
                "delivered"
            }
            Delivery::Failed(failed) => {
                let is_dead = self.ledger.note_failed_delivery(lease, event.id, failed).await?;
                if is_dead {
                    tracing::error!(
                        event = %event.id, kind = event.kind, subject = event.subject, problem = failed.problem,
                        "an event is given up; tally event resend has it delivered again"
                    );
                } else {
                    trouble!(warn, %failed.problem; "an event is not delivered; trying again");
                }
                if failed.is_refusal { "refused" } else { "failed" }
            }
        };
        metrics::counter!(name::EVENT_DELIVERIES, "outcome" => outcome).increment(1);
        Ok(Some(delivery))
    }
}

/// What one round did.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    sent: usize,
    delivered: usize,
}
