//! Who may vote on what, according to the caller's credential and to whom the item or poll is open. Also
//! creates items for votes on unknown keys, where that is allowed.

use actix_web::web;

use crate::admission::{Admission, Attempt, AttemptedItem};
use crate::domain::{
    AddressKeys, Found, ItemId, NewItem, OpenTo, PollId, Reference, Throttles, Value, VoteSource, VoterId,
};
use crate::ledger::{LedgerError, ServerLedger};
use crate::web::access::{Caller, CreateItems, OpenItems};
use crate::web::problem::Problem;
use crate::web::references::References;

/// The options of how votes are taken. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct VotingOptions {
    /// What a vote on an unknown key creates.
    pub creates: CreateItems,
    /// How often one may vote.
    pub throttles: Throttles,
    /// The keys that hash the client's address of each vote. `None`: no address is kept.
    pub address_keys: Option<AddressKeys>,
}

/// Decides who may vote on what, on one thread.
pub struct Voting {
    pub options: VotingOptions,
    pub references: web::Data<References>,
    pub open_items: OpenItems,
    pub admission: Admission,
    pub ledger: ServerLedger,
}

impl Voting {
    /// Checks that this caller may cast this vote on an item. Returns its voter.
    ///
    /// The caller's credential may allow it ([`Caller::may_vote`]), or the item may be open.
    pub async fn authorize_cast(
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

    /// Checks that this caller may change and see this voter's vote on an item.
    ///
    /// The caller's credential may allow it ([`Caller::may_act_for`]), or the item may be open.
    pub async fn authorize_on_item(
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

    /// Checks the same for a poll, as [`Voting::authorize_on_item`].
    pub async fn authorize_in_poll(
        &self,
        reference: &Reference<PollId>,
        caller: &Caller,
        voter: &VoterId,
    ) -> Result<(), Problem> {
        let problem = match caller.may_act_for(voter, OpenTo::default()) {
            Err(problem) if caller.may_be_anyone() => problem,
            may => return may,
        };
        let open = async {
            // A caller who may not vote must not learn which polls exist.
            let Ok(poll) = self.references.poll(reference).await else {
                return Err(problem);
            };
            Ok(self.open_items.of_poll(poll.id).await?)
        };
        caller.may_act_for(voter, self.ledger.in_one_run(reference.is_key(), open).await?)
    }

    /// Checks that this caller may see this voter's votes on all of these items and polls.
    pub async fn authorize_on_all(
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
        let open = self.open_items.of_items(items).await?;
        if !open.iter().all(|to| to.voters) {
            return Err(problem);
        }
        for poll in polls {
            caller.may_act_for(voter, self.open_items.of_poll(*poll).await?)?;
        }
        Ok(())
    }

    /// Returns to whom an item is open. An unknown item is open to nobody.
    async fn open_to(&self, reference: &Reference<ItemId>) -> Result<OpenTo, LedgerError> {
        let open = async {
            let Some(item) = self.references.find_item(reference).await? else {
                return Ok(OpenTo::default());
            };
            let open = self.open_items.of_items(&[item.id]).await?;
            Ok(open.first().copied().unwrap_or_default())
        };
        self.ledger.in_one_run(reference.is_key(), open).await
    }

    /// Counts a request of this caller in the throttles. Fails when a throttle is full.
    pub async fn throttle(
        &self,
        caller: &Caller,
        voter: Option<&VoterId>,
        item: Option<AttemptedItem<'_>>,
    ) -> Result<(), Problem> {
        let attempt = Attempt {
            voter,
            address: caller.voting_address(),
            item,
        };
        Ok(self.admission.admit(attempt).await?)
    }

    /// Counts a request in the throttles, and finds the item to vote on.
    ///
    /// `voter` is the voter of the request, if there is one. If TALLY_CREATE_ITEMS or the caller's API key
    /// allows it, the item of an unknown key is created. `casts` is the value of the vote; a vote with a ballot
    /// has `None`, and creates no item.
    ///
    /// # Errors
    /// Fails when a throttle is full, or no item has this key.
    pub async fn throttle_and_find_item(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        voter: Option<&VoterId>,
        casts: Option<Value>,
    ) -> Result<Found<ItemId>, Problem> {
        let found = self.references.find_item(reference).await?;
        let attempted = self.attempted(reference, found, caller, casts);
        // Throttles come before an item is created.
        self.throttle(caller, voter, attempted).await?;
        match found {
            Some(item) => Ok(item),
            None => {
                let item = self.find_or_make_item(reference, caller, casts).await?;
                self.admit_to(item).await?;
                Ok(item)
            }
        }
    }

    /// Returns the item of a vote as its throttles see it. `found` is the item of the reference.
    ///
    /// `None`: there is none, and the vote makes none.
    pub fn attempted<'a>(
        &self,
        reference: &'a Reference<ItemId>,
        found: Option<Found<ItemId>>,
        caller: &Caller,
        casts: Option<Value>,
    ) -> Option<AttemptedItem<'a>> {
        match (found, reference) {
            (Some(item), _) => Some(AttemptedItem::Known(item.id)),
            (None, Reference::Id(id)) => Some(AttemptedItem::Known(*id)),
            (None, Reference::Key(key)) => {
                let made = self.item_to_make(reference, caller, casts);
                made.is_some().then_some(AttemptedItem::New(key))
            }
        }
    }

    /// Returns the item of a key that was unknown when the vote passed its throttles. Creates it if allowed.
    /// Then call [`Voting::admit_to`].
    ///
    /// # Errors
    /// Fails when no item has this key.
    pub async fn find_or_make_item(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        casts: Option<Value>,
    ) -> Result<Found<ItemId>, Problem> {
        match self.references.find_item(reference).await? {
            Some(item) => Ok(item),
            None => self.make_item(reference, caller, casts).await,
        }
    }

    /// Counts a vote in the throttles of an item that was just found or made: they have not seen it yet.
    ///
    /// # Errors
    /// Fails when one of them is full: other votes have found the item meanwhile.
    pub async fn admit_to(&self, item: Found<ItemId>) -> Result<(), Problem> {
        let attempt = Attempt {
            item: Some(AttemptedItem::Known(item.id)),
            ..Attempt::default()
        };
        Ok(self.admission.admit(attempt).await?)
    }

    /// Returns the item that a vote on this reference may create, if no item has its key.
    fn item_to_make(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        casts: Option<Value>,
    ) -> Option<NewItem> {
        let (Reference::Key(key), Some(value)) = (reference, casts) else {
            return None;
        };
        match self.options.creates {
            CreateItems::Nothing if caller.is_admin_by_key() => CreateItems::Any.item(key, value),
            what => what.item(key, value),
        }
    }

    /// Creates the item of a key that was just unknown.
    async fn make_item(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        casts: Option<Value>,
    ) -> Result<Found<ItemId>, Problem> {
        let Some(new) = self.item_to_make(reference, caller, casts) else {
            return Err(Problem::unknown_item(reference));
        };
        // If TALLY_CREATE_ITEMS is set, creating an item is a part of voting. Otherwise the caller's key
        // allows it as an administrative act.
        let asked = self.references.asking();
        let is_act = self.options.creates == CreateItems::Nothing;
        let actor = is_act.then(|| caller.actor());
        match (self.ledger.create_item_to_vote(actor, &new).await, new.key) {
            (Ok(item), Some(key)) => {
                self.references.remember_item(key, item, asked);
                Ok(item)
            }
            (Ok(item), None) => Ok(item),
            // Another request has just created the item.
            (Err(LedgerError::KeyTaken), _) => self.references.item(reference).await,
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Returns where this caller's votes come from, as far as that is kept.
    pub fn source(&self, caller: &Caller) -> VoteSource {
        let keys = self.options.address_keys.as_ref();
        VoteSource {
            address: keys.and_then(|keys| keys.hash(caller.voting_address()?)),
            api_key: caller.api_key(),
        }
    }
}
