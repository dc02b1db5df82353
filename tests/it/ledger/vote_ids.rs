//! Vote ids only go up. Someone who sets their sequence otherwise loses no vote from the counts.

use sqlx::{Executor, PgPool};
use tally::domain::NewVote;
use tally::ledger::{InsertError, LedgerError};

use super::{item, vote};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{ledger, server_ledger};

async fn stored(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from vote")
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test]
async fn a_batch_whose_ids_are_not_beyond_the_watermark_is_not_stored() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (ledger, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let x = item(&server).await;
    let mut writer = server.writer();
    // Repeats leave ids unused: there, no vote has the id already.
    writer.insert(&[vote(x, Some("ada"))]).await.expect("an insert");
    for _ in 0..8 {
        writer.insert(&[vote(x, Some("ada"))]).await.expect("a repeat");
    }
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    ledger.roll_up_votes(safe, 1000).await.expect("a roll-up");
    let batches: [&[NewVote]; 2] = [&[vote(x, None)], &[vote(x, Some("bob")), vote(x, Some("ada"))]];
    for batch in batches {
        pool.execute("select setval('vote_id_seq', 3)")
            .await
            .expect("the owner may");
        let error = writer.insert(batch).await.expect_err("it was set back");
        let InsertError::NotStored(error) = error else {
            panic!("it is certain: {error}");
        };
        assert!(error.to_string().contains("set back"), "{error}");
        assert_eq!(stored(&pool).await, 2);
    }
    pool.execute("select setval('vote_id_seq', 10)")
        .await
        .expect("the owner may");
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let exact = ledger.exact_counts(&[x]).await.expect("counts");
    assert_eq!(exact[0].count, 3);
}

#[tokio::test]
async fn votes_are_not_rolled_up_while_their_sequence_gives_out_blocks_of_ids() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (ledger, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let x = item(&server).await;
    pool.execute("alter sequence vote_id_seq cache 100")
        .await
        .expect("the owner may");
    let (mut first, mut second) = (server.writer(), server.writer());
    for writer in [&mut first, &mut second] {
        writer.insert(&[vote(x, None)]).await.expect("an insert");
    }
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let error = ledger.roll_up_votes(safe, 1000).await.expect_err("blocks");
    assert!(matches!(error, LedgerError::Sequence(_)), "{error}");
    assert!(error.to_string().contains("cache 100"), "{error}");
    // Set right again.
    pool.execute("alter sequence vote_id_seq cache 1")
        .await
        .expect("the owner may");
    ledger.roll_up_votes(safe, 1000).await.expect("a roll-up");
    first.insert(&[vote(x, None)]).await.expect("an insert");
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 3);
    assert_eq!(stored(&pool).await, 3);
}

/// A batch with an id below may be stored in between.
#[tokio::test]
async fn a_roll_up_ends_without_effect_if_the_sequence_is_set_back_meanwhile() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (ledger, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let x = item(&server).await;
    let mut writer = server.writer();
    for _ in 0..3 {
        writer.insert(&[vote(x, Some("ada"))]).await.expect("an insert");
    }
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    pool.execute("select setval('vote_id_seq', 1)")
        .await
        .expect("the owner may");
    let error = ledger
        .roll_up_votes(safe, 1000)
        .await
        .expect_err("it was set back");
    assert!(error.to_string().contains("set back to 1"), "{error}");
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    ledger.roll_up_votes(safe, 1000).await.expect("a roll-up");
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 2);
}

#[tokio::test]
async fn ids_that_nobody_used_are_passed_at_once() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (ledger, server) = (ledger(&stores.database_url), server_ledger(&stores.database_url));
    let x = item(&server).await;
    let mut writer = server.writer();
    writer.insert(&[vote(x, None)]).await.expect("an insert");
    for far in [1_000_000_000_000, 4_000_000_000_000_000_000_i64] {
        sqlx::query("select setval('vote_id_seq', $1)")
            .bind(far)
            .execute(&pool)
            .await
            .expect("the owner may");
        writer.insert(&[vote(x, None)]).await.expect("an insert");
    }
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let mut rolled_up = Vec::new();
    while let Some(chunk) = ledger.roll_up_votes(safe, 1000).await.expect("a roll-up") {
        rolled_up.push((chunk.watermark, chunk.votes));
    }
    assert_eq!(rolled_up.last(), Some(&(safe, 3)));
    assert!(rolled_up.len() <= 3, "{rolled_up:?}");
    // Nobody has used the last of them.
    pool.execute("select setval('vote_id_seq', 4000000000000000100)")
        .await
        .expect("the owner may");
    let safe = ledger.safe_vote_id().await.expect("a safe id");
    let chunk = ledger
        .roll_up_votes(safe, 1)
        .await
        .expect("a roll-up")
        .expect("a chunk");
    assert_eq!((chunk.watermark, chunk.votes), (safe, 3));
    assert_eq!(ledger.exact_counts(&[x]).await.expect("counts")[0].count, 3);
}
