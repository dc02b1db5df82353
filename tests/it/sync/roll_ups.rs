//! When votes are rolled up.

use std::time::Duration;

use crate::helpers::tally::Tally;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_rolled_up_before_their_time_when_many_wait() {
    let tally = Tally::start().await;
    let item = tally.item("item").await;
    sqlx::query("insert into vote (item_id) select $1 from generate_series(1, 50000)")
        .bind(item.get())
        .execute(&tally.stores.pool())
        .await
        .expect("votes");
    tally.worker().until_roll_up(NEVER).await;
}
