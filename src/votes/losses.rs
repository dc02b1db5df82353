//! Looks for lost votes after Postgres failed over or was started again.

use std::time::Duration;

use tokio::time::sleep;

use crate::ledger::{Loss, ServerLedger};
use crate::telemetry::{name, trouble};

/// How often a server looks whether it has acknowledged votes over another run of Postgres than the present one.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks, after each change of the run of Postgres, whether it still has what this server acknowledged. Never
/// ends.
pub async fn keep_finding_losses(ledger: ServerLedger) {
    loop {
        sleep(LOOK_EVERY).await;
        if ledger.may_have_losses() {
            match ledger.find_loss().await {
                Ok(Some(loss)) => report(&loss),
                Ok(None) => {}
                Err(error) => {
                    trouble!(warn, %error; "it is not known yet whether Postgres has lost votes; looking again");
                }
            }
        }
        if let Err(error) = ledger.store_losses().await {
            trouble!(warn, %error; "lost votes are not noted in the table loss yet; trying again");
        }
    }
}

fn report(loss: &Loss) {
    metrics::counter!(name::LOST_VOTES).increment(loss.votes);
    tracing::error!(
        votes = loss.votes,
        items = loss.items_in_words(),
        from = %loss.first_at,
        until = %loss.last_at,
        are_all = loss.is_whole,
        "Postgres no longer has votes that this server acknowledged: a standby that lagged was promoted, or the \
         database went back; the tables loss and loss_item have all items"
    );
}
