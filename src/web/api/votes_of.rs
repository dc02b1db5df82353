//! `GET /v1/items/{id}/votes`, `GET /v1/polls/{id}/votes`: the ledger's rows, for reports.

use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{ItemId, Moment, VoteId};
use crate::ledger::{LedgerRow, VotesOf, VotesPage};
use crate::web::access::Reporter;
use crate::web::api::conditional;
use crate::web::api::conditional::{Format, Found, NotModified, Offered, TagHeader};
use crate::web::api::csv;
use crate::web::api::list_places::ListPlace;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{PathItemReference, PathPollReference, Query, form, page};

/// Votes on a page by default.
const PAGE_DEFAULT_VOTES: i64 = 1000;
/// The most votes on a page.
const PAGE_LIMIT_VOTES: i64 = 10_000;

/// The columns in CSV.
const COLUMNS: [&str; 7] = [
    "id",
    "item_id",
    "created_at",
    "voter_id",
    "value",
    "change_number",
    "number",
];

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct VotesQuery {
        /// Only votes with ids above this one: the `next_after` of a page, or the `until` of an earlier one.
        #[param(minimum = 0)]
        after: Option<i64>,
        /// The most votes on the page. Defaults to 1,000.
        #[param(minimum = 1, maximum = 10000)]
        limit: Option<i64>,
    }
}

impl VotesQuery {
    /// Returns where the page begins, and how many votes it has.
    pub(in crate::web) fn into_page(self) -> Result<(VoteId, i64), Problem> {
        let limit = page::limit(self.limit, PAGE_DEFAULT_VOTES, PAGE_LIMIT_VOTES)?;
        let after = self.after.unwrap_or(0);
        if after < 0 {
            let detail = format!("after is {after}; it takes 0 or more.");
            return Err(Problem::invalid("after", detail));
        }
        Ok((VoteId::new(after), limit))
    }
}

/// A row of the ledger.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerRow)]
struct RowBody<'a> {
    #[schema(value_type = values::Id)]
    id: VoteId,
    #[schema(value_type = values::Id)]
    item_id: ItemId,
    #[schema(value_type = values::Time)]
    created_at: Moment,
    /// Null for an anonymous vote, and for a vote with a ballot.
    #[schema(required)]
    voter_id: Option<&'a str>,
    /// What the row adds to the item's count.
    #[schema(value_type = values::VoteValue)]
    value: i16,
    /// Which of the voter's rows on the item it is. An even one casts a vote; the next odd one takes it back.
    #[schema(minimum = 0)]
    change_number: i16,
    /// The vote's number, on an item that numbers its votes.
    #[schema(required, value_type = Option<values::Id>)]
    number: Option<i64>,
}

impl<'a> From<&'a LedgerRow> for RowBody<'a> {
    fn from(row: &'a LedgerRow) -> Self {
        Self {
            id: row.id,
            item_id: row.item_id,
            created_at: row.created_at,
            voter_id: row.voter_id.as_deref(),
            value: row.value,
            change_number: row.change_number,
            number: row.number,
        }
    }
}

impl RowBody<'_> {
    fn cells(&self) -> [String; 7] {
        [
            self.id.to_string(),
            self.item_id.to_string(),
            self.created_at.to_string(),
            self.voter_id.map(csv::text).unwrap_or_default(),
            self.value.to_string(),
            self.change_number.to_string(),
            csv::field(self.number),
        ]
    }
}

/// Rows of the ledger, and where the next page begins.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerRows)]
struct PageBody<'a> {
    /// In the order of their ids.
    votes: Vec<RowBody<'a>>,
    /// The `after` of the next page. Null on the last page. A page looks at 100,000 votes of all items at the
    /// most, so it may have fewer votes than `limit`, or none, and a next page all the same.
    #[schema(required, value_type = Option<values::Id>)]
    next_after: Option<VoteId>,
    /// These pages have every vote up to this id, and none will be added. Later votes come with an `after` of
    /// this.
    #[schema(minimum = 0)]
    until: i64,
}

fn found(format: Format, page: &VotesPage, path: &str, query: &str) -> Result<Found, Problem> {
    let rows = page.rows.iter().map(RowBody::from);
    let body = match format {
        Format::Json => conditional::json(&PageBody {
            votes: rows.collect(),
            next_after: page.next_after,
            until: page.until.get(),
        })?,
        Format::Csv => csv::write(&COLUMNS, rows.map(|row| row.cells()))?,
    };
    let next = page
        .next_after
        .map(|after| page::next(path, query, "after", after));
    Ok(Found::with_counts(body, []).with_next(next))
}

/// List an item's votes.
///
/// The rows of the ledger, with who voted: each vote, and each time that a vote was taken back. They come some
/// seconds after they were cast. Takes an API key with the scope `report`. For all votes of a Tally use
/// `tally export`.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/votes",
    operation_id = "listItemVotes",
    tag = "Votes",
    params(("id" = values::ItemReference, Path, example = json!(1)), VotesQuery, TagHeader),
    security(("apiKey" = ["report"]), ()),
    extensions(("x-open" = json!(["report"]))),
    responses(
        (status = 200, description = "A page of votes. As CSV, if the Accept header prefers CSV.",
            headers(("ETag" = String), ("Cache-Control" = String), ("Link" = String)),
            content(
                (PageBody = "application/json", example = json!({
                    "votes": [{
                        "id": 1, "item_id": 1, "created_at": "2030-01-31T18:00:00.123456Z", "voter_id": "ada",
                        "value": 1, "change_number": 0, "number": null
                    }],
                    "next_after": null,
                    "until": 1
                })),
                (String = "text/csv; charset=utf-8", example = json!("id,item_id,created_at,voter_id,value,change_number,number\r\n1,1,2030-01-31T18:00:00.123456Z,ada,1,0,\r\n")),
            )),
        NotModified,
        ItemProblems,
    )
)]
pub async fn of_item(
    _: Reporter,
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathItemReference,
    query: Query<VotesQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let (after, limit) = query.0.into_page()?;
    conditional::answer(&request, &state, Offered::JsonOrCsv, async |format| {
        let read = async {
            let item = state.references.item(&id.0).await?.id;
            // An id may be of no item.
            if state.counts.one(item).await?.is_none() {
                return Err(Problem::unknown_item(&id.0));
            }
            let page = state.ledger.votes_of(VotesOf::Item(item), after, limit).await?;
            found(format, &page, request.path(), request.query_string())
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(ItemProblems: ADDRESSES, CALLERS, STORES; OtherCell, UnknownItem, TooManyLists, TooManyListsOfAddress);

/// List a poll's votes.
///
/// The rows of the ledger of all choices, as for an item. Votes with a ballot have no voter.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/votes",
    operation_id = "listPollVotes",
    tag = "Votes",
    params(("id" = values::PollReference, Path, example = json!(1)), VotesQuery, TagHeader),
    security(("apiKey" = ["report"]), ()),
    extensions(("x-open" = json!(["report"]))),
    responses(
        (status = 200, description = "A page of votes. As CSV, if the Accept header prefers CSV.",
            headers(("ETag" = String), ("Cache-Control" = String), ("Link" = String)),
            content(
                (PageBody = "application/json", example = json!({
                    "votes": [{
                        "id": 2, "item_id": 7, "created_at": "2030-01-31T18:00:00.123456Z", "voter_id": "ada",
                        "value": 1, "change_number": 0, "number": null
                    }],
                    "next_after": null,
                    "until": 2
                })),
                (String = "text/csv; charset=utf-8", example = json!("id,item_id,created_at,voter_id,value,change_number,number\r\n2,7,2030-01-31T18:00:00.123456Z,ada,1,0,\r\n")),
            )),
        NotModified,
        PollProblems,
    )
)]
pub async fn of_poll(
    _: Reporter,
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathPollReference,
    query: Query<VotesQuery>,
    _place: ListPlace,
) -> Result<HttpResponse, Problem> {
    let (after, limit) = query.0.into_page()?;
    conditional::answer(&request, &state, Offered::JsonOrCsv, async |format| {
        let read = async {
            let poll = state.references.poll(&id.0).await?.id;
            if state.ledger.polls(&[poll]).await?.is_empty() {
                return Err(Problem::unknown_poll(poll));
            }
            let page = state.ledger.votes_of(VotesOf::Poll(poll), after, limit).await?;
            found(format, &page, request.path(), request.query_string())
        };
        state.ledger.in_one_run(id.0.is_key(), read).await
    })
    .await
}

problems!(PollProblems: ADDRESSES, CALLERS, STORES; OtherCell, UnknownPoll, TooManyLists, TooManyListsOfAddress);
