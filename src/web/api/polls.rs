//! `/v1/polls`: creates polls and reads their results.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::counts::{ItemCount, PollCount};
use crate::domain::{
    Actor, CHOICES_LIMIT_ITEMS, ItemId, ItemName, Moment, NewPoll, PollId, PollState, Reference,
};
use crate::ledger::LedgerError;
use crate::watching::PublicState;
use crate::web::access::Admin;
use crate::web::api::conditional;
use crate::web::api::conditional::{Format, Found, NotModified, Offered, TagHeader};
use crate::web::api::csv;
use crate::web::api::fields::{key, name, open_and_close};
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathPollReference, form};

form! {
    /// The body of a new poll.
    #[derive(ToSchema)]
    #[schema(as = NewPoll, examples(json!({ "title": "Lunch?", "choices": ["soup", "salad"] })))]
    pub struct NewPollBody {
        #[schema(value_type = values::Name)]
        title: String,
        /// Your own key. It is unique and never changes.
        #[schema(value_type = Option<values::Key>)]
        key: Option<String>,
        /// The names of the choices. No two of them may look the same: blanks around a name and between its
        /// words, and characters that nobody can see, make no difference. Case does.
        #[schema(value_type = Vec<values::Name>, min_items = 1, max_items = 100)]
        choices: Vec<String>,
        /// The most choices that one voter may hold. Defaults to 1. 0 means any number. With `by_ballot` it
        /// must be 1.
        #[schema(minimum = 0, maximum = 100)]
        max_choices: Option<i64>,
        /// The time at which voting opens (RFC 3339).
        #[schema(value_type = Option<values::Time>)]
        opens_at: Option<String>,
        /// The time at which voting closes (RFC 3339). It must be after `opens_at`.
        #[schema(value_type = Option<values::Time>)]
        closes_at: Option<String>,
        /// Whether the counts are shown before the poll closes. Defaults to true. False needs a `closes_at`.
        results_before_close: Option<bool>,
        /// Whether each vote needs a ballot. Defaults to false.
        by_ballot: Option<bool>,
        /// Whether Tally keeps no link between a ballot and its vote. True needs `by_ballot`.
        secret: Option<bool>,
    }
}

impl NewPollBody {
    /// Returns the poll that the body asks for, if every field is allowed.
    pub(in crate::web) fn into_poll(self) -> Result<NewPoll, Problem> {
        let title = name("title", self.title)?;
        let key = key(self.key)?;
        if !(1..=CHOICES_LIMIT_ITEMS).contains(&self.choices.len()) {
            let detail = format!(
                "choices has {}; it takes 1 to {CHOICES_LIMIT_ITEMS} names.",
                self.choices.len()
            );
            return Err(Problem::invalid("choices", detail));
        }
        let choices = self.choices.into_iter().map(ItemName::parse);
        let choices: Vec<ItemName> = choices
            .collect::<Result<_, _>>()
            .map_err(|error| Problem::invalid("choices", format!("one of choices {error}.")))?;
        if let Some(repeat) = ItemName::first_repeat(&choices) {
            let detail = format!(
                "choices has {:?} twice; each choice takes a name of its own.",
                repeat.as_str()
            );
            return Err(Problem::invalid("choices", detail));
        }
        let limit = CHOICES_LIMIT_ITEMS as i64;
        let max_choices = match self.max_choices.unwrap_or(1) {
            0 => None,
            choices if (1..=limit).contains(&choices) => i16::try_from(choices).ok(),
            other => {
                let detail = format!("max_choices is {other}; it takes 1 to {limit}, or 0 for any number.");
                return Err(Problem::invalid("max_choices", detail));
            }
        };
        let (opens_at, closes_at) = open_and_close(self.opens_at, self.closes_at)?;
        let shows_results = self.results_before_close.unwrap_or(true);
        if !shows_results && closes_at.is_none() {
            let detail = "results_before_close is false; it needs a closes_at.";
            return Err(Problem::invalid("results_before_close", detail));
        }
        let by_ballot = self.by_ballot.unwrap_or(false);
        let is_secret = self.secret.unwrap_or(false);
        if is_secret && !by_ballot {
            let detail = "secret is true; it needs by_ballot too.";
            return Err(Problem::invalid("secret", detail));
        }
        if by_ballot && max_choices != Some(1) {
            let detail = "max_choices is not 1; a ballot buys one vote.";
            return Err(Problem::invalid("max_choices", detail));
        }
        Ok(NewPoll {
            title,
            key,
            by_ballot,
            is_secret,
            choices,
            max_choices,
            opens_at,
            closes_at,
            shows_results,
        })
    }
}

/// A poll and its results.
#[derive(Serialize, ToSchema)]
#[schema(as = Poll)]
pub(in crate::web) struct PollBody {
    #[schema(value_type = values::Id)]
    pub(in crate::web) id: PollId,
    #[schema(value_type = values::Name)]
    pub(in crate::web) title: String,
    /// Your own key, if the poll has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Key)]
    key: Option<String>,
    /// True if lists leave the poll out. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// True if each vote needs a ballot. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::web) by_ballot: bool,
    /// True if Tally keeps no link between a ballot and its vote. Left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    secret: bool,
    /// The most choices that one voter may hold. Null means any number.
    #[schema(required, minimum = 1, maximum = 100)]
    pub(in crate::web) max_choices: Option<i16>,
    /// The time at which voting opens.
    #[schema(required, value_type = Option<values::Time>)]
    pub(in crate::web) opens_at: Option<Moment>,
    /// The time at which voting closes.
    #[schema(required, value_type = Option<values::Time>)]
    pub(in crate::web) closes_at: Option<Moment>,
    #[schema(value_type = State)]
    pub(in crate::web) state: &'static str,
    /// Whether the counts are shown before the poll closes.
    pub(in crate::web) results_before_close: bool,
    /// The number of voters who hold a choice. Null while the counts are hidden.
    #[schema(required, value_type = Option<values::Total>)]
    pub(in crate::web) voter_count: Option<i64>,
    pub(in crate::web) choices: Vec<ChoiceBody>,
    /// Whether all counts are current. If not, Redis is unavailable and some counts are saved ones.
    current: bool,
    /// Whether the poll has closed and its counts never change again.
    pub(in crate::web) r#final: bool,
}

/// Whether a poll takes votes: the names in its schema.
#[derive(ToSchema)]
#[schema(as = PollState, rename_all = "kebab-case")]
#[expect(dead_code, reason = "it is here for its schema")]
enum State {
    NotOpenYet,
    Open,
    Closed,
}

/// A choice of a poll and its count.
#[derive(Serialize, ToSchema)]
#[schema(as = Choice)]
pub(in crate::web) struct ChoiceBody {
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    #[schema(value_type = values::Name)]
    pub(in crate::web) name: String,
    /// Null until the poll closes, if its results are hidden.
    #[schema(required, value_type = Option<values::NetCount>)]
    pub(in crate::web) vote_count: Option<i64>,
    /// The choice's part of all votes in the poll, from 0 to 1. Null if there are no votes.
    #[schema(required)]
    pub(in crate::web) share: Option<f64>,
}

/// The columns of a poll's results in CSV.
const CHOICE_COLUMNS: [&str; 4] = ["item_id", "name", "vote_count", "share"];

impl ChoiceBody {
    /// Returns the fields for [`CHOICE_COLUMNS`]. A field that is null is empty.
    fn row(&self) -> [String; CHOICE_COLUMNS.len()] {
        [
            self.item_id.to_string(),
            csv::text(&self.name),
            csv::field(self.vote_count),
            csv::field(self.share),
        ]
    }
}

/// Create a poll.
///
/// If an equal poll has the same key, the answer is that poll.
#[utoipa::path(
    post,
    path = "/v1/polls",
    operation_id = "createPoll",
    tag = "Polls",
    request_body(content = NewPollBody, example = json!({ "title": "Lunch?", "choices": ["soup", "salad"] })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The poll was created.", body = PollBody, headers(("Location" = String)),
            example = json!({
                "id": 1, "title": "Lunch?", "max_choices": 1, "opens_at": null, "closes_at": null,
                "state": "open", "results_before_close": true, "voter_count": 0,
                "choices": [
                    { "item_id": 2, "name": "soup", "vote_count": 0, "share": null },
                    { "item_id": 3, "name": "salad", "vote_count": 0, "share": null }
                ],
                "current": true, "final": false
            })),
        (status = 200, description = "An equal poll has your key already.", body = PollBody,
            example = json!(examples::poll())),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    state: web::Data<AppState>,
    new: Json<NewPollBody>,
) -> Result<HttpResponse, Problem> {
    let new = new.0.into_poll()?;
    state.ledger.in_one_run(true, make(&state, by.0, &new)).await
}

problems!(CreateProblems: WRITES, BODIES, CALLERS, STORES; BodyTooLarge, KeyTaken, OtherCell, UnknownPoll, OlderServers);

/// Creates a poll, and answers with it.
pub(in crate::web) async fn make(
    state: &AppState,
    by: Actor,
    new: &NewPoll,
) -> Result<HttpResponse, Problem> {
    state.references.check_key(new.key.as_ref()).await?;
    let id = match state.ledger.create_poll(by, new).await {
        Ok(id) => id,
        Err(LedgerError::KeyTaken) => return existing(state, new).await,
        Err(error) => return Err(error.into()),
    };
    let poll = read(state, id).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/polls/{id}")))
        .json(poll))
}

/// Returns the poll that has the new poll's key: 200 if both are equal, 409 if not.
async fn existing(state: &AppState, new: &NewPoll) -> Result<HttpResponse, Problem> {
    let Some(key) = new.key.clone() else {
        return Err(Problem::internal());
    };
    let id = state.references.poll(&Reference::Key(key)).await?.id;
    let poll = state.ledger.poll(id).await?;
    let poll = poll.ok_or_else(|| Problem::unknown_poll(id))?;
    let choices = state.ledger.choices(id).await?;
    let is_same = poll.title == new.title.as_str()
        && choices
            .iter()
            .map(|item| &*item.name)
            .eq(new.choices.iter().map(ItemName::as_str))
        && (poll.max_choices, poll.opens_at, poll.closes_at)
            == (new.max_choices, new.opens_at, new.closes_at)
        && (poll.shows_results, poll.by_ballot, poll.is_secret)
            == (new.shows_results, new.by_ballot, new.is_secret);
    if !is_same {
        let detail = format!("Poll {id} has this key, but differs; use another key for another poll.");
        return Err(Problem::key_taken(detail));
    }
    state.ledger.until_earlier_commits_are_safe().await?;
    shown(state, id).await
}

/// Retrieve a poll.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}",
    operation_id = "showPoll",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), TagHeader),
    responses(
        (status = 200, description = "The poll. Its results as CSV for spreadsheets, if the Accept header prefers CSV: it begins with a byte-order mark, and a text that would be a formula begins with an apostrophe.",
            headers(("ETag" = String), ("Cache-Control" = String)),
            content(
                (PollBody = "application/json", example = json!(examples::poll())),
                (String = "text/csv; charset=utf-8", example = json!(examples::RESULTS_CSV)),
            )),
        NotModified,
        ShowProblems,
    )
)]
pub async fn show(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathPollReference,
) -> Result<HttpResponse, Problem> {
    conditional::answer(&request, &state, Offered::JsonOrCsv, async |format| {
        let read = async {
            let id = state.references.poll(&id.0).await?.id;
            let (poll, read) = read_with_counts(&state, id).await?;
            let body = match format {
                Format::Json => conditional::json(&poll)?,
                Format::Csv => csv::write(&CHOICE_COLUMNS, poll.choices.iter().map(ChoiceBody::row))?,
            };
            Ok(Found::with_counts(body, &read))
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(ShowProblems: ADDRESSES, STORES; OtherCell, UnknownPoll);

/// Answers with a poll and its results.
pub(in crate::web) async fn shown(state: &AppState, id: PollId) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(read(state, id).await?))
}

/// Reads a poll and its results.
pub(in crate::web) async fn read(state: &AppState, id: PollId) -> Result<PollBody, Problem> {
    Ok(read_with_counts(state, id).await?.0)
}

/// Reads a poll and its results. Also returns the counts that it read for them.
async fn read_with_counts(state: &AppState, id: PollId) -> Result<(PollBody, Vec<ItemCount>), Problem> {
    let found = state.counts.poll(id).await?;
    let (poll, read) = found.ok_or_else(|| Problem::unknown_poll(id))?;
    Ok((body(&poll), read))
}

pub(in crate::web) fn body(
    PollCount {
        poll,
        choices,
        is_current,
        is_final,
    }: &PollCount,
) -> PollBody {
    let total: i64 = choices.iter().filter_map(|choice| choice.net).sum();
    let choices = choices.iter().map(|choice| ChoiceBody {
        item_id: choice.item_id,
        name: choice.name.to_string(),
        vote_count: choice.net,
        share: choice
            .net
            .filter(|_| total > 0)
            .map(|count| count as f64 / total as f64),
    });
    PollBody {
        choices: choices.collect(),
        id: poll.id,
        title: poll.title.clone(),
        key: poll.key.clone(),
        hidden: poll.is_hidden,
        by_ballot: poll.by_ballot,
        secret: poll.is_secret,
        max_choices: poll.max_choices,
        opens_at: poll.opens_at,
        closes_at: poll.closes_at,
        state: match poll.state {
            PollState::NotOpenYet => "not-open-yet",
            PollState::Open => "open",
            PollState::Closed => "closed",
        },
        results_before_close: poll.shows_results,
        voter_count: poll.shows_counts().then_some(poll.voter_count),
        current: *is_current,
        r#final: *is_final,
    }
}

/// Returns what a stream shows of a poll: the same as `GET`.
pub(in crate::web) fn shown_count(poll: &PollCount) -> PublicState {
    let text = serde_json::to_string(&body(poll)).unwrap_or_default();
    let compared = text.clone();
    PublicState::new(text, &compared)
}
