//! Which items and polls the frontend's own keys are of: looked up once and remembered.

use std::collections::HashMap;
use std::time::Duration;

use crate::admission::Attempt;
use crate::cache::Remembers;
use crate::domain::{AddressHash, ItemId, ItemKey, ItemName, NewItem, OpenTo, PollId, Reference, VoterId};
use crate::ledger::LedgerError;
use crate::web::access::Caller;
use crate::web::api::state::AppState;
use crate::web::problem::Problem;

/// Keys that one thread remembers, at the most: some 20 MB, if every key is as long as a key may be.
const KEYS_LIMIT: usize = 50_000;
/// How long a key is remembered. It is never given to another item; but a dump may be restored
/// under a running server.
const KEYS_LIMIT_AGE: Duration = Duration::from_secs(60);

/// The items of keys.
pub(crate) struct ItemKeys;

impl Remembers for ItemKeys {
    type Key = ItemKey;
    type Value = ItemId;
    const LIMIT: usize = KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(KEYS_LIMIT_AGE);
}

/// The polls of keys.
pub(crate) struct PollKeys;

impl Remembers for PollKeys {
    type Key = ItemKey;
    type Value = PollId;
    const LIMIT: usize = KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(KEYS_LIMIT_AGE);
}

impl AppState {
    /// The item that this stands for; `None`: no item has this key. Whether an id is of an item is
    /// not asked.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn find_item(&self, reference: &Reference<ItemId>) -> Result<Option<ItemId>, LedgerError> {
        let key = match reference {
            Reference::Id(id) => return Ok(Some(*id)),
            Reference::Key(key) => key,
        };
        if let Some(id) = self.item_keys.get(key) {
            return Ok(Some(id));
        }
        let asked = self.item_keys.asking();
        let found = self.ledger.item_with_key(key).await?;
        if let Some(id) = found {
            self.item_keys.add(key.clone(), id, asked);
        }
        Ok(found)
    }

    /// The item that this stands for.
    ///
    /// # Errors
    /// When no item has this key, or Postgres is needed and does not answer.
    pub async fn item(&self, reference: &Reference<ItemId>) -> Result<ItemId, Problem> {
        let found = self.find_item(reference).await?;
        found.ok_or_else(|| Problem::unknown_item(reference))
    }

    /// Takes a place in the throttles for a request of this caller that votes as this voter, if as
    /// any. Returns the item to vote on: if TALLY_CREATE_ITEMS or the caller's API key allows it, an
    /// item of an unknown key is made, but not for a vote with a ballot.
    ///
    /// # Errors
    /// When it is not admitted, no item has this key, or Postgres is needed and does not answer.
    pub async fn item_to_vote_on(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        voter: Option<&VoterId>,
        has_ballot: bool,
    ) -> Result<ItemId, Problem> {
        let found = self.find_item(reference).await?;
        // Before an item is made.
        self.admit(caller, voter, found).await?;
        match found {
            Some(id) => Ok(id),
            None => self.new_item_to_vote_on(reference, caller, has_ballot).await,
        }
    }

    /// Whose vote on this item it is that this caller casts, if the caller may: as
    /// [`Caller::may_vote`], or as the item is open.
    ///
    /// # Errors
    /// When the caller may not cast it, or Postgres is needed and does not answer.
    pub async fn voter_on(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        named: Option<VoterId>,
        has_ballot: bool,
    ) -> Result<Option<VoterId>, Problem> {
        match caller.may_vote(named.as_ref(), has_ballot, OpenTo::default()) {
            Err(_) if caller.may_be_anyone() => {
                caller.may_vote(named.as_ref(), has_ballot, self.open_to(reference).await?)?;
            }
            may => may?,
        }
        Ok(caller.voter(named, has_ballot))
    }

    /// Whether this caller may change and see what this voter holds on this item: as
    /// [`Caller::may_act_for`], or as the item is open.
    ///
    /// # Errors
    /// When the caller may not, or Postgres is needed and does not answer.
    pub async fn may_act_for_on(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        voter: &VoterId,
    ) -> Result<(), Problem> {
        match caller.may_act_for(voter, OpenTo::default()) {
            Err(_) if caller.may_be_anyone() => caller.may_act_for(voter, self.open_to(reference).await?),
            may => may,
        }
    }

    /// The same in a poll.
    ///
    /// # Errors
    /// As [`AppState::may_act_for_on`].
    pub async fn may_act_for_in(
        &self,
        reference: &Reference<PollId>,
        caller: &Caller,
        voter: &VoterId,
    ) -> Result<(), Problem> {
        let problem = match caller.may_act_for(voter, OpenTo::default()) {
            Err(problem) if caller.may_be_anyone() => problem,
            may => return may,
        };
        // Who may not vote does not learn which polls there are.
        let Ok(poll) = self.poll(reference).await else {
            return Err(problem);
        };
        caller.may_act_for(voter, self.access.open_items.of_poll(poll).await?)
    }

    /// Whether this caller may see what this voter holds on all of these.
    ///
    /// # Errors
    /// As [`AppState::may_act_for_on`].
    pub async fn may_look_for(
        &self,
        items: &[ItemId],
        polls: &[PollId],
        caller: &Caller,
        voter: &VoterId,
    ) -> Result<(), Problem> {
        let problem = match caller.may_act_for(voter, OpenTo::default()) {
            Err(problem) if caller.may_be_anyone() => problem,
            may => return may,
        };
        let open = self.access.open_items.of_items(items).await?;
        if !open.iter().all(|to| to.voters) {
            return Err(problem);
        }
        for poll in polls {
            caller.may_act_for(voter, self.access.open_items.of_poll(*poll).await?)?;
        }
        Ok(())
    }

    /// To whom an item is open. One that is not there is open to nobody.
    async fn open_to(&self, reference: &Reference<ItemId>) -> Result<OpenTo, LedgerError> {
        let Some(item) = self.find_item(reference).await? else {
            return Ok(OpenTo::default());
        };
        let open = self.access.open_items.of_items(&[item]).await?;
        Ok(open.first().copied().unwrap_or_default())
    }

    /// Takes a place in the throttles for a request of this caller.
    ///
    /// # Errors
    /// When it is not admitted.
    pub async fn admit(
        &self,
        caller: &Caller,
        voter: Option<&VoterId>,
        item: Option<ItemId>,
    ) -> Result<(), Problem> {
        let attempt = Attempt {
            voter,
            address: caller.voting_address(),
            item,
        };
        Ok(self.admission.admit(attempt).await?)
    }

    /// What is to be kept of the client that votes, if anything.
    pub fn address_of(&self, caller: &Caller) -> Option<AddressHash> {
        let keys = self.access.address_keys.as_ref()?;
        keys.hash(caller.voting_address()?)
    }

    /// The item of a key that was unknown a moment ago, made if it may be.
    ///
    /// # Errors
    /// As [`AppState::item_to_vote_on`].
    pub async fn new_item_to_vote_on(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        has_ballot: bool,
    ) -> Result<ItemId, Problem> {
        if let Some(id) = self.find_item(reference).await? {
            return Ok(id);
        }
        if has_ballot {
            return Err(Problem::unknown_item(reference));
        }
        let (Reference::Key(key), true) = (reference, self.creates_items || caller.is_admin_by_key()) else {
            return Err(Problem::unknown_item(reference));
        };
        // Whatever may be a key may be a name, once it is short enough and not blank.
        let name: String = key.as_str().chars().take(ItemName::LIMIT_CHARACTERS).collect();
        let Ok(name) = ItemName::parse(name) else {
            return Err(Problem::unknown_item(reference));
        };
        let new = NewItem {
            key: Some(key.clone()),
            ..name.into()
        };
        // Where all who vote may make items, making one is a part of voting; otherwise the caller's key
        // allows it as an administrative act.
        let asked = self.item_keys.asking();
        let made = if self.creates_items {
            self.ledger.create_item(&new).await
        } else {
            self.ledger.create_item_by(caller.actor(), &new).await
        };
        match made {
            Ok(item) => {
                self.item_keys.add(key.clone(), item.id, asked);
                Ok(item.id)
            }
            // Another request has just made it.
            Err(LedgerError::KeyTaken) => self.item(reference).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The items that these stand for, in their order, with one look-up for all unknown keys.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn find_items(
        &self,
        references: &[Reference<ItemId>],
    ) -> Result<Vec<Option<ItemId>>, LedgerError> {
        let unknown: Vec<ItemKey> = references
            .iter()
            .filter_map(|reference| match reference {
                Reference::Key(key) if self.item_keys.get(key).is_none() => Some(key.clone()),
                _ => None,
            })
            .collect();
        let mut found = HashMap::new();
        if !unknown.is_empty() {
            let asked = self.item_keys.asking();
            for (key, id) in self.ledger.items_with_keys(&unknown).await? {
                found.insert(key, id);
            }
            for key in unknown {
                if let Some(id) = found.get(key.as_str()) {
                    self.item_keys.add(key, *id, asked);
                }
            }
        }
        let items = references.iter().map(|reference| match reference {
            Reference::Id(id) => Some(*id),
            Reference::Key(key) => found
                .get(key.as_str())
                .copied()
                .or_else(|| self.item_keys.get(key)),
        });
        Ok(items.collect())
    }

    /// The poll that this stands for; `None`: no poll has this key. Whether an id is of a poll is not
    /// asked.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn find_poll(&self, reference: &Reference<PollId>) -> Result<Option<PollId>, LedgerError> {
        let key = match reference {
            Reference::Id(id) => return Ok(Some(*id)),
            Reference::Key(key) => key,
        };
        if let Some(id) = self.poll_keys.get(key) {
            return Ok(Some(id));
        }
        let asked = self.poll_keys.asking();
        let found = self.ledger.poll_with_key(key).await?;
        if let Some(id) = found {
            self.poll_keys.add(key.clone(), id, asked);
        }
        Ok(found)
    }

    /// The poll that this stands for.
    ///
    /// # Errors
    /// When no poll has this key, or Postgres is needed and does not answer.
    pub async fn poll(&self, reference: &Reference<PollId>) -> Result<PollId, Problem> {
        let found = self.find_poll(reference).await?;
        found.ok_or_else(|| Problem::unknown_poll(reference))
    }
}
