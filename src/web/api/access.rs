//! `/v1/items/{id}/access`, `/v1/polls/{id}/access`: to whom items and polls are open.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{Actor, OpenTo};
use crate::ledger::SetOpen;
use crate::web::access::Admin;
use crate::web::api::named;
use crate::web::api::named::Named;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathItemReference, PathPollReference, form};

form! {
    /// The body of a change.
    #[derive(ToSchema)]
    #[schema(as = AccessChange, examples(json!({ "open": ["voters"] })))]
    pub struct AccessBody {
        /// What anyone may do here, besides what the server allows. A poll takes only `voters`.
        #[schema(value_type = Vec<OpenToName>)]
        open: Vec<String>,
    }
}

/// What anyone may do: the names in its schema.
#[derive(ToSchema)]
#[schema(as = OpenTo, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum OpenToName {
    /// Vote without a voter.
    Anonymous,
    /// Vote as any voter, and see, change and take back anyone's vote.
    Voters,
}

impl AccessBody {
    /// Returns the access that the body asks for.
    pub(in crate::web) fn into_open(self) -> Result<OpenTo, Problem> {
        OpenTo::of(&self.open).ok_or_else(|| {
            let detail = "open has an unknown name; it takes anonymous and voters, or nothing.";
            Problem::invalid("open", detail)
        })
    }
}

/// To whom an item or a poll is open.
#[derive(Serialize, ToSchema)]
#[schema(as = Access)]
struct AccessAnswer {
    /// What anyone may do here, besides what the server allows.
    #[schema(value_type = Vec<OpenToName>)]
    open: Vec<&'static str>,
}

fn answer(to: OpenTo) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(AccessAnswer { open: to.names() })
}

async fn show(named: Named<'_>) -> Result<HttpResponse, Problem> {
    let open = named.ledger.open_to(named.of).await?;
    open.map(answer).ok_or_else(|| named.unknown())
}

async fn set(state: &AppState, by: Actor, named: Named<'_>, to: OpenTo) -> Result<HttpResponse, Problem> {
    match named.ledger.set_open(by, named.of, to).await? {
        SetOpen::Set => {
            state.access.open_items.forget();
            Ok(answer(to))
        }
        SetOpen::Unknown => Err(named.unknown()),
        SetOpen::Choice => {
            let detail = "open: the item is a choice, and is open to whom its poll is; PUT /v1/polls/{id}/access \
                          opens the poll.";
            Err(Problem::invalid("open", detail))
        }
    }
}

/// Retrieve an item's access.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/access",
    operation_id = "showItemAccess",
    tag = "Access",
    params(("id" = values::ItemReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "To whom the item is open.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        OfItemProblems,
    )
)]
pub async fn of_item(state: web::Data<AppState>, id: PathItemReference) -> Result<HttpResponse, Problem> {
    show(named::item(&state, &id.0).await?).await
}

problems!(OfItemProblems: ADDRESSES, STORES; OtherCell, UnknownItem);

/// Update an item's access.
///
/// A choice has the access of its poll and cannot have its own. Other servers follow within 10 s.
#[utoipa::path(
    put,
    path = "/v1/items/{id}/access",
    operation_id = "setItemAccess",
    tag = "Access",
    params(("id" = values::ItemReference, Path, example = json!(1))),
    request_body(content = AccessBody, example = json!({ "open": ["voters"] })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "To whom the item is open now.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        SetItemProblems,
    )
)]
pub async fn set_item(
    by: Admin,
    state: web::Data<AppState>,
    id: PathItemReference,
    body: Json<AccessBody>,
) -> Result<HttpResponse, Problem> {
    let to = body.0.into_open()?;
    set(&state, by.0, named::item(&state, &id.0).await?, to).await
}

problems!(SetItemProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES; BodyTooLarge, OtherCell, UnknownItem);

/// Retrieve a poll's access.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/access",
    operation_id = "showPollAccess",
    tag = "Access",
    params(("id" = values::PollReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "To whom the poll is open.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        OfPollProblems,
    )
)]
pub async fn of_poll(state: web::Data<AppState>, id: PathPollReference) -> Result<HttpResponse, Problem> {
    show(named::poll(&state, &id.0).await?).await
}

problems!(OfPollProblems: ADDRESSES, STORES; OtherCell, UnknownPoll);

/// Update a poll's access.
///
/// The access applies to all choices of the poll. Other servers follow within 10 s.
#[utoipa::path(
    put,
    path = "/v1/polls/{id}/access",
    operation_id = "setPollAccess",
    tag = "Access",
    params(("id" = values::PollReference, Path, example = json!(1))),
    request_body(content = AccessBody, example = json!({ "open": ["voters"] })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "To whom the poll is open now.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        SetPollProblems,
    )
)]
pub async fn set_poll(
    by: Admin,
    state: web::Data<AppState>,
    id: PathPollReference,
    body: Json<AccessBody>,
) -> Result<HttpResponse, Problem> {
    let to = body.0.into_open()?;
    if to.anonymous {
        let detail = "open has anonymous; a poll takes only votes of voters, so it takes voters, or nothing.";
        return Err(Problem::invalid("open", detail));
    }
    set(&state, by.0, named::poll(&state, &id.0).await?, to).await
}

problems!(SetPollProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES; BodyTooLarge, OtherCell, UnknownPoll);
