//! Vote ids only go up.
//! If someone sets their sequence back, no vote is lost from the counts.

use sqlx::{Executor, PgPool};
use tally::domain::{ItemId, NewVote};
use tally::ledger::{
    InsertError, JobLease, LedgerError, Pacing, RollUpProgress, ServerLedger, UnfitDatabase, WorkerLedger,
};

use super::{item, vote};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{ledger, roll_up_lease, server_ledger};

/// A ledger with one item.
struct Ledger {
    pool: PgPool,
    worker: WorkerLedger,
    /// The lease of the roll-up.
    lease: JobLease,
    server: ServerLedger,
    item: ItemId,
    _stores: Stores,
}

impl Ledger {
    async fn start() -> Self {
        let stores = Stores::start().await;
        let server = server_ledger(&stores.database_url);
        let worker = ledger(&stores.database_url);
        Self {
            pool: stores.pool(),
            lease: roll_up_lease(&worker).await,
            worker,
            item: item(&server).await,
            server,
            _stores: stores,
        }
    }

    fn vote(&self, voter: Option<&str>) -> NewVote {
        vote(self.item, voter)
    }

    /// Changes the sequence of vote ids, as its owner may.
    async fn change(&self, statement: &str) {
        self.pool.execute(statement).await.expect("the owner may");
    }

    /// Sets the last id that was drawn.
    async fn set_last(&self, id: i64) {
        self.change(&format!("select setval('vote_id_seq', {id})")).await;
    }

    /// Rolls up all votes, up to 1,000 ids at a time.
    async fn roll_up(&self) -> Vec<RollUpProgress> {
        let safe = self.worker.safe_vote_id().await.expect("a safe id");
        let mut chunks = Vec::new();
        while let Some(chunk) = self
            .worker
            .roll_up_votes(&self.lease, &safe, 1000, Pacing::Spread)
            .await
            .expect("a roll-up")
        {
            chunks.push(chunk);
        }
        assert_eq!(chunks.last().map(|last| last.watermark), Some(safe.vote_id));
        chunks
    }

    async fn exact_count(&self) -> i64 {
        self.worker.exact_counts(&[self.item]).await.expect("counts")[0]
            .count
            .net
    }

    async fn stored(&self) -> i64 {
        sqlx::query_scalar("select count(*) from vote")
            .fetch_one(&self.pool)
            .await
            .expect("Postgres answers")
    }
}

#[tokio::test]
async fn a_batch_whose_ids_are_not_beyond_the_watermark_is_not_stored() {
    let ledger = Ledger::start().await;
    let mut writer = ledger.server.writer();
    // Repeats use up ids. So no vote has these ids.
    for _ in 0..9 {
        writer
            .insert(&[ledger.vote(Some("ada"))], &[])
            .await
            .expect("an insert");
    }
    writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    ledger.roll_up().await;
    let anonymous = vec![ledger.vote(None)];
    let with_voters = vec![ledger.vote(Some("bob")), ledger.vote(Some("ada"))];
    for batch in [anonymous, with_voters] {
        ledger.set_last(3).await;
        let error = writer.insert(&batch, &[]).await.expect_err("it was set back");
        let InsertError::NotStored(error) = error else {
            panic!("it is certain: {error}");
        };
        assert!(error.to_string().contains("set back"), "{error}");
        assert_eq!(ledger.stored().await, 2);
    }
    ledger.set_last(10).await;
    writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    assert_eq!(ledger.exact_count().await, 3);
}

#[tokio::test]
async fn votes_are_not_rolled_up_while_their_sequence_gives_out_blocks_of_ids() {
    let ledger = Ledger::start().await;
    ledger.change("alter sequence vote_id_seq cache 100").await;
    let (mut first, mut second) = (ledger.server.writer(), ledger.server.writer());
    for writer in [&mut first, &mut second] {
        writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    }
    let safe = ledger.worker.safe_vote_id().await.expect("a safe id");
    let error = ledger
        .worker
        .roll_up_votes(&ledger.lease, &safe, 1000, Pacing::Spread)
        .await
        .expect_err("blocks");
    assert!(
        matches!(error, LedgerError::Unfit(UnfitDatabase::Sequence(_))),
        "{error}"
    );
    assert!(error.to_string().contains("cache 100"), "{error}");
    // The owner repairs the sequence.
    ledger.change("alter sequence vote_id_seq cache 1").await;
    ledger.roll_up().await;
    first.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    assert_eq!(ledger.exact_count().await, 3);
    assert_eq!(ledger.stored().await, 3);
}

/// Meanwhile, a batch with a lower id may be stored.
#[tokio::test]
async fn a_roll_up_ends_without_effect_if_the_sequence_is_set_back_meanwhile() {
    let ledger = Ledger::start().await;
    let mut writer = ledger.server.writer();
    for _ in 0..3 {
        writer
            .insert(&[ledger.vote(Some("ada"))], &[])
            .await
            .expect("an insert");
    }
    let safe = ledger.worker.safe_vote_id().await.expect("a safe id");
    ledger.set_last(1).await;
    let error = ledger
        .worker
        .roll_up_votes(&ledger.lease, &safe, 1000, Pacing::Spread)
        .await;
    let error = error.expect_err("it was set back");
    assert!(error.to_string().contains("set back to 1"), "{error}");
    writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    ledger.roll_up().await;
    assert_eq!(ledger.exact_count().await, 2);
}

#[tokio::test]
async fn ids_that_nobody_used_are_passed_at_once() {
    let ledger = Ledger::start().await;
    let mut writer = ledger.server.writer();
    writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    for far in [1_000_000_000, 1_000_000_000_000] {
        ledger.set_last(far).await;
        writer.insert(&[ledger.vote(None)], &[]).await.expect("an insert");
    }
    let chunks = ledger.roll_up().await;
    assert_eq!(chunks.last().map(|last| last.votes), Some(3));
    assert!(chunks.len() <= 3, "{chunks:?}");
    // Nobody has used the last of these ids.
    ledger.set_last(1_000_000_000_000 + 1_000_000).await;
    let chunks = ledger.roll_up().await;
    assert_eq!(chunks.len(), 1, "{chunks:?}");
    assert_eq!(chunks[0].votes, 3);
    assert_eq!(ledger.exact_count().await, 3);
}
