//! The trail of administrative acts. A single statement notes its own act. [`note`] notes the
//! others.

use serde_json::Value;
use sqlx::PgExecutor;

use super::LedgerError;
use crate::domain::{Act, Moment, NewAct, TrailFilter};

/// Notes an act in a statement of its own; returns the row's id.
pub(super) async fn note(
    executor: impl PgExecutor<'_>,
    act: &NewAct,
    target: Option<&str>,
) -> Result<i64, LedgerError> {
    let id = sqlx::query_scalar!(r#"select note_act($1, $2) as "id!""#, act.to_json(), target)
        .fetch_one(executor)
        .await?;
    Ok(id)
}

/// Rows of the trail, the newest first, up to `limit`.
pub(super) async fn trail(
    executor: impl PgExecutor<'_>,
    filter: &TrailFilter,
    limit: i64,
) -> Result<Vec<Act>, LedgerError> {
    let rows = sqlx::query_file!(
        "src/ledger/sql/trail.sql",
        filter.before_id,
        filter.since.map(Moment::micros),
        filter.until.map(Moment::micros),
        filter.who,
        filter.what,
        limit
    )
    .fetch_all(executor)
    .await?;
    let acts = rows.into_iter().map(|row| Act {
        id: row.id,
        acted_at: Moment::from_micros(row.acted_at),
        who: row.who,
        what: row.what,
        target: row.target,
        outcome: row.outcome,
        problem: row.problem,
        tool: row.tool,
        address: row.address,
        login: row.login,
        begun_id: row.begun_id,
        details: row
            .details
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or(Value::Null),
    });
    Ok(acts.collect())
}
