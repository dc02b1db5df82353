//! The frontend's own keys, and the idempotency keys of batches.

use std::collections::HashMap;

use super::ServerLedger;
use crate::domain::{Found, IdempotencyKey, ItemId, ItemKey, PollId, PostgresRun};
use crate::ledger::LedgerError;

impl ServerLedger {
    /// The item with this key. An item keeps its key for good, in one run of Postgres.
    pub async fn item_with_key(&self, key: &ItemKey) -> Result<Option<Found<ItemId>>, LedgerError> {
        let row = sqlx::query!(
            r#"select id, postgres_run() as "run!" from item where key = $1"#,
            key.as_str()
        )
        .fetch_optional(&self.database.pool)
        .await?;
        Ok(row.and_then(|row| Some(self.found(ItemId::new(row.id)?, row.run))))
    }

    /// What was found in this run of Postgres, which the answer itself names.
    pub(super) fn found<Id>(&self, id: Id, run: i64) -> Found<Id> {
        let run = PostgresRun::new(run);
        self.runs.note(run);
        let run = Some(run);
        Found { id, run }
    }

    /// The items with these keys, in no order, each with its key.
    pub async fn items_with_keys(
        &self,
        keys: &[ItemKey],
    ) -> Result<Vec<(String, Found<ItemId>)>, LedgerError> {
        let keys: Vec<&str> = keys.iter().map(ItemKey::as_str).collect();
        let rows = sqlx::query!(
            r#"select key as "key!", id, (select postgres_run()) as "run!" from item where key = any($1::text[])"#,
            &keys as &[&str]
        )
        .fetch_all(&self.database.pool)
        .await?;
        // All rows are of one statement, and so of one run: it is noted once.
        let Some(run) = rows.first().map(|row| PostgresRun::new(row.run)) else {
            return Ok(Vec::new());
        };
        self.runs.note(run);
        let run = Some(run);
        let items = rows.into_iter().filter_map(|row| {
            Some((
                row.key,
                Found {
                    id: ItemId::new(row.id)?,
                    run,
                },
            ))
        });
        Ok(items.collect())
    }

    /// The keys of those of these items that have one.
    pub async fn keys_of_items(&self, items: &[ItemId]) -> Result<HashMap<ItemId, String>, LedgerError> {
        if items.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
        let rows = sqlx::query!(
            r#"select id, key as "key!" from item where id = any($1::bigint[]) and key is not null"#,
            &ids
        )
        .fetch_all(&self.database.pool)
        .await?;
        let keys = rows
            .into_iter()
            .filter_map(|row| Some((ItemId::new(row.id)?, row.key)));
        Ok(keys.collect())
    }

    /// The poll with this key. A poll keeps its key for good, in one run of Postgres.
    pub async fn poll_with_key(&self, key: &ItemKey) -> Result<Option<Found<PollId>>, LedgerError> {
        let row = sqlx::query!(
            r#"select id, postgres_run() as "run!" from rule where key = $1"#,
            key.as_str()
        )
        .fetch_optional(&self.database.pool)
        .await?;
        Ok(row.and_then(|row| Some(self.found(PollId::new(row.id)?, row.run))))
    }

    /// Notes the idempotency key of a batch. Returns false if the key was used with another body:
    /// the batch may not go on.
    pub async fn claim_key(&self, key: &IdempotencyKey) -> Result<bool, LedgerError> {
        loop {
            let is_same = sqlx::query_scalar!(
                r#"with claimed as (
                       insert into idempotency_key (key_hash, body_hash) values ($1, $2)
                       on conflict (key_hash) do nothing
                       returning body_hash
                   )
                   select body_hash = $2 as "is_same!" from (
                       select body_hash from claimed
                       union all
                       select body_hash from idempotency_key where key_hash = $1
                   ) as one"#,
                key.key.as_bytes(),
                key.body.as_bytes()
            )
            .fetch_optional(&self.database.pool)
            .await?;
            // None: another request noted the key just now, after this statement's snapshot.
            if let Some(is_same) = is_same {
                return Ok(is_same);
            }
        }
    }
}
