//! Acknowledged votes that the ledger no longer has, as servers noted them.

use super::LedgerError;
use super::pool::Pool;
use crate::domain::Moment;

/// How many items of lost votes are named. The table `loss_item` has more.
pub const LOSSES_SHOWN_ITEMS: i64 = 10;

/// All losses that servers have found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub votes: i64,
    /// How many items they were on. One that was in two losses counts twice.
    pub item_total: i64,
    /// `None`: there was none.
    pub times: Option<LossTimes>,
    /// Whether each of those servers remembered an earlier vote that is still there. If not, they may have lost more.
    pub are_whole: bool,
    /// The items with the most lost votes, up to [`LOSSES_SHOWN_ITEMS`]. The numbers are those of the lost Postgres:
    /// another item may have one by now.
    pub items: Vec<LostOfItem>,
}

/// When votes were stored that are lost, and found missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossTimes {
    pub first_stored_at: Moment,
    pub last_stored_at: Moment,
    pub last_found_at: Moment,
}

/// The lost votes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostOfItem {
    pub item_id: i64,
    pub votes: i64,
}

impl Losses {
    /// Lines for people. `None`: nothing was lost.
    pub fn lines(&self) -> Option<String> {
        let times = self.times?;
        let items = in_words(
            self.items.iter().map(|one| (one.item_id, one.votes)),
            self.item_total,
        );
        let rest = if self.are_whole {
            ""
        } else {
            "; earlier ones may be lost too"
        };
        Some(format!(
            "lost      {:>10} votes that servers had acknowledged, stored from {} to {}, last found missing at {}{rest}\n\
             \x20                    of {items}: tables loss and loss_item",
            self.votes, times.first_stored_at, times.last_stored_at, times.last_found_at,
        ))
    }
}

/// Items and their lost votes, the most first, in words: `item 5 (120 votes), item 9 (1), and 3 more items`.
pub(super) fn in_words(items: impl Iterator<Item = (i64, i64)>, item_total: i64) -> String {
    let named: Vec<String> = items
        .enumerate()
        .map(|(at, (item, votes))| match (at, votes) {
            (0, 1) => format!("item {item} (1 vote)"),
            (0, _) => format!("item {item} ({votes} votes)"),
            _ => format!("item {item} ({votes})"),
        })
        .collect();
    let more = item_total - named.len() as i64;
    match more {
        ..=0 => named.join(", "),
        1 => format!("{}, and 1 more item", named.join(", ")),
        _ => format!("{}, and {more} more items", named.join(", ")),
    }
}

pub(super) async fn losses(pool: &Pool) -> Result<Losses, LedgerError> {
    let row = sqlx::query_file!("src/ledger/sql/losses.sql", LOSSES_SHOWN_ITEMS)
        .fetch_one(pool)
        .await?;
    let at = |micros: Option<i64>| micros.map(Moment::from_micros);
    let times = match (
        at(row.first_stored_at),
        at(row.last_stored_at),
        at(row.last_found_at),
    ) {
        (Some(first_stored_at), Some(last_stored_at), Some(last_found_at)) => Some(LossTimes {
            first_stored_at,
            last_stored_at,
            last_found_at,
        }),
        _ => None,
    };
    let items = row.item_ids.into_iter().zip(row.item_votes);
    Ok(Losses {
        votes: row.votes,
        item_total: row.item_total,
        times,
        are_whole: row.are_whole,
        items: items
            .map(|(item_id, votes)| LostOfItem { item_id, votes })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_votes_are_shown_with_their_items_and_what_is_not_known() {
        let losses = Losses {
            votes: 125,
            item_total: 5,
            times: Some(LossTimes {
                first_stored_at: Moment::from_micros(0),
                last_stored_at: Moment::from_micros(1_000_000),
                last_found_at: Moment::from_micros(2_000_000),
            }),
            are_whole: false,
            items: vec![
                LostOfItem {
                    item_id: 5,
                    votes: 120,
                },
                LostOfItem { item_id: 9, votes: 2 },
            ],
        };
        assert_eq!(
            losses.lines().as_deref(),
            Some(
                "lost             125 votes that servers had acknowledged, stored from 1970-01-01T00:00:00Z to \
                 1970-01-01T00:00:01Z, last found missing at 1970-01-01T00:00:02Z; earlier ones may be lost too\n\
                 \x20                    of item 5 (120 votes), item 9 (2), and 3 more items: tables loss and loss_item"
            )
        );
        assert_eq!(Losses::default().lines(), None);
        assert_eq!(in_words([(7, 1)].into_iter(), 1), "item 7 (1 vote)");
        assert_eq!(
            in_words([(7, 3), (8, 1)].into_iter(), 3),
            "item 7 (3 votes), item 8 (1), and 1 more item"
        );
    }
}
