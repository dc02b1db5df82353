//! Retries of a worker's statements: after which failures, and how often.

use sqlx::PgPool;
use tally::domain::{CountToSave, Revision};
use tally::ledger::{DEADLOCK_LIMIT_TRIES, LedgerError, Pacing, Role};

use super::{item, vote};
use crate::helpers::stores::{Stores, read_under};
use crate::helpers::tally::{ledger, roll_up_lease, server_ledger};

const DEADLOCK: &str = "40P01";
const LOCK_TIMEOUT: &str = "55P03";
/// insufficient_privilege.
const REFUSED: &str = "42501";

/// Makes this many statements that write so fail with this SQLSTATE.
/// `writing` names them: `update on item`, for example.
async fn fail(pool: &PgPool, writing: &str, code: &str, times: i64) {
    let statements = format!(
        "create sequence if not exists writes;
         create or replace function fail() returns trigger security definer language plpgsql as $$
         begin
             if nextval('writes') <= {times} then raise exception 'x' using errcode = '{code}'; end if;
             return null;
         end $$;
         create or replace trigger fail before {writing} for each statement execute function fail();
         alter sequence writes restart"
    );
    sqlx::raw_sql(&statements)
        .execute(pool)
        .await
        .expect("the owner may");
}

/// How many statements have written so since then.
async fn writes(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select case when is_called then last_value else 0 end from writes")
        .fetch_one(pool)
        .await
        .expect("Postgres answers")
}

#[tokio::test]
async fn a_save_that_postgres_ends_for_a_deadlock_is_tried_again_and_one_that_fails_otherwise_is_not() {
    let stores = Stores::start().await;
    let (pool, ledger) = (stores.pool(), ledger(&stores.database_url));
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let epoch = ledger.epoch_number().await.expect("an epoch");
    let tries = i64::from(DEADLOCK_LIMIT_TRIES);
    let save = async |count: i64| {
        let one = CountToSave {
            item_id: x,
            count: count.into(),
            revision: Revision::from_micros(count),
        };
        ledger.save_counts(&[one], epoch).await
    };
    fail(&pool, "update on item", DEADLOCK, tries - 1).await;
    assert!(save(1).await.expect("the last try").contains(x));
    assert_eq!(writes(&pool).await, tries);

    fail(&pool, "update on item", DEADLOCK, tries).await;
    assert!(matches!(save(2).await, Err(LedgerError::Postgres(_))));
    assert_eq!(writes(&pool).await, tries, "no further try");

    // The save leaves out the locked row.
    fail(&pool, "update on item", LOCK_TIMEOUT, 1).await;
    assert!(save(3).await.expect("the second way").contains(x));
    assert_eq!(writes(&pool).await, 2);

    fail(&pool, "update on item", REFUSED, 1).await;
    assert!(save(4).await.is_err());
    assert_eq!(writes(&pool).await, 1);
    let item = server.item_reader().read(&[x]).await.expect("Postgres").remove(0);
    assert_eq!(item.saved_count, 3.into());
}

/// No other worker writes these rows, so a retry at once is of no use.
/// The next roll-up takes the votes.
#[tokio::test]
async fn a_roll_up_that_fails_stores_nothing_and_leaves_its_votes_to_the_next() {
    let stores = Stores::start().await;
    let (pool, ledger) = (stores.pool(), ledger(&stores.database_url));
    let lease = roll_up_lease(&ledger).await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let roll_up = async || {
        server
            .writer()
            .insert(&[vote(x, None)], &[])
            .await
            .expect("a vote");
        let safe = ledger.safe_vote_id().await.expect("a safe id");
        ledger.roll_up_votes(&lease, &safe, 100, Pacing::Spread).await
    };
    for code in [DEADLOCK, LOCK_TIMEOUT, REFUSED] {
        fail(&pool, "insert on audited_count", code, 1).await;
        assert!(roll_up().await.is_err(), "{code}");
        assert_eq!(writes(&pool).await, 1, "{code}");
        // A roll-up right after it finds the watermark free.
        let votes: i64 = sqlx::query_scalar("select vote_total from watermark")
            .fetch_one(&pool)
            .await
            .expect("Postgres answers");
        let rolled_up = roll_up().await.expect("a roll-up").expect("votes");
        assert_eq!(rolled_up.votes, votes + 2, "{code}");
    }
    let audited: i64 = sqlx::query_scalar("select vote_count from audited_count")
        .fetch_one(&pool)
        .await
        .expect("Postgres answers");
    assert_eq!(audited, 6);
}

/// After a restart of Postgres, a retry of a read over another connection is safe.
/// A read that fails on a working connection would fail again, and take as long again.
#[tokio::test]
async fn a_read_of_items_that_fails_over_a_connection_that_lives_is_not_tried_again() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.login_url(Role::Server));
    let x = item(&server_ledger(&stores.database_url)).await;
    let mut reader = server.item_reader();
    assert_eq!(reader.read(&[x]).await.expect("an item").len(), 1);
    let statements = "create sequence reads;
         create function fail_to_read() returns boolean security definer language plpgsql as $$
         begin
             perform nextval('reads');
             raise exception 'x';
         end $$";
    sqlx::raw_sql(statements)
        .execute(&pool)
        .await
        .expect("the owner may");
    read_under(&pool, "item", "fail_to_read()").await;
    assert!(matches!(reader.read(&[x]).await, Err(LedgerError::Postgres(_))));
    let reads: i64 = sqlx::query_scalar("select last_value from reads")
        .fetch_one(&pool)
        .await
        .expect("Postgres answers");
    assert_eq!(reads, 1);
}
