//! What `tally export` reads: tables, row after row, in one snapshot. Any login that may read them will
//! do, also on a standby.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt as _};
use serde::Serialize;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use super::LedgerError;
use super::connect::Database;
use crate::domain::{Moment, VoteId};

/// How long one table may take. At 1 s for a million votes, a billion takes 17 minutes.
pub(super) const EXPORT_STATEMENT_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A table that is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ExportTable {
    /// The ledger: a row for each vote, and for each time that a vote was taken back
    Votes,
    /// Items, with their rules and saved counts
    Items,
    /// Polls
    Polls,
    /// The results of polls: a row for each choice
    Results,
    /// The trail of administrative acts. Takes a login in the role tally_operator
    Trail,
}

impl ExportTable {
    fn select(self) -> &'static str {
        match self {
            Self::Votes => include_str!("sql/export_votes.sql"),
            Self::Items => include_str!("sql/export_items.sql"),
            Self::Polls => include_str!("sql/export_polls.sql"),
            Self::Results => include_str!("sql/export_results.sql"),
            Self::Trail => include_str!("sql/export_trail.sql"),
        }
    }
}

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values, with a line of column names. An empty field is null; an empty text is ""
    #[default]
    Csv,
    /// A JSON object on each line
    Jsonl,
}

impl ExportFormat {
    /// The options of COPY.
    fn options(self) -> &'static str {
        match self {
            Self::Csv => "format csv, header true",
            // JSON as it is: its texts have no control characters, so no row has one of these.
            Self::Jsonl => r"format csv, delimiter E'\x02', quote E'\x01'",
        }
    }
}

/// What a snapshot is of.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotFacts {
    /// Which Tally.
    pub identity: String,
    /// Postgres' name of the snapshot: `pg_current_snapshot()`.
    pub snapshot: String,
    pub taken_at: Moment,
    /// Every vote with an id up to this one is in it, and none will be added: the watermark.
    pub until: VoteId,
    /// Votes that were stored before then are among these. `None`: no roll-up has ended yet.
    pub until_stored_at: Option<Moment>,
    /// Votes that are in files of `tally archive`, and no longer in it.
    pub archived_votes: i64,
}

/// A read-only transaction that sees one snapshot of all tables.
pub struct Snapshot {
    connection: PgConnection,
    pub facts: SnapshotFacts,
}

impl Snapshot {
    /// Connects and takes a snapshot. `application_name` is shown to Postgres' operator.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres, or the login may not read what there is.
    pub async fn take(database_url: &str, application_name: &str) -> Result<Self, LedgerError> {
        let database = Database::new(database_url, application_name, EXPORT_STATEMENT_LIMIT, None)?;
        let mut connection = database.session.connect(&database.options).await?;
        // `taken_at` is the transaction's time. The first query takes the snapshot.
        let begin = "begin isolation level repeatable read read only;
                     set local timezone = 'UTC'; set local datestyle = 'ISO'";
        connection.execute(begin).await?;
        let head = sqlx::query_file!("src/ledger/sql/export_head.sql")
            .fetch_one(&mut connection)
            .await?;
        let facts = SnapshotFacts {
            identity: head.identity,
            snapshot: head.snapshot,
            taken_at: Moment::from_micros(head.taken_at),
            until: VoteId::new(head.until),
            until_stored_at: head.reached_at.map(Moment::from_micros),
            archived_votes: head.archived_votes,
        };
        Ok(Self { connection, facts })
    }

    /// The rows of a table, one after the other, each with its line end. In CSV, a line of column names comes
    /// first. Of the votes: those with ids above `after`, up to `until`, in the order of ids.
    ///
    /// # Errors
    /// When the login may not read the table, or Postgres ends the statement: a standby does when it waited
    /// for too long.
    pub async fn rows(
        &mut self,
        table: ExportTable,
        format: ExportFormat,
        after: VoteId,
        until: VoteId,
    ) -> Result<impl Stream<Item = Result<impl AsRef<[u8]>, LedgerError>>, LedgerError> {
        // COPY takes no parameters. These are numbers.
        let rows = table
            .select()
            .replace(":after", &after.get().to_string())
            .replace(":until", &until.get().to_string());
        let rows = match format {
            ExportFormat::Csv => rows,
            ExportFormat::Jsonl => format!("select row_to_json(exported) from ({rows}) as exported"),
        };
        self.copy(rows, format).await
    }

    /// The rows of a query, each with its line end.
    pub(super) async fn copy(
        &mut self,
        query: String,
        format: ExportFormat,
    ) -> Result<impl Stream<Item = Result<impl AsRef<[u8]>, LedgerError>>, LedgerError> {
        let copy = format!("copy ({query}) to stdout with ({})", format.options());
        let rows = self.connection.copy_out_raw(&copy).await?;
        Ok(rows.map_err(LedgerError::from))
    }
}
