//! Tallys that are cells.

use tally::app;
use tally::domain::{Cell, Cells};

use super::stores::Stores;
use super::tally::Tally;

/// Two cells. Own keys lie in the first one.
pub const TWO: Cells = Cells { count: 2, of_keys: 1 };

/// The cell with this number.
pub fn cell(number: u16) -> Cell {
    Cell::new(number).expect("a cell")
}

/// New stores of this cell.
pub async fn stores(number: u16) -> Stores {
    let stores = Stores::start().await;
    // The template is cell 0, and nothing has drawn an id in it.
    sqlx::query("update identity set cell = null")
        .execute(&stores.pool())
        .await
        .expect("Postgres answers");
    app::migrate_as(&stores.database_url, "test", Some(cell(number)))
        .await
        .expect("it becomes the cell");
    stores
}

/// A Tally that is this cell, whose server knows these cells.
pub async fn tally(number: u16, cells: Cells) -> Tally {
    Tally::start_at(
        stores(number).await,
        |_, urls| urls,
        |options| options.cells = cells,
    )
    .await
}
