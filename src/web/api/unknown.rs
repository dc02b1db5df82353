//! What of a request's references does not exist.

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{ItemId, PollId, Reference};
use crate::web::access::CreateItems;

/// References of a request that name nothing, as the request has them.
#[derive(Serialize, ToSchema)]
#[schema(as = Unknown)]
pub(in crate::web) struct UnknownBody {
    /// Items that do not exist: ids, or `key:` followed by your own key.
    items: Vec<String>,
    /// Polls that do not exist, in the same way.
    polls: Vec<String>,
    /// Whether the first vote on the unknown key of an item creates the item (`TALLY_CREATE_ITEMS`). Until then such
    /// an item has no votes.
    creates_items: bool,
}

impl UnknownBody {
    /// Makes the body from references to items and polls, each with whether it names nothing.
    pub fn new<'a>(
        creates: CreateItems,
        items: impl Iterator<Item = (&'a Reference<ItemId>, bool)>,
        polls: impl Iterator<Item = (&'a Reference<PollId>, bool)>,
    ) -> Self {
        let unknown_items = items.filter(|(_, is_unknown)| *is_unknown);
        let unknown_polls = polls.filter(|(_, is_unknown)| *is_unknown);
        Self {
            items: unknown_items.map(|(item, _)| item.to_string()).collect(),
            polls: unknown_polls.map(|(poll, _)| poll.to_string()).collect(),
            creates_items: creates != CreateItems::Nothing,
        }
    }

    /// Returns whether everything exists.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.polls.is_empty()
    }
}
