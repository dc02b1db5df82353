//! The item or the poll that a path names: what both do alike starts from it.

use std::fmt::Display;

use crate::domain::{ItemId, PollId, Reference, VotedOn};
use crate::web::api::state::AppState;
use crate::web::problem::Problem;

/// An item or a poll, and what a client calls it.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub of: VotedOn,
    /// Its id, or its key.
    reference: &'a (dyn Display + Sync),
}

impl Named<'_> {
    /// The refusal when it is not there.
    pub fn unknown(&self) -> Problem {
        match self.of {
            VotedOn::Item(_) => Problem::unknown_item(self.reference),
            VotedOn::Poll(_) => Problem::unknown_poll(self.reference),
        }
    }
}

/// The item of this reference. Whether an id is of an item is not asked.
///
/// # Errors
/// When no item has this key, or Postgres is needed and does not answer.
pub async fn item<'a>(state: &AppState, reference: &'a Reference<ItemId>) -> Result<Named<'a>, Problem> {
    let of = VotedOn::Item(state.references.item(reference).await?);
    Ok(Named { of, reference })
}

/// The poll of this reference, as [`item`].
///
/// # Errors
/// As [`item`].
pub async fn poll<'a>(state: &AppState, reference: &'a Reference<PollId>) -> Result<Named<'a>, Problem> {
    let of = VotedOn::Poll(state.references.poll(reference).await?);
    Ok(Named { of, reference })
}
