//! What requests for one item do and are answered: votes, changes, retractions and reads, with
//! places and numbers if the item has them.
//!
//! A vote is known by its id, so a history says much: which vote each read found, and which one a
//! repeat repeats.
//!
//! - `specification`: an item, its requests and answers.
//! - `merging`: a history of an item, as one that is easier to search.

mod merging;
mod specification;

pub use specification::{Answer, Item, ItemOperation, Request, State, Vote, Wants, outcome};

use crate::linearizable::{self, NoOrder};

/// Looks for an order of what was asked of one item, or of one voter and item.
///
/// # Errors
/// When there is none, or the search was given up.
pub fn check(max_votes: Option<usize>, is_numbered: bool, history: &[ItemOperation]) -> Result<(), NoOrder> {
    let history = merging::prepared(history)?;
    let item = Item::new(max_votes, is_numbered, &history).with_owners(&history);
    linearizable::check(&item, &history)
}
