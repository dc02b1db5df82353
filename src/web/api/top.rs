//! `/v1/items/top`: top lists.

use actix_web::{FromRequest as _, HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::counts::TOP_LIMIT_ITEMS;
use crate::domain::{
    Count, ItemId, ItemKeyPrefix, Moment, PollId, Reference, TopBy, TopItem, TopKind, TopOf, TopOver,
};
use crate::web::api::conditional;
use crate::web::api::conditional::{Format, Found, NotModified, Offered, TagHeader};
use crate::web::api::csv;
use crate::web::api::list_places::ListPlace;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, reference};

/// Items in a top list by default.
const TOP_DEFAULT_ITEMS: usize = 10;

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct TopQuery {
        /// What items are ordered by. `net`: up-votes less down-votes. `up`: up-votes. `movement`: up-votes
        /// and down-votes together. Defaults to `net`.
        #[param(value_type = Option<values::TopBy>)]
        by: Option<String>,
        /// `all`: all votes. `hour` or `day`: what changed in the last hour or day. Defaults to `all`.
        #[param(value_type = Option<values::TopOver>)]
        over: Option<String>,
        /// Only the choices of this poll. Not together with `choices` or `key_prefix`.
        #[param(value_type = Option<values::PollReference>)]
        poll: Option<String>,
        /// True ranks choices of polls among the items. Defaults to false.
        choices: Option<bool>,
        /// Only items whose own key begins with this text.
        #[param(value_type = Option<values::Key>)]
        key_prefix: Option<String>,
        /// The most items in the list. Defaults to 10.
        #[param(minimum = 1, maximum = 100)]
        limit: Option<i64>,
    }
}

/// What a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct TopAsked {
    pub by: TopBy,
    pub over: TopOver,
    pub of: TopAskedOf,
    pub limit: usize,
}

/// Which items a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum TopAskedOf {
    Items {
        with_choices: bool,
        key_prefix: Option<ItemKeyPrefix>,
    },
    Poll(Reference<PollId>),
}

impl TopAskedOf {
    fn is_by_key(&self) -> bool {
        matches!(self, Self::Poll(poll) if poll.is_key())
    }
}

impl TopQuery {
    /// Returns what the query asks for, if every parameter is allowed.
    pub(in crate::web) fn into_asked(self) -> Result<TopAsked, Problem> {
        let limit = match self.limit {
            None => TOP_DEFAULT_ITEMS,
            Some(limit) => usize::try_from(limit)
                .ok()
                .filter(|limit| (1..=TOP_LIMIT_ITEMS).contains(limit))
                .ok_or_else(|| {
                    let detail = format!("limit is {limit}; it takes 1 to {TOP_LIMIT_ITEMS}.");
                    Problem::invalid("limit", detail)
                })?,
        };
        Ok(TopAsked {
            by: named("by", self.by.as_deref(), &TopBy::ALL, TopBy::name)?,
            over: named("over", self.over.as_deref(), &TopOver::ALL, TopOver::name)?,
            of: of(self.poll, self.choices, self.key_prefix)?,
            limit,
        })
    }
}

fn of(
    poll: Option<String>,
    choices: Option<bool>,
    key_prefix: Option<String>,
) -> Result<TopAskedOf, Problem> {
    let Some(poll) = poll else {
        let prefix = key_prefix.map(ItemKeyPrefix::parse).transpose();
        return Ok(TopAskedOf::Items {
            with_choices: choices.unwrap_or(false),
            key_prefix: prefix.map_err(|error| {
                let detail = error.to_string().replacen("key", "key_prefix", 1);
                Problem::invalid("key_prefix", format!("{detail}."))
            })?,
        });
    };
    if choices.is_some() || key_prefix.is_some() {
        let detail = "poll: give neither choices nor key_prefix with it; it ranks the poll's choices.";
        return Err(Problem::malformed("poll", detail));
    }
    Ok(TopAskedOf::Poll(reference::parse("poll", &poll)?))
}

/// Returns the variant with this name, or the default without a name.
pub(super) fn named<T: Copy + Default>(
    field: &'static str,
    text: Option<&str>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, Problem> {
    let Some(text) = text else { return Ok(T::default()) };
    let found = all.iter().copied().find(|one| name(*one) == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().copied().map(&name).collect();
        Problem::invalid(field, format!("{field} takes {}.", names.join(", ")))
    })
}

/// A top list.
#[derive(Serialize, ToSchema)]
#[schema(as = TopList)]
struct TopBody<'a> {
    #[schema(value_type = values::TopBy)]
    by: &'static str,
    #[schema(value_type = values::TopOver)]
    over: &'static str,
    /// Left out if the list is not of a poll's choices.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Id)]
    poll_id: Option<PollId>,
    /// The list has votes from this time on. Null means from the first vote.
    #[schema(required, value_type = Option<values::Time>)]
    since: Option<Moment>,
    /// The list has votes up to about this time. Null if no worker has summed any yet.
    #[schema(required, value_type = Option<values::Time>)]
    as_of: Option<Moment>,
    items: Vec<TopItemBody<'a>>,
}

/// An item of a top list.
#[derive(Serialize, ToSchema)]
#[schema(as = TopItem)]
struct TopItemBody<'a> {
    #[schema(value_type = values::Id)]
    id: ItemId,
    #[schema(value_type = values::Name)]
    name: &'a str,
    /// Your own key, if the item has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = values::Key)]
    key: Option<&'a str>,
    /// The saved count, up-votes less down-votes.
    #[schema(value_type = values::NetCount)]
    vote_count: i64,
    #[schema(value_type = values::UpOrDownCount)]
    up_count: i64,
    #[schema(value_type = values::UpOrDownCount)]
    down_count: i64,
    /// What changed in the time of the list. Left out for a list of all time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    change: Option<ChangeBody>,
}

/// How an item's counts changed. Votes that were taken back are subtracted.
#[derive(Serialize, ToSchema)]
#[schema(as = CountChange)]
pub(super) struct ChangeBody {
    #[schema(value_type = values::NetCount)]
    vote_count: i64,
    #[schema(value_type = values::NetCount)]
    up_count: i64,
    #[schema(value_type = values::NetCount)]
    down_count: i64,
}

impl From<Count> for ChangeBody {
    fn from(change: Count) -> Self {
        Self {
            vote_count: change.net,
            up_count: change.ups(),
            down_count: change.downs,
        }
    }
}

impl<'a> TopItemBody<'a> {
    fn new(item: &'a TopItem) -> Self {
        let count = item.saved_count;
        Self {
            id: item.id,
            name: &item.name,
            key: item.key.as_ref().map(|key| key.as_str()),
            vote_count: count.net,
            up_count: count.ups(),
            down_count: count.downs,
            change: item.change.map(ChangeBody::from),
        }
    }

    /// Returns the fields for [`TOP_COLUMNS`].
    fn row(&self) -> [String; TOP_COLUMNS.len()] {
        let change = self.change.as_ref();
        [
            self.id.to_string(),
            csv::text(self.name),
            csv::text(self.key.unwrap_or_default()),
            self.vote_count.to_string(),
            self.up_count.to_string(),
            self.down_count.to_string(),
            csv::field(change.map(|change| change.vote_count)),
            csv::field(change.map(|change| change.up_count)),
            csv::field(change.map(|change| change.down_count)),
        ]
    }
}

/// The columns of a top list in CSV.
const TOP_COLUMNS: [&str; 9] = [
    "id",
    "name",
    "key",
    "vote_count",
    "up_count",
    "down_count",
    "change_vote_count",
    "change_up_count",
    "change_down_count",
];

/// List top items.
///
/// The counts are the saved ones. `as_of` says up to when votes are in the list. Items that lists do not show, and
/// choices of polls, are left out, unless the query asks for choices. The `ETag` stays the same while nothing but
/// `as_of` changes.
#[utoipa::path(
    get,
    path = "/v1/items/top",
    operation_id = "listTopItems",
    tag = "Items",
    params(TopQuery, TagHeader),
    responses(
        (status = 200, description = "The top items. As CSV for spreadsheets, if the Accept header prefers CSV: it begins with a byte-order mark, and a text that would be a formula begins with an apostrophe.",
            headers(("ETag" = String), ("Cache-Control" = String)),
            content(
                (TopBody = "application/json", example = json!(examples::top_list())),
                (String = "text/csv; charset=utf-8", example = json!(examples::TOP_LIST_CSV)),
            )),
        NotModified,
        ShowProblems,
    )
)]
pub async fn show(
    request: HttpRequest,
    state: web::Data<AppState>,
    query: Query<TopQuery>,
) -> Result<HttpResponse, Problem> {
    let asked = query.0.into_asked()?;
    // There are as many lists of prefixes as someone thinks of, and each is read.
    let _place = match asked.of {
        TopAskedOf::Items {
            key_prefix: Some(_), ..
        } => Some(ListPlace::extract(&request).await?),
        TopAskedOf::Items { .. } | TopAskedOf::Poll(_) => None,
    };
    conditional::answer(&request, &state, Offered::JsonOrCsv, async |format| {
        let read = async {
            let of = match &asked.of {
                TopAskedOf::Items {
                    with_choices,
                    key_prefix,
                } => TopOf::Items {
                    with_choices: *with_choices,
                    key_prefix: key_prefix.clone(),
                },
                TopAskedOf::Poll(poll) => TopOf::Poll(state.references.poll(poll).await?.id),
            };
            let poll = of.poll();
            let kind = TopKind {
                by: asked.by,
                over: asked.over,
                of,
            };
            let list = match (state.top_lists.get(kind).await?, poll) {
                (Some(list), _) => list,
                (None, Some(poll)) => return Err(Problem::unknown_poll(poll)),
                (None, None) => return Err(Problem::internal()),
            };
            let items = list.items.iter().take(asked.limit).map(TopItemBody::new);
            if format == Format::Csv {
                let body = csv::write(&TOP_COLUMNS, items.map(|item| item.row()))?;
                return Ok(Found::with_counts(body, []));
            }
            let mut list = TopBody {
                by: asked.by.name(),
                over: asked.over.name(),
                poll_id: poll,
                since: list.since,
                as_of: list.as_of,
                items: items.collect(),
            };
            let body = conditional::json(&list)?;
            // It moves on while nobody votes.
            list.as_of = None;
            Ok(Found::with_counts(body, []).compared_by(conditional::json(&list)?))
        };
        state.ledger.in_one_run(asked.of.is_by_key(), read).await
    })
    .await
}

problems!(ShowProblems: ADDRESSES, STORES; OtherCell, UnknownPoll, TooManyLists, TooManyListsOfAddress);
