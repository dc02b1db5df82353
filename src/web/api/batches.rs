//! `/v1/votes`: casts many votes in one request.

use actix_web::{HttpResponse, web};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::domain;
use crate::domain::{BallotHash, Found, ItemId, NewVote, OpenTo, PostgresRun, Reference, VoterId};
use crate::ledger::LedgerError;
use crate::web::access::Caller;
use crate::web::api::idempotency::{AskedVote, BatchKey};
use crate::web::api::state::AppState;
use crate::web::api::votes::{Answer, VoteBody, answer, cast_one};
use crate::web::describe::{problems, values};
use crate::web::limits::{BATCH_BODY_LIMIT_BYTES, REQUEST_LIMIT_VOTES, UNCREDENTIALED_LIMIT_BALLOTS};
use crate::web::problem;
use crate::web::problem::{Kind, Problem, VoteProblem};
use crate::web::request::{BodyItem, Form, Json, KeyHeader, body, form};

form! {
    /// The body of a batch.
    #[derive(ToSchema)]
    #[schema(as = Batch, examples(json!({ "votes": [{ "item_id": 1, "voter_id": "bob" }] })))]
    pub struct BatchBody {
        /// Each vote is read on its own. A vote that is wrong gets its problem as its result, and does not
        /// affect the others.
        #[schema(value_type = Vec<BatchVote>, min_items = 1, max_items = 1000)]
        votes: Vec<Value>,
    }

    limits {
        const LIMIT_BYTES: usize = BATCH_BODY_LIMIT_BYTES;

        fn too_large() -> Problem {
            let detail = format!(
                "The body of a batch may have at most {BATCH_BODY_LIMIT_BYTES} bytes; send fewer votes in one request."
            );
            Problem::new(Kind::BatchTooLarge, detail)
        }
    }
}

form! {
    /// One vote of a batch.
    #[derive(ToSchema)]
    struct BatchVote {
        #[schema(value_type = values::ItemReference)]
        item_id: BodyItem,
        /// The voter. A vote without one is anonymous and always counts.
        #[schema(value_type = Option<values::VoterId>)]
        voter_id: Option<String>,
        /// 1 or −1. Defaults to 1.
        #[schema(value_type = Option<values::VoteValue>)]
        value: Option<i64>,
        /// The ballot that buys the vote.
        ballot: Option<String>,
    }
}

/// One vote of a batch, after its checks.
#[derive(Debug)]
pub struct BatchEntry {
    pub item: Reference<ItemId>,
    /// `None`: the item was not looked for yet, or it does not exist.
    found: Option<Found<ItemId>>,
    /// The item is [`ItemId::FIRST`] until the vote's item is known.
    pub vote: NewVote,
    /// The run of Postgres in which the item was looked up. `None`: it is not known yet, or its id was named.
    run: Option<PostgresRun>,
    pub ballot: Option<BallotHash>,
    /// Whether the caller may cast the vote whatever its ballot is worth. Whether a ballot buys a vote is
    /// known only when the vote is decided.
    has_right: bool,
}

impl BatchEntry {
    /// The value of the vote that may create its item. `None`: a ballot creates none.
    fn casts(&self) -> Option<domain::Value> {
        self.ballot.is_none().then_some(self.vote.value)
    }
}

impl BatchBody {
    /// Returns each vote, or what is wrong with it.
    pub(in crate::web) fn into_votes(self) -> Result<Vec<Result<BatchEntry, Problem>>, Problem> {
        let votes = self.votes.len();
        let detail = || format!("votes has {votes}; it takes 1 to {REQUEST_LIMIT_VOTES}.");
        if votes > REQUEST_LIMIT_VOTES {
            return Err(Problem::new(Kind::BatchTooLarge, detail()).on_field("votes"));
        }
        if votes == 0 {
            return Err(Problem::invalid("votes", detail()));
        }
        Ok(self.votes.into_iter().map(vote).collect())
    }
}

fn vote(value: Value) -> Result<BatchEntry, Problem> {
    // serde reads an array as an object, with its values in the order of the fields.
    if !value.is_object() {
        let detail = "votes: this one is not an object; each vote is an object.";
        return Err(Problem::malformed("votes", detail));
    }
    let Some(BatchVote {
        item_id,
        voter_id,
        value,
        ballot,
    }) = BatchVote::deserialize(&value).ok()
    else {
        return Err(body::wrong(value.to_string().as_bytes(), BatchVote::FIELDS));
    };
    let item = item_id.into_reference("item_id")?;
    let body = VoteBody::new(voter_id, value, ballot);
    Ok(BatchEntry {
        item,
        found: None,
        run: None,
        ballot: body.ballot(),
        vote: body.into_vote(ItemId::FIRST)?,
        has_right: false,
    })
}

/// The result of each vote of a batch.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchResults)]
struct BatchAnswer<'a> {
    /// One result for each vote, in the order of the votes.
    results: Vec<BatchResult<'a>>,
}

/// The result of one vote of a batch: the vote, or a problem.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum BatchResult<'a> {
    Vote(TakenVote<'a>),
    /// A problem contains its own status.
    Problem(problem::Body<'a>),
}

/// A vote of a batch that was not refused.
#[derive(Serialize, ToSchema)]
struct TakenVote<'a> {
    /// The status that the vote would get on its own: 201 or 200.
    #[schema(minimum = 200, maximum = 201)]
    status: u16,
    #[serde(flatten)]
    answer: Answer<'a>,
}

/// Cast votes in a batch.
///
/// Each vote has its own result in `results`. A vote that is wrong, or that the caller may not cast, does not
/// affect the others.
#[utoipa::path(
    post,
    path = "/v1/votes",
    operation_id = "castVotes",
    tag = "Votes",
    params(
        ("Idempotency-Key" = Option<values::IdempotencyKey>, Header,
            description = "Each vote of the batch is stored once for each key. Secret polls take no key."),
    ),
    request_body(content = BatchBody,
        example = json!({ "votes": [{ "item_id": 1, "voter_id": "bob" }, { "item_id": 999, "value": -1 }] })),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["all"]))),
    responses(
        (status = 200, description = "The result of each vote.", body = BatchAnswer,
            example = json!({
                "results": [
                    {
                        "status": 201, "vote_id": 2, "item_id": 1, "voter_id": "bob", "value": 1,
                        "vote_count": 8, "up_count": 9, "down_count": 1
                    },
                    {
                        "type": "/problems/unknown-item", "title": "Unknown item", "status": 404,
                        "detail": "There is no item 999.", "hint": "GET /v1/items lists the items."
                    }
                ]
            })),
        BatchProblems,
    )
)]
pub async fn cast(
    caller: Caller,
    state: web::Data<AppState>,
    key: KeyHeader,
    body: Json<BatchBody>,
) -> Result<HttpResponse, VoteProblem> {
    let texts: Option<Vec<String>> = key
        .0
        .as_ref()
        .map(|_| body.0.votes.iter().map(Value::to_string).collect());
    let mut votes = body.0.into_votes()?;
    // Before anyone looks at what the caller may: that can change until the batch is sent again.
    let key = key.0.zip(texts).map(|(key, texts)| {
        let asked = texts.iter().zip(&votes).map(|(text, entry)| match entry {
            Ok(entry) => AskedVote::new(&caller, entry.item.clone(), &entry.vote, entry.ballot.as_ref()),
            Err(_) => AskedVote::wrong(text),
        });
        BatchKey::new(key, asked.collect())
    });
    authorize(&state, &caller, &mut votes).await?;
    throttle_and_find_items(&state, &caller, &mut votes).await?;
    // Nothing was written until here. The key is claimed before items are made, so that a batch with a used
    // key makes none.
    if let Some(key) = &key
        && votes.iter().flatten().any(|entry| entry.has_right)
    {
        key.claim(&state.ledger, &caller).await?;
    }
    make_items(&state, &caller, &mut votes).await;
    // The queue takes ownership of the votes, and the answers name their voters.
    let names: Vec<Option<(ItemId, Option<VoterId>)>> = votes
        .iter()
        .map(|entry| {
            let vote = &entry.as_ref().ok()?.vote;
            Some((vote.item_id, vote.voter_id.clone()))
        })
        .collect();
    let source = state.voting.source(&caller);
    let casts = votes.into_iter().enumerate().map(async |(at, entry)| {
        let BatchEntry {
            vote, run, ballot, ..
        } = entry?;
        let key = key.as_ref();
        let key = key.map(|key| key.of_vote(&caller, at, &vote, ballot.as_ref()));
        Ok(cast_one(state.votes.only_in(run), vote, ballot, key, source).await?)
    });
    let casts: Vec<Result<_, Problem>> = join_all(casts).await;
    let ended: Vec<Result<_, Problem>> = names
        .iter()
        .zip(casts)
        .map(|(name, cast)| match (name, cast) {
            (Some((item, voter)), Ok(cast)) => answer(*item, voter.as_ref(), cast),
            (None, Ok(_)) => Err(Problem::internal()),
            (_, Err(problem)) => Err(problem),
        })
        .collect();
    let results = ended.iter().map(|ended| match ended {
        Ok((status, answer)) => BatchResult::Vote(TakenVote {
            status: status.as_u16(),
            answer: *answer,
        }),
        Err(problem) => BatchResult::Problem(problem.to_body()),
    });
    Ok(HttpResponse::Ok().json(BatchAnswer {
        results: results.collect(),
    }))
}

problems!(
    BatchProblems: WRITES, BODIES;
    BatchTooLarge, CredentialNotValid, TokenExpired, OtherCell, IdempotencyKeyReused, VoteNotStored
);

/// Checks that the caller may cast each vote, and finds its voter. A vote that the caller may not cast becomes
/// a problem.
async fn authorize(
    state: &AppState,
    caller: &Caller,
    votes: &mut [Result<BatchEntry, Problem>],
) -> Result<(), Problem> {
    let mut ballots = 0;
    let open = open_to(state, caller, votes).await?;
    for (entry, to) in votes.iter_mut().zip(open) {
        let Ok(one) = entry else { continue };
        let (voter, has_ballot) = (one.vote.voter_id.as_ref(), one.ballot.is_some());
        ballots += usize::from(has_ballot);
        one.has_right = caller.may_vote(voter, false, to).is_ok();
        let may = if ballots > UNCREDENTIALED_LIMIT_BALLOTS && !caller.may_vote_for_some() {
            Err(Problem::too_many_ballots())
        } else {
            caller.may_vote(voter, has_ballot, to)
        };
        match may {
            Ok(()) => one.vote.voter_id = caller.voter(one.vote.voter_id.take(), has_ballot),
            Err(problem) => *entry = Err(problem),
        }
    }
    Ok(())
}

/// Finds to whom the item of each vote is open, if that can help this caller.
async fn open_to(
    state: &AppState,
    caller: &Caller,
    votes: &[Result<BatchEntry, Problem>],
) -> Result<Vec<OpenTo>, Problem> {
    let mut open = vec![OpenTo::default(); votes.len()];
    let is_refused = |entry: &BatchEntry| {
        let voter = entry.vote.voter_id.as_ref();
        caller
            .may_vote(voter, entry.ballot.is_some(), OpenTo::default())
            .is_err()
    };
    if !caller.may_be_anyone() || !votes.iter().flatten().any(is_refused) {
        return Ok(open);
    }
    let items = votes
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| Some((at, entry.as_ref().ok()?.item.clone())));
    let (places, references): (Vec<usize>, Vec<_>) = items.unzip();
    let known = async {
        let found = state.references.find_items(&references).await?;
        let known = places.into_iter().zip(found);
        let known = known.filter_map(|(at, item)| Some((at, item?.id)));
        let (places, items): (Vec<usize>, Vec<ItemId>) = known.unzip();
        let to = state.access.open_items.of_items(&items).await?;
        Ok::<_, LedgerError>(places.into_iter().zip(to))
    };
    let is_by_key = references.iter().any(Reference::is_key);
    for (at, to) in state.ledger.in_one_run(is_by_key, known).await? {
        open[at] = to;
    }
    Ok(open)
}

/// Takes a place in the throttles for each vote, and finds its item, if it exists. A vote that a throttle
/// refuses becomes a problem.
async fn throttle_and_find_items(
    state: &AppState,
    caller: &Caller,
    votes: &mut [Result<BatchEntry, Problem>],
) -> Result<(), Problem> {
    let references: Vec<Reference<ItemId>> = votes.iter().flatten().map(|entry| entry.item.clone()).collect();
    let found = state.references.find_items(&references).await?;
    for (entry, found) in votes.iter_mut().flatten().zip(found) {
        entry.found = found;
    }
    // All at once, in the order of the votes.
    let admitted = votes.iter().map(async |entry| {
        let Ok(entry) = entry else { return Ok(()) };
        let voting = &state.voting;
        let attempted = voting.attempted(&entry.item, entry.found, caller, entry.casts());
        let voter = entry.vote.voter_id.as_ref();
        voting.throttle(caller, voter, attempted).await
    });
    let admitted: Vec<Result<(), Problem>> = join_all(admitted).await;
    for (entry, admitted) in votes.iter_mut().zip(admitted) {
        if let Err(problem) = admitted {
            *entry = Err(problem.without_vote());
        }
    }
    Ok(())
}

/// Creates the items that do not exist, if the caller may. A vote whose item stays unknown becomes a problem, and
/// one that its item's throttles refuse.
async fn make_items(state: &AppState, caller: &Caller, votes: &mut [Result<BatchEntry, Problem>]) {
    let mut made: Vec<Option<Found<ItemId>>> = vec![None; votes.len()];
    for (entry, made) in votes.iter_mut().zip(&mut made) {
        let Ok(known) = entry else { continue };
        let item = match known.found {
            Some(item) => Ok(item),
            // One after the other: an item that an earlier vote made must not be made again.
            None => {
                let casts = known.casts();
                state
                    .voting
                    .find_or_make_item(&known.item, caller, casts)
                    .await
                    .inspect(|item| *made = Some(*item))
            }
        };
        match item {
            Ok(item) => {
                known.vote.item_id = item.id;
                known.run = item.run;
            }
            Err(problem) => *entry = Err(problem.without_vote()),
        }
    }
    // All at once, in the order of the votes.
    let admitted = made.into_iter().map(async |made| match made {
        Some(item) => state.voting.admit_to(item).await,
        None => Ok(()),
    });
    let admitted: Vec<Result<(), Problem>> = join_all(admitted).await;
    for (entry, admitted) in votes.iter_mut().zip(admitted) {
        if let Err(problem) = admitted {
            *entry = Err(problem.without_vote());
        }
    }
}
