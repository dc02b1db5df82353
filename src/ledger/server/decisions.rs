//! Storing votes that need a decision. These are votes on items with a rule, changes and
//! retractions.

use tokio::time::timeout;

use super::plain_votes::{addresses_of, api_keys_of};
use super::vote_writer::{InsertError, ReadyWriter, VoteWriter, WriterConnection};
use crate::domain::{
    BallotHash, Count, CountDelta, IdempotencyKey, ItemId, NewVote, Refusal, TransactionId, Value, VoteId,
    VoteRequest, VoteSource, VoterId,
};
use crate::ledger::LedgerError;
use crate::ledger::safe_commit::{listening, until_safe};

/// What became of requests that one statement decided.
#[derive(Debug)]
pub struct DecidedBatch {
    /// Its transaction, committed.
    pub transaction: TransactionId,
    /// One decision for each request, in the order given.
    pub decisions: Vec<Decision>,
    /// The items of the requests whose counts only their poll shows.
    pub hidden: Vec<ItemId>,
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These rows are stored.
    Stored(Vec<VoteRow>),
    /// These rows are stored, and nobody may learn which they are.
    Secret(Vec<VoteRow>),
    /// This was stored before, with the same idempotency key.
    Replayed(Vec<VoteRow>),
    /// Nothing had to be stored: the voter already holds these votes, or none.
    Repeated(Vec<VoteRow>),
    /// Another request came first; ask again. These rows are stored already.
    Again(Vec<VoteRow>),
    UnknownItem,
    UnknownPoll,
    Refused(Refusal),
}

/// A row of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteRow {
    pub id: VoteId,
    pub item_id: ItemId,
    pub value: i16,
    /// Even: the row casts a vote. Odd: the row takes back the vote before it.
    pub change_number: i16,
    /// The vote's number, on an item that numbers its votes.
    pub number: Option<i64>,
}

impl VoteRow {
    /// Whether the row casts a vote.
    pub fn is_cast(&self) -> bool {
        self.change_number % 2 == 0
    }
}

impl Decision {
    /// What was stored.
    pub fn stored(&self) -> &[VoteRow] {
        match self {
            Self::Stored(rows) | Self::Secret(rows) | Self::Again(rows) => rows,
            Self::Replayed(_)
            | Self::Repeated(_)
            | Self::UnknownItem
            | Self::UnknownPoll
            | Self::Refused(_) => &[],
        }
    }
}

impl DecidedBatch {
    /// What these requests add to each item, in the order of items.
    pub fn deltas(&self) -> Vec<CountDelta> {
        let rows = self.decisions.iter().flat_map(Decision::stored);
        let mut deltas: Vec<CountDelta> = rows
            .map(|row| CountDelta {
                item_id: row.item_id,
                delta: Count::of_row(row.value, row.change_number),
            })
            .collect();
        CountDelta::merge(&mut deltas);
        deltas
    }
}

/// The arrays of the statement, with an entry for each line.
#[derive(Default)]
struct Lines<'a> {
    requests: Vec<i32>,
    polls: Vec<Option<i64>>,
    items: Vec<Option<i64>>,
    voters: Vec<Option<&'a str>>,
    values: Vec<i16>,
    keep: Vec<bool>,
    whole: Vec<bool>,
    ballots: Sparse<'a>,
    keys: Sparse<'a>,
    bodies: Sparse<'a>,
}

/// An array that is mostly null as a whole, since no line has an entry.
#[derive(Default)]
struct Sparse<'a>(Vec<Option<&'a [u8]>>);

impl<'a> Sparse<'a> {
    fn add(&mut self, at: usize, entry: Option<&'a [u8]>) {
        if entry.is_some() {
            self.0.resize(at, None);
            self.0.push(entry);
        }
    }

    /// The array, with an entry for each of `lines` lines.
    fn array(mut self, lines: usize) -> Option<Vec<Option<&'a [u8]>>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.resize(lines, None);
        Some(self.0)
    }
}

/// A line of a request.
#[derive(Default)]
struct Line<'a> {
    poll: Option<i64>,
    item: Option<i64>,
    voter: Option<&'a VoterId>,
    value: i16,
    keep: bool,
    whole: bool,
    ballot: Option<&'a BallotHash>,
    key: Option<&'a IdempotencyKey>,
}

impl<'a> Line<'a> {
    fn cast(vote: &'a NewVote) -> Self {
        Self {
            item: Some(vote.item_id.get()),
            voter: vote.voter_id.as_ref(),
            value: vote.value.get(),
            keep: true,
            ..Self::default()
        }
    }
}

impl<'a> Lines<'a> {
    fn of(requests: &'a [VoteRequest]) -> Self {
        let mut lines = Self::default();
        for (number, request) in (1..).zip(requests) {
            lines.add_request(number, request);
        }
        lines
    }

    fn add_request(&mut self, number: i32, request: &'a VoteRequest) {
        match request {
            VoteRequest::Cast(vote) => self.add(number, Line::cast(vote)),
            VoteRequest::CastOnce { vote, ballot, key } => self.add(
                number,
                Line {
                    ballot: ballot.as_ref(),
                    key: key.as_ref(),
                    ..Line::cast(vote)
                },
            ),
            VoteRequest::Set {
                item_id,
                voter_id,
                value,
            } => self.add(
                number,
                Line {
                    item: Some(item_id.get()),
                    voter: Some(voter_id),
                    value: value.map_or(0, Value::get),
                    ..Line::default()
                },
            ),
            VoteRequest::Select {
                poll_id,
                voter_id,
                items,
            } => {
                let selection = |item: Option<ItemId>| Line {
                    poll: Some(poll_id.get()),
                    item: item.map(ItemId::get),
                    voter: Some(voter_id),
                    value: i16::from(item.is_some()),
                    keep: true,
                    whole: true,
                    ..Line::default()
                };
                if items.is_empty() {
                    self.add(number, selection(None));
                }
                for item in items {
                    self.add(number, selection(Some(*item)));
                }
            }
        }
    }

    fn add(&mut self, request: i32, line: Line<'a>) {
        let at = self.requests.len();
        self.ballots.add(at, line.ballot.map(BallotHash::as_bytes));
        self.keys.add(at, line.key.map(|key| key.key.as_bytes()));
        self.bodies.add(at, line.key.map(|key| key.body.as_bytes()));
        self.requests.push(request);
        self.polls.push(line.poll);
        self.items.push(line.item);
        self.voters.push(line.voter.map(VoterId::as_str));
        self.values.push(line.value);
        self.keep.push(line.keep);
        self.whole.push(line.whole);
    }
}

impl VoteWriter {
    /// Decides requests one by one and stores what is granted. All of it is one autocommitted
    /// statement. A request stands in the list once. `sources` has an entry for each
    /// request, or is empty.
    ///
    /// # Errors
    /// When nothing was stored, or maybe something: the error says which.
    pub async fn decide(
        &mut self,
        requests: &[VoteRequest],
        sources: &[VoteSource],
    ) -> Result<DecidedBatch, InsertError> {
        self.ready().await?.decide(requests, sources).await
    }
}

impl ReadyWriter<'_> {
    /// As [`VoteWriter::decide`].
    ///
    /// # Errors
    /// As [`VoteWriter::decide`].
    pub async fn decide(
        self,
        requests: &[VoteRequest],
        sources: &[VoteSource],
    ) -> Result<DecidedBatch, InsertError> {
        let Self {
            writer: of,
            connection: mut writer,
        } = self;
        let deciding = async {
            let (decided, has_warned) = listening(decide(&mut writer, requests, sources)).await;
            until_safe(&mut writer.connection, decided, has_warned).await
        };
        let ended = timeout(of.answer_limit(), deciding).await;
        // If this program cannot read the rows, nobody counts them unless the connection ends. Then
        // crashed-writer recovery does.
        let (decided, created_at) = of.batch_answer(ended)?.map_err(InsertError::Unknown)?;
        let rows = decided.decisions.iter().flat_map(Decision::stored);
        of.note_acknowledged(&writer, created_at, rows.map(|row| (row.id, row.item_id)));
        of.keep(writer);
        if decided.decisions.iter().any(|one| !one.stored().is_empty()) {
            of.note_stored();
        }
        Ok(decided)
    }
}

/// Sends the statement. Returns also `vote.created_at` of its rows, in µs since 1970. The inner error: the statement was committed, but this program cannot read
/// the answer.
async fn decide(
    writer: &mut WriterConnection,
    requests: &[VoteRequest],
    sources: &[VoteSource],
) -> Result<Result<(DecidedBatch, i64), LedgerError>, sqlx::Error> {
    let lines = Lines::of(requests);
    let total = lines.requests.len();
    let (ballots, keys, bodies) = (
        lines.ballots.array(total),
        lines.keys.array(total),
        lines.bodies.array(total),
    );
    let (addresses, api_keys) = (addresses_of(sources), api_keys_of(sources));
    let decided = sqlx::query_file!(
        "src/ledger/sql/cast_votes.sql",
        &lines.requests,
        &lines.polls as &[Option<i64>],
        &lines.items as &[Option<i64>],
        &lines.voters as &[Option<&str>],
        &lines.values,
        &lines.keep,
        &lines.whole,
        ballots.as_deref() as Option<&[Option<&[u8]>]>,
        keys.as_deref() as Option<&[Option<&[u8]>]>,
        bodies.as_deref() as Option<&[Option<&[u8]>]>,
        addresses.as_deref() as Option<&[Option<&[u8]>]>,
        api_keys.as_deref() as Option<&[Option<i64>]>
    )
    .fetch_one(&mut writer.connection)
    .await?;
    let mut rows: Vec<Vec<VoteRow>> = vec![Vec::new(); requests.len()];
    for (at, request) in decided.row_requests.iter().enumerate() {
        // A row without an id was not stored: another batch was first.
        let (Some(id), Some(item_id)) = (decided.row_ids[at], ItemId::new(decided.row_items[at])) else {
            continue;
        };
        let of_request = usize::try_from(request - 1).ok().and_then(|at| rows.get_mut(at));
        if let Some(of_request) = of_request {
            of_request.push(VoteRow {
                id: VoteId::new(id),
                item_id,
                value: decided.row_values[at],
                change_number: decided.row_changes[at],
                number: decided.row_numbers[at],
            });
        }
    }
    let hidden = decided.hidden_items.unwrap_or_default();
    let hidden = hidden.into_iter().filter_map(ItemId::new).collect();
    let outcomes = decided.outcomes.iter().zip(rows);
    let decisions: Result<Vec<Decision>, LedgerError> =
        outcomes.map(|(outcome, rows)| decision(outcome, rows)).collect();
    Ok(decisions.map(|decisions| {
        let batch = DecidedBatch {
            transaction: TransactionId(decided.xid),
            decisions,
            hidden,
        };
        (batch, decided.created_at)
    }))
}

/// The words are those in the header of `migrations/functions/decide_votes.sql`.
fn decision(outcome: &str, rows: Vec<VoteRow>) -> Result<Decision, LedgerError> {
    Ok(match outcome {
        "stored" => Decision::Stored(rows),
        "secret" => Decision::Secret(rows),
        "replayed" => Decision::Replayed(rows),
        "repeated" => Decision::Repeated(rows),
        // At the same time, someone else took back what the voter held. The vote is stored behind
        // that retraction. Asked again, it could be stored a second time, over what came meanwhile.
        "again" if rows.last().is_some_and(VoteRow::is_cast) => Decision::Stored(rows),
        "again" => Decision::Again(rows),
        "unknown_item" => Decision::UnknownItem,
        "unknown_poll" => Decision::UnknownPoll,
        "not_in_poll" => Decision::Refused(Refusal::NotInPoll),
        "no_voter" => Decision::Refused(Refusal::NoVoter),
        "not_open" => Decision::Refused(Refusal::NotOpenYet),
        "closed" => Decision::Refused(Refusal::Closed),
        "value" => Decision::Refused(Refusal::NoDownVotes),
        "full" => Decision::Refused(Refusal::Full),
        "choices" => Decision::Refused(Refusal::TooManyChoices),
        "changes" => Decision::Refused(Refusal::TooManyChanges),
        "no_ballot" => Decision::Refused(Refusal::NoBallot),
        "ballot" => Decision::Refused(Refusal::BallotNotValid),
        "ballot_unwanted" => Decision::Refused(Refusal::BallotUnwanted),
        "voter_unwanted" => Decision::Refused(Refusal::VoterUnwanted),
        "key_reused" => Decision::Refused(Refusal::KeyReused),
        "no_key" => Decision::Refused(Refusal::KeyUnwanted),
        other => return Err(LedgerError::Decision(other.to_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_column_has_each_entry_at_its_line() {
        let mut column = Sparse::default();
        for (at, entry) in [None, Some(b"b".as_slice()), None, Some(b"d"), None]
            .into_iter()
            .enumerate()
        {
            column.add(at, entry);
        }
        let all = column.array(5);
        assert_eq!(
            all,
            Some(vec![None, Some(b"b".as_slice()), None, Some(b"d"), None])
        );
        let mut none = Sparse::default();
        none.add(0, None);
        assert_eq!(none.array(1), None, "nothing is sent");
    }
}
