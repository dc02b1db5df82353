//! What each piece of the protocol is for, on the real scripts and SQL.

use sqlx::postgres::PgPoolOptions;
use tally::domain::{CountDelta, ExactCount, ItemId, RUNNING_LIMIT_TRANSACTIONS, TransactionId};
use tally::ledger::{Role, ServerLedger, WorkerLedger};
use tally::live::{CountReply, LiveCounts, SUSPECTS_LIMIT_ITEMS, Seed, Seeding};

use crate::helpers::stores::Stores;
use crate::helpers::tally::{
    connected, counters, ledger, made_item, options, owner, redis, server_ledger, vote,
};

/// One item, and the steps of batches and of a worker, in any order.
struct Steps {
    ledger: WorkerLedger,
    server: ServerLedger,
    live_counts: LiveCounts,
    worker: tally::sync::Worker,
    item: ItemId,
    stores: Stores,
}

impl Steps {
    async fn start() -> Self {
        let stores = Stores::start().await;
        let ledger = ledger(&stores.database_url);
        let server = server_ledger(&stores.database_url);
        let live_counts = LiveCounts::open(
            owner(&server),
            redis(&stores.redis_login_url(Role::Server)),
            SUSPECTS_LIMIT_ITEMS,
            Seeding::All,
        );
        let live_counts = connected(live_counts).await;
        let item = made_item(&server, "x").await;

        let worker = tally::sync::Worker::new(
            ledger.clone(),
            counters(&stores.redis_login_url(Role::Worker)),
            options(),
        );
        Self {
            ledger,
            server,
            live_counts,
            worker,
            item,
            stores,
        }
    }

    async fn commit(&self) -> TransactionId {
        self.server
            .writer()
            .insert(&[vote(self.item, None)], &[])
            .await
            .expect("an insert")
            .transaction
    }

    async fn count(&self, transaction: TransactionId) -> CountReply {
        let delta = CountDelta {
            item_id: self.item,
            delta: 1.into(),
        };
        self.live_counts
            .count(&[delta], transaction)
            .await
            .expect("Redis answers")
            .remove(0)
    }

    async fn lease(&self, transaction: TransactionId) -> String {
        match self.count(transaction).await {
            CountReply::Miss { lease } => lease,
            other => panic!("it is not leased: {other:?}"),
        }
    }

    async fn exact_count(&self) -> ExactCount {
        self.ledger
            .exact_counts(&[self.item])
            .await
            .expect("counts")
            .remove(0)
    }

    async fn seed(&self, exact: ExactCount, lease: &str) -> bool {
        self.live_counts
            .seed(&[Seed {
                exact,
                lease: lease.to_owned(),
            }])
            .await
            .expect("Redis answers")[0]
    }

    async fn saved(&self) -> i64 {
        self.server
            .item_reader()
            .read(&[self.item])
            .await
            .expect("Postgres")
            .remove(0)
            .saved_count
            .net
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_the_seed_has_seen_is_not_added_again() {
    let steps = Steps::start().await;
    // A commits, leases; B commits; A reads (sees both), seeds 2; B adds 1.
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let b = steps.commit().await;
    assert!(steps.seed(steps.exact_count().await, &lease).await);
    assert_eq!(steps.count(b).await, CountReply::Count(2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vote_that_the_seed_has_not_seen_is_added() {
    let steps = Steps::start().await;
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let exact = steps.exact_count().await;
    let b = steps.commit().await;
    assert!(steps.seed(exact, &lease).await);
    assert_eq!(steps.count(b).await, CountReply::Count(2.into()));
}

/// Some of them belong to other databases, for as long as someone leaves them open.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_count_stays_short_and_exact_however_many_transactions_are_running() {
    let steps = Steps::start().await;
    let pool = PgPoolOptions::new()
        .max_connections(75)
        .connect_lazy(&steps.stores.database_url)
        .expect("a URL");
    let running = async || {
        let mut transaction = pool.begin().await.expect("a connection");
        sqlx::query("select pg_current_xact_id()")
            .execute(&mut *transaction)
            .await
            .expect("an id");
        transaction
    };
    let oldest = running().await;
    let a = steps.commit().await;
    let mut newer = Vec::new();
    for _ in 0..RUNNING_LIMIT_TRANSACTIONS + 5 {
        newer.push(running().await);
    }
    // A snapshot ends with the newest transaction that has ended.
    steps.commit().await;
    let lease = steps.lease(a).await;
    let exact = steps.exact_count().await;
    let b = steps.commit().await;
    assert!(steps.seed(exact, &lease).await);
    let mut redis = steps.stores.redis_connection().await;
    let parts = testkit::counters::parts(&mut redis, &format!("tally:{{{}}}", steps.item)).await;
    let snapshot = parts.expect("Redis answers").snapshot;
    assert_eq!(
        snapshot.split(',').count(),
        RUNNING_LIMIT_TRANSACTIONS,
        "{snapshot}"
    );
    // B is newer than every transaction that was running. About A, nobody can say any more.
    assert_eq!(steps.count(b).await, CountReply::Count(3.into()));
    let lease = steps.lease(a).await;
    assert!(steps.seed(steps.exact_count().await, &lease).await);
    let c = steps.commit().await;
    assert_eq!(steps.count(c).await, CountReply::Count(4.into()));
    drop((oldest, newer));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_seed_without_the_current_lease_brings_no_old_count_back() {
    let steps = Steps::start().await;
    // A leases and reads 1; B commits and seeds 2; the worker flushes and expires; A seeds.
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let old = steps.exact_count().await;
    let b = steps.commit().await;
    let same = steps.lease(b).await;
    assert_eq!(same, lease, "B shares A's lease");
    assert!(steps.seed(steps.exact_count().await, &same).await);
    let worker = tally::sync::Worker::new(
        steps.ledger.clone(),
        counters(&steps.stores.redis_login_url(Role::Worker)),
        tally::sync::SyncOptions {
            retention: Some(std::time::Duration::ZERO),
            ..options()
        },
    );
    worker.flush().await.expect("a flush");
    assert_eq!(worker.flush().await.expect("a flush").expired, 1);
    assert!(!steps.seed(old, &lease).await, "A must go back to count");
    assert_eq!(steps.saved().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_from_before_an_invalidation_is_refused() {
    let steps = Steps::start().await;
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let old = steps.exact_count().await;
    counters(&steps.stores.redis_login_url(Role::Worker))
        .invalidate(&[steps.item])
        .await
        .expect("Redis answers");
    assert!(!steps.seed(old, &lease).await);
    // The second round seeds.
    let lease = steps.lease(a).await;
    assert!(steps.seed(steps.exact_count().await, &lease).await);
    assert_eq!(
        steps.count(a).await,
        CountReply::Count(1.into()),
        "and is not added to itself"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_from_before_a_wipe_is_refused() {
    let steps = Steps::start().await;
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let old = steps.exact_count().await;
    let mut redis = steps.stores.redis_connection().await;
    let () = redis::cmd("FLUSHALL")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let b = steps.commit().await;
    let fresh = steps.lease(b).await;
    assert!(!steps.seed(old, &lease).await);
    assert!(steps.seed(steps.exact_count().await, &fresh).await);
    assert_eq!(steps.count(a).await, CountReply::Count(2.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_scripts_are_loaded_again_while_a_batch_is_counted() {
    let steps = Steps::start().await;
    let a = steps.commit().await;
    let lease = steps.lease(a).await;
    let mut redis = steps.stores.redis_connection().await;
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert!(steps.seed(steps.exact_count().await, &lease).await);
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    let b = steps.commit().await;
    assert_eq!(steps.count(b).await, CountReply::Count(2.into()));
    let () = redis::cmd("SCRIPT")
        .arg("FLUSH")
        .query_async(&mut redis)
        .await
        .expect("Redis answers");
    assert_eq!(steps.worker.flush().await.expect("a flush").flushed, 1);
    assert_eq!(steps.saved().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_and_a_flush_of_the_same_item_end_in_the_exact_count() {
    let steps = Steps::start().await;
    let a = steps.commit().await;
    let counters = counters(&steps.stores.redis_login_url(Role::Worker));
    counters.invalidate(&[steps.item]).await.expect("Redis answers");
    let lease = steps.lease(a).await;
    assert!(steps.seed(steps.exact_count().await, &lease).await);
    // The item has both an unsaved live count and a rebuild request. The live count was seeded
    // after the request, so a save of it clears the request.
    let report = steps.worker.flush_until_quiescent().await.expect("a flush");
    assert!(report.rebuilt == 0 && report.flushed == 1, "{report:?}");
    assert!(steps.worker.flush().await.expect("a flush").is_quiescent());
    let b = steps.commit().await;
    assert_eq!(steps.count(b).await, CountReply::Count(2.into()));
    steps.worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(steps.saved().await, 2);
}
