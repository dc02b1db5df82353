//! Connections to Redis: how many a server uses, and how it finds Redis again.

use tally::domain::ItemId;
use tally::ledger::Role;

use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::{Tally, connected, live_counts, live_counts_of, redis};
use tally::live::Seeding;

/// Each caller finds the circuit breaker open, and leaves suspects all the time.
/// A repair task that waited for a moment without suspects would never close the breaker.
#[tokio::test]
async fn redis_is_used_again_even_if_callers_never_stop_trying() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = live_counts(&tally);
    let batches: Vec<_> = (0..50)
        .map(|_| {
            let live_counts = live_counts.clone();
            let delta = tally::domain::CountDelta {
                item_id: item,
                delta: 1.into(),
            };
            tokio::spawn(async move {
                while live_counts
                    .count(&[delta], tally::domain::TransactionId(1))
                    .await
                    .is_err()
                {
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for batch in batches {
        batch.await.expect("no panic");
    }
    assert!(live_counts.answers());
    live_counts.repaired().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_calls_redis_over_one_connection_and_ends_it_before_it_makes_another() {
    let stores = Stores::start().await;
    let item = ItemId::new(1).expect("positive");
    let live_counts = live_counts_of(&stores.redis_login_url(Role::Server), Seeding::All);
    let live_counts = connected(live_counts).await;
    let owner = stores.redis_connection().await;
    let send = async |line: &str| -> String {
        let mut command = redis::Cmd::new();
        for word in line.split(' ') {
            command.arg(word);
        }
        let sent = command.query_async(&mut owner.clone()).await;
        sent.unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    // CLIENT LIST has a line for each connection, with the connection's last command.
    let reading = async || -> Vec<String> {
        let clients = send("CLIENT LIST").await;
        let reading = clients.lines().filter(|line| line.contains(" cmd=mget "));
        let ids = reading.filter_map(|line| line.split(' ').next());
        ids.map(str::to_owned).collect()
    };
    live_counts.read(&[item]).await.expect("Redis answers");
    let first = reading().await;
    assert_eq!(first.len(), 1);
    live_counts.read(&[item]).await.expect("Redis answers");
    assert_eq!(reading().await, first);

    // A call fails, and its connection stays open.
    send("ACL SETUSER server -mget").await;
    assert!(live_counts.read(&[item]).await.is_err());
    send("ACL SETUSER server +mget").await;
    eventually("Redis is found", async || live_counts.answers().then_some(())).await;
    // From then on, Redis accepts no more than there are. The pool has one once the repair task has looked at the owner.
    eventually(
        "those of the test, the thread, the repair task and the pool",
        async || (send("CLIENT LIST").await.lines().count() == 4).then_some(()),
    )
    .await;
    send("CONFIG SET maxclients 4").await;
    eventually("Redis is read over another connection", async || {
        live_counts.read(&[item]).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_pooled_connection_that_reached_a_replica_is_not_used_again() {
    let stores = Stores::start().await;
    let owner = stores.redis_connection().await;
    let send = async |line: &str| -> redis::Value {
        let mut command = redis::Cmd::new();
        for word in line.split(' ') {
            command.arg(word);
        }
        let sent = command.query_async(&mut owner.clone()).await;
        sent.unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let ids = async || -> Vec<String> {
        let clients = redis::from_redis_value::<String>(send("CLIENT LIST").await).expect("a text");
        let of_user = clients.lines().filter(|line| line.contains(" user=worker "));
        of_user
            .filter_map(|line| Some(line.split(' ').next()?.to_owned()))
            .collect()
    };
    let pool = redis(&stores.redis_login_url(Role::Worker));
    pool.takes_writes().await.expect("Redis answers");
    let first = ids().await;
    assert_eq!(first.len(), 1);
    // A script that Redis has forgotten is no reason.
    send("SCRIPT FLUSH").await;
    pool.takes_writes().await.expect("Redis answers");
    assert_eq!(ids().await, first);

    send("REPLICAOF 127.0.0.1 1").await;
    assert!(pool.takes_writes().await.is_err());
    eventually("it is closed", async || {
        (!ids().await.contains(&first[0])).then_some(())
    })
    .await;
    send("REPLICAOF NO ONE").await;
    pool.takes_writes().await.expect("it is a primary");
}

#[tokio::test]
async fn callers_that_wait_for_a_connection_do_not_each_try_to_make_it() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let live_counts = connected(live_counts(&tally)).await;
    let mut redis = tally.stores.redis_connection().await;
    // Longer than any test takes. Redis ends with the test.
    redis::cmd("CLIENT")
        .arg("PAUSE")
        .arg(600_000)
        .exec_async(&mut redis)
        .await
        .expect("a pause");
    let thread = live_counts.with_own_connection();
    let reads: Vec<_> = (0..40)
        .map(|_| {
            let thread = thread.clone();
            tokio::spawn(async move { thread.read(&[item]).await })
        })
        .collect();
    let mut tried = 0;
    for read in reads {
        match read.await.expect("no panic").expect_err("Redis does not answer") {
            tally::live::LiveError::Unavailable => {}
            _ => tried += 1,
        }
    }
    assert_eq!(tried, 1);
    assert!(!live_counts.answers());
}
