//! `mark_saved` and `expire`: live counts are saved, and expire when idle.

use super::Scripts;

#[tokio::test]
async fn mark_saved_marks_only_the_revision_that_was_read() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.count(1, 200).await;
    assert_eq!(scripts.mark_saved(revision).await, "CHANGED");
    assert_eq!(scripts.parts().await.saved, 0);
    let revision = scripts.revision().await;
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    scripts.invalidate("token").await;
    assert_eq!(
        scripts.mark_saved(revision).await,
        "CHANGED",
        "the revision of a count that was dropped"
    );
    assert_eq!(
        scripts.names().await,
        ["request", "revision"],
        "marking makes no count"
    );
}

#[tokio::test]
async fn mark_saved_clears_a_rebuild_request_that_its_count_was_seeded_after() {
    let mut scripts = Scripts::start().await;
    scripts.invalidate("token").await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.mark_saved(revision - 1).await, "CHANGED");
    assert_eq!(scripts.request().await, "token");
    assert_eq!(scripts.mark_saved(revision).await, "SAVED");
    assert_eq!(scripts.request().await, "");
}

#[tokio::test]
async fn expire_drops_only_a_count_that_is_saved_unchanged_and_idle() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    assert_eq!(scripts.expire(revision, 0).await, "KEPT", "not saved");
    scripts.mark_saved(revision).await;
    assert_eq!(
        scripts.expire(revision, 3_600_000_000).await,
        "KEPT",
        "not idle for long enough"
    );
    assert_eq!(
        scripts.expire(revision - 1, 0).await,
        "KEPT",
        "another revision was read"
    );
    scripts.count(1, 200).await;
    assert_eq!(
        scripts.expire(revision, 0).await,
        "KEPT",
        "changed since it was saved"
    );
    let revision = scripts.revision().await;
    scripts.mark_saved(revision).await;
    assert_eq!(scripts.expire(revision, 0).await, "EXPIRED");
    assert_eq!(scripts.time_to_live_ms().await, -2, "nothing is left");
}

#[tokio::test]
async fn expire_leaves_a_rebuild_request() {
    let mut scripts = Scripts::start().await;
    let revision = scripts.seeded().await;
    scripts.mark_saved(revision).await;
    // No script leaves a request beside a saved count. If one did, the request must not be lost.
    scripts.change(|parts| parts.request = "token".to_owned()).await;
    assert_eq!(scripts.expire(revision, 0).await, "EXPIRED");
    assert_eq!(scripts.names().await, ["request"]);
}
