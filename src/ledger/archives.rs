//! The operator's statements of `tally archive`.

use futures_util::Stream;

use super::connect::Database;
use super::exports::{EXPORT_STATEMENT_LIMIT, ExportFormat};
use super::{LedgerError, OperatorLedger, Snapshot};
use crate::domain::{
    Archive, ArchiveId, ArchiveState, ArchivedVotes, CheckedFile, ItemId, Moment, NewAct, PollId, Reference,
};

/// The most vote ids that one chunk looks at. Roll-ups wait for a chunk, as for any transaction that writes votes.
const DROP_LIMIT_IDS: i64 = 20_000;

/// The ledger for an archive: an [`OperatorLedger`], and connections for statements that read all votes.
#[derive(Clone, Debug)]
pub struct ArchiveLedger {
    pub operator: OperatorLedger,
    patient: Database,
    database_url: String,
}

/// What an archive would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VotesToArchive {
    pub items: i64,
    pub polls: i64,
    pub votes: ArchivedVotes,
}

/// An archive that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunArchive {
    pub id: ArchiveId,
    /// The row of the trail that notes its beginning.
    pub act: i64,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedChunk {
    /// The last vote id that was looked at.
    pub up_to: i64,
    pub dropped: i64,
    pub is_end: bool,
}

impl ArchiveLedger {
    /// Describes the connections, and makes none yet.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: &str, application_name: &str) -> Result<Self, LedgerError> {
        Ok(Self {
            operator: OperatorLedger::new(database_url, application_name)?,
            patient: Database::new(database_url, application_name, EXPORT_STATEMENT_LIMIT, None)?,
            database_url: database_url.to_owned(),
        })
    }

    /// Closes all connections.
    pub async fn close(&self) {
        tokio::join!(self.operator.as_server().close(), self.patient.pool.close());
    }

    /// Which Tally this is.
    ///
    /// # Errors
    /// When the database is not migrated.
    pub async fn identity(&self) -> Result<String, LedgerError> {
        Ok(self.operator.as_server().owner().await?.id)
    }

    /// The item's rule, and whether that is a poll, of which the item is a choice. `None`: it has none.
    pub async fn rule_of(&self, item: ItemId) -> Result<Option<(i64, bool)>, LedgerError> {
        let found = sqlx::query!(
            r#"select rule.id, rule.title is not null as "is_poll!"
               from item join rule on rule.id = item.rule_id where item.id = $1"#,
            item.get()
        )
        .fetch_optional(&self.patient.pool)
        .await?;
        Ok(found.map(|rule| (rule.id, rule.is_poll)))
    }

    /// The rule of the poll that this reference names; `None`: there is none.
    pub async fn rule_of_poll(&self, poll: &Reference<PollId>) -> Result<Option<i64>, LedgerError> {
        let (id, key) = match poll {
            Reference::Id(id) => (Some(id.get()), None),
            Reference::Key(key) => (None, Some(key.as_str())),
        };
        let found = sqlx::query_scalar!(
            r#"select id from rule where title is not null and (id = $1 or key = $2 collate "C")"#,
            id,
            key
        );
        Ok(found.fetch_optional(&self.patient.pool).await?)
    }

    /// The rules of what closed before this time, up to `limit`, in the order of their ids.
    pub async fn rules_to_archive(&self, closed_before: Moment, limit: i64) -> Result<Vec<i64>, LedgerError> {
        let found = sqlx::query_file_scalar!(
            "src/ledger/sql/rules_to_archive.sql",
            closed_before.micros(),
            limit
        );
        Ok(found.fetch_all(&self.patient.pool).await?)
    }

    /// Why these rules cannot be archived, a sentence for each reason.
    pub async fn archive_faults(&self, rules: &[i64]) -> Result<Vec<String>, LedgerError> {
        let faults = sqlx::query_scalar!(r#"select archive_faults($1) as "faults!: Vec<String>""#, rules);
        Ok(faults.fetch_one(&self.patient.pool).await?)
    }

    /// What an archive of these rules would have. Reads the whole ledger.
    pub async fn votes_to_archive(&self, rules: &[i64]) -> Result<VotesToArchive, LedgerError> {
        let row = sqlx::query_file!("src/ledger/sql/votes_to_archive.sql", rules)
            .fetch_one(&self.patient.pool)
            .await?;
        Ok(VotesToArchive {
            items: row.items,
            polls: row.polls,
            votes: ArchivedVotes {
                total: row.votes,
                net: row.net,
                first: row.first,
                last: row.last,
            },
        })
    }

    /// Begins an archive of these rules: from then on their votes stay as they are. Otherwise returns why not.
    pub async fn begin_archive(
        &self,
        rules: &[i64],
        act: &NewAct,
    ) -> Result<Result<BegunArchive, Vec<String>>, LedgerError> {
        let row = sqlx::query!(
            r#"select new_id, act_id, faults as "faults!: Vec<String>" from begin_archive($1, $2)"#,
            rules,
            act.to_json()
        )
        .fetch_one(&self.patient.pool)
        .await?;
        Ok(match (row.new_id, row.act_id) {
            (Some(id), Some(act)) => Ok(BegunArchive {
                id: ArchiveId(id),
                act,
            }),
            _ => Err(row.faults),
        })
    }

    /// Whether every vote up to this one is rolled up, saved and counted.
    pub async fn is_rolled_up(&self, until: i64) -> Result<bool, LedgerError> {
        let rolled_up = sqlx::query_scalar!(
            r#"select saved_vote_id >= $1 and $1 <= all (select counted_vote_id from writer_connection) as "is_rolled_up!"
               from watermark"#,
            until
        );
        Ok(rolled_up.fetch_one(&self.patient.pool).await?)
    }

    /// A snapshot of the ledger, for [`Snapshot::archived_votes`].
    ///
    /// # Errors
    /// When Postgres is unavailable, or the login may not read what there is.
    pub async fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        Snapshot::take(&self.database_url, "tally archive").await
    }

    /// Notes that a file has the votes of the ledger. Reads the whole ledger.
    ///
    /// # Errors
    /// When the ledger has other votes, or they are not rolled up. Then nothing is noted.
    pub async fn check_archive(&self, id: ArchiveId, file: &CheckedFile) -> Result<(), LedgerError> {
        sqlx::query!(
            "select check_archive($1, $2, $3, $4, $5, $6, $7)",
            id.0,
            file.hash,
            file.bytes,
            file.votes.total,
            file.votes.net,
            file.votes.first,
            file.votes.last
        )
        .execute(&self.patient.pool)
        .await?;
        Ok(())
    }

    /// Drops the next votes of an archive, of which the caller has the file with this hash.
    pub async fn drop_archived(&self, id: ArchiveId, hash: &[u8]) -> Result<DroppedChunk, LedgerError> {
        let row = sqlx::query!(
            r#"select up_to as "up_to!", dropped as "dropped!", is_end as "is_end!" from drop_archived($1, $2, $3)"#,
            id.0,
            hash,
            DROP_LIMIT_IDS
        )
        .fetch_one(&self.patient.pool)
        .await?;
        Ok(DroppedChunk {
            up_to: row.up_to,
            dropped: row.dropped,
            is_end: row.is_end,
        })
    }

    /// Drops a range of the ledger of which all votes are archived. Returns its number; `None`: there is none.
    ///
    /// # Errors
    /// [`LedgerError::is_lock_timeout`] when others use the ledger so that votes would have to wait, or change old
    /// votes; when something that is not Tally's depends on the range.
    pub async fn drop_empty_range(&self, act: &NewAct) -> Result<Option<i32>, LedgerError> {
        let dropped = sqlx::query_scalar!("select drop_empty_range($1)", act.to_json());
        Ok(dropped.fetch_one(&self.patient.pool).await?)
    }

    /// Gives an archive up. Returns false if there is none, it has ended, or votes are dropped.
    pub async fn cancel_archive(&self, id: ArchiveId, act: &NewAct) -> Result<bool, LedgerError> {
        let cancelled = sqlx::query_scalar!(
            r#"select cancel_archive($1, $2) as "is_cancelled!""#,
            id.0,
            act.to_json()
        );
        Ok(cancelled.fetch_one(&self.patient.pool).await?)
    }

    /// This archive; `None`: there is none.
    pub async fn archive(&self, id: ArchiveId) -> Result<Option<Archive>, LedgerError> {
        Ok(self.read_archives(Some(id), 1).await?.into_iter().next())
    }

    /// The archives, the newest first, up to `limit`.
    pub async fn archives(&self, limit: i64) -> Result<Vec<Archive>, LedgerError> {
        self.read_archives(None, limit).await
    }

    async fn read_archives(&self, only: Option<ArchiveId>, limit: i64) -> Result<Vec<Archive>, LedgerError> {
        let rows = sqlx::query_file!("src/ledger/sql/archives.sql", only.map(|id| id.0), limit)
            .fetch_all(&self.patient.pool)
            .await?;
        let archives = rows.into_iter().map(|row| {
            let file = match (row.file_hash, row.file_bytes, row.vote_total, row.net_total) {
                (Some(hash), Some(bytes), Some(total), Some(net)) => Some(CheckedFile {
                    hash,
                    bytes,
                    votes: ArchivedVotes {
                        total,
                        net,
                        first: row.first_vote_id,
                        last: row.last_vote_id,
                    },
                }),
                _ => None,
            };
            let state = match (&file, row.dropped_total) {
                _ if row.is_cancelled => ArchiveState::Cancelled,
                _ if row.is_ended => ArchiveState::Dropped,
                (None, _) => ArchiveState::Writing,
                (Some(_), 0) => ArchiveState::Checked,
                (Some(_), _) => ArchiveState::Dropping,
            };
            Archive {
                id: ArchiveId(row.id),
                created_at: Moment::from_micros(row.created_at),
                until_vote_id: row.until_vote_id,
                items: row.items,
                polls: row.polls,
                file,
                dropped_total: row.dropped_total,
                dropped_vote_id: row.dropped_vote_id,
                state,
            }
        });
        Ok(archives.collect())
    }
}

impl OperatorLedger {
    /// The archive that this item's votes are in, or will be in; `None`: none.
    pub async fn archive_of(&self, item: ItemId) -> Result<Option<ArchiveId>, LedgerError> {
        self.as_server().archive_of(item).await
    }

    /// How many votes are in files alone.
    pub async fn archived_total(&self) -> Result<i64, LedgerError> {
        let total =
            sqlx::query_scalar!(r#"select coalesce(sum(dropped_total), 0)::bigint as "total!" from archive"#);
        Ok(total.fetch_one(self.as_server().pool()).await?)
    }
}

impl Snapshot {
    /// The votes of an archive that the ledger has, as lines of CSV with their ends, in the order of ids. The first
    /// line names the columns.
    ///
    /// # Errors
    /// When the login may not read votes.
    pub async fn archived_votes(
        &mut self,
        archive: &Archive,
    ) -> Result<impl Stream<Item = Result<impl AsRef<[u8]>, LedgerError>>, LedgerError> {
        // COPY takes no parameters. These are numbers.
        let rows = include_str!("sql/export_archived_votes.sql")
            .replace(":archive", &archive.id.0.to_string())
            .replace(":until", &archive.until_vote_id.to_string());
        self.copy(rows, ExportFormat::Csv).await
    }
}
