//! `/v1/items/{id}/history`, `/v1/polls/{id}/history`: recent changes of counts.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{Count, History, HistoryOver, ItemHistory, ItemId, Moment, PollId, Span};
use crate::web::api::conditional;
use crate::web::api::conditional::{Found, NotModified, Offered, TagHeader};
use crate::web::api::list_places::ListPlace;
use crate::web::api::state::AppState;
use crate::web::api::top::{ChangeBody, named};
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{PathItemReference, PathPollReference, Query, form};

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct HistoryQuery {
        /// `hour`: the last hour, in spans of five minutes. `day`: the last day, with spans of an hour where
        /// older than an hour. Defaults to `day`.
        #[param(value_type = Option<values::HistoryOver>)]
        over: Option<String>,
    }
}

/// Recent changes of an item's counts.
#[derive(Serialize, ToSchema)]
#[schema(as = ItemHistory)]
struct ItemHistoryBody {
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    #[schema(value_type = values::HistoryOver)]
    over: &'static str,
    /// The history has votes from this time on.
    #[schema(value_type = values::Time)]
    since: Moment,
    /// The history has votes up to about this time. Null if no worker has summed any yet.
    #[schema(required, value_type = Option<values::Time>)]
    as_of: Option<Moment>,
    /// The counts up to `as_of`, after all of the changes. Votes since then are in the item's live count alone. Null
    /// for a choice of a poll whose results are hidden.
    #[schema(required)]
    total: Option<TotalBody>,
    /// The spans in which something changed, in order of time. Null for a choice of a poll whose results are
    /// hidden.
    #[schema(required)]
    spans: Option<Vec<SpanBody>>,
}

/// Recent changes of the counts of a poll's choices.
#[derive(Serialize, ToSchema)]
#[schema(as = PollHistory)]
struct PollHistoryBody {
    #[schema(value_type = values::Id)]
    poll_id: PollId,
    #[schema(value_type = values::HistoryOver)]
    over: &'static str,
    /// The history has votes from this time on.
    #[schema(value_type = values::Time)]
    since: Moment,
    /// The history has votes up to about this time. Null if no worker has summed any yet.
    #[schema(required, value_type = Option<values::Time>)]
    as_of: Option<Moment>,
    /// Null while the results are hidden.
    #[schema(required)]
    choices: Option<Vec<ChoiceHistoryBody>>,
}

/// Recent changes of a choice's count.
#[derive(Serialize, ToSchema)]
#[schema(as = ChoiceHistory)]
struct ChoiceHistoryBody {
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    /// The counts up to `as_of`, after all of the changes.
    total: TotalBody,
    /// The spans in which something changed, in order of time.
    spans: Vec<SpanBody>,
}

/// The counts of all votes that a worker has summed.
#[derive(Serialize, ToSchema)]
#[schema(as = SummedCounts)]
struct TotalBody {
    #[schema(value_type = values::NetCount)]
    vote_count: i64,
    #[schema(value_type = values::UpOrDownCount)]
    up_count: i64,
    #[schema(value_type = values::UpOrDownCount)]
    down_count: i64,
}

impl From<Count> for TotalBody {
    fn from(count: Count) -> Self {
        Self {
            vote_count: count.net,
            up_count: count.ups(),
            down_count: count.downs,
        }
    }
}

/// How votes changed the counts in a span of time.
#[derive(Serialize, ToSchema)]
#[schema(as = Span)]
struct SpanBody {
    #[schema(value_type = values::Time)]
    starts_at: Moment,
    /// The length of the span.
    #[schema(minimum = 5, maximum = 60)]
    minutes: i16,
    change: ChangeBody,
}

fn spans(spans: Vec<Span>) -> Vec<SpanBody> {
    let body = |span: Span| SpanBody {
        starts_at: span.starts_at,
        minutes: span.minutes,
        change: span.change.into(),
    };
    spans.into_iter().map(body).collect()
}

fn over(query: HistoryQuery) -> Result<HistoryOver, Problem> {
    named(
        "over",
        query.over.as_deref(),
        &HistoryOver::ALL,
        HistoryOver::name,
    )
}

/// Retrieve an item's history.
///
/// A worker sums votes a few seconds after they were cast. `as_of` says up to when, and `total` how many they then
/// were. The sum of the changes is not the item's count, because it leaves out older votes: the count at `since` is
/// `total` less all changes.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/history",
    operation_id = "showItemHistory",
    tag = "Items",
    params(("id" = values::ItemReference, Path, example = json!(1)), HistoryQuery, TagHeader),
    responses(
        (status = 200, description = "The changes.", body = ItemHistoryBody,
            headers(("ETag" = String), ("Cache-Control" = String)), example = json!(examples::item_history())),
        NotModified,
        ItemProblems,
    )
)]
pub async fn of_item(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathItemReference,
    query: Query<HistoryQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let over = over(query.0)?;
    conditional::answer(&request, &state, Offered::Json, async |_| {
        let read = async {
            let item = state.references.item(&id.0).await?.id;
            let read = state.counts.one(item).await?;
            let read = read.ok_or_else(|| Problem::unknown_item(&id.0))?;
            let is_hidden = read.item.rules.as_deref().is_some_and(|rules| rules.hides_count);
            let History {
                since,
                as_of,
                of_items,
            } = state.ledger.history(&[item], over).await?;
            let shown = of_items.into_iter().next().filter(|_| !is_hidden);
            let (total, changes) = shown.map(|item| (item.total.into(), spans(item.spans))).unzip();
            let body = conditional::json(&ItemHistoryBody {
                item_id: item,
                over: over.name(),
                since,
                as_of,
                total,
                spans: changes,
            })?;
            Ok(Found::with_counts(body, []))
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(ItemProblems: ADDRESSES, STORES; OtherCell, UnknownItem, TooManyLists, TooManyListsOfAddress);

/// Retrieve a poll's history.
///
/// The history of each choice, as for an item.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/history",
    operation_id = "showPollHistory",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1)), HistoryQuery, TagHeader),
    responses(
        (status = 200, description = "The changes.", body = PollHistoryBody,
            headers(("ETag" = String), ("Cache-Control" = String)), example = json!(examples::poll_history())),
        NotModified,
        PollProblems,
    )
)]
pub async fn of_poll(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathPollReference,
    query: Query<HistoryQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let over = over(query.0)?;
    conditional::answer(&request, &state, Offered::Json, async |_| {
        let read = async {
            let id = state.references.poll(&id.0).await?.id;
            let (poll, choices) = state
                .ledger
                .polls(&[id])
                .await?
                .pop()
                .ok_or_else(|| Problem::unknown_poll(id))?;
            let History {
                since,
                as_of,
                of_items,
            } = state.ledger.history(&choices, over).await?;
            let changes = choices.iter().zip(of_items).map(|(item, history)| {
                let ItemHistory {
                    total,
                    spans: changes,
                } = history;
                ChoiceHistoryBody {
                    item_id: *item,
                    total: total.into(),
                    spans: spans(changes),
                }
            });
            let body = conditional::json(&PollHistoryBody {
                poll_id: id,
                over: over.name(),
                since,
                as_of,
                choices: poll.shows_counts().then(|| changes.collect()),
            })?;
            Ok(Found::with_counts(body, []))
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(PollProblems: ADDRESSES, STORES; OtherCell, UnknownPoll, TooManyLists, TooManyListsOfAddress);
