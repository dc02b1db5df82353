//! The operator's statements: the role `tally_operator`. `tally void`, `tally key`, `tally trail`,
//! and servers with an operator's login use them.

use std::time::Duration;

use serde_json::json;

use super::LedgerError;
use super::runs::run_of;
use super::safe_vote_id::safe_vote_id;
use super::server::{ServerLedger, VOID_LIMIT_IDS, VOID_LIMIT_VOTES};
use super::trail;
use crate::domain::{
    Act, ActKind, ActOutcome, Actor, AddressHash, ApiKeyHash, ApiKeyId, ItemId, Moment, NewAct, NewApiKey,
    PostgresRun, Reference, TrailFilter, Voiding, VoidingId, VoteFilter, VoteId, VoterId,
};
use crate::store_url::StoreUrl;

/// The ledger as the role `tally_operator` may use it. Cheap to clone. Every call fails when
/// Postgres is unavailable or too slow.
#[derive(Clone, Debug)]
pub struct OperatorLedger {
    server: ServerLedger,
    by: By,
}

/// Who acts, as the trail has it.
#[derive(Clone, Debug)]
enum By {
    /// The login, and this program's application_name.
    Tool(String),
    /// Who sent a request.
    Http(Actor),
}

/// What a voiding would take back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VotesToVoid {
    /// The last vote that was looked at.
    pub up_to: i64,
    pub votes: i64,
    /// What their values add up to.
    pub net: i64,
}

/// The array of a statement; `None`: the address does not matter.
fn addresses_of(filter: &VoteFilter) -> Option<Vec<&[u8]>> {
    let addresses = filter.addresses.as_ref()?;
    Some(addresses.iter().map(AddressHash::as_bytes).collect())
}

impl OperatorLedger {
    /// Describes the connection, and makes none yet. `application_name` is shown to Postgres'
    /// operator.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: impl Into<StoreUrl>, application_name: &str) -> Result<Self, LedgerError> {
        Ok(Self {
            server: ServerLedger::new(database_url, application_name)?,
            by: By::Tool(application_name.to_owned()),
        })
    }

    /// The same for a server, with a small pool that closes idle connections.
    ///
    /// # Errors
    /// As [`OperatorLedger::new`].
    pub fn beside_server(
        database_url: impl Into<StoreUrl>,
        application_name: &str,
    ) -> Result<Self, LedgerError> {
        let ledger = Self::new(database_url, application_name)?;
        Ok(Self {
            server: ledger.server.with_operator_pool(),
            ..ledger
        })
    }

    /// The same for an actor's HTTP request: the trail then names the actor.
    #[must_use]
    pub fn acting_for(&self, actor: Actor) -> Self {
        Self {
            server: self.server.clone(),
            by: By::Http(actor),
        }
    }

    /// The same ledger as a server uses it. An operator's program also stores votes, counts them,
    /// and notes how far.
    pub fn as_server(&self) -> &ServerLedger {
        &self.server
    }

    /// The item that this reference names; `None`: there is none.
    pub async fn find_item(&self, item: &Reference<ItemId>) -> Result<Option<ItemId>, LedgerError> {
        match item {
            Reference::Id(id) => {
                let found = sqlx::query_scalar!("select id from item where id = $1", id.get())
                    .fetch_optional(self.server.pool())
                    .await?;
                Ok(found.and_then(ItemId::new))
            }
            Reference::Key(key) => Ok(self.server.item_with_key(key).await?.map(|found| found.id)),
        }
    }

    /// The same ledger for several calls that belong together, such as one that finds an item and
    /// one that uses its id. A call fails if Postgres has failed over, or was started again, since
    /// this one.
    pub async fn only_in_this_run(&self) -> Result<Self, LedgerError> {
        Ok(self.in_this_run().await?.0)
    }

    /// The same, and which run this is.
    pub async fn in_this_run(&self) -> Result<(Self, PostgresRun), LedgerError> {
        let run = run_of(self.server.pool()).await?;
        let ledger = Self {
            server: self.server.only_in(Some(run)),
            by: self.by.clone(),
        };
        Ok((ledger, run))
    }

    /// A new act of whoever acts through this handle.
    pub fn act(&self, what: ActKind) -> NewAct {
        match &self.by {
            By::Tool(tool) => NewAct::with(what, tool),
            By::Http(actor) => NewAct::over_http(*actor, what),
        }
    }

    /// Notes an act in a statement of its own; returns the row's id. This handle's other statements
    /// note their acts themselves.
    pub async fn note_act(&self, act: &NewAct, target: Option<&str>) -> Result<i64, LedgerError> {
        trail::note(self.server.pool(), act, target).await
    }

    /// Notes that work of many transactions begins, before the first of them; returns the row's id.
    pub async fn note_begun(&self, what: ActKind, target: Option<&str>) -> Result<i64, LedgerError> {
        let act = self.act(what).outcome(ActOutcome::Begun, None);
        self.note_act(&act, target).await
    }

    /// Notes how work ended whose beginning is the row `begun`. `describe` adds to what was done. If the trail
    /// cannot be written, that is only logged, because the work has ended.
    pub async fn note_ended<Done, Error>(
        &self,
        what: ActKind,
        begun: i64,
        target: Option<&str>,
        ended: &Result<Done, Error>,
        describe: impl FnOnce(NewAct, &Done) -> NewAct,
    ) {
        let act = self.act(what).of(Some(begun));
        let act = match ended {
            Ok(done) => describe(act, done),
            Err(_) => act.outcome(ActOutcome::Failed, None),
        };
        if let Err(error) = self.note_act(&act, target).await {
            tracing::warn!(%error, what = what.name(), "the outcome of an act is not in the trail");
        }
    }

    /// Rows of the trail, the newest first, up to `limit`.
    pub async fn trail(&self, filter: &TrailFilter, limit: i64) -> Result<Vec<Act>, LedgerError> {
        trail::trail(self.server.pool(), filter, limit).await
    }

    /// Revokes an API key. Returns whether the key exists.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<bool, LedgerError> {
        self.server.revoke(&self.act(ActKind::ApiKeyRevoke), id).await
    }

    /// Creates an API key with this hash.
    pub async fn create_api_key(&self, hash: &ApiKeyHash, new: &NewApiKey) -> Result<ApiKeyId, LedgerError> {
        let names: Vec<String> = new.scopes.names().into_iter().map(str::to_owned).collect();
        let act = self.act(ActKind::ApiKeyCreate).details(json!({
            "name": new.name,
            "scopes": names,
            "expires_at": new.expires_at,
        }));
        let made = sqlx::query_file!(
            "src/ledger/sql/create_api_key.sql",
            hash.as_bytes(),
            new.name,
            &names,
            new.expires_at.map(Moment::micros),
            act.to_json()
        )
        .fetch_one(self.server.pool())
        .await?;
        Ok(ApiKeyId(made.id))
    }

    /// Creates a key with the name and scopes of this one. The old key stays valid for `grace`.
    /// `None`: the old key does not exist, or is not valid any more.
    pub async fn rotate_api_key(
        &self,
        id: ApiKeyId,
        hash: &ApiKeyHash,
        grace: Duration,
    ) -> Result<Option<ApiKeyId>, LedgerError> {
        let act = self
            .act(ActKind::ApiKeyRotate)
            .details(json!({ "grace_seconds": grace.as_secs() }));
        let made = sqlx::query_file!(
            "src/ledger/sql/rotate_api_key.sql",
            id.0,
            hash.as_bytes(),
            i64::try_from(grace.as_micros()).unwrap_or(i64::MAX),
            act.to_json()
        )
        .fetch_optional(self.server.pool())
        .await?;
        Ok(made.map(|made| ApiKeyId(made.id)))
    }

    /// The last vote that is cast by now. Waits for votes that are being stored.
    ///
    /// # Errors
    /// When a transaction that writes votes does not end in time.
    pub async fn last_vote(&self) -> Result<VoteId, LedgerError> {
        let (last, _) = safe_vote_id(self.server.pool()).await?;
        Ok(last)
    }

    /// The next votes beyond `after` that a voiding would take back.
    pub async fn votes_to_void(
        &self,
        filter: &VoteFilter,
        after: i64,
        until: VoteId,
    ) -> Result<VotesToVoid, LedgerError> {
        let addresses = addresses_of(filter);
        let row = sqlx::query_file!(
            "src/ledger/sql/votes_to_void.sql",
            filter.voter_id.as_ref().map(VoterId::as_str),
            filter.item_id.map(ItemId::get),
            filter.cast_from.map(Moment::micros),
            filter.cast_until.map(Moment::micros),
            after,
            until.get(),
            VOID_LIMIT_VOTES,
            VOID_LIMIT_IDS,
            addresses.as_deref() as Option<&[&[u8]]>,
            filter.api_key.map(|key| key.0)
        )
        .fetch_one(self.server.pool())
        .await?;
        Ok(VotesToVoid {
            up_to: row.up_to,
            votes: row.votes,
            net: row.net,
        })
    }

    /// The hash of the address that this vote came from; `None`: none is kept.
    pub async fn address_of(&self, vote: VoteId) -> Result<Option<AddressHash>, LedgerError> {
        let found = sqlx::query_scalar!(
            "select address_hash from vote_address where vote_id = $1",
            vote.get()
        )
        .fetch_optional(self.server.pool())
        .await?;
        Ok(found.and_then(|bytes| AddressHash::from_bytes(&bytes)))
    }

    /// Whether there is, or was, an API key with this id.
    pub async fn has_api_key(&self, id: ApiKeyId) -> Result<bool, LedgerError> {
        let found = sqlx::query_scalar!("select id from api_key where id = $1", id.0)
            .fetch_optional(self.server.pool())
            .await?;
        Ok(found.is_some())
    }

    /// Creates a voiding of votes up to `until`. It voids nothing yet.
    ///
    /// # Errors
    /// When an edit of its voter is not done: some of the votes have another voter id already.
    pub async fn create_voiding(
        &self,
        filter: &VoteFilter,
        reason: &str,
        until: VoteId,
    ) -> Result<VoidingId, LedgerError> {
        // Without the voter and the address, and without the reason, which may name one. The
        // voiding has them.
        let act = self.act(ActKind::VoidingCreate).details(json!({
            "of_a_voter": filter.voter_id.is_some(),
            "of_an_address": filter.addresses.is_some(),
            "api_key_id": filter.api_key.map(|key| key.0),
            "item_id": filter.item_id.map(ItemId::get),
            "cast_from": filter.cast_from,
            "cast_until": filter.cast_until,
            "until_vote_id": until.get(),
        }));
        let addresses = addresses_of(filter);
        let voter = filter.voter_id.as_ref().map(VoterId::as_str);
        let mut transaction = self.server.pool().begin().await?;
        let creating = async {
            // Edits of voters are created under this lock, too (create_voter_edit).
            sqlx::query!("select pg_advisory_xact_lock(7416153282)")
                .execute(&mut *transaction)
                .await?;
            let under_way = sqlx::query_scalar!(
                "select id from voter_edit where ended_at is null and $1 in (from_voter_id, to_voter_id) limit 1",
                voter
            )
            .fetch_optional(&mut *transaction)
            .await?;
            if let Some(edit) = under_way {
                return Err(LedgerError::VoterEditUnderWay(edit));
            }
            let made = sqlx::query_file!(
                "src/ledger/sql/create_voiding.sql",
                voter,
                filter.item_id.map(ItemId::get),
                filter.cast_from.map(Moment::micros),
                filter.cast_until.map(Moment::micros),
                reason,
                until.get(),
                act.to_json(),
                addresses.as_deref() as Option<&[&[u8]]>,
                filter.api_key.map(|key| key.0)
            )
            .fetch_one(&mut *transaction)
            .await?;
            Ok(VoidingId(made.id))
        };
        let made = creating.await;
        transaction.end(made).await
    }

    /// This voiding; `None`: there is none with this id.
    pub async fn voiding(&self, id: VoidingId) -> Result<Option<Voiding>, LedgerError> {
        Ok(self.read_voidings(Some(id), None, 1).await?.into_iter().next())
    }

    /// Voidings from before this one, or all; newest first, up to `limit`.
    pub async fn voidings(&self, before: Option<VoidingId>, limit: i64) -> Result<Vec<Voiding>, LedgerError> {
        self.read_voidings(None, before, limit).await
    }

    async fn read_voidings(
        &self,
        only: Option<VoidingId>,
        before: Option<VoidingId>,
        limit: i64,
    ) -> Result<Vec<Voiding>, LedgerError> {
        let rows = sqlx::query_file!(
            "src/ledger/sql/voidings.sql",
            only.map(|id| id.0),
            limit,
            before.map(|id| id.0)
        )
        .fetch_all(self.server.pool())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| Voiding {
                id: VoidingId(row.id),
                created_at: Moment::from_micros(row.created_at),
                reason: row.reason,
                voter_id: row.voter_id,
                item_id: row.item_id.and_then(ItemId::new),
                cast_from: row.cast_from.map(Moment::from_micros),
                cast_until: row.cast_until.map(Moment::from_micros),
                is_by_address: row.is_by_address,
                api_key: row.api_key_id.map(ApiKeyId),
                until_vote_id: row.until_vote_id,
                done_vote_id: row.done_vote_id,
                undone_vote_id: row.undone_vote_id,
                voided_votes: row.voided_votes,
                restored_votes: row.restored_votes,
                left_votes: row.left_votes,
            })
            .collect())
    }
}
