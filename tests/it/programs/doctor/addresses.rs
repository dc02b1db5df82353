//! What is wrong with the addresses and logins themselves.

use sqlx::Executor;
use tally::ledger::Role;

use super::{doctor_with, finds_with};
use crate::helpers::pooler::Pooler;
use crate::helpers::stores::Stores;

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_finds_a_wrong_database_login_password_or_pooler() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let worker = stores.login_url(Role::Worker);
    let in_database = |name: &str| {
        let (start, _) = stores.database_url.rsplit_once('/').expect("a database");
        format!("{start}/{name}")
    };
    let empty = stores
        .postgres
        .create_database("empty")
        .await
        .expect("a database");
    let foreign = stores
        .postgres
        .create_database("foreign_tables")
        .await
        .expect("a database");
    let of_others = testkit::stores::owner_pool(&foreign).expect("a URL");
    of_others
        .execute("create table item (what text)")
        .await
        .expect("a table");
    pool.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
        .await
        .expect("a database");
    let at_port =
        |url: &str, port: u16| url.replace(&format!(":{}/", stores.postgres.port()), &format!(":{port}/"));
    let (start, _) = worker.rsplit_once('@').expect("a login");
    let (scheme_and_user, _) = start.rsplit_once(':').expect("a password");
    let wrong_password = worker.replace(start, &format!("{scheme_and_user}:wrong"));
    let pooler = Pooler::start(&stores, "transaction").await;
    let cases = [
        (stores.database_url.clone(), "may do more than a worker needs"),
        (empty, "has not all tables"),
        (foreign, "is not Tally's"),
        (in_database("latin"), "encoding LATIN1"),
        (in_database("nowhere"), "does not exist"),
        (wrong_password, "password authentication failed"),
        (at_port(&worker, 1), "Connection refused"),
        (pooler.url(&stores, &worker), "pool sessions"),
    ];
    for (url, words) in &cases {
        finds_with(&stores, &[("DATABASE_URL", url)], words).await;
    }
    let redis = stores.redis_login_url(Role::Worker);
    let port = stores.redis.port();
    let cases = [
        (redis.replace(&format!(":{port}/"), ":1/"), "Redis: "),
        (
            redis.replace("worker:", "nobody:"),
            "does not take the user and password",
        ),
        (stores.redis_login_url(Role::Server), "may not"),
    ];
    for (url, words) in &cases {
        finds_with(&stores, &[("REDIS_URL", url)], words).await;
    }
    let (_, bad) = doctor_with(&stores, &[]).await;
    assert!(bad.iter().all(|one| !one.contains("Redis")), "{bad:?}");
}
