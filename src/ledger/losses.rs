//! Acknowledged votes that the ledger no longer has, as servers noted them.

use super::LedgerError;
use super::pool::Pool;
use crate::domain::Moment;

/// All losses that servers have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub votes: i64,
    /// `None`: there was none.
    pub last_found_at: Option<Moment>,
}

impl Losses {
    /// A line for people. `None`: nothing was lost.
    pub fn line(&self) -> Option<String> {
        let found_at = self.last_found_at?;
        Some(format!(
            "lost      {:>10} votes that servers had acknowledged, last found missing at {found_at}: tables loss and loss_item",
            self.votes
        ))
    }
}

pub(super) async fn losses(pool: &Pool) -> Result<Losses, LedgerError> {
    let row = sqlx::query!(
        r#"select coalesce(sum(vote_total), 0)::bigint as "votes!",
                  (extract(epoch from max(found_at)) * 1000000)::bigint as last_found_at
           from loss"#
    )
    .fetch_one(pool)
    .await?;
    Ok(Losses {
        votes: row.votes,
        last_found_at: row.last_found_at.map(Moment::from_micros),
    })
}
