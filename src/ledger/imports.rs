//! The operator's statements of `tally import`. Its votes are stored by [`VoteWriter`](super::VoteWriter).

use std::collections::HashMap;

use serde_json::Value;

use super::{LedgerError, OperatorLedger};
use crate::domain::{Import, ImportId, ItemId, Moment};

/// What became of a chunk of items or polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Created {
    pub created: i64,
    /// For each in its order, why it was not created. `None`: it was, or was there already.
    pub whys: Vec<Option<String>>,
}

/// A file of votes.
#[derive(Clone, Debug)]
pub struct NewImport<'a> {
    /// SHA-256 of its bytes, and of how they are read.
    pub hash: &'a [u8],
    pub name: &'a str,
    /// `None`: `tally export` has not written it.
    pub source: Option<ImportSource>,
}

/// What the first line of an export says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportSource {
    /// Which Tally.
    pub tally: String,
    /// Its votes are above this id, up to `until`.
    pub after: i64,
    pub until: i64,
}

/// Why a file is not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportOfFileError {
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("this file is an export of this very Tally: its votes are here already, or counted and archived")]
    Own,
    #[error(
        "votes of this Tally, above {after} up to {until}, were imported before, as import {import}; export those \
         above {until} with --after {until}, or, to store lines that were refused, put only these into a file \
         without the export's first line"
    )]
    Overlap { import: i64, after: i64, until: i64 },
}

impl OperatorLedger {
    /// The import of this file. Creates it if there is none. Waits for a chunk of it that is being stored.
    ///
    /// # Errors
    /// When votes of the file were imported from another one.
    pub async fn import_of_file(&self, file: &NewImport<'_>) -> Result<Import, ImportOfFileError> {
        let source = file.source.as_ref();
        if let Some(source) = source {
            let own = sqlx::query_scalar!("select id from identity")
                .fetch_optional(self.as_server().pool())
                .await
                .map_err(LedgerError::from)?;
            if own.as_deref() == Some(&source.tally) {
                return Err(ImportOfFileError::Own);
            }
            let other = sqlx::query!(
                r#"select id, after_vote_id as "after!", until_vote_id as "until!" from import
                   where source = $1 and after_vote_id < $3 and until_vote_id > $2 and file_hash <> $4
                   order by until_vote_id desc limit 1"#,
                source.tally,
                source.after,
                source.until,
                file.hash
            )
            .fetch_optional(self.as_server().pool())
            .await
            .map_err(LedgerError::from)?;
            if let Some(other) = other {
                return Err(ImportOfFileError::Overlap {
                    import: other.id,
                    after: other.after,
                    until: other.until,
                });
            }
        }
        sqlx::query!(
            "insert into import (file_hash, file_name, source, after_vote_id, until_vote_id) values ($1, $2, $3, $4, $5)
             on conflict (file_hash) do nothing",
            file.hash,
            file.name,
            source.map(|source| source.tally.as_str()),
            source.map(|source| source.after),
            source.map(|source| source.until)
        )
        .execute(self.as_server().pool())
        .await
        .map_err(LedgerError::from)?;
        // Whoever was killed may have left a chunk that is being stored.
        let id = sqlx::query_scalar!("select id from import where file_hash = $1 for update", file.hash)
            .fetch_one(self.as_server().pool())
            .await
            .map_err(LedgerError::from)?;
        Ok(self.import(ImportId(id)).await?)
    }

    /// How far this import is.
    pub async fn import(&self, id: ImportId) -> Result<Import, LedgerError> {
        let row = sqlx::query!(
            r#"select done_line, stored_votes, repeated_votes, refused_lines,
                      (extract(epoch from ended_at) * 1000000)::bigint as ended_at
               from import where id = $1"#,
            id.0
        )
        .fetch_one(self.as_server().pool())
        .await?;
        Ok(Import {
            id,
            done_line: row.done_line,
            stored_votes: row.stored_votes,
            repeated_votes: row.repeated_votes,
            refused_lines: row.refused_lines,
            ended_at: row.ended_at.map(Moment::from_micros),
        })
    }

    /// Notes that the end of the file was reached.
    pub async fn end_import(&self, import: ImportId) -> Result<(), LedgerError> {
        sqlx::query!(
            "update import set ended_at = now() where id = $1 and ended_at is null",
            import.0
        )
        .execute(self.as_server().pool())
        .await?;
        Ok(())
    }

    /// Which of these items there are.
    pub async fn items_that_exist(&self, ids: &[i64]) -> Result<Vec<i64>, LedgerError> {
        let found = sqlx::query_scalar!("select id from item where id = any($1)", ids);
        Ok(found.fetch_all(self.as_server().pool()).await?)
    }

    /// The items with these keys.
    pub async fn items_with_keys(&self, keys: &[&str]) -> Result<HashMap<String, ItemId>, LedgerError> {
        let rows = sqlx::query!(
            r#"select key as "key!", id from item where key = any($1::text[] collate "C")"#,
            keys as &[&str]
        )
        .fetch_all(self.as_server().pool())
        .await?;
        let found = rows.into_iter().map(|row| Some((row.key, ItemId::new(row.id)?)));
        Ok(found.flatten().collect())
    }

    /// The items with these names; `None`: several have the name.
    pub async fn items_with_names(
        &self,
        names: &[&str],
    ) -> Result<HashMap<String, Option<ItemId>>, LedgerError> {
        let rows = sqlx::query!(
            r#"select name, min(id) as "id!", count(*) as "total!"
               from item where name = any($1::text[] collate "C") group by name"#,
            names as &[&str]
        )
        .fetch_all(self.as_server().pool())
        .await?;
        let found = rows.into_iter().map(|row| {
            let only = ItemId::new(row.id).filter(|_| row.total == 1);
            (row.name, only)
        });
        Ok(found.collect())
    }

    /// Makes sure that items and rules that are created later have higher ids than these.
    pub async fn reserve_ids(&self, item: i64, rule: i64) -> Result<(), LedgerError> {
        sqlx::query!("select reserve_ids($1, $2)", item, rule)
            .execute(self.as_server().pool())
            .await?;
        Ok(())
    }

    /// Creates items, as `import_items` takes them.
    pub async fn import_items(&self, items: &[Value]) -> Result<Created, LedgerError> {
        let row = sqlx::query!(
            r#"select created as "created!", whys as "whys!: Vec<Option<String>>" from import_items($1::text::jsonb)"#,
            Value::from(items.to_vec()).to_string()
        )
        .fetch_one(self.as_server().pool())
        .await?;
        Ok(Created {
            created: row.created,
            whys: row.whys,
        })
    }

    /// Creates polls, as `import_polls` takes them.
    pub async fn import_polls(&self, polls: &[Value]) -> Result<Created, LedgerError> {
        let row = sqlx::query!(
            r#"select created as "created!", whys as "whys!: Vec<Option<String>>" from import_polls($1::text::jsonb)"#,
            Value::from(polls.to_vec()).to_string()
        )
        .fetch_one(self.as_server().pool())
        .await?;
        Ok(Created {
            created: row.created,
            whys: row.whys,
        })
    }
}
