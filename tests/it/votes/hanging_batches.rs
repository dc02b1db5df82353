//! A batch that hangs in Postgres holds up its own thread alone.

use std::time::Duration;
use tally::domain::VoteSource;

use sqlx::Executor;
use tally::votes::{Cast, SeedBackoff, VoteQueue};
use tokio::time::timeout;

use crate::helpers::stores::until_blocked;
use crate::helpers::tally::{Tally, connected, live_counts, server_ledger, vote};

/// Longer than any vote takes that waits for nobody. No test measures it.
const CAST_LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn votes_of_other_threads_are_stored_while_a_batch_of_one_thread_hangs() {
    let tally = Tally::start().await;
    let (hung, other) = (tally.item("hung").await, tally.item("other").await);
    let live_counts = connected(live_counts(&tally)).await;
    let server = server_ledger(&tally.stores.database_url);
    let backoff = SeedBackoff::default();
    // As two threads of one server have them.
    let [first, second] = [1, 2].map(|_| VoteQueue::start(&server, &live_counts, &backoff, 2, None));
    tally
        .pool
        .execute(
            format!(
                "create function hang() returns trigger language plpgsql as $$
                 begin
                     perform pg_advisory_xact_lock(1);
                     return new;
                 end $$;
                 create trigger hang before insert on vote for each row when (new.item_id = {hung})
                 execute function hang()"
            )
            .as_str(),
        )
        .await
        .expect("the owner may");
    let mut blocker = tally.pool.begin().await.expect("a transaction");
    blocker
        .execute("select pg_advisory_xact_lock(1)")
        .await
        .expect("a lock");
    let hanging = tokio::spawn(async move { first.cast(vote(hung, None), VoteSource::default()).await });
    until_blocked(&tally.pool, "").await;
    for _ in 0..3 {
        let cast = timeout(CAST_LIMIT, second.cast(vote(other, None), VoteSource::default())).await;
        let cast = cast.expect("it waits for nobody");
        assert!(matches!(cast, Ok(Cast::Accepted { .. })), "{cast:?}");
    }
    assert!(!hanging.is_finished());
    blocker.rollback().await.expect("an end");
    let cast = hanging.await.expect("no panic");
    assert!(matches!(cast, Ok(Cast::Accepted { .. })), "{cast:?}");
    tally.assert_exact_when_quiescent(hung).await;
    tally.assert_exact_when_quiescent(other).await;
}
