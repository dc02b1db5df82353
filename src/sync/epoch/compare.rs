//! How the epoch of each bucket in Redis stands beside what Postgres notes.

use tokio::time::{Instant, sleep};

use super::entry::Entering;
use super::seen::{InRedis, OtherWorkers, Standing};
use super::{ELSEWHERE_LOOK_EVERY, ELSEWHERE_WAIT};
use crate::ledger::{EpochNumber, LedgerError, NotedEntries, Overtaken};
use crate::live::{Bucket, BucketEpoch, Epochs};
use crate::sync::{SyncError, Worker};

/// The layout of counters: their keys and format. Another layout is another epoch, so Tally does
/// not read what an older version left in Redis.
const COUNTER_LAYOUT: u32 = 5;
/// How often the number of the epoch is read, while others enter epochs.
const EPOCH_NUMBER_LIMIT_LOOKS: u32 = 3;

/// What a worker finds when it looks at the epochs of all buckets.
pub(super) struct Looked {
    /// The buckets whose epoch is entered.
    pub entered: Vec<Bucket>,
    pub stale: Vec<Entering>,
    /// Why others cannot be looked at.
    pub failure: Option<SyncError>,
}

fn in_redis<'a>(one: &'a BucketEpoch, current: &str) -> InRedis<'a> {
    InRedis {
        bucket: one.bucket,
        redis: &one.current,
        known: one.known.as_deref(),
        is_current: one
            .known
            .as_deref()
            .and_then(|known| known.split_once(':'))
            .is_some_and(|(_, epoch)| epoch == current),
    }
}

impl Worker {
    /// Whether the counts are in this Redis. Waits for workers that are about to enter its epoch.
    ///
    /// # Errors
    /// [`SyncError::Elsewhere`]; and when a store is unavailable.
    pub(in crate::sync) async fn look_at_place(&self) -> Result<(), SyncError> {
        let deadline = Instant::now() + ELSEWHERE_WAIT;
        loop {
            self.compare_epochs().await?;
            match self.seen_entries.check_place() {
                Err(_) if Instant::now() < deadline => sleep(ELSEWHERE_LOOK_EVERY).await,
                place => return place,
            }
        }
    }

    pub(super) async fn compare_epochs(&self) -> Result<Looked, SyncError> {
        let bucket_count = self.counters.redis().bucket_count();
        // Before Redis: an entry is made there first.
        let noted = self.ledger.noted_entries(bucket_count).await?;
        let Epochs { buckets, mut failure } = self.counters.epochs().await?;
        let postgres = self.ledger.incarnation().await?;
        let mut looked = Looked {
            entered: Vec::new(),
            stale: Vec::new(),
            failure: None,
        };
        let mut decided: Option<NotedEntries> = None;
        let mut others = None;
        let reached: Vec<Bucket> = buckets
            .iter()
            .filter(|one| !one.is_moving)
            .map(|one| one.bucket)
            .collect();
        self.seen_entries.look_at(&reached);
        for one in buckets {
            let current = format!("{COUNTER_LAYOUT}:{}:{postgres}", one.current);
            if one.is_moving {
                // Counters that are elsewhere may come back, without the key of their epoch.
                if one.known.is_some()
                    && let Err(error) = self.counters.forget_epoch(one.bucket).await
                {
                    failure = failure.or(Some(error));
                }
                continue;
            }
            let in_redis = in_redis(&one, &current);
            let stand =
                |noted: &NotedEntries, others| self.seen_entries.stand(noted, &postgres, in_redis, others);
            let mut standing = stand(decided.as_ref().unwrap_or(&noted), OtherWorkers::MayBeAlive);
            if standing != Standing::Entered && in_redis.is_current && decided.is_none() {
                // Another worker may be about to note it.
                let entries = self.ledger.decided_entries(bucket_count).await?;
                let noted = decided.insert(NotedEntries {
                    entries,
                    ..noted.clone()
                });
                standing = stand(noted, OtherWorkers::MayBeAlive);
            }
            if standing == Standing::Elsewhere {
                let others = match others {
                    Some(others) => others,
                    None => *others.insert(self.other_workers().await),
                };
                standing = stand(decided.as_ref().unwrap_or(&noted), others);
            }
            match standing {
                Standing::Entered => looked.entered.push(one.bucket),
                Standing::Stale => looked.stale.push(Entering {
                    bucket: one.bucket,
                    is_new: one.known.is_none(),
                    redis: one.current,
                    current,
                }),
                Standing::Elsewhere => looked.failure = Some(SyncError::Elsewhere),
            }
        }
        looked.failure = looked.failure.or(failure.map(SyncError::from));
        Ok(looked)
    }

    async fn other_workers(&self) -> OtherWorkers {
        match self.ledger.has_other_workers().await {
            Ok(false) => OtherWorkers::AreGone,
            Ok(true) | Err(_) => OtherWorkers::MayBeAlive,
        }
    }

    /// The number of the epoch in which this worker may save counts. Read it before the counters: nothing is written
    /// under it once another epoch has begun, or another worker has begun to enter one in another Redis.
    ///
    /// # Errors
    /// [`SyncError::Elsewhere`]; and when a store is unavailable.
    pub(in crate::sync) async fn epoch_number(&self) -> Result<EpochNumber, SyncError> {
        for _ in 0..EPOCH_NUMBER_LIMIT_LOOKS {
            let noted = self
                .ledger
                .noted_entries(self.counters.redis().bucket_count())
                .await?;
            if self.seen_entries.are_last(&noted) != Some(false) {
                self.seen_entries.check_place()?;
                return Ok(noted.number);
            }
            self.compare_epochs().await?;
        }
        Err(LedgerError::Overtaken(Overtaken::EpochEnded).into())
    }
}
