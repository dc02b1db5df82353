//! `/v1/items/top`: the items that come first.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::{Deserialize, Serialize};

use super::csv;
use crate::counts::TOP_LIMIT_ITEMS;
use crate::domain::{Count, ItemId, Moment, PollId, Reference, TopBy, TopItem, TopKind, TopOver};
use crate::http::conditional::{self, Format, Found};
use crate::http::extract::{Field, Form, Query, Takes, reference};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Items in the answer, unless `limit` says otherwise.
const TOP_DEFAULT_ITEMS: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopQuery {
    /// What items are ordered by: net, up or movement.
    by: Option<String>,
    /// Over which time: all, hour or day.
    over: Option<String>,
    /// Only the choices of this poll.
    poll: Option<String>,
    limit: Option<i64>,
}

impl Form for TopQuery {
    const FIELDS: &'static [Field] = &[
        Field::optional("by", Takes::Text),
        Field::optional("over", Takes::Text),
        Field::optional("poll", Takes::Text),
        Field::optional("limit", Takes::Number),
    ];
}

/// What a query asks for.
struct Asked {
    by: TopBy,
    over: TopOver,
    poll: Option<Reference<PollId>>,
    limit: usize,
}

impl TopQuery {
    fn into_asked(self) -> Result<Asked, Problem> {
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
        Ok(Asked {
            by: named("by", self.by.as_deref(), &TopBy::ALL, TopBy::name)?,
            over: named("over", self.over.as_deref(), &TopOver::ALL, TopOver::name)?,
            poll: self
                .poll
                .map(|poll| reference::parse("poll", &poll))
                .transpose()?,
            limit,
        })
    }
}

/// The one of these that is named so; without a name, the default.
fn named<T: Copy + Default>(
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

#[derive(Serialize)]
struct TopBody<'a> {
    by: &'static str,
    over: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_id: Option<PollId>,
    /// From when on votes are counted; null: from the first.
    since: Option<Moment>,
    /// Up to when they are, about; null: no worker has summed any yet.
    as_of: Option<Moment>,
    items: Vec<TopItemBody<'a>>,
}

#[derive(Serialize)]
struct TopItemBody<'a> {
    id: ItemId,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    /// The saved counts.
    vote_count: i64,
    up_count: i64,
    down_count: i64,
    /// What changed in the time that the list is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeBody>,
}

#[derive(Serialize)]
struct ChangeBody {
    vote_count: i64,
    up_count: i64,
    down_count: i64,
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
            change: item.change.map(|change| ChangeBody {
                vote_count: change.net,
                up_count: Count::ups(change),
                down_count: change.downs,
            }),
        }
    }

    /// What stands in [`TOP_COLUMNS`].
    fn row(&self) -> [String; TOP_COLUMNS.len()] {
        let change = self.change.as_ref();
        [
            self.id.to_string(),
            self.name.to_owned(),
            self.key.unwrap_or_default().to_owned(),
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

/// Shows a top list.
pub async fn show(
    request: HttpRequest,
    state: web::Data<AppState>,
    query: Query<TopQuery>,
) -> Result<HttpResponse, Problem> {
    let asked = query.0.into_asked()?;
    conditional::answer(&request, &state, async |format| {
        let poll = match &asked.poll {
            None => None,
            Some(poll) => {
                let id = state.poll(poll).await?;
                if state.ledger.poll(id).await?.is_none() {
                    return Err(Problem::unknown_poll(id));
                }
                Some(id)
            }
        };
        let kind = TopKind {
            by: asked.by,
            over: asked.over,
            poll,
        };
        let list = state.top_lists.get(kind).await?;
        let items = list.items.iter().take(asked.limit).map(TopItemBody::new);
        let body = match format {
            Format::Json => conditional::json(&TopBody {
                by: kind.by.name(),
                over: kind.over.name(),
                poll_id: poll,
                since: list.since,
                as_of: list.as_of,
                items: items.collect(),
            })?,
            Format::Csv => csv::write(&TOP_COLUMNS, items.map(|item| item.row()))?,
        };
        Ok(Found::with_counts(body, []))
    })
    .await
}
