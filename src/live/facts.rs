//! What an installation's Redis is like, for `tally doctor`.

use futures_util::future::join_all;
use redis::InfoDict;

use super::any_connection::AnyConnection;
use super::cluster::OwnSlots;
use super::{LiveError, Redis};
use crate::domain::Moment;

/// What INFO says of a Redis, or of a primary of a Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisFacts {
    /// Where it is; `None`: where the URL says, or Sentinels.
    pub place: Option<String>,
    pub version: String,
    /// `master` or `slave`.
    pub role: String,
    /// Whether a replica reaches its primary.
    pub has_link: bool,
    pub replicas: u64,
    /// Whether Sentinels say that it is the primary.
    pub is_followed: bool,
    /// Whether it takes writes only while replicas follow it (`min-replicas-to-write`).
    pub needs_replicas: bool,
    /// Whether it is a node of a Redis Cluster.
    pub is_cluster: bool,
    /// Whether the URL says so.
    pub is_cluster_url: bool,
    /// Of Tally's slots in a Cluster, those that this node is handing over to another one.
    pub leaving_buckets: usize,
    pub used_bytes: u64,
    /// 0: no limit.
    pub limit_bytes: u64,
    pub policy: String,
    pub evicted_keys: u64,
    /// Whether the last snapshot and the last write of the append-only file went well.
    pub saves: bool,
    pub is_loading: bool,
    /// Whether this login is `default`, who may do everything.
    pub is_default_login: bool,
    /// Whether Redis lets in whoever reaches it.
    pub asks_no_password: bool,
    /// Whether this connection crosses a network in plain text.
    pub is_plain: bool,
    pub clients: u64,
    pub clients_limit: u64,
    pub now: Moment,
}

impl Redis {
    /// What INFO and TIME say; of a Cluster, what each primary says.
    ///
    /// # Errors
    /// When Redis is unavailable, or this login may not ask. Each node of a Cluster has its own.
    pub async fn facts(&self) -> Result<Vec<Result<RedisFacts, LiveError>>, LiveError> {
        let primaries = self.primaries().await?;
        let asked = primaries.iter().map(|buckets| async {
            let place = self.place(buckets[0]);
            let facts = async { self.facts_of(self.get(buckets[0]).await?, place.clone()).await };
            facts.await.map_err(|why| match place.clone() {
                Some(at) => LiveError::Node {
                    at,
                    why: Box::new(why),
                },
                None => why,
            })
        });
        Ok(join_all(asked).await)
    }

    async fn facts_of(
        &self,
        mut connection: AnyConnection,
        place: Option<String>,
    ) -> Result<RedisFacts, LiveError> {
        let info: InfoDict = redis::cmd("INFO").query_async(&mut connection).await?;
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut connection).await?;
        let leaving_buckets = if self.is_cluster() {
            let own = OwnSlots::ask(&mut connection).await?;
            self.buckets().filter(|bucket| own.is_leaving(*bucket)).count()
        } else {
            0
        };
        let text = |name: &str| info.get::<String>(name);
        let number = |name: &str| info.get::<u64>(name).unwrap_or_default();
        let is = |name: &str, good: &str| text(name).is_none_or(|value| value == good);
        Ok(RedisFacts {
            place,
            version: text("redis_version").unwrap_or_default(),
            role: text("role").unwrap_or_default(),
            has_link: is("master_link_status", "up"),
            replicas: number("connected_slaves"),
            is_followed: self.has_sentinels(),
            // It is there only while the setting is above 0.
            needs_replicas: text("min_slaves_good_slaves").is_some(),
            is_cluster: number("cluster_enabled") == 1,
            is_cluster_url: self.is_cluster(),
            leaving_buckets,
            used_bytes: number("used_memory"),
            limit_bytes: number("maxmemory"),
            policy: text("maxmemory_policy").unwrap_or_default(),
            evicted_keys: number("evicted_keys"),
            saves: is("rdb_last_bgsave_status", "ok") && is("aof_last_write_status", "ok"),
            is_loading: number("loading") == 1,
            is_default_login: self.is_default_login(),
            asks_no_password: self.asks_no_password(),
            is_plain: self.is_plain(),
            clients: number("connected_clients"),
            clients_limit: number("maxclients"),
            now: Moment::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)),
        })
    }
}
