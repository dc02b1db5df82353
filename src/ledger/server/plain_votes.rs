//! Storing plain votes: first votes on items without a rule.

use std::collections::{HashMap, HashSet};

use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use super::item_kind::ItemKind;
use super::known_items::by_kind;
use super::vote_writer::{InsertError, ReadyWriter, VoteWriter, WriterConnection};
use crate::cache::Asked;
use crate::domain::{
    AddressHash, ApiKeyId, NewVote, StoredVote, TransactionId, VoteId, VoteOutcome, VoteSource, VoterId,
};
use crate::ledger::LedgerError;
use crate::ledger::safe_commit::{listening, until_safe};
use crate::telemetry::trouble;

/// What became of a batch.
#[derive(Debug)]
pub struct InsertedBatch {
    /// The batch's transaction, committed.
    pub transaction: TransactionId,
    /// An outcome for each vote, in the order given.
    pub outcomes: Vec<VoteOutcome>,
}

impl VoteWriter {
    /// Stores a batch, all of it or nothing, with one autocommitted statement. `sources` has an
    /// entry for each vote, or is empty.
    ///
    /// # Errors
    /// When the batch was not stored, or maybe not: the error says which.
    pub async fn insert(
        &mut self,
        votes: &[NewVote],
        sources: &[VoteSource],
    ) -> Result<InsertedBatch, InsertError> {
        self.ready().await?.insert(votes, sources).await
    }
}

impl ReadyWriter<'_> {
    /// As [`VoteWriter::insert`].
    ///
    /// # Errors
    /// As [`VoteWriter::insert`].
    pub async fn insert(
        self,
        votes: &[NewVote],
        sources: &[VoteSource],
    ) -> Result<InsertedBatch, InsertError> {
        let Self {
            writer: of,
            connection,
        } = self;
        let inserted = of.insert_over(connection, votes, sources).await;
        match &inserted {
            Ok(batch) if batch.outcomes.iter().any(is_accepted) => of.note_stored(),
            Ok(_) => {}
            Err(_) => of.note_failed(),
        }
        inserted
    }
}

impl VoteWriter {
    async fn insert_over(
        &mut self,
        mut writer: WriterConnection,
        votes: &[NewVote],
        sources: &[VoteSource],
    ) -> Result<InsertedBatch, InsertError> {
        let limit = self.answer_limit();
        let inserting = async {
            let (batch, has_warned) = listening(insert(&mut writer, votes, sources)).await;
            until_safe(&mut writer.connection, batch, has_warned).await
        };
        let ended = timeout(limit, inserting).await;
        let Batch {
            transaction,
            created_at,
            mut outcomes,
        } = self.batch_answer(ended)?;
        // From here on the batch is committed: it must be counted, whatever fails.
        let rows = outcomes
            .iter()
            .zip(votes)
            .filter_map(|(outcome, vote)| match outcome {
                Some(VoteOutcome::Accepted(stored)) => Some((stored.id, vote.item_id)),
                _ => None,
            });
        self.note_acknowledged(&writer, created_at, rows);
        let looked_up = if outcomes.contains(&None) {
            let looking = async {
                let looking = find_last_votes(&mut writer.connection, votes, &mut outcomes);
                let (looked_up, has_warned) = listening(looking).await;
                until_safe(&mut writer.connection, looked_up, has_warned).await
            };
            match timeout(limit, looking).await {
                Ok(looked_up) => looked_up.map_err(LedgerError::from),
                Err(_) => Err(LedgerError::Timeout(limit)),
            }
        } else {
            Ok(())
        };
        match looked_up {
            Ok(()) => self.keep(writer),
            Err(error) => {
                trouble!(error, %error; "the earlier votes of some repeats could not be read");
                // They may be on one disk only.
                let repeats = outcomes.iter_mut();
                repeats
                    .filter(|one| matches!(one, Some(VoteOutcome::Repeated(_))))
                    .for_each(|one| *one = None);
            }
        }
        let outcomes = outcomes
            .into_iter()
            .map(|one| one.unwrap_or(VoteOutcome::UnresolvedRepeat))
            .collect();
        Ok(InsertedBatch {
            transaction,
            outcomes,
        })
    }
}

fn is_accepted(outcome: &VoteOutcome) -> bool {
    matches!(outcome, VoteOutcome::Accepted(_))
}

/// A committed batch. A repeat has no outcome yet.
struct Batch {
    transaction: TransactionId,
    /// `vote.created_at` of its rows, in µs since 1970.
    created_at: i64,
    outcomes: Vec<Option<VoteOutcome>>,
}

/// A batch that stored nothing has no transaction.
const NO_TRANSACTION: TransactionId = TransactionId(0);

/// The addresses as a statement takes them; `None`: none is kept.
pub(super) fn addresses_of(sources: &[VoteSource]) -> Option<Vec<Option<&[u8]>>> {
    let is_kept = sources.iter().any(|one| one.address.is_some());
    let addresses = sources.iter().map(|one| one.address.as_ref());
    is_kept.then(|| addresses.map(|one| one.map(AddressHash::as_bytes)).collect())
}

/// The API keys as a statement takes them; `None`: there is none.
pub(super) fn api_keys_of(sources: &[VoteSource]) -> Option<Vec<Option<i64>>> {
    let has_one = sources.iter().any(|one| one.api_key.is_some());
    has_one.then(|| sources.iter().map(|one| one.api_key.map(|key| key.0)).collect())
}

fn item_and_voter(vote: &NewVote) -> (i64, Option<&str>) {
    (vote.item_id.get(), vote.voter_id.as_ref().map(VoterId::as_str))
}

async fn insert(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    sources: &[VoteSource],
) -> Result<Batch, sqlx::Error> {
    if std::mem::take(&mut writer.is_new) {
        // In case that another database answers from now on.
        writer.items.forget();
    }
    let kinds = writer
        .items
        .kinds(writer.run(), votes.iter().map(|vote| vote.item_id.get()));
    let refused = |at: usize| kinds[at].and_then(|kind| kind.refusal(&votes[at]));
    // Mostly none is refused.
    let Some(first) = (0..votes.len()).find(|at| refused(*at).is_some()) else {
        let unknown = unknown_among(votes, &kinds);
        return insert_sent(writer, votes, sources, &unknown).await;
    };
    let mut outcomes: Vec<Option<VoteOutcome>> = vec![None; votes.len()];
    let mut sent: Vec<usize> = (0..first).collect();
    for (at, outcome) in outcomes.iter_mut().enumerate().skip(first) {
        *outcome = refused(at);
        if outcome.is_none() {
            sent.push(at);
        }
    }
    let unknown = unknown_among(votes, &kinds);
    if sent.is_empty() {
        return Ok(Batch {
            transaction: NO_TRANSACTION,
            created_at: 0,
            outcomes,
        });
    }
    let to_send: Vec<NewVote> = sent.iter().map(|at| votes[*at].clone()).collect();
    let sources: Vec<_> = sent.iter().filter_map(|at| sources.get(*at)).copied().collect();
    let batch = insert_sent(writer, &to_send, &sources, &unknown).await?;
    for (at, outcome) in sent.into_iter().zip(batch.outcomes) {
        outcomes[at] = outcome;
    }
    Ok(Batch { outcomes, ..batch })
}

/// The items of these votes that are not known, sorted, each once.
fn unknown_among(votes: &[NewVote], kinds: &[Option<ItemKind>]) -> Vec<i64> {
    let missing = votes.iter().zip(kinds).filter(|(_, kind)| kind.is_none());
    let mut unknown: Vec<i64> = missing.map(|(vote, _)| vote.item_id.get()).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
}

async fn insert_sent(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    sources: &[VoteSource],
    unknown: &[i64],
) -> Result<Batch, sqlx::Error> {
    let asked = writer.items.asking();
    let first = sources.first().copied().unwrap_or_default();
    let is_of_one = first.address.is_none() && sources.iter().all(|one| *one == first);
    if is_of_one && votes.iter().all(|vote| vote.voter_id.is_none()) {
        insert_anonymous(writer, votes, first.api_key, unknown, asked).await
    } else {
        insert_any(writer, votes, sources, unknown, asked).await
    }
}

/// Stores votes without voters, all with this API key: none of them can be a repeat.
async fn insert_anonymous(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    api_key: Option<ApiKeyId>,
    unknown: &[i64],
    asked: Asked,
) -> Result<Batch, sqlx::Error> {
    let (item_ids, values): (Vec<i64>, Vec<i16>) = votes
        .iter()
        .map(|vote| (vote.item_id.get(), vote.value.get()))
        .unzip();
    let batch = sqlx::query_file!(
        "src/ledger/sql/insert_anonymous_votes.sql",
        &item_ids,
        &values,
        unknown,
        api_key.map(|key| key.0)
    )
    .fetch_one(&mut writer.connection)
    .await?;
    let looked_up = LookedUp::new(unknown, by_kind(batch.plain, batch.up_only, batch.ruled));
    looked_up.note(writer, asked);
    Ok(Batch {
        transaction: TransactionId(batch.xid),
        created_at: batch.created_at,
        outcomes: in_order(votes, &looked_up, batch.inserted)?,
    })
}

/// Gives the inserted ids to the votes that were not refused, in their order.
///
/// # Errors
/// When there are more ids than such votes, or fewer. Then nobody knows which vote has which id.
fn in_order(
    votes: &[NewVote],
    looked_up: &LookedUp<'_>,
    mut inserted: Vec<i64>,
) -> Result<Vec<Option<VoteOutcome>>, sqlx::Error> {
    // They should be in order already.
    inserted.sort_unstable();
    let rows = inserted.len();
    let mut ids = inserted.into_iter();
    let outcomes: Vec<Option<VoteOutcome>> = votes
        .iter()
        .map(|vote| {
            looked_up
                .refusal(vote)
                .or_else(|| ids.next().map(|id| accepted(id, vote.value.get())))
        })
        .collect();
    if ids.next().is_some() || outcomes.contains(&None) {
        let why = format!("{rows} rows were inserted, and not one for each vote that was not refused");
        return Err(sqlx::Error::Decode(why.into()));
    }
    Ok(outcomes)
}

fn accepted(id: i64, value: i16) -> VoteOutcome {
    VoteOutcome::Accepted(StoredVote {
        id: VoteId::new(id),
        value,
        number: None,
    })
}

/// The items of a batch that were not known, and what was found of them.
struct LookedUp<'a> {
    unknown: &'a [i64],
    found: HashMap<i64, ItemKind>,
}

impl<'a> LookedUp<'a> {
    fn new(unknown: &'a [i64], found: impl Iterator<Item = (i64, ItemKind)>) -> Self {
        Self {
            unknown,
            found: found.collect(),
        }
    }

    /// Lets all writers know what was found, for which Postgres was asked then.
    fn note(&self, writer: &mut WriterConnection, asked: Asked) {
        let found = self.found.iter().map(|(id, kind)| (*id, *kind));
        writer.block_to_read = writer.items.add(writer.run(), asked, found, writer.block_to_read);
    }

    /// Why a vote was not stored, if its item was looked up and is the reason.
    fn refusal(&self, vote: &NewVote) -> Option<VoteOutcome> {
        if self.unknown.is_empty() {
            return None;
        }
        match self.found.get(&vote.item_id.get()) {
            Some(kind) => kind.refusal(vote),
            None => {
                let is_absent = self.unknown.binary_search(&vote.item_id.get()).is_ok();
                is_absent.then_some(VoteOutcome::UnknownItem)
            }
        }
    }
}

/// Stores votes, some with voters or from several sources.
async fn insert_any(
    writer: &mut WriterConnection,
    votes: &[NewVote],
    sources: &[VoteSource],
    unknown: &[i64],
    asked: Asked,
) -> Result<Batch, sqlx::Error> {
    let (addresses, api_keys) = (addresses_of(sources), api_keys_of(sources));
    let (item_ids, voter_ids): (Vec<i64>, Vec<Option<&str>>) = votes.iter().map(item_and_voter).unzip();
    let values: Vec<i16> = votes.iter().map(|vote| vote.value.get()).collect();
    let batch = sqlx::query_file!(
        "src/ledger/sql/insert_plain_votes.sql",
        &item_ids,
        &voter_ids as &[Option<&str>],
        &values,
        unknown,
        addresses.as_deref() as Option<&[Option<&[u8]>]>,
        api_keys.as_deref() as Option<&[Option<i64>]>
    )
    .fetch_one(&mut writer.connection)
    .await?;
    let looked_up = LookedUp::new(unknown, by_kind(batch.plain, batch.up_only, batch.ruled));
    looked_up.note(writer, asked);
    let all_inserted = batch.inserted.len() == votes.len();
    let inserted: HashSet<i64> = if all_inserted {
        HashSet::new()
    } else {
        batch.inserted.into_iter().collect()
    };
    let outcomes = batch
        .candidates
        .iter()
        .zip(votes)
        .map(|(id, vote)| match id {
            None => looked_up.refusal(vote),
            Some(id) if all_inserted || inserted.contains(id) => Some(accepted(*id, vote.value.get())),
            Some(_) => None,
        })
        .collect();
    Ok(Batch {
        transaction: TransactionId(batch.xid),
        created_at: batch.created_at,
        outcomes,
    })
}

/// Finds the votes that the repeats repeat: the voters' last rows. These were committed before the
/// batch or while it ran, or are part of it. It is a statement of its own, since the snapshot of
/// the batch's statement does not see all of them. A voter whose last row takes a vote back holds
/// none: that needs a decision.
async fn find_last_votes(
    connection: &mut PgConnection,
    votes: &[NewVote],
    outcomes: &mut [Option<VoteOutcome>],
) -> Result<(), sqlx::Error> {
    let open: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
    let (items, voters): (Vec<i64>, Vec<Option<&str>>) =
        open.iter().map(|at| item_and_voter(&votes[*at])).unzip();
    let rows = sqlx::query_file!(
        "src/ledger/sql/last_votes.sql",
        &items,
        &voters as &[Option<&str>]
    )
    .fetch_all(connection)
    .await?;
    for row in rows {
        if let Some(open) = at(row.position).and_then(|at| open.get(at)) {
            outcomes[*open] = Some(if row.change_number % 2 == 0 {
                VoteOutcome::Repeated(StoredVote {
                    id: VoteId::new(row.id),
                    value: row.value,
                    number: None,
                })
            } else {
                VoteOutcome::NeedsDecision
            });
        }
    }
    Ok(())
}

/// The index of a position in SQL, which counts from 1.
fn at(position: i64) -> Option<usize> {
    usize::try_from(position - 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{ItemId, Value};

    #[test]
    fn each_vote_that_is_not_refused_gets_one_id_and_another_number_of_ids_is_an_error() {
        let vote = |item, value| NewVote {
            item_id: ItemId::new(item).expect("positive"),
            voter_id: None,
            value,
        };
        let votes = [
            vote(1, Value::UP),
            vote(2, Value::DOWN),
            vote(3, Value::UP),
            vote(4, Value::DOWN),
        ];
        let unknown = [2, 3, 4];
        let looked_up = LookedUp::new(&unknown, by_kind(Some(vec![4]), Some(vec![2]), None));
        let outcomes = in_order(&votes, &looked_up, vec![8, 7]).expect("as many ids as votes");
        assert_eq!(outcomes[0], Some(accepted(7, 1)));
        assert!(matches!(outcomes[1], Some(VoteOutcome::Refused(_))));
        assert_eq!(outcomes[2], Some(VoteOutcome::UnknownItem));
        assert_eq!(outcomes[3], Some(accepted(8, -1)));
        for wrong in [vec![], vec![7], vec![7, 8, 9]] {
            assert!(in_order(&votes, &looked_up, wrong).is_err());
        }
    }
}
