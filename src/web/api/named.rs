//! The item or the poll that a path names. Handlers for both start from it.

use std::fmt::Display;

use crate::domain::{Found, ItemId, PollId, Reference, VotedOn};
use crate::ledger::ServerLedger;
use crate::web::api::state::AppState;
use crate::web::problem::Problem;

/// An item or a poll, and how the client named it.
pub struct Named<'a> {
    pub of: VotedOn,
    /// For statements that use the id: they fail if Postgres has failed over since the key was looked up.
    pub ledger: ServerLedger,
    pub is_by_key: bool,
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
    let Found { id, run } = state.references.item(reference).await?;
    let (of, ledger) = (VotedOn::Item(id), state.ledger.only_in(run));
    Ok(Named {
        of,
        ledger,
        is_by_key: reference.is_key(),
        reference,
    })
}

/// Returns the poll of this reference, as [`item`] does.
pub async fn poll<'a>(state: &AppState, reference: &'a Reference<PollId>) -> Result<Named<'a>, Problem> {
    let Found { id, run } = state.references.poll(reference).await?;
    let (of, ledger) = (VotedOn::Poll(id), state.ledger.only_in(run));
    Ok(Named {
        of,
        ledger,
        is_by_key: reference.is_key(),
        reference,
    })
}
