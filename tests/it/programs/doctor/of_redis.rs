//! What a Redis can have wrong.

use redis::aio::MultiplexedConnection;
use tally::dev::PrivateRedis;
use testkit::clock::Clock;
use testkit::stores::{redis_connection, start_redis, temporary_folder};

use super::{doctor_with, finds, finds_nothing, finds_with, well_installation};
use crate::helpers::stores::Stores;

async fn say(redis: &mut MultiplexedConnection, words: &str) {
    let mut command = redis::Cmd::new();
    for word in words.split(' ') {
        command.arg(word);
    }
    let said: Result<redis::Value, _> = command.query_async(redis).await;
    said.unwrap_or_else(|error| panic!("{words}: {error}"));
}

/// A Redis of the test's own, beside the installation's.
async fn finds_at(stores: &Stores, redis: &PrivateRedis, words: &str) {
    finds_with(stores, &[("REDIS_URL", &redis.url())], words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_each_thing_that_is_broken_in_redis_and_nothing_once_it_is_mended() {
    let (mut stores, _programs) = well_installation().await;
    let mut redis = stores.redis_connection().await;
    let broken = [
        (
            "config set maxmemory-policy allkeys-lru",
            "maxmemory-policy is allkeys-lru",
            "config set maxmemory-policy noeviction",
        ),
        (
            "config set maxmemory 1mb",
            "Redis uses ",
            "config set maxmemory 0",
        ),
        ("acl setuser worker -info", "may not", "acl setuser worker +info"),
        (
            "acl setuser worker -sscan",
            "may not",
            "acl setuser worker +sscan",
        ),
        (
            "acl setuser worker off",
            "wrong: \"Redis",
            "acl setuser worker on",
        ),
        ("replicaof 127.0.0.1 1", "leads to a replica", "replicaof no one"),
        (
            "replicaof 127.0.0.1 1",
            "does not reach its primary",
            "replicaof no one",
        ),
    ];
    for (breaks, words, mends) in broken {
        say(&mut redis, breaks).await;
        finds(&stores, words).await;
        say(&mut redis, mends).await;
    }
    // A few of the clients that it may have are left for the doctor.
    let mut others = Vec::new();
    for _ in 0..40 {
        others.push(stores.redis_connection().await);
    }
    let clients: redis::InfoDict = redis::cmd("INFO")
        .arg("clients")
        .query_async(&mut redis)
        .await
        .expect("it answers");
    let clients = clients.get::<usize>("connected_clients").expect("a number");
    say(&mut redis, &format!("config set maxclients {}", clients * 8 / 7)).await;
    finds(&stores, "clients of Redis are connected").await;
    drop(others);
    say(&mut redis, "config set maxclients 1000").await;
    finds_nothing(&stores).await;
    // Evicted keys are noted until they are forgotten.
    say(&mut redis, "config set maxmemory-policy allkeys-lru").await;
    for key in 0..100 {
        say(&mut redis, &format!("set x{key} x")).await;
    }
    say(&mut redis, "config set maxmemory 1mb").await;
    finds(&stores, "keys were evicted").await;
    say(&mut redis, "config set maxmemory 0").await;
    say(&mut redis, "config set maxmemory-policy noeviction").await;
    say(&mut redis, "config resetstat").await;
    // A folder with something in it takes the place of the snapshot.
    let snapshot = stores.folder().join("redis/dump.rdb");
    std::fs::create_dir_all(snapshot.join("x")).expect("a folder");
    say(&mut redis, "bgsave").await;
    finds(&stores, "Redis cannot save its data").await;
    drop(redis);
    stores.redis.stop().await;
    finds(&stores, "wrong: \"Redis").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_a_redis_that_is_a_cluster_asks_for_no_password_or_has_a_wrong_clock() {
    let stores = Stores::start().await;
    let folder = temporary_folder("redis-").expect("a folder");
    let mut cluster = PrivateRedis::new(&folder.path().join("cluster"), "secret").expect("a port");
    cluster.set_cluster_alone().expect("a port");
    cluster.start().await.expect("it starts");
    finds_at(&stores, &cluster, "is a node of a Redis Cluster").await;

    let clock = Clock::new(folder.path()).expect("a clock");
    clock.step(60).expect("a file");
    let stepped = start_redis(&folder.path().join("stepped"), "secret", clock.variables()).await;
    let stepped = stepped.expect("it starts");
    finds_at(&stores, &stepped, "the clocks of Redis and of this machine are").await;
    finds_at(&stores, &stepped, "the login default may do more").await;
    let mut owner = redis_connection(&stepped.url()).await.expect("Redis answers");
    say(&mut owner, "acl setuser default nopass").await;
    let open = format!("redis://127.0.0.1:{}", stepped.port());
    finds_with(&stores, &[("REDIS_URL", &open)], "asks for no password").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_a_primary_that_would_take_counts_without_its_replicas() {
    let (stores, watched) = Stores::start().await.watched().await;
    let url = watched.sentinels.url(&stores.redis_url());
    let words = "min-replicas-to-write 0";
    let mut primary = stores.redis_connection().await;
    say(&mut primary, "config set min-replicas-to-write 1").await;
    finds_with(&stores, &[("REDIS_URL", &url)], "the login default may do more").await;
    let (_, said) = doctor_with(&stores, &[("REDIS_URL", &url)]).await;
    assert!(!said.iter().any(|one| one.contains(words)), "{said:#?}");
    say(&mut primary, "config set min-replicas-to-write 0").await;
    finds_with(&stores, &[("REDIS_URL", &url)], words).await;
}
