//! `tally migrate --partition`: splits the ledger into ranges of ids.

use indicatif::{ProgressBar, ProgressStyle};

use crate::ledger::{OwnerLedger, Partitioned};
use crate::telemetry;

/// Splits the ledger into ranges of this many ids, unless it is in ranges, and says what that came to.
///
/// # Errors
/// As [`OwnerLedger::partition`].
pub async fn partition(database_url: &str, range_ids: i64) -> anyhow::Result<()> {
    let ledger = OwnerLedger::new(database_url, "tally migrate")?;
    let template = "{bar:30} {pos}/{len} vote ids copied, {eta} left";
    let bar = ProgressBar::new(0)
        .with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let done = ledger
        .partition(range_ids, |copied, last| {
            bar.set_length(last.unsigned_abs());
            bar.set_position(copied.unsigned_abs());
        })
        .await;
    bar.finish_and_clear();
    ledger.close().await;
    let done = match done {
        Err(error) if error.is_lock_timeout() => {
            return Err(anyhow::Error::new(error).context(
                "the ledger is as before: others held locks on vote for a minute, such as a report, a backup or a \
                 transaction that stays open (pg_locks)",
            ));
        }
        done => done?,
    };
    match done {
        Partitioned::Already => telemetry::print(format_args!("the ledger is in ranges already\n")),
        Partitioned::Done { range_ids, locked } => telemetry::print(format_args!(
            "the ledger is in ranges of {range_ids} ids; votes waited {} ms for it\n",
            locked.as_millis()
        )),
    }
    Ok(())
}
