//! The upgrade from the version before the key prefix: its keys in Redis are not read, and the
//! first pass of the new worker makes every count right.

use std::path::{Path, PathBuf};

use redis::AsyncCommands;
use sqlx::PgPool;

use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// A counter of the former version: fields and values.
fn former_counter(count: &str) -> [(&'static str, String); 4] {
    [
        ("count", count.to_owned()),
        ("rev", "1790000000000000".to_owned()),
        ("saved", "1790000000000000".to_owned()),
        ("seeded", "1790000000".to_owned()),
    ]
}

/// A database of its own, as the migrations up to this one left it.
async fn database_of(stores: &Stores, last: &str) -> PgPool {
    let owner = stores.pool();
    sqlx::raw_sql("create database former")
        .execute(&owner)
        .await
        .expect("a database");
    let options = (*owner.connect_options()).clone().database("former");
    let pool = PgPool::connect_with(options).await.expect("a connection");
    for file in migrations()
        .iter()
        .filter(|file| file_name(file).as_str() <= last)
    {
        run(&pool, file).await;
    }
    pool
}

fn migrations() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let files = std::fs::read_dir(folder).expect("the migrations").flatten();
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.sort();
    files
}

fn file_name(file: &Path) -> String {
    file.file_name().expect("a name").to_string_lossy().into_owned()
}

async fn run(pool: &PgPool, file: &Path) {
    let text = std::fs::read_to_string(file).expect("a migration");
    let mut transaction = pool.begin().await.expect("a transaction");
    sqlx::raw_sql(&text)
        .execute(&mut *transaction)
        .await
        .expect("it runs");
    transaction.commit().await.expect("a commit");
}

#[tokio::test]
async fn migration_0014_finds_the_down_votes_up_to_the_watermark() {
    let stores = Stores::start().await;
    let pool = database_of(&stores, "0014").await;
    sqlx::raw_sql(
        "insert into item (name) values ('mixed'), ('up'), ('beyond');
         insert into vote (item_id, value, change_number, voter_id) values
             (1, -1, 0, 'ada'), (1, -1, 0, 'bob'), (1, 1, 1, 'bob'),
             (1, 1, 0, 'cy'), (1, -1, 1, 'cy'), (1, -1, 2, 'cy'), (2, 1, 0, 'ada');
         update watermark set vote_id = 7, votes = 7;
         insert into vote (item_id, value) values (3, -1)",
    )
    .execute(&pool)
    .await
    .expect("a former database");
    for file in migrations()
        .iter()
        .filter(|file| file_name(file).starts_with("0014"))
    {
        run(&pool, file).await;
    }
    let downs: Vec<(i64, i64)> =
        sqlx::query_as("select audited_down_count, down_count from item order by id")
            .fetch_all(&pool)
            .await
            .expect("items");
    assert_eq!(downs, [(2, 2), (0, 0), (0, 0)]);
}

#[tokio::test]
async fn migration_0033_keeps_the_audited_counts() {
    let stores = Stores::start().await;
    let pool = database_of(&stores, "0033").await;
    sqlx::raw_sql(
        "insert into item (name, audited_count, audited_down_count)
         values ('up', 3, 0), ('new', 0, 0), ('even', 0, 2)",
    )
    .execute(&pool)
    .await
    .expect("a former database");
    for file in migrations()
        .iter()
        .filter(|file| file_name(file).starts_with("0033"))
    {
        run(&pool, file).await;
    }
    let audited: Vec<(i64, i64, i64)> =
        sqlx::query_as("select item_id, vote_count, down_count from audited_count order by item_id")
            .fetch_all(&pool)
            .await
            .expect("audited counts");
    assert_eq!(audited, [(1, 3, 0), (3, 0, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_upgrade_every_count_is_right_whatever_the_former_version_left_in_redis() {
    let tally = Tally::start().await;
    let (saved, behind, never) = (
        tally.item("saved").await,
        tally.item("behind").await,
        tally.item("never saved").await,
    );
    let mut redis = tally.stores.redis_connection().await;
    let mut former = Vec::new();
    // The ledger has 3 votes on each item. The former version's live counts had 3, and not all
    // of them were saved.
    for (item, saved_count) in [(saved, 3), (behind, 2), (never, 0)] {
        sqlx::query("insert into vote (item_id) select $1 from generate_series(1, 3)")
            .bind(item.get())
            .execute(&tally.pool)
            .await
            .expect("votes");
        sqlx::query(
            "update item set vote_count = $2, counted_at = case when $2 > 0 then now() end where id = $1",
        )
        .bind(item.get())
        .bind(saved_count)
        .execute(&tally.pool)
        .await
        .expect("a saved count");
        let key = format!("item:{{{item}}}");
        let () = redis
            .hset_multiple(&key, &former_counter("3"))
            .await
            .expect("Redis answers");
        former.push(key);
    }
    // The former epoch: run, replication and token of the very same stores, without a layout.
    let current = tally.counters.current_epoch().await.expect("Redis answers");
    let token = tally.ledger.incarnation().await.expect("Postgres answers");
    let () = redis
        .set("tally:epoch", format!("{current}:{token}"))
        .await
        .expect("Redis answers");

    // A vote before the worker's first pass.
    assert_eq!(tally.add(saved, 1).await, Some(4));
    let worker = tally.worker();
    // The live count of `saved`, and the other two, which are behind.
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), Some(3));
    assert_eq!(worker.enter_epoch().await.expect("the stores answer"), None);
    for (item, count) in [(saved, 4), (behind, 3), (never, 3)] {
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(tally.saved_count(item).await, count);
    }
    for (item, count) in [(saved, 5), (behind, 4), (never, 4)] {
        assert_eq!(tally.add(item, 1).await, Some(count));
        tally.assert_exact_when_quiescent(item).await;
    }
    for key in former {
        let fields: usize = redis.hlen(&key).await.expect("Redis answers");
        assert_eq!(fields, 4, "{key} is nobody's now, and stays as it was");
    }
}
