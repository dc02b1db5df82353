//! `/v1/polls`: polls, their results, and what a voter holds in them.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::counts::{ItemCount, PollCount};
use crate::domain::{CHOICES_LIMIT_ITEMS, ItemId, ItemName, Moment, NewPoll, PollId, PollState, Reference};
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
        /// What the frontend calls it: unique, and never changed.
        #[schema(value_type = Option<values::Key>)]
        key: Option<String>,
        /// The choices' names.
        #[schema(value_type = Vec<values::Name>, min_items = 1, max_items = 100)]
        choices: Vec<String>,
        /// How many choices one voter may hold. Without it, 1; 0: any number. 1 with `by_ballot`.
        #[schema(minimum = 0, maximum = 100)]
        max_choices: Option<i64>,
        /// RFC 3339: when votes are taken from.
        #[schema(value_type = Option<values::Time>)]
        opens_at: Option<String>,
        /// RFC 3339: until when votes are taken. After `opens_at`.
        #[schema(value_type = Option<values::Time>)]
        closes_at: Option<String>,
        /// Whether the counts are shown before the poll closes; without it, they are. False takes a
        /// `closes_at`.
        results_before_close: Option<bool>,
        /// Whether each vote takes a ballot; without it, none does.
        by_ballot: Option<bool>,
        /// Whether nothing that is kept says which ballot bought which vote. It takes `by_ballot`.
        secret: Option<bool>,
    }
}

impl NewPollBody {
    /// The poll, if all of it is allowed.
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
            let detail = "results_before_close is false; it takes a closes_at.";
            return Err(Problem::invalid("results_before_close", detail));
        }
        let by_ballot = self.by_ballot.unwrap_or(false);
        let is_secret = self.secret.unwrap_or(false);
        if is_secret && !by_ballot {
            let detail = "secret is true; it takes by_ballot too.";
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

/// A poll, and its results.
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
    /// True if lists leave the poll out; otherwise left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// True if each vote takes a ballot; otherwise left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    by_ballot: bool,
    /// True if nothing that is kept says which ballot bought which vote; otherwise left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    secret: bool,
    /// How many choices one voter may hold. Null: any number.
    #[schema(required, minimum = 1, maximum = 100)]
    max_choices: Option<i16>,
    /// When votes are taken from.
    #[schema(required, value_type = Option<values::Time>)]
    pub(in crate::web) opens_at: Option<Moment>,
    /// Until when votes are taken.
    #[schema(required, value_type = Option<values::Time>)]
    pub(in crate::web) closes_at: Option<Moment>,
    #[schema(value_type = State)]
    pub(in crate::web) state: &'static str,
    /// Whether the counts are shown before the poll closes.
    results_before_close: bool,
    /// How many voters hold a choice; null while the counts are hidden, of which it tells.
    #[schema(required, value_type = Option<values::Total>)]
    pub(in crate::web) voter_count: Option<i64>,
    pub(in crate::web) choices: Vec<ChoiceBody>,
    /// Whether all counts are current; if not, Redis is unavailable, and some are the saved ones.
    current: bool,
    /// Whether the poll has closed and the counts never change again.
    r#final: bool,
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

/// A choice of a poll, and its count.
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
    /// The part of all votes in the poll, 0 to 1; null without a vote.
    #[schema(required)]
    pub(in crate::web) share: Option<f64>,
}

/// The columns of a poll's results in CSV.
const CHOICE_COLUMNS: [&str; 4] = ["item_id", "name", "vote_count", "share"];

impl ChoiceBody {
    /// What stands in [`CHOICE_COLUMNS`]; nothing, where it is null.
    fn row(&self) -> [String; CHOICE_COLUMNS.len()] {
        [
            self.item_id.to_string(),
            self.name.clone(),
            csv::field(self.vote_count),
            csv::field(self.share),
        ]
    }
}

/// Makes a poll.
///
/// With a key that an equal poll has, that one is the answer.
#[utoipa::path(
    post,
    path = "/v1/polls",
    operation_id = "createPoll",
    tag = "Polls",
    request_body(content = NewPollBody, example = json!({ "title": "Lunch?", "choices": ["soup", "salad"] })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The new poll.", body = PollBody, headers(("Location" = String)),
            example = json!({
                "id": 1, "title": "Lunch?", "max_choices": 1, "opens_at": null, "closes_at": null,
                "state": "open", "results_before_close": true, "voter_count": 0,
                "choices": [
                    { "item_id": 2, "name": "soup", "vote_count": 0, "share": null },
                    { "item_id": 3, "name": "salad", "vote_count": 0, "share": null }
                ],
                "current": true, "final": false
            })),
        (status = 200, description = "The poll that your key has already.", body = PollBody,
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
    let id = match state.ledger.create_poll(by.0, &new).await {
        Ok(id) => id,
        Err(LedgerError::KeyTaken) => return existing(&state, &new).await,
        Err(error) => return Err(error.into()),
    };
    let poll = read(&state, id).await?;
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/polls/{id}")))
        .json(poll))
}

problems!(CreateProblems: WRITES, BODIES, CALLERS, STORES; BodyTooLarge, KeyTaken, UnknownPoll, OlderServers);

/// The poll that has the key of a new one: 200 if it is as the new one would be, and 409 if not.
async fn existing(state: &AppState, new: &NewPoll) -> Result<HttpResponse, Problem> {
    let Some(key) = new.key.clone() else {
        return Err(Problem::internal());
    };
    let id = state.references.poll(&Reference::Key(key)).await?;
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
        let detail = format!("Poll {id} has this key, and differs; another poll takes another key.");
        return Err(Problem::key_taken(detail));
    }
    shown(state, id).await
}

/// Shows a poll and its results.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}",
    operation_id = "showPoll",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), TagHeader),
    responses(
        (status = 200, description = "The poll; its results in CSV, if the header Accept prefers it.",
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
        let id = state.references.poll(&id.0).await?;
        let (poll, read) = read_with_counts(&state, id).await?;
        let body = match format {
            Format::Json => conditional::json(&poll)?,
            Format::Csv => csv::write(&CHOICE_COLUMNS, poll.choices.iter().map(ChoiceBody::row))?,
        };
        Ok(Found::with_counts(body, &read))
    })
    .await
}

problems!(ShowProblems: ADDRESSES, STORES; UnknownPoll);

/// A poll and its results.
pub(in crate::web) async fn shown(state: &AppState, id: PollId) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(read(state, id).await?))
}

async fn read(state: &AppState, id: PollId) -> Result<PollBody, Problem> {
    Ok(read_with_counts(state, id).await?.0)
}

/// A poll and its results, and the counts that were read for them.
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

/// What a stream shows of a poll: what `GET` answers.
pub(in crate::web) fn shown_count(poll: &PollCount) -> PublicState {
    let text = serde_json::to_string(&body(poll)).unwrap_or_default();
    let compared = text.clone();
    PublicState::new(text, &compared)
}
