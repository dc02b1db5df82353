//! How far batch writers are, which are gone, and what they left uncounted.

use super::WorkerLedger;
use super::epochs::{EpochNumber, check_epoch};
use super::roll_up::{ROLL_UP_LIMIT_IDS, last_unused};
use crate::domain::{ItemId, VoteId};
use crate::ledger::LedgerError;

/// The most closed batch writers in one pass.
const CLOSED_LIMIT_WRITERS: i64 = 1000;

/// How far all batch writers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Also writers that are gone, until they are forgotten.
    pub writers: Vec<WriterProgress>,
    /// The last vote id that was drawn.
    pub drawn: VoteId,
}

/// How far a batch writer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterProgress {
    /// The name of its connection.
    pub name: String,
    /// All its votes with ids up to this one are counted.
    pub counted: VoteId,
}

impl WorkerLedger {
    /// How far each batch writer is.
    pub async fn progress(&self) -> Result<Progress, LedgerError> {
        let rows = sqlx::query!(
            r#"select last_value as "drawn!", name as "name?", counted_vote_id as "counted?"
               from vote_id_seq left join writer_connection on true"#
        )
        .fetch_all(&self.database.pool)
        .await?;
        let drawn = rows.first().map_or(0, |row| row.drawn);
        let writers = rows.into_iter().filter_map(|row| {
            Some(WriterProgress {
                name: row.name?,
                counted: VoteId::new(row.counted?),
            })
        });
        Ok(Progress {
            writers: writers.collect(),
            drawn: VoteId::new(drawn),
        })
    }

    /// The names of batch writers whose connection is gone. All their votes are decided, and they
    /// will never count the rest.
    pub async fn closed_writers(&self) -> Result<Vec<String>, LedgerError> {
        // A batch writer's connection is in pg_stat_activity before its row is in
        // writer_connection, and the rows are read first.
        Ok(sqlx::query_scalar!(
            "select name from writer_connection
             where name not in (select application_name from pg_stat_activity where application_name is not null)
             limit $1",
            CLOSED_LIMIT_WRITERS
        )
        .fetch_all(&self.database.pool)
        .await?)
    }

    /// Removes closed batch writers, after everything that they left is counted.
    pub async fn forget_writers(&self, names: &[String], epoch: EpochNumber) -> Result<(), LedgerError> {
        let mut transaction = self.database.pool.begin().await?;
        let forgotten = async {
            check_epoch(&mut transaction, epoch).await?;
            sqlx::query!("delete from writer_connection where name = any($1)", names)
                .execute(&mut *transaction)
                .await?;
            Ok(())
        };
        let forgotten = forgotten.await;
        transaction.end(forgotten).await
    }

    /// The ids of votes that these closed batch writers may have left uncounted. The range is above
    /// the first id, up to the second. It is empty if they are all forgotten by now.
    pub async fn ids_left_by(&self, closed: &[String]) -> Result<(VoteId, VoteId), LedgerError> {
        let row = sqlx::query!(
            r#"select coalesce(min(counted_vote_id), max(last_value)) as "after!", max(last_value) as "last!"
               from vote_id_seq left join writer_connection on name = any($1)"#,
            closed
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok((VoteId::new(row.after), VoteId::new(row.last)))
    }

    /// The items of the next votes with ids above `after`, each once. With them comes the last id
    /// that was looked at. Votes below the watermark are among them.
    pub async fn items_voted_on(
        &self,
        after: VoteId,
        last: VoteId,
    ) -> Result<(Vec<ItemId>, VoteId), LedgerError> {
        let after = last_unused(&self.database.pool, after.get(), last.get()).await?;
        let end = after.saturating_add(ROLL_UP_LIMIT_IDS).min(last.get());
        let ids = sqlx::query_scalar!(
            "select distinct item_id from vote where id > $1 and id <= $2",
            after,
            end
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok((
            ids.into_iter().filter_map(ItemId::new).collect(),
            VoteId::new(end),
        ))
    }
}
