//! Epochs in Postgres: the number of the one that counts are saved in, and the last entry of each bucket of Redis, which
//! says in which Redis the counts are.

use std::time::Duration;

use super::WorkerLedger;
use crate::ledger::pool::{InUse, Transaction};
use crate::ledger::{LedgerError, Overtaken};

/// For how long a worker that has said nothing, or has noted an entry, may still be at work.
pub const ALIVE_LIMIT_SILENCE: Duration = Duration::from_secs(10);

/// The number of an epoch in Postgres: a fencing token for writing counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochNumber(pub(super) i64);

/// The last entry of a bucket into an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedEntry {
    /// The bucket's place among all.
    pub bucket: i16,
    /// As in Redis; while a worker is entering it, the name of its mark.
    pub entry: String,
    /// Which run of which Redis has the bucket.
    pub redis: String,
}

/// What Postgres notes of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedEntries {
    /// The number of the epoch at that moment.
    pub number: EpochNumber,
    /// Those of Redises with as many buckets.
    pub entries: Vec<NotedEntry>,
    /// Whether there are others: of a Redis with another number of buckets.
    pub are_of_another: bool,
    /// Whether one was noted so lately that its worker may have sent no heartbeat yet.
    pub are_fresh: bool,
}

impl WorkerLedger {
    /// The number of the current epoch. Read it before the counters: a count that was read in one
    /// epoch is not written in another.
    pub async fn epoch_number(&self) -> Result<EpochNumber, LedgerError> {
        let number = sqlx::query_scalar!("select number from epoch")
            .fetch_one(&self.database.pool)
            .await?;
        Ok(EpochNumber(number))
    }

    /// Begins another epoch: counts that were read before are no longer written. Waits until writes
    /// that are under way have ended. From now on the counts of these buckets are in these Redises, and in none with
    /// another number of buckets.
    pub async fn begin_epoch(&self, bucket_count: i16, entries: &[NotedEntry]) -> Result<(), LedgerError> {
        let (buckets, texts, redises) = columns(entries);
        let mut transaction = self.database.pool.begin().await?;
        let begun = async {
            sqlx::query!("update epoch set number = number + 1")
                .execute(&mut *transaction)
                .await?;
            // A statement of its own, which sees what another worker noted before that.
            sqlx::query!(
                "with gone as (
                     delete from epoch_entry where bucket_count <> $1
                 )
                 insert into epoch_entry (bucket_count, bucket, entry, redis)
                 select $1, given.bucket, given.entry, given.redis
                 from unnest($2::smallint[], $3::text[], $4::text[]) as given (bucket, entry, redis)
                 order by given.bucket
                 on conflict (bucket_count, bucket) do update
                 set entry = excluded.entry, redis = excluded.redis, noted_at = excluded.noted_at",
                bucket_count,
                &buckets,
                &texts,
                &redises
            )
            .execute(&mut *transaction)
            .await?;
            Ok(())
        };
        let begun = begun.await;
        transaction.end(begun).await
    }

    /// The last entries of all buckets, where Redis has so many.
    pub async fn noted_entries(&self, bucket_count: i16) -> Result<NotedEntries, LedgerError> {
        let rows = sqlx::query!(
            r#"select epoch.number,
                      exists (select from epoch_entry where bucket_count <> $1) as "are_of_another!",
                      exists (select from epoch_entry
                              where noted_at > clock_timestamp() - $2::bigint * interval '1 ms') as "are_fresh!",
                      noted.bucket as "bucket?", noted.entry as "entry?", noted.redis as "redis?"
               from epoch left join epoch_entry as noted on noted.bucket_count = $1"#,
            bucket_count,
            ALIVE_LIMIT_SILENCE.as_millis() as i64
        )
        .fetch_all(&self.database.pool)
        .await?;
        let first = rows.first();
        Ok(NotedEntries {
            number: EpochNumber(first.map_or(0, |row| row.number)),
            are_of_another: first.is_some_and(|row| row.are_of_another),
            are_fresh: first.is_some_and(|row| row.are_fresh),
            entries: rows
                .into_iter()
                .filter_map(|row| {
                    Some(NotedEntry {
                        bucket: row.bucket?,
                        entry: row.entry?,
                        redis: row.redis?,
                    })
                })
                .collect(),
        })
    }

    /// Whether other workers are alive. One that is left behind says nothing.
    pub async fn has_other_workers(&self) -> Result<bool, LedgerError> {
        Ok(sqlx::query_scalar!(
            r#"select exists (select from worker
                              where name <> $1
                                and seen_at > clock_timestamp() - $2::bigint * interval '1 ms') as "has!""#,
            &*self.name,
            ALIVE_LIMIT_SILENCE.as_millis() as i64
        )
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// The last entry of each of these buckets, once no other worker is about to note one.
    pub async fn decided_entries(&self, bucket_count: i16) -> Result<Vec<NotedEntry>, LedgerError> {
        Ok(sqlx::query_as!(
            NotedEntry,
            "select bucket, entry, redis from epoch_entry where bucket_count = $1 order by bucket for share",
            bucket_count
        )
        .fetch_all(&self.database.pool)
        .await?)
    }

    /// Begins to note entries. Whoever enters the same buckets waits until this has ended; meanwhile they are made in
    /// Redis, so that both stores have the same ones.
    ///
    /// # Errors
    /// When Postgres is unavailable, or another worker takes too long.
    pub async fn begin_noting(
        &self,
        bucket_count: i16,
        entries: &[NotedEntry],
    ) -> Result<Noting, LedgerError> {
        let (buckets, texts, redises) = columns(entries);
        let mut transaction = self.database.pool.begin().await?;
        let noted = async {
            // In one order, so that two workers do not wait for each other.
            sqlx::query!(
                "select from epoch_entry where bucket_count = $1 order by bucket for update",
                bucket_count
            )
            .fetch_all(&mut *transaction)
            .await?;
            sqlx::query_scalar!(
                "update epoch_entry as noted set entry = given.entry, noted_at = clock_timestamp()
                 from unnest($2::smallint[], $3::text[], $4::text[]) as given (bucket, entry, redis)
                 where noted.bucket_count = $1 and noted.bucket = given.bucket and noted.redis = given.redis
                 returning noted.bucket",
                bucket_count,
                &buckets,
                &texts,
                &redises
            )
            .fetch_all(&mut *transaction)
            .await
        };
        match noted.await {
            Ok(still) => Ok(Noting { transaction, still }),
            Err(error) => transaction.end(Err(LedgerError::from(error))).await,
        }
    }
}

/// Entries that are being noted.
pub struct Noting {
    transaction: Transaction,
    /// The buckets that are still in these Redises: no worker has begun to enter them in another one since
    /// [`WorkerLedger::begin_epoch`].
    pub still: Vec<i16>,
}

impl Noting {
    /// Notes them.
    ///
    /// # Errors
    /// When Postgres is unavailable. Then Redis may have other entries than Postgres: they are none.
    pub async fn end(self) -> Result<(), LedgerError> {
        self.transaction.end(Ok(())).await
    }
}

fn columns(entries: &[NotedEntry]) -> (Vec<i16>, Vec<String>, Vec<String>) {
    let mut all = (Vec::new(), Vec::new(), Vec::new());
    for one in entries {
        all.0.push(one.bucket);
        all.1.push(one.entry.clone());
        all.2.push(one.redis.clone());
    }
    all
}

/// Checks that no other epoch has begun, and keeps one from beginning until the transaction ends.
///
/// # Errors
/// When another one has ([`Overtaken::EpochEnded`]).
pub(super) async fn check_epoch(connection: &mut InUse, epoch: EpochNumber) -> Result<(), LedgerError> {
    let number = sqlx::query_scalar!("select number from epoch for share")
        .fetch_one(connection)
        .await?;
    if number == epoch.0 {
        Ok(())
    } else {
        Err(LedgerError::Overtaken(Overtaken::EpochEnded))
    }
}
