//! `/v1/voter`: who the caller is as a voter, and the cookie that says so.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::VoterId;
use crate::web::access::{Caller, Visitor, VoterCookies, new_visitor};
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::{Kind, Problem};
use crate::web::request::{Json, form};

form! {
    /// The body of a request for a cookie.
    #[derive(ToSchema)]
    #[schema(as = NewVoter, examples(json!({ "voter_id": "ada" })))]
    pub struct VoterBody {
        /// Whose cookie it is to be. Without it, that of a new voter.
        #[schema(value_type = Option<values::VoterId>)]
        voter_id: Option<String>,
    }
}

/// Who the caller is as a voter.
#[derive(Serialize, ToSchema)]
#[schema(as = Voter)]
struct VoterAnswer<'a> {
    #[schema(value_type = values::VoterId)]
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
///
/// By a voter's own cookie or token; an API key is of no voter.
#[utoipa::path(
    get,
    path = "/v1/voter",
    operation_id = "showVoter",
    tag = "Voters",
    security(("voterToken" = []), ("voterCookie" = []), ("apiKey" = ["vote"]), ()),
    extensions(("x-open" = json!(["all"]))),
    responses(
        (status = 200, description = "The voter.", body = VoterAnswer, headers(("Cache-Control" = String)),
            example = json!({ "voter_id": "ada" })),
        ShowProblems,
    )
)]
pub async fn show(caller: Caller) -> Result<HttpResponse, Problem> {
    match caller.own_voter() {
        Some(voter) => Ok(answer(HttpResponse::Ok(), voter)),
        None => Err(Problem::no_voter()),
    }
}

problems!(ShowProblems: STORES; Malformed, CredentialNotValid, TokenExpired, NoVoter);

/// Gives a voter's cookie.
///
/// Of the voter whom a backend names, with an API key; without `voter_id`, of a new voter, where the
/// server is open to `visitors`. Whoever is a voter already stays one. Where the server has no keys for
/// cookies it is 404.
#[utoipa::path(
    post,
    path = "/v1/voter",
    operation_id = "createVoter",
    tag = "Voters",
    request_body(content = VoterBody, example = json!({})),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["visitors"]))),
    responses(
        (status = 201, description = "The voter of the new cookie.", body = VoterAnswer,
            headers(("Cache-Control" = String)),
            example = json!({ "voter_id": "visitor-0123456789abcdefghijkl" })),
        (status = 200, description = "The voter that the caller is already.", body = VoterAnswer,
            headers(("Cache-Control" = String)), example = json!({ "voter_id": "ada" })),
        CreateProblems,
    )
)]
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
            state.voting.throttle(&caller, None, None).await?;
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

problems!(
    CreateProblems: WRITES, BODIES, CALLERS, STORES;
    BodyTooLarge, NotFound, NotYourVote, Throttled, VoteNotStored
);

/// Takes the cookie out of the caller's browser.
///
/// It stays valid for whoever has a copy.
#[utoipa::path(
    delete,
    path = "/v1/voter",
    operation_id = "forgetVoter",
    tag = "Voters",
    security((), ("voterToken" = []), ("voterCookie" = []), ("apiKey" = ["vote"])),
    extensions(("x-open" = json!(["all"]))),
    responses(
        (status = 204, description = "The browser has no cookie any more."),
        ForgetProblems,
    )
)]
pub async fn forget(_: Visitor, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    cookies(&state)?;
    Ok(HttpResponse::NoContent()
        .insert_header((header::SET_COOKIE, VoterCookies::removal()))
        .finish())
}

problems!(ForgetProblems: WRITES, STORES; Malformed, NotFound, CredentialNotValid, TokenExpired);

fn cookies(state: &AppState) -> Result<&VoterCookies, Problem> {
    state.access.options.cookies.as_ref().ok_or_else(|| {
        let detail = "This server gives voters no cookies: TALLY_COOKIE_KEYS is not set.";
        Problem::new(Kind::NotFound, detail)
    })
}
