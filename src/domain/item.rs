//! Items: what is voted on.

use std::sync::Arc;

use super::{Count, ItemId, ItemKey, ItemName, ItemRules, Revision};

/// A valid item that is not stored yet. It is no choice of a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub name: ItemName,
    /// The frontend's own key.
    pub key: Option<ItemKey>,
    pub rules: ItemRules,
}

/// An item with the default rules.
impl From<ItemName> for NewItem {
    fn from(name: ItemName) -> Self {
        Self {
            name,
            key: None,
            rules: ItemRules::DEFAULT,
        }
    }
}

/// An item's row in Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub id: ItemId,
    pub name: Arc<str>,
    /// The frontend's own key.
    pub key: Option<Arc<str>>,
    /// Whether lists leave the item out.
    pub is_hidden: bool,
    /// `None`: the default rules.
    pub rules: Option<Arc<ItemRules>>,
    /// The saved count.
    pub saved_count: Count,
    /// The revision of the saved count; `None` if it was never saved.
    pub counted_at: Option<Revision>,
}
