//! The views of analysts: `migrations/report/`.

use std::fmt;

use sqlx::error::DatabaseError;

use super::OwnerLedger;
use crate::ledger::LedgerError;

/// Programs that migrate one database take turns, as for functions. A view that changes waits for the reports
/// that read it, and new reports wait for that: a migration waits no longer than this.
const BEFORE: &str = "select pg_advisory_xact_lock(7416153280); set local lock_timeout = '2s';\n";

/// In this order: later views read earlier ones.
const TEXTS: [&str; 9] = [
    BEFORE,
    include_str!("../../../migrations/report/1_begin.sql"),
    include_str!("../../../migrations/report/2_items.sql"),
    include_str!("../../../migrations/report/3_votes.sql"),
    include_str!("../../../migrations/report/4_sums.sql"),
    include_str!("../../../migrations/report/5_voidings.sql"),
    include_str!("../../../migrations/report/6_spans.sql"),
    include_str!("../../../migrations/report/7_checks.sql"),
    include_str!("../../../migrations/report/8_end.sql"),
];

/// Whether the views of analysts are those of this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reports {
    Made,
    /// Postgres refused; with its own words.
    Refused(String),
    /// A report is running.
    InUse,
}

impl fmt::Display for Reports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Made => out.write_str("the schema report has the views of this version"),
            Self::Refused(why) => write!(
                out,
                "the schema report has no views, or old ones ({why}); all else works. To have them, let one that \
                 may run: create schema report authorization <the owner of the tables>; and then run tally \
                 migrate again"
            ),
            Self::InUse => out.write_str(
                "the schema report has the views of an earlier version, since a report is running; all else \
                 works. To have the new ones, run tally migrate again afterwards",
            ),
        }
    }
}

impl OwnerLedger {
    /// Makes the views of analysts, or makes them anew. Nothing else in Tally needs them.
    pub(super) async fn make_reports(&self) -> Result<Reports, LedgerError> {
        match self.apply(&TEXTS).await {
            Ok(()) => Ok(Reports::Made),
            Err(sqlx::Error::Database(error)) if has_code(&*error, "42501") => {
                Ok(Reports::Refused(error.message().to_owned()))
            }
            Err(sqlx::Error::Database(error)) if has_code(&*error, "55P03") => Ok(Reports::InUse),
            Err(error) => Err(error.into()),
        }
    }
}

fn has_code(error: &dyn DatabaseError, code: &str) -> bool {
    error.code().as_deref() == Some(code)
}
