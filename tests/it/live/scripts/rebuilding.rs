//! `invalidate`, `claim_rebuild` and `clear_rebuild`: how counts are rebuilt.
//! No revision comes twice.

use redis::AsyncCommands;

use super::{INDEX, KEY, Scripts};

#[tokio::test]
async fn invalidate_drops_count_and_lease_and_sets_a_rebuild_request_without_a_time_to_live() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.mark_saved(revision).await;
    assert_eq!(scripts.invalidate("first").await, "INVALIDATED");
    assert_eq!(scripts.names().await, ["request", "revision"]);
    assert_eq!(scripts.revision().await, revision);
    let lease = scripts.lease().await;
    assert_eq!(scripts.invalidate("second").await, "INVALIDATED");
    assert_eq!(scripts.request().await, "second");
    assert_eq!(
        scripts.seed(9, "1:1:", &lease, 0).await,
        "RETRY",
        "the lease is from before the invalidation"
    );
    assert_eq!(scripts.time_to_live_ms().await, -1);
    assert_eq!(
        scripts.revision().await,
        revision,
        "the second invalidation finds the floor of the first"
    );
}

#[tokio::test]
async fn invalidate_with_a_revision_leaves_another_count_alone() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    let read = revision.to_string();
    scripts.count(1, 200).await;
    let before = scripts.named().await;
    assert_eq!(
        scripts.invalidate_revision("token", &read).await,
        "CHANGED",
        "the count has changed"
    );
    assert_eq!(scripts.named().await, before);
    let read = scripts.revision().await.to_string();
    assert_eq!(scripts.invalidate_revision("token", &read).await, "INVALIDATED");
    assert_eq!(
        scripts.invalidate_revision("another", &read).await,
        "CHANGED",
        "only the floor has this revision"
    );
    assert_eq!(scripts.request().await, "token");
}

#[tokio::test]
async fn seed_and_claim_rebuild_stay_above_the_floor_when_the_clock_is_behind() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.now().await + 3_600_000_000;
    scripts.change(|parts| parts.revision = ahead).await;
    scripts.invalidate("token").await;
    assert_eq!(scripts.claim_rebuild("token", 0).await, Ok(ahead + 1));
    assert_eq!(
        scripts.claim_rebuild("token", 0).await,
        Ok(ahead + 2),
        "a claimed revision is not claimed again"
    );
    assert_eq!(
        scripts.claim_rebuild("token", ahead + 10).await,
        Ok(ahead + 11),
        "above counted_at too"
    );
    assert_eq!(scripts.seeded().await, ahead + 12);
}

#[tokio::test]
async fn claim_rebuild_claims_only_for_the_request_that_was_read_and_without_a_live_count() {
    let mut scripts = Scripts::start().await;
    let changed = Err("CHANGED".to_owned());
    assert_eq!(scripts.claim_rebuild("first", 0).await, changed);
    assert_eq!(scripts.time_to_live_ms().await, -2, "a refusal makes no key");
    scripts.invalidate("first").await;
    scripts.invalidate("second").await;
    assert_eq!(scripts.claim_rebuild("first", 0).await, changed);
    assert!(scripts.claim_rebuild("second", 0).await.is_ok());
    let revision = scripts.seeded().await;
    assert_eq!(scripts.claim_rebuild("second", 0).await, Err("LIVE".to_owned()));
    assert_eq!(
        scripts.revision().await,
        revision,
        "a refusal leaves the live count's revision"
    );
    assert_eq!(
        scripts.request().await,
        "second",
        "the live count is not saved yet"
    );
    scripts.change(|parts| parts.saved = revision).await;
    assert_eq!(scripts.claim_rebuild("second", 0).await, Err("LIVE".to_owned()));
    assert_eq!(scripts.request().await, "");
}

/// The lease's holder may have read its exact count before the rebuild's write.
/// Then the count's `counted_at` may be below revisions that workers still have in hand.
#[tokio::test]
async fn clear_rebuild_keeps_the_floor_beside_a_lease() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    let ahead = scripts.now().await + 3_600_000_000;
    scripts.change(|parts| parts.revision = ahead).await;
    scripts.invalidate("token").await;
    let lease = scripts.lease().await;
    assert_eq!(scripts.claim_rebuild("token", 0).await, Ok(ahead + 1));
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert!(
        scripts.time_to_live_ms().await > 0,
        "the floor goes away with the lease"
    );
    assert_eq!(scripts.seed(5, "1:1:", &lease, 0).await, "SEEDED");
    assert_eq!(scripts.revision().await, ahead + 2);
}

#[tokio::test]
async fn clear_rebuild_removes_a_floor_that_nobody_needs() {
    let mut scripts = Scripts::start().await;
    scripts.seeded().await;
    scripts.invalidate("token").await;
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert_eq!(scripts.time_to_live_ms().await, -2, "nothing is left");
    // A live count keeps its revision.
    scripts.invalidate("token").await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.clear_rebuild("token").await, "CLEARED");
    assert_eq!(scripts.revision().await, revision);
}

#[tokio::test]
async fn clear_rebuild_clears_only_the_request_that_was_read() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("first").await;
    scripts.invalidate("second").await;
    assert_eq!(scripts.clear_rebuild("first").await, "CHANGED");
    assert_eq!(scripts.clear_rebuild("second").await, "CLEARED");
    assert_eq!(scripts.clear_rebuild("second").await, "CHANGED");
    assert_eq!(scripts.time_to_live_ms().await, -2);
}

#[tokio::test]
async fn clear_rebuild_gives_a_lease_beside_the_request_a_time_to_live_again() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    scripts.lease().await;
    assert_eq!(scripts.time_to_live_ms().await, -1);
    scripts.clear_rebuild("token").await;
    assert!(scripts.time_to_live_ms().await > 0);
}

#[tokio::test]
async fn claim_rebuild_takes_redis_time_when_it_is_ahead_of_all_revisions() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    let before = scripts.now().await;
    let claimed = scripts
        .claim_rebuild("token", before - 3_600_000_000)
        .await
        .expect("a claim");
    assert!((before..=scripts.now().await).contains(&claimed), "{claimed}");
}

/// Other scripts do not see that someone has changed or deleted the counter.
#[tokio::test]
async fn remove_saved_takes_out_of_the_index_what_has_nothing_to_be_written() {
    let mut scripts = Scripts::start().await;
    assert!(!scripts.stays_in_the_index().await, "no counter");
    let revision = scripts.seeded().await;
    assert!(scripts.stays_in_the_index().await, "unsaved");
    scripts.mark_saved(revision).await;
    assert!(!scripts.stays_in_the_index().await, "saved");
    scripts.invalidate("token").await;
    assert!(scripts.stays_in_the_index().await, "a rebuild request");
    scripts.clear_rebuild("token").await;
    assert!(!scripts.stays_in_the_index().await, "no count");
    scripts.clear().await;
    let () = scripts
        .connection
        .set(KEY, "a text")
        .await
        .expect("Redis answers");
    assert!(!scripts.stays_in_the_index().await, "no counter's type");
}

impl Scripts {
    /// Puts the counter into the index and calls `remove_saved`.
    /// Returns whether it stays there.
    async fn stays_in_the_index(&mut self) -> bool {
        let () = self.connection.sadd(INDEX, KEY).await.expect("a set");
        let word = self.word(script!("remove_saved"), &[]).await;
        let is_there = self.is_in_the_index().await;
        assert_eq!(word, if is_there { "KEPT" } else { "REMOVED" });
        is_there
    }
}
