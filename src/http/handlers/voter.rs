//! `/v1/voter`: who the caller is as a voter, and the cookie that says so.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::{Deserialize, Serialize};

use crate::domain::VoterId;
use crate::http::access::{Caller, Visitor, VoterCookies, new_visitor};
use crate::http::extract::{Field, Form, Json, Takes};
use crate::http::problem::{Kind, Problem};
use crate::http::state::AppState;

/// The body of a request for a cookie.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoterBody {
    /// Whose cookie it is to be. Without it, that of a new voter.
    voter_id: Option<String>,
}

impl Form for VoterBody {
    const FIELDS: &'static [Field] = &[Field::optional("voter_id", Takes::Text)];
}

#[derive(Serialize)]
struct VoterAnswer<'a> {
    voter_id: &'a str,
}

fn answer(mut response: actix_web::HttpResponseBuilder, voter: &VoterId) -> HttpResponse {
    response
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(VoterAnswer {
            voter_id: voter.as_str(),
        })
}

/// Shows which voter the caller is.
pub async fn show(caller: Caller) -> Result<HttpResponse, Problem> {
    match caller.own_voter() {
        Some(voter) => Ok(answer(HttpResponse::Ok(), voter)),
        None => Err(Problem::no_voter()),
    }
}

/// Gives a cookie: of the voter whom a backend names, or of a new one.
pub async fn create(
    visitor: Visitor,
    state: web::Data<AppState>,
    body: Json<VoterBody>,
) -> Result<HttpResponse, Problem> {
    let caller = visitor.0;
    let cookies = cookies(&state)?;
    let named = body
        .0
        .voter_id
        .map(VoterId::parse)
        .transpose()
        .map_err(|error| Problem::invalid("voter_id", format!("{error}.")))?;
    let voter = match (named, caller.own_voter()) {
        // Whoever is a voter stays one.
        (None, Some(own)) => return Ok(answer(HttpResponse::Ok(), own)),
        (None, None) => {
            caller.may_visit()?;
            state.admit(&caller, None, None).await?;
            new_visitor()
        }
        (Some(named), _) => {
            caller.may_become(&named)?;
            named
        }
    };
    let cookie = cookies.issue(&voter).ok_or_else(Problem::internal)?;
    let mut response = HttpResponse::Created();
    response.insert_header((header::SET_COOKIE, cookie));
    Ok(answer(response, &voter))
}

/// Takes the cookie out of the caller's browser. It stays valid for whoever has a copy.
pub async fn forget(_: Visitor, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    cookies(&state)?;
    Ok(HttpResponse::NoContent()
        .insert_header((header::SET_COOKIE, VoterCookies::removal()))
        .finish())
}

fn cookies(state: &AppState) -> Result<&VoterCookies, Problem> {
    state.access.cookies.as_ref().ok_or_else(|| {
        let detail = "This server gives voters no cookies: TALLY_COOKIE_KEYS is not set.";
        Problem::new(Kind::NotFound, detail)
    })
}
