//! Whether Tally can work with a database. Each program asks once, at the start.

use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgExecutor};
use tokio::time::timeout;

use super::connect::{ANSWER_MARGIN, Database, Writes, writes};
use super::owner::MIGRATIONS;
use super::{LedgerError, UnfitDatabase};

/// How long the connection for the check may take. Nobody waits for an answer yet, and `tally
/// migrate` ends when the check fails.
const START_LIMIT: Duration = Duration::from_secs(5);

impl Database {
    /// Makes a connection, and checks that this database is fit for Tally.
    ///
    /// # Errors
    /// When it is not ([`LedgerError::is_unfit`]).
    pub async fn check(&self) -> Result<(), LedgerError> {
        let connection = self.session.connect_within(START_LIMIT, &self.options).await?;
        let limit = self.statement_limit + ANSWER_MARGIN;
        let looking = timeout(limit, look_at(connection)).await;
        looking.unwrap_or(Err(LedgerError::Timeout(limit)))
    }
}

/// Checks the database of this connection, and closes the connection.
async fn look_at(mut connection: PgConnection) -> Result<(), LedgerError> {
    match writes(&mut connection).await? {
        Writes::Taken => {}
        Writes::Standby => return Err(LedgerError::Unfit(UnfitDatabase::Standby)),
        Writes::ReadOnly => return Err(LedgerError::Unfit(UnfitDatabase::ReadOnly)),
    }
    let tables = sqlx::query!(
        r#"select to_regclass('item') is not null or to_regclass('vote') is not null as "any!",
                      to_regclass('vote') is not null and to_regclass('vote_id_seq') is not null
                      and to_regclass('watermark') is not null as "draw_ids!""#
    )
    .fetch_one(&mut connection)
    .await?;
    if tables.any {
        match origin(&mut connection).await? {
            Origin::Tally => {}
            Origin::Unreleased => return Err(LedgerError::Unfit(UnfitDatabase::UnreleasedSchema)),
            Origin::Foreign => return Err(LedgerError::Unfit(UnfitDatabase::ForeignTables)),
        }
    }
    // Not while another migration is making them.
    if tables.draw_ids {
        check_sequence(&mut connection).await?;
    }
    Ok(connection.close().await?)
}

/// Checks that the sequence of vote ids draws one by one, and is not behind the votes.
async fn check_sequence(connection: &mut PgConnection) -> Result<(), LedgerError> {
    check_steps(&mut *connection).await?;
    // The votes are read first: no vote has an id that was not drawn before.
    let ids = sqlx::query!(
        r#"with vote_ids as materialized (
               select greatest((select max(id) from vote), (select vote_id from watermark)) as newest
           )
           select coalesce(newest, 0) as "newest!",
                  case when is_called then last_value else last_value - 1 end as "last!"
           from vote_ids, vote_id_seq"#
    )
    .fetch_one(connection)
    .await?;
    if ids.newest > ids.last {
        return Err(LedgerError::Unfit(UnfitDatabase::Sequence(format!(
            "is at {}, behind the votes: say select setval('vote_id_seq', {})",
            ids.last, ids.newest
        ))));
    }
    Ok(())
}

/// Checks that the sequence of vote ids draws them one by one. A session with a block of ids could
/// store a vote after the roll-up has passed its id.
pub(super) async fn check_steps<'a>(connection: impl PgExecutor<'a>) -> Result<(), LedgerError> {
    let steps = sqlx::query!(
        "select seqcache, seqincrement, seqcycle from pg_sequence where seqrelid = 'vote_id_seq'::regclass"
    )
    .fetch_one(connection)
    .await?;
    if steps.seqcache == 1 && steps.seqincrement == 1 && !steps.seqcycle {
        return Ok(());
    }
    let cycles = if steps.seqcycle {
        ", and begins again at its end"
    } else {
        ""
    };
    Err(LedgerError::Unfit(UnfitDatabase::Sequence(format!(
        "has cache {} and increment {}{cycles}: say alter sequence vote_id_seq increment 1 cache 1 no cycle",
        steps.seqcache, steps.seqincrement
    ))))
}

/// Who made the tables of a database.
enum Origin {
    Tally,
    /// Tally from before the first release, by migrations that are gone.
    Unreleased,
    /// Another application.
    Foreign,
}

/// Tells by the first migration that ran here. Another application's may have the same number, but
/// not the same checksum.
async fn origin(connection: &mut PgConnection) -> Result<Origin, LedgerError> {
    /// The checksum of the first migration before the first release begins with this.
    const UNRELEASED: [u8; 8] = [0x7f, 0xfd, 0xc0, 0xc3, 0xb8, 0x20, 0x1d, 0x94];
    const UNDEFINED_TABLE: &str = "42P01";
    match connection.list_applied_migrations().await {
        Ok(applied) => {
            let begins_with = |version: i64, checksum: &[u8]| {
                applied
                    .iter()
                    .any(|one| one.version == version && one.checksum.starts_with(checksum))
            };
            Ok(
                if MIGRATIONS
                    .iter()
                    .take(1)
                    .all(|first| begins_with(first.version, &first.checksum))
                {
                    Origin::Tally
                } else if begins_with(1, &UNRELEASED) {
                    Origin::Unreleased
                } else {
                    Origin::Foreign
                },
            )
        }
        // A login that may not read the table cannot tell.
        Err(MigrateError::Execute(sqlx::Error::Database(error))) => {
            Ok(if error.code().as_deref() == Some(UNDEFINED_TABLE) {
                Origin::Foreign
            } else {
                Origin::Tally
            })
        }
        Err(error) => Err(error.into()),
    }
}
