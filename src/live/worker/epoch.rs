//! The epoch: whether Redis still has the data that was written to it. Each bucket has its own: in a Redis Cluster it
//! goes from node to node with its counters.

use std::time::Duration;

use futures_util::future::join_all;
use redis::{InfoDict, RedisError};

use super::Counters;
use crate::domain::ItemId;
use crate::live::LiveError;
use crate::live::buckets::Bucket;
use crate::live::cluster::OwnSlots;
use crate::live::scripts::{self, fresh_token, text};

/// The epoch of a bucket, and the one that a worker entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEpoch {
    pub bucket: Bucket,
    /// Which run of which Redis has the bucket: `<run_id>:<master_replid>`. The first part changes when
    /// Redis restarts, the second when it fails over, both when the bucket moves to another node. A third part, if there
    /// is one, changes when a server comes from an old primary to this one: what it counted there until then is missing
    /// here.
    pub current: String,
    /// The epoch that a worker entered last; `None`: Redis is new or has lost its data.
    pub known: Option<String>,
    /// Whether its node is handing the bucket over to another one, or another one takes it over. Until that is done, some
    /// of its keys are elsewhere, and may come back.
    pub is_moving: bool,
}

/// A part of a scan over all counters: a primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPart {
    /// The bucket that names it to [`Counters::scan`].
    pub begin: Bucket,
    /// Of the buckets that are wanted, those that it has.
    pub buckets: Vec<Bucket>,
    /// The number of its Redis. Once that is another one, the rest of the scan is of another Redis.
    pub at: u64,
}

/// The epochs of all buckets that can be reached.
#[derive(Debug)]
pub struct Epochs {
    pub buckets: Vec<BucketEpoch>,
    /// Why others cannot.
    pub failure: Option<LiveError>,
}

impl Epochs {
    /// Those of all buckets.
    ///
    /// # Errors
    /// When one cannot be reached.
    pub fn all(self) -> Result<Vec<BucketEpoch>, LiveError> {
        match self.failure {
            Some(error) => Err(error),
            None => Ok(self.buckets),
        }
    }
}

/// What a primary says of itself.
struct Identity {
    /// `<run_id>:<master_replid>`
    name: String,
    /// What it says of its slots; `None`: it is no node of a Cluster.
    slots: Option<OwnSlots>,
}

impl Counters {
    /// The epochs of all buckets.
    ///
    /// # Errors
    /// When none can be reached, or Redis hides its identity. There is no substitute: nothing else
    /// changes with every restart and every failover.
    pub async fn epochs(&self) -> Result<Epochs, LiveError> {
        let primaries = self.redis.primaries().await?;
        let arriving = self.redis.arriving().await;
        let mut epochs = Epochs {
            buckets: Vec::new(),
            failure: None,
        };
        for found in join_all(primaries.iter().map(|buckets| self.epochs_of(buckets, &arriving))).await {
            match found {
                Ok(buckets) => epochs.buckets.extend(buckets),
                // With the certificate or the login of one node something else may be wrong than with the others'.
                Err(error @ LiveError::NoIdentity(_)) => return Err(error),
                Err(error) => epochs.failure = epochs.failure.or(Some(error)),
            }
        }
        if epochs.buckets.is_empty() {
            return Err(epochs.failure.unwrap_or(LiveError::Unavailable));
        }
        if epochs.failure.is_none() && epochs.buckets.len() < self.redis.buckets().len() {
            epochs.failure = Some(LiveError::Moving);
        }
        Ok(epochs)
    }

    /// The epochs of buckets that one primary has. Without those that it says it has not.
    async fn epochs_of(
        &self,
        buckets: &[Bucket],
        arriving: &[Bucket],
    ) -> Result<Vec<BucketEpoch>, LiveError> {
        let identity = self.identity(buckets[0]).await?;
        let is_there = |bucket: Bucket| identity.slots.as_ref().is_none_or(|own| own.has(bucket));
        let there: Vec<Bucket> = buckets
            .iter()
            .copied()
            .filter(|bucket| is_there(*bucket))
            .collect();
        let keys = self.redis.keys();
        let looks = there.into_iter().map(|bucket| {
            let identity = &identity;
            async move {
                let current = match self.read_token(bucket, keys.moved(bucket)).await? {
                    Some(moved) => format!("{}:{moved}", identity.name),
                    None => identity.name.clone(),
                };
                Ok(BucketEpoch {
                    bucket,
                    current,
                    known: self.read_token(bucket, keys.epoch(bucket)).await?,
                    is_moving: arriving.contains(&bucket)
                        || identity.slots.as_ref().is_some_and(|own| own.is_leaving(bucket)),
                })
            }
        });
        join_all(looks).await.into_iter().collect()
    }

    async fn identity(&self, bucket: Bucket) -> Result<Identity, LiveError> {
        let mut connection = self.redis.get(bucket).await?;
        let server: InfoDict = redis::cmd("INFO")
            .arg("server")
            .query_async(&mut connection)
            .await?;
        let replication: InfoDict = redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await?;
        let part = |info: &InfoDict, name: &'static str| {
            info.get::<String>(name)
                .filter(|value| !value.is_empty())
                .ok_or(LiveError::NoIdentity(name))
        };
        let run_id = part(&server, "run_id")?;
        let replication_id = part(&replication, "master_replid")?;
        let slots = match self.redis.buckets().len() {
            1 => None,
            _ => Some(OwnSlots::ask(&mut connection).await?),
        };
        Ok(Identity {
            name: format!("{run_id}:{replication_id}"),
            slots,
        })
    }

    /// Forgets the epoch that a worker entered: it has to be entered again.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn forget_epoch(&self, bucket: Bucket) -> Result<(), LiveError> {
        self.delete(bucket, &self.redis.keys().epoch(bucket)).await
    }

    async fn delete(&self, bucket: Bucket, key: &str) -> Result<(), LiveError> {
        let mut connection = self.redis.get(bucket).await?;
        let mut delete = redis::cmd("DEL");
        delete.arg(key);
        Ok(delete.exec_async(&mut connection).await?)
    }

    /// The item's bucket.
    pub fn bucket_of(&self, item: ItemId) -> Bucket {
        self.redis.keys().bucket_of(item)
    }

    /// Whether the item is of one of these buckets.
    pub fn is_among(&self, item: ItemId, buckets: &[Bucket]) -> bool {
        buckets.contains(&self.bucket_of(item))
    }

    /// The parts of a scan over all counters of these buckets.
    ///
    /// # Errors
    /// When the nodes are not known.
    pub async fn parts_with(&self, buckets: &[Bucket]) -> Result<Vec<ScanPart>, LiveError> {
        let mut parts = Vec::new();
        for primary in self.redis.primaries().await? {
            let begin = primary[0];
            let of_these = primary.into_iter().filter(|bucket| buckets.contains(bucket));
            let of_these: Vec<Bucket> = of_these.collect();
            if !of_these.is_empty() {
                parts.push(ScanPart {
                    begin,
                    at: self.redis.number(begin).await?,
                    buckets: of_these,
                });
            }
        }
        Ok(parts)
    }

    /// Which items are of these buckets: those whose ids have one of these remainders when divided by this number.
    pub fn items_of(&self, buckets: &[Bucket]) -> (i64, Vec<i64>) {
        let remainders = buckets.iter().map(|bucket| bucket.index() as i64);
        (self.redis.buckets().len() as i64, remainders.collect())
    }

    async fn read_token(&self, bucket: Bucket, key: String) -> Result<Option<String>, LiveError> {
        let mut connection = self.redis.get(bucket).await?;
        let read: Result<Option<String>, RedisError> =
            redis::cmd("GET").arg(key).query_async(&mut connection).await;
        match read {
            // Someone has put another type there, which is no token. The next one replaces it.
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(None),
            read => Ok(read?),
        }
    }

    /// Sets a mark before the worker looks at the first counter. If Redis loses its data, it loses
    /// the mark too: see [`Counters::enter_epoch`].
    pub async fn begin_epoch(&self, bucket: Bucket) -> Result<EpochEntry, LiveError> {
        let mark = self.redis.keys().entering(bucket, &fresh_token());
        let mut connection = self.redis.get(bucket).await?;
        redis::cmd("SET")
            .arg(&mark)
            .arg("")
            .arg("EX")
            .arg(ENTERING_LIMIT.as_secs())
            .exec_async(&mut connection)
            .await?;
        Ok(EpochEntry { bucket, mark })
    }

    /// Whether Redis still has the mark: it has lost nothing since.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn has_mark(&self, entering: &EpochEntry) -> Result<bool, LiveError> {
        let mark = self.read_token(entering.bucket, entering.mark.clone()).await?;
        Ok(mark.is_some())
    }

    /// Removes the mark of an entry that is given up.
    ///
    /// # Errors
    /// When Redis is unavailable.
    pub async fn remove_mark(&self, entering: &EpochEntry) -> Result<(), LiveError> {
        self.delete(entering.bucket, &entering.mark).await
    }

    /// Notes this epoch as the known one, after the worker went through every counter of the bucket. Returns
    /// `false` and notes nothing if Redis was wiped since [`Counters::begin_epoch`]. A wipe changes
    /// neither `run_id` nor `master_replid`.
    pub async fn enter_epoch(&self, epoch: &str, entering: EpochEntry) -> Result<bool, LiveError> {
        let EpochEntry { bucket, mark } = entering;
        let mut connection = self.redis.get(bucket).await?;
        let reply = scripts::ENTER_EPOCH
            .call_once(&mut connection, &[&self.redis.keys().epoch(bucket), &mark], epoch)
            .await?;
        match text(&reply) {
            Some("ENTERED") => Ok(true),
            Some("LOST") => Ok(false),
            _ => Err(scripts::ENTER_EPOCH.unexpected(reply)),
        }
    }
}

/// The mark in Redis of a worker that is entering an epoch.
#[derive(Debug)]
pub struct EpochEntry {
    bucket: Bucket,
    mark: String,
}

impl EpochEntry {
    /// Its key, which no other entry has.
    pub fn mark(&self) -> &str {
        &self.mark
    }
}

/// How long entering an epoch may take. Then Redis removes the mark, for example that of a worker
/// that died.
const ENTERING_LIMIT: Duration = Duration::from_secs(24 * 3600);
