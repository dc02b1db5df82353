//! A Redis behind an address that comes to lead new connections elsewhere, while old ones stay.

use tally::app::{self, StoreUrls};
use tally::dev::PrivateSentinels;
use tally::domain::{ItemId, VoteSource};
use tally::ledger::Role;
use tally::live::{LiveCounts, SUSPECTS_LIMIT_ITEMS, Seeding};
use tally::sync::Worker;
use tally::votes::ProgressNotes;
use testkit::proxy::Proxy;
use testkit::stores::Watched;

use super::sentinels::send;
use crate::helpers::eventually;
use crate::helpers::stores::{Stores, worker_is_alive};
use crate::helpers::tally::{Tally, connected, logins, options, owner, redis, vote, vote_queue};

/// A proxy stands before two Redis, and programs find theirs through it. A worker has entered the first one.
struct TwoRedis {
    tally: Tally,
    watched: Watched,
    proxy: Proxy,
    item: ItemId,
}

impl TwoRedis {
    async fn start() -> Self {
        let (stores, watched) = Stores::start().await.watched().await;
        for sentinel in 0..PrivateSentinels::NUMBER {
            watched.sentinels.pause(sentinel).expect("Sentinel runs");
        }
        let proxy = Proxy::start(stores.redis.port()).await.expect("a proxy");
        let (old, led) = (stores.redis.port(), proxy.port());
        let tally = Tally::start_at(stores, |_, urls| at_port(&urls, old, led), |_| {}).await;
        let item = tally.item("x").await;
        tally.worker().enter_epoch().await.expect("the stores answer");
        Self {
            tally,
            watched,
            proxy,
            item,
        }
    }

    /// How a program with this role finds the Redis at this port.
    fn urls(&self, role: Role, port: u16) -> StoreUrls {
        at_port(
            &logins(&self.tally.stores, role),
            self.tally.stores.redis.port(),
            port,
        )
    }

    /// From now on new connections lead to the second Redis, and a worker has entered it. Returns the worker, and the
    /// address of a server that counts there.
    async fn lead_new_ones_on(&self) -> (Worker, String) {
        let promoted = &self.watched.replicas[0];
        send(&promoted.url(), &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
        send(&promoted.url(), &["REPLICAOF", "NO", "ONE"]).await;
        self.proxy.point_new_to(promoted.port());
        let urls = |role| self.urls(role, promoted.port());
        let worker = app::worker(&urls(Role::Worker), options(), "test worker").expect("URLs");
        let follower = self.tally.another_server_at(urls).await;
        eventually("the epoch of the second Redis is entered", async || {
            worker.enter_epoch().await.ok().flatten()
        })
        .await;
        (worker, follower)
    }
}

fn at_port(urls: &StoreUrls, from: u16, to: u16) -> StoreUrls {
    let (from, to) = (format!(":{from}/"), format!(":{to}/"));
    StoreUrls {
        redis_url: urls.redis_url.as_str().replace(&from, &to).into(),
        ..urls.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_connections_stay_with_an_old_redis_makes_new_ones_once_a_worker_is_alive() {
    let two = TwoRedis::start().await;
    let (tally, item) = (&two.tally, two.item);
    assert_eq!(tally.add(item, 1).await, Some(1));
    let (worker, follower) = two.lead_new_ones_on().await;
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(2));
    assert_eq!(tally.add(item, 1).await, Some(2), "it counts in the old one");
    worker_is_alive(&tally.pool).await;
    let mut votes = 3;
    eventually("both count in the same one", async || {
        worker.recover_crashed_writers().await.ok()?;
        votes += 2;
        tally.add_at(&follower, item, 1).await;
        (tally.add(item, 1).await == Some(votes)).then_some(())
    })
    .await;
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(votes + 1));
}

/// They stay where they were counted, when the connections are made anew.
#[tokio::test(flavor = "multi_thread")]
async fn votes_that_were_counted_over_connections_to_an_old_redis_are_left_to_recovery() {
    let two = TwoRedis::start().await;
    let (tally, item) = (&two.tally, two.item);
    let url = two.urls(Role::Server, two.proxy.port()).redis_url;
    let live_counts = LiveCounts::open(
        owner(&tally.server_ledger),
        redis(url.as_str()),
        SUSPECTS_LIMIT_ITEMS,
        Seeding::All,
    );
    let live_counts = connected(live_counts).await;
    let queue = vote_queue(tally, &live_counts);
    let cast = async || {
        let cast = queue.cast(vote(item, None), VoteSource::default()).await;
        cast.expect("a vote");
    };
    // The highest id that is noted, but for those of the other server.
    let mut others: Vec<String> = Vec::new();
    let noted = async |others: &[String]| -> i64 {
        sqlx::query_scalar("select max(counted_vote_id) from writer_connection where name <> all($1)")
            .bind(others)
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers")
    };
    let mut progress = ProgressNotes::new(tally.server_ledger.clone(), live_counts.clone());
    cast().await;
    progress.note().await.expect("the stores answer");
    assert_eq!(noted(&others).await, 1);
    let (worker, follower) = two.lead_new_ones_on().await;
    let own = "select array_agg(name) from writer_connection";
    let own: Vec<String> = sqlx::query_scalar(own)
        .fetch_one(&tally.pool)
        .await
        .expect("names");
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(2));
    others = sqlx::query_scalar("select array_agg(name) from writer_connection where name <> all($1)")
        .bind(&own)
        .fetch_one(&tally.pool)
        .await
        .expect("the other server's names");
    cast().await;
    for _ in 0..2 {
        progress.note().await.expect("the stores answer");
        assert!(
            live_counts.answers(),
            "no worker is alive who says where the counts are"
        );
        assert!(
            noted(&others).await < 3,
            "the third vote is counted in the old one"
        );
    }
    worker_is_alive(&tally.pool).await;
    progress.note().await.expect("the stores answer");
    assert!(noted(&others).await < 3);
    let mut votes = 3;
    eventually("votes are noted again", async || {
        votes += 1;
        cast().await;
        progress.note().await.ok()?;
        (noted(&others).await == votes).then_some(())
    })
    .await;
    eventually("all votes are saved", async || {
        worker.recover_crashed_writers().await.ok()?;
        worker.flush().await.ok()?;
        (tally.saved_count(item).await == votes).then_some(())
    })
    .await;
}
