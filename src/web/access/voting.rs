//! Who may vote on what: as a caller's credential says, or as the item or poll is open. It also makes the
//! items that votes on unknown keys may make.

use actix_web::web;

use crate::admission::{Admission, Attempt};
use crate::domain::{
    AddressHash, AddressKeys, ItemId, ItemName, NewItem, OpenTo, PollId, Reference, Throttles, VoterId,
};
use crate::ledger::{LedgerError, ServerLedger};
use crate::web::access::{Caller, OpenItems};
use crate::web::problem::Problem;
use crate::web::references::References;

/// How votes are taken, as it is set. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct VotingOptions {
    /// Whether a vote on an unknown key makes its item.
    pub creates_items: bool,
    /// How often may be voted.
    pub throttles: Throttles,
    /// What hashes the client's address that is kept of each vote. `None`: none is kept.
    pub address_keys: Option<AddressKeys>,
}

/// Who may vote on what, on one thread.
pub struct Voting {
    pub options: VotingOptions,
    pub references: web::Data<References>,
    pub open_items: OpenItems,
    pub admission: Admission,
    pub ledger: ServerLedger,
}

impl Voting {
    /// Checks that this caller may cast this vote on an item: as [`Caller::may_vote`], or as the item is
    /// open. Returns whose vote it is.
    ///
    /// # Errors
    /// When the caller may not cast it, or Postgres is needed and does not answer.
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

    /// Checks that this caller may change and see what this voter holds on an item: as
    /// [`Caller::may_act_for`], or as the item is open.
    ///
    /// # Errors
    /// When the caller may not, or Postgres is needed and does not answer.
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

    /// The same in a poll.
    ///
    /// # Errors
    /// As [`Voting::authorize_on_item`].
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
        // Who may not vote does not learn which polls there are.
        let Ok(poll) = self.references.poll(reference).await else {
            return Err(problem);
        };
        caller.may_act_for(voter, self.open_items.of_poll(poll).await?)
    }

    /// Checks that this caller may see what this voter holds on all of these.
    ///
    /// # Errors
    /// As [`Voting::authorize_on_item`].
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

    /// To whom an item is open. One that is not there is open to nobody.
    async fn open_to(&self, reference: &Reference<ItemId>) -> Result<OpenTo, LedgerError> {
        let Some(item) = self.references.find_item(reference).await? else {
            return Ok(OpenTo::default());
        };
        let open = self.open_items.of_items(&[item]).await?;
        Ok(open.first().copied().unwrap_or_default())
    }

    /// Counts a request of this caller in the throttles.
    ///
    /// # Errors
    /// When a throttle is full.
    pub async fn throttle(
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

    /// Counts a request of this caller, which votes as this voter, if as any, in the throttles. Returns
    /// the item to vote on: if TALLY_CREATE_ITEMS or the caller's API key allows it, an item of an
    /// unknown key is made, but not for a vote with a ballot.
    ///
    /// # Errors
    /// When a throttle is full, no item has this key, or Postgres is needed and does not answer.
    pub async fn throttle_and_find_item(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        voter: Option<&VoterId>,
        has_ballot: bool,
    ) -> Result<ItemId, Problem> {
        let found = self.references.find_item(reference).await?;
        // Before an item is made.
        self.throttle(caller, voter, found).await?;
        match found {
            Some(id) => Ok(id),
            None => self.create_item_for_vote(reference, caller, has_ballot).await,
        }
    }

    /// The item of a key that was unknown a moment ago, made if it may be.
    ///
    /// # Errors
    /// As [`Voting::throttle_and_find_item`].
    pub async fn create_item_for_vote(
        &self,
        reference: &Reference<ItemId>,
        caller: &Caller,
        has_ballot: bool,
    ) -> Result<ItemId, Problem> {
        if let Some(id) = self.references.find_item(reference).await? {
            return Ok(id);
        }
        if has_ballot {
            return Err(Problem::unknown_item(reference));
        }
        let (Reference::Key(key), true) = (reference, self.options.creates_items || caller.is_admin_by_key())
        else {
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
        let asked = self.references.asking();
        let made = if self.options.creates_items {
            self.ledger.create_item(&new).await
        } else {
            self.ledger.create_item_by(caller.actor(), &new).await
        };
        match made {
            Ok(item) => {
                self.references.remember_item(key.clone(), item.id, asked);
                Ok(item.id)
            }
            // Another request has just made it.
            Err(LedgerError::KeyTaken) => self.references.item(reference).await,
            Err(error) => Err(error.into()),
        }
    }

    /// What is to be kept of the client that votes, if anything.
    pub fn address_hash(&self, caller: &Caller) -> Option<AddressHash> {
        let keys = self.options.address_keys.as_ref()?;
        keys.hash(caller.voting_address()?)
    }
}
