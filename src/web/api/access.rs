//! `/v1/items/{id}/access` and `/v1/polls/{id}/access`: to whom an item or a poll is open.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::OpenTo;
use crate::ledger::OpenItemSet;
use crate::web::access::Admin;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Field, Form, Json, PathItemReference, PathPollReference, Takes};

/// The body of a change.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AccessChange, examples(json!({ "open": ["voters"] })))]
pub struct AccessBody {
    /// What anyone may do, beside what the server allows; a poll takes `voters` alone.
    #[schema(value_type = Vec<OpenToName>)]
    open: Vec<String>,
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

impl Form for AccessBody {
    const FIELDS: &'static [Field] = &[Field::required("open", Takes::Texts)];
}

impl AccessBody {
    /// To whom it is to be open.
    ///
    /// # Errors
    /// When there is another name.
    pub(in crate::web) fn into_open(self) -> Result<OpenTo, Problem> {
        OpenTo::of(&self.open).ok_or_else(|| {
            let detail = "open has another name; it takes anonymous and voters, or nothing.";
            Problem::invalid("open", detail)
        })
    }
}

/// To whom an item or a poll is open.
#[derive(Serialize, ToSchema)]
#[schema(as = Access)]
struct AccessAnswer {
    /// What anyone may do, beside what the server allows.
    #[schema(value_type = Vec<OpenToName>)]
    open: Vec<&'static str>,
}

fn answer(to: OpenTo) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(AccessAnswer { open: to.names() })
}

/// Shows to whom an item is open.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/access",
    operation_id = "showItemAccess",
    tag = "Access",
    params(("id" = values::ItemReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "To whom it is open.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        OfItemProblems,
    )
)]
pub async fn of_item(state: web::Data<AppState>, id: PathItemReference) -> Result<HttpResponse, Problem> {
    let item = state.references.item(&id.0).await?;
    match state.ledger.open_items(&[item]).await?.first() {
        Some((_, to)) => Ok(answer(*to)),
        None => Err(Problem::unknown_item(&id.0)),
    }
}

problems!(OfItemProblems: ADDRESSES, STORES; UnknownItem);

/// Sets to whom an item is open.
///
/// Not of a choice, which is open to whom its poll is. Other servers follow within 10 s.
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
        (status = 200, description = "To whom it is open now.", body = AccessAnswer,
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
    let item = state.references.item(&id.0).await?;
    match state.ledger.set_open_item(by.0, item, to).await? {
        OpenItemSet::Set => {}
        OpenItemSet::Unknown => return Err(Problem::unknown_item(&id.0)),
        OpenItemSet::Choice => {
            let detail = "open: the item is a choice, and is open to whom its poll is; PUT /v1/polls/{id}/access \
                          opens the poll.";
            return Err(Problem::invalid("open", detail));
        }
    }
    state.access.open_items.forget();
    Ok(answer(to))
}

problems!(SetItemProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES; BodyTooLarge, UnknownItem);

/// Shows to whom a poll is open.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/access",
    operation_id = "showPollAccess",
    tag = "Access",
    params(("id" = values::PollReference, Path, example = json!(1))),
    responses(
        (status = 200, description = "To whom it is open.", body = AccessAnswer,
            headers(("Cache-Control" = String)), example = json!(examples::open_to_voters())),
        OfPollProblems,
    )
)]
pub async fn of_poll(state: web::Data<AppState>, id: PathPollReference) -> Result<HttpResponse, Problem> {
    let poll = state.references.poll(&id.0).await?;
    match state.ledger.open_poll(poll).await? {
        Some(to) => Ok(answer(to)),
        None => Err(Problem::unknown_poll(&id.0)),
    }
}

problems!(OfPollProblems: ADDRESSES, STORES; UnknownPoll);

/// Sets to whom a poll is open.
///
/// It holds for all of its choices. Other servers follow within 10 s.
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
        (status = 200, description = "To whom it is open now.", body = AccessAnswer,
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
        let detail = "open has anonymous; a poll takes votes of voters only, so it takes voters, or nothing.";
        return Err(Problem::invalid("open", detail));
    }
    let poll = state.references.poll(&id.0).await?;
    if !state.ledger.set_open_poll(by.0, poll, to).await? {
        return Err(Problem::unknown_poll(&id.0));
    }
    state.access.open_items.forget();
    Ok(answer(to))
}

problems!(SetPollProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES; BodyTooLarge, UnknownPoll);
