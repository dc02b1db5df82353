//! The schema: its functions, its picture and its page.
//! Each function has a file. The picture is `migrations/schema.sql`, the page docs/data-model.md.

mod page;
mod picture;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sqlx::PgPool;
use tally::ledger::{OwnerLedger, Roles};

use crate::helpers::stores::Stores;

/// The folder `migrations`.
fn migrations() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")
}

/// The names of the functions that have a file.
fn files_of_functions() -> BTreeSet<String> {
    let files = std::fs::read_dir(migrations().join("functions")).expect("a folder");
    files
        .map(|file| {
            let path = file.expect("a file").path();
            assert_eq!(path.extension().and_then(|end| end.to_str()), Some("sql"));
            let name = path.file_stem().expect("a name");
            name.to_str().expect("a plain name").to_owned()
        })
        .collect()
}

/// The text of each function that the database has, in the order of their names.
async fn functions(pool: &PgPool) -> Vec<(String, String)> {
    sqlx::query_as(
        "select proname::text, pg_get_functiondef(oid) || coalesce(proacl::text, '')
         from pg_proc where pronamespace = current_schema()::regnamespace order by 1, 2",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers")
}

async fn migrate(url: &str) {
    let owner = OwnerLedger::new(url, "test").expect("a URL");
    assert_eq!(owner.migrate().await.expect("it migrates"), Roles::Granted);
    owner.close().await;
}

#[tokio::test]
async fn each_function_has_a_file_of_its_own_and_each_file_its_function() {
    let stores = Stores::start().await;
    let names: Vec<String> = functions(&stores.pool())
        .await
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let files: Vec<String> = files_of_functions().into_iter().collect();
    // A name that comes twice has two signatures.
    assert_eq!(names, files);
    for name in files {
        let file = migrations().join(format!("functions/{name}.sql"));
        let text = std::fs::read_to_string(file).expect("a text");
        assert!(text.starts_with("-- "), "{name} says what it does first");
        assert_eq!(text.matches("create or replace function ").count(), 1, "{name}");
    }
}

#[tokio::test]
async fn migrate_makes_every_function_again_what_its_file_says() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let before = functions(&pool).await;
    sqlx::raw_sql(
        "create or replace function poll_is_final(p_poll bigint) returns boolean
             language sql as 'select true';
         alter function cast_votes reset all;
         alter function note_act security invoker;
         grant execute on function decide_votes to public;
         drop function search_query;
         drop trigger vote_is_append_only on vote;
         drop trigger vote_changes_only_its_voter on vote;
         drop function vote_is_append_only;
         create function vote_is_append_only() returns trigger language plpgsql as 'begin return new; end'",
    )
    .execute(&pool)
    .await
    .expect("the owner may");
    assert_ne!(functions(&pool).await, before);
    migrate(&stores.database_url).await;
    assert_eq!(functions(&pool).await, before);
}
