//! What a chunk adds to each item, as the functions that store chunks return it.

use crate::domain::{Count, CountDelta, ItemId};
use crate::ledger::LedgerError;

/// Makes changes of counts from three columns, in the order of items.
///
/// # Errors
/// When an id is none of an item.
pub(super) fn deltas(items: &[i64], nets: &[i64], downs: &[i64]) -> Result<Vec<CountDelta>, LedgerError> {
    let rows = items.iter().zip(nets).zip(downs);
    let deltas = rows.map(|((item, net), downs)| {
        let item_id = ItemId::new(*item)?;
        let delta = Count {
            net: *net,
            downs: *downs,
        };
        Some(CountDelta { item_id, delta })
    });
    let deltas: Option<Vec<CountDelta>> = deltas.collect();
    let mut deltas = deltas.ok_or_else(|| LedgerError::Decision("an item id below 1".to_owned()))?;
    CountDelta::merge(&mut deltas);
    Ok(deltas)
}
