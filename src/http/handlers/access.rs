//! `/v1/items/{id}/access` and `/v1/polls/{id}/access`: to whom an item or a poll is open.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use crate::domain::OpenTo;
use crate::http::access::Admin;
use crate::http::extract::{Field, Form, Json, PathItemReference, PathPollReference, Takes};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::ledger::OpenItemSet;

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessBody {
    /// What anyone may do: `anonymous`, `voters`.
    open: Vec<String>,
}

impl Form for AccessBody {
    const FIELDS: &'static [Field] = &[Field::required("open", Takes::Texts)];
}

impl AccessBody {
    /// To whom it is to be open.
    ///
    /// # Errors
    /// When there is another name.
    pub(in crate::http) fn into_open(self) -> Result<OpenTo, Problem> {
        OpenTo::of(&self.open).ok_or_else(|| {
            let detail = "open has another name; it takes anonymous and voters, or nothing.";
            Problem::invalid("open", detail)
        })
    }
}

#[derive(Serialize)]
struct AccessAnswer {
    open: Vec<&'static str>,
}

fn answer(to: OpenTo) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(AccessAnswer { open: to.names() })
}

/// Shows to whom an item is open.
pub async fn of_item(state: web::Data<AppState>, id: PathItemReference) -> Result<HttpResponse, Problem> {
    let item = state.item(&id.0).await?;
    match state.ledger.open_items(&[item]).await?.first() {
        Some((_, to)) => Ok(answer(*to)),
        None => Err(Problem::unknown_item(&id.0)),
    }
}

/// Sets to whom an item is open.
pub async fn set_item(
    by: Admin,
    state: web::Data<AppState>,
    id: PathItemReference,
    body: Json<AccessBody>,
) -> Result<HttpResponse, Problem> {
    let to = body.0.into_open()?;
    let item = state.item(&id.0).await?;
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

/// Shows to whom a poll is open.
pub async fn of_poll(state: web::Data<AppState>, id: PathPollReference) -> Result<HttpResponse, Problem> {
    let poll = state.poll(&id.0).await?;
    match state.ledger.open_poll(poll).await? {
        Some(to) => Ok(answer(to)),
        None => Err(Problem::unknown_poll(&id.0)),
    }
}

/// Sets to whom a poll is open.
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
    let poll = state.poll(&id.0).await?;
    if !state.ledger.set_open_poll(by.0, poll, to).await? {
        return Err(Problem::unknown_poll(&id.0));
    }
    state.access.open_items.forget();
    Ok(answer(to))
}
