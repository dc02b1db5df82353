//! The item or the poll that a path names. Handlers for both start from it.

use std::fmt::Display;

use crate::domain::{ItemId, PollId, Reference, VotedOn};
use crate::web::api::state::AppState;
use crate::web::problem::Problem;

/// An item or a poll, and how the client named it.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub of: VotedOn,
    /// The id or the key.
    reference: &'a (dyn Display + Sync),
}

impl Named<'_> {
    /// Returns the problem for an item or poll that does not exist.
    pub fn unknown(&self) -> Problem {
        match self.of {
            VotedOn::Item(_) => Problem::unknown_item(self.reference),
            VotedOn::Poll(_) => Problem::unknown_poll(self.reference),
        }
    }
}

/// Returns the item of this reference. Does not check that an id exists.
///
/// # Errors
/// Fails when no item has this key.
pub async fn item<'a>(state: &AppState, reference: &'a Reference<ItemId>) -> Result<Named<'a>, Problem> {
    let of = VotedOn::Item(state.references.item(reference).await?);
    Ok(Named { of, reference })
}

/// Returns the poll of this reference, as [`item`] does.
pub async fn poll<'a>(state: &AppState, reference: &'a Reference<PollId>) -> Result<Named<'a>, Problem> {
    let of = VotedOn::Poll(state.references.poll(reference).await?);
    Ok(Named { of, reference })
}
