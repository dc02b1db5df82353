//! A Redis that Sentinels watch: which one is the primary, and what becomes of counts when it changes.

use reqwest::StatusCode;
use tally::app::{self, StoreUrls};
use tally::dev::PrivateSentinels;
use tally::domain::{ItemId, VoteSource};
use tally::ledger::Role;
use tally::live::{KeyPrefix, LiveCounts, SUSPECTS_LIMIT_ITEMS, Seeding};
use tally::sync::Worker;
use testkit::stores::{Watched, is_valkey, redis_connection};

use super::starts::assert_refuses;
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY};
use crate::helpers::stores::{Stores, worker_is_alive};
use crate::helpers::tally::{Tally, connected, logins, owner, redis, vote, vote_queue};

/// A Tally whose worker asks all Sentinels, and whose server asks these.
async fn watched(server_asks: std::ops::Range<usize>) -> (Tally, Watched) {
    let (stores, watched) = Stores::start().await.watched().await;
    let leads = |role, urls: StoreUrls| StoreUrls {
        redis_url: match role {
            Role::Server => watched
                .sentinels
                .url_of(server_asks.clone(), urls.redis_url.as_str()),
            _ => watched.sentinels.url(urls.redis_url.as_str()),
        }
        .into(),
        ..urls
    };
    let tally = Tally::start_at(stores, leads, |_| {}).await;
    (tally, watched)
}

pub(super) async fn send(url: &str, words: &[&str]) {
    let mut connection = redis_connection(url).await.expect("it answers");
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let () = command.query_async(&mut connection).await.expect("it is done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_is_followed_no_vote_is_refused_and_each_counts_once() {
    let (mut tally, watched) = watched(0..PrivateSentinels::NUMBER).await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let worker = tally.worker();
    worker.enter_epoch().await.expect("the stores answer");
    worker.flush().await.expect("a flush");

    let before = tally.stores.redis.port();
    tally.stores.redis.crash().await;
    let mut votes = 1;
    let live = eventually("votes are counted by the new primary", async || {
        votes += 1;
        tally.add(item, 1).await
    })
    .await;
    assert!(live <= votes, "{live} of {votes}");
    watched.promoted(0, before).await;
    eventually("the epoch of the new primary is entered", async || {
        worker.enter_epoch().await.ok().flatten()
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(votes + 1));
    tally.assert_exact_when_quiescent(item).await;

    // The old primary comes back, and follows the new one.
    tally.stores.redis.start().await.expect("Redis starts");
    let url = tally.stores.redis.url();
    eventually("the old primary is a replica", async || {
        let info = testkit::stores::redis_info(&url, "replication").await.ok()?;
        (info.get::<String>("role")? == "slave").then_some(())
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(votes + 2));
    tally.assert_exact_when_quiescent(item).await;
}

/// It can invalidate, but take no token of the server that comes to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_without_memory_keeps_no_suspect_and_learns_of_the_server_and_is_used_once_it_has_some()
{
    let (mut tally, watched) = watched(0..PrivateSentinels::NUMBER).await;
    let item = tally.item("x").await;
    let login = logins(&tally.stores, Role::Server).redis_url;
    let live_counts = connected(LiveCounts::open(
        owner(&tally.server_ledger),
        redis(&watched.sentinels.url(login.as_str())),
        SUSPECTS_LIMIT_ITEMS,
        Seeding::All,
    ))
    .await;
    let queue = vote_queue(&tally, &live_counts);
    let limit = async |bytes: &str| {
        for replica in &watched.replicas {
            send(&replica.url(), &["CONFIG", "SET", "maxmemory", bytes]).await;
        }
    };
    limit("1").await;
    let before = tally.stores.redis.port();
    tally.stores.redis.crash().await;
    eventually("a vote is not counted", async || {
        let cast = queue.cast(vote(item, None), VoteSource::default()).await;
        cast.expect("a vote");
        (live_counts.suspect_total() > 0).then_some(())
    })
    .await;
    watched.promoted(0, before).await;
    eventually("its item is invalidated in the new primary", async || {
        (live_counts.suspect_total() == 0).then_some(())
    })
    .await;
    assert!(!live_counts.answers(), "it takes no counts");
    limit("0").await;
    eventually("the new primary is used", async || {
        live_counts.answers().then_some(())
    })
    .await;
    let port = watched.primary_port(0).await.expect("it is named");
    let new = watched.replicas.iter().find(|redis| redis.port() == port);
    let mut connection = redis_connection(&new.expect("a replica").url())
        .await
        .expect("it answers");
    let mut exists = redis::cmd("EXISTS");
    exists.arg("tally:moved");
    let has_learnt: bool = exists.query_async(&mut connection).await.expect("an answer");
    assert!(has_learnt);
    tally.assert_exact_when_quiescent(item).await;
}

/// A failover that one server has not heard of: its Sentinel is cut off, and so is the old primary, which goes on
/// counting. The worker has entered the new one. Also returns an item with two votes, and the address of a server that has
/// heard of it.
async fn half_moved() -> (Tally, Watched, Worker, ItemId, String) {
    let (tally, watched) = watched(0..1).await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let worker = tally.worker();
    worker.enter_epoch().await.expect("the stores answer");
    worker.flush().await.expect("a flush");
    assert_eq!(tally.add(item, 1).await, Some(2), "seeded again");
    let (old, before) = (tally.stores.redis.url(), tally.stores.redis.port());
    send(&old, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    watched.sentinels.pause(0).expect("Sentinel runs");
    send(
        &watched.sentinels.address(1),
        &["SENTINEL", "FAILOVER", PrivateSentinels::NAME],
    )
    .await;
    watched.promoted(1, before).await;
    let follower = tally
        .another_server_at(|role| {
            let urls = logins(&tally.stores, role);
            StoreUrls {
                redis_url: watched.sentinels.url_of([1, 2], urls.redis_url.as_str()).into(),
                ..urls
            }
        })
        .await;
    eventually("the epoch of the new primary is entered", async || {
        worker.enter_epoch().await.ok().flatten()
    })
    .await;
    // Nobody is left who would tell the old primary.
    for sentinel in [1, 2] {
        watched.sentinels.pause(sentinel).expect("Sentinel runs");
    }

    (tally, watched, worker, item, follower)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_counted_on_an_old_primary_is_counted_again_without_an_audit() {
    let (tally, watched, worker, item, follower) = half_moved().await;
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(3));
    assert_eq!(tally.add(item, 1).await, Some(3), "the old primary counts");
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(4), "one is missing");
    for sentinel in 0..PrivateSentinels::NUMBER {
        watched.sentinels.resume(sentinel).expect("Sentinel runs");
    }
    eventually("all counts are rebuilt once more", async || {
        worker.enter_epoch().await.ok().flatten()
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(6));
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(7));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_left_with_an_old_primary_shows_no_counts_of_it_and_all_once_it_hears_of_the_new_one()
 {
    let (tally, watched, worker, item, follower) = half_moved().await;
    let mut votes = 2;
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(votes + 1));
    votes += 1;
    worker_is_alive(&tally.pool).await;
    let until = async |what: &str, votes: &mut i64, is_counted: bool| {
        eventually(what, async || {
            *votes += 1;
            (tally.add(item, 1).await.is_some() == is_counted).then_some(())
        })
        .await;
    };
    until(
        "the server has seen that workers are elsewhere",
        &mut votes,
        false,
    )
    .await;
    for _ in 0..3 {
        votes += 1;
        assert_eq!(tally.add(item, 1).await, None, "it goes on storing votes");
    }
    let (status, ready) = tally.get("/health/ready").await;
    assert_eq!(status, StatusCode::OK, "{ready}");
    eventually("it says why it shows no counts", async || {
        let (_, ready) = tally.get("/health/ready").await;
        ready
            .to_string()
            .contains("the workers count in another Redis")
            .then_some(())
    })
    .await;
    eventually("its votes are counted in the new primary", async || {
        worker.recover_crashed_writers().await.ok()?;
        votes += 1;
        (tally.add_at(&follower, item, 1).await == Some(votes)).then_some(())
    })
    .await;
    for sentinel in 0..PrivateSentinels::NUMBER {
        watched.sentinels.resume(sentinel).expect("Sentinel runs");
    }
    until("it follows the new primary", &mut votes, true).await;
    eventually("all counts are rebuilt once more", async || {
        worker.enter_epoch().await.ok().flatten()
    })
    .await;
    assert_eq!(tally.add(item, 1).await, Some(votes + 1));
    assert_eq!(tally.add_at(&follower, item, 1).await, Some(votes + 2));
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_used_as_before_while_no_sentinel_answers() {
    let (tally, watched) = watched(0..PrivateSentinels::NUMBER).await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    for sentinel in 0..PrivateSentinels::NUMBER {
        watched.sentinels.pause(sentinel).expect("Sentinel runs");
    }
    send(&tally.stores.redis.url(), &["CLIENT", "KILL", "TYPE", "normal"]).await;
    eventually("votes are counted over new connections", async || {
        tally.add(item, 1).await
    })
    .await;
    for sentinel in 0..PrivateSentinels::NUMBER {
        watched.sentinels.resume(sentinel).expect("Sentinel runs");
    }
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_starts_where_sentinels_can_never_name_the_primary() {
    let (stores, watched) = Stores::start().await.watched().await;
    let programs = [
        (TALLY, &["serve"][..], Role::Server),
        (SYNC_WORKER, &[], Role::Worker),
    ];
    for (program, arguments, role) in programs {
        let good = watched.sentinels.url(&stores.redis_login_url(role));
        let name = format!("/{}/", PrivateSentinels::NAME);
        let redis = format!("redis+sentinel://127.0.0.1:{}/main", stores.redis.port());
        // Valkey says nothing of commands to whoever is not logged in, so it may be a Sentinel.
        let kinds = if is_valkey() { 2 } else { 3 };
        for (url, words) in [
            (watched.sentinels.address(0), "leads to a Sentinel"),
            (good.replace(&name, "/other/"), "no primary with the name other"),
            (redis.replace("//", "//:wrong@"), "is no Sentinel"),
        ]
        .into_iter()
        .take(kinds)
        {
            assert_refuses(program, arguments, &stores.login_url(role), &url, &[words]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_sentinels_name_is_not_used() {
    let (stores, watched) = Stores::start().await.watched().await;
    let port = watched.replicas[0].port().to_string();
    let url = watched
        .sentinels
        .url_of([0], &stores.redis_login_url(Role::Worker));
    send(
        &watched.sentinels.address(0),
        &["SENTINEL", "MONITOR", "other", "127.0.0.1", &port, "2"],
    )
    .await;
    let counters = app::counters(&StoreUrls {
        database_url: "".into(),
        redis_url: url
            .replace(&format!("/{}/", PrivateSentinels::NAME), "/other/")
            .into(),
        key_prefix: KeyPrefix::default(),
    })
    .expect("a URL");
    let error = counters.epochs().await.expect_err("a replica");
    assert!(error.to_string().contains("says that it is none"), "{error}");
}

/// Sentinels that lost their files name the first primary, which is a replica now.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_works_is_left_only_for_one_that_is_a_primary() {
    let (tally, watched) = watched(0..PrivateSentinels::NUMBER).await;
    let item = tally.item("x").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    let port = watched.replicas[0].port().to_string();
    for sentinel in 0..PrivateSentinels::NUMBER {
        let url = watched.sentinels.address(sentinel);
        send(&url, &["SENTINEL", "REMOVE", PrivateSentinels::NAME]).await;
        let monitor = [
            "SENTINEL",
            "MONITOR",
            PrivateSentinels::NAME,
            "127.0.0.1",
            &port,
            "3",
        ];
        send(&url, &monitor).await;
    }
    // Tally asks for connections, and each time which is the primary.
    for votes in 2..6 {
        send(&tally.stores.redis.url(), &["CLIENT", "KILL", "TYPE", "normal"]).await;
        let count = eventually("a vote is counted", async || tally.add(item, 1).await).await;
        assert!(count >= votes, "{count}");
    }
}
