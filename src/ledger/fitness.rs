//! Whether Tally can work with a database. Each program asks once, at the start.

use std::time::Duration;

use sqlx::migrate::{AppliedMigration, Migrate, MigrateError};
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
                  and to_regclass('watermark') is not null as "draw_ids!",
                  to_regprocedure('late_sequences()') is not null as "have_check!""#
    )
    .fetch_one(&mut connection)
    .await?;
    if tables.any {
        let origin = origin(&mut connection).await?;
        match origin.unfit() {
            Some(UnfitDatabase::NewerSchema { migration, known })
                if runs_beside(&mut connection, known).await? =>
            {
                tracing::warn!(
                    "a newer version of Tally has migrated this database (its migration {migration}), and says that \
                     this version may run beside it: install that version soon"
                );
            }
            Some(unfit) => return Err(LedgerError::Unfit(unfit)),
            None => {}
        }
    }
    // Not while another migration is making them.
    if tables.draw_ids {
        check_steps(&mut connection).await?;
        if tables.have_check {
            check_sequences(&mut connection).await?;
        }
    }
    Ok(connection.close().await?)
}

/// Whether the newer version that made this schema lets programs run beside it whose last migration is
/// `known`. An upgrade takes a while, and an old server may be started again meanwhile.
async fn runs_beside(connection: &mut PgConnection, known: i64) -> Result<bool, LedgerError> {
    let oldest = sqlx::query_scalar!(r#"select oldest_program() as "oldest!""#)
        .fetch_one(connection)
        .await?;
    Ok(known >= oldest)
}

/// Checks that no sequence is behind the rows that got their ids from it.
async fn check_sequences(connection: &mut PgConnection) -> Result<(), LedgerError> {
    let late = sqlx::query!(
        r#"select sequence as "sequence!", last as "last!", newest as "newest!" from late_sequences()"#
    )
    .fetch_all(connection)
    .await?;
    if late.is_empty() {
        return Ok(());
    }
    let found: Vec<String> = late
        .iter()
        .map(|one| format!("{} is at {}", one.sequence, one.last))
        .collect();
    let mending: Vec<String> = late
        .iter()
        .map(|one| format!("setval('{}', {})", one.sequence, one.newest))
        .collect();
    Err(LedgerError::Unfit(UnfitDatabase::LateSequences(format!(
        "{}; say select {}",
        found.join(", "),
        mending.join(", ")
    ))))
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

/// Which Tally made the tables of a database.
enum Origin {
    /// This version, or one before it.
    Known,
    /// A version after this one, with this migration.
    Newer(i64),
    /// A version with another migration of this number.
    Other(i64),
    /// Tally from before the first release, by migrations that are gone.
    Unreleased,
    /// Another application.
    Foreign,
}

impl Origin {
    /// Why this program cannot work with such a database; `None`: it can.
    fn unfit(&self) -> Option<UnfitDatabase> {
        match self {
            Self::Known => None,
            Self::Newer(migration) => Some(UnfitDatabase::NewerSchema {
                migration: *migration,
                known: MIGRATIONS.iter().map(|one| one.version).max().unwrap_or_default(),
            }),
            Self::Other(migration) => Some(UnfitDatabase::OtherSchema(*migration)),
            Self::Unreleased => Some(UnfitDatabase::UnreleasedSchema),
            Self::Foreign => Some(UnfitDatabase::ForeignTables),
        }
    }
}

/// Tells by the migrations that ran here. Another application's may have the same numbers, but not
/// the same checksums.
async fn origin(connection: &mut PgConnection) -> Result<Origin, LedgerError> {
    const UNDEFINED_TABLE: &str = "42P01";
    match connection.list_applied_migrations().await {
        Ok(applied) => Ok(origin_of(&applied)),
        // A login that may not read the table cannot tell.
        Err(MigrateError::Execute(sqlx::Error::Database(error))) => {
            Ok(if error.code().as_deref() == Some(UNDEFINED_TABLE) {
                Origin::Foreign
            } else {
                Origin::Known
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn origin_of(applied: &[AppliedMigration]) -> Origin {
    /// The checksum of the first migration before the first release begins with this.
    const UNRELEASED: [u8; 8] = [0x7f, 0xfd, 0xc0, 0xc3, 0xb8, 0x20, 0x1d, 0x94];
    let known = |version| MIGRATIONS.iter().find(|one| one.version == version);
    let is_ours =
        |one: &AppliedMigration| known(one.version).is_some_and(|ours| ours.checksum == one.checksum);
    let first = MIGRATIONS.iter().map(|one| one.version).min();
    match applied.iter().find(|one| Some(one.version) == first) {
        Some(one) if one.checksum.starts_with(&UNRELEASED) => return Origin::Unreleased,
        Some(one) if is_ours(one) => {}
        _ => return Origin::Foreign,
    }
    match applied.iter().find(|one| !is_ours(one)) {
        None => Origin::Known,
        Some(one) if known(one.version).is_some() => Origin::Other(one.version),
        Some(one) => Origin::Newer(one.version),
    }
}
