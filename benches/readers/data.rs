//! A million items and 200,000 polls, with names whose words are rare and common.

use sqlx::PgPool;

/// Items without a poll, each with a key.
pub const PLAIN_ITEMS: i64 = 600_000;
/// Polls of two choices each: 400,000 items more.
pub const POLLS: i64 = 200_000;
/// Words in names, besides the word that all have.
pub const WORDS: i64 = 5_000;

/// Fills the tables. Half of the names have one of the ten most frequent words.
///
/// # Errors
/// When Postgres fails.
pub async fn fill(owner: &PgPool) -> anyhow::Result<()> {
    for statement in [
        format!(
            "insert into item (name, key)
             select 'post ' || word(n) || ' ' || word(n + 7), 'post-' || n from generate_series(1, {PLAIN_ITEMS}) n"
        ),
        format!(
            "insert into rule (title, key)
             select 'poll ' || word(n) || ' ' || word(n + 7), 'poll-' || n from generate_series(1, {POLLS}) n"
        ),
        "insert into item (name, rule_id)
         select choice || ' ' || word(rule.id), rule.id from rule, (values ('yes'), ('no')) choices (choice)
         order by rule.id, choice"
            .to_owned(),
    ] {
        let with_word = statement.replace("word(", "pg_temp.word(");
        let mut connection = owner.acquire().await?;
        sqlx::raw_sql(&format!(
            "create or replace function pg_temp.word(n bigint) returns text immutable language sql as $$
                 select 'w' || case when hashint8(n) & 1 = 0 then hashint8(n) >> 1 & 7
                                    else abs(hashint8(n) % {WORDS}) end
             $$"
        ))
        .execute(&mut *connection)
        .await?;
        sqlx::raw_sql(&with_word).execute(&mut *connection).await?;
    }
    sqlx::raw_sql("vacuum analyze").execute(owner).await?;
    Ok(())
}
