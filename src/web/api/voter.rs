//! `/v1/voter`: which voter the caller is, and the cookie that says so.

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
        /// The voter of the cookie. Without it, a new voter.
        #[schema(value_type = Option<values::VoterId>)]
        voter_id: Option<String>,
    }
}

/// The voter that the caller is.
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

/// Retrieve the caller's voter.
///
/// A voter's own cookie or token names the voter. An API key belongs to no voter.
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

/// Create a voter's cookie.
///
/// A backend with an API key names the voter. Without `voter_id` the cookie is for a new voter, if the server
/// is open to `visitors`. A caller who is a voter already stays that voter. The answer is 404 if the server
/// has no keys for cookies.
#[utoipa::path(
    post,
    path = "/v1/voter",
    operation_id = "createVoter",
    tag = "Voters",
    request_body(content = VoterBody, example = json!({})),
    security(("apiKey" = ["vote"]), ("voterToken" = []), ("voterCookie" = []), ()),
    extensions(("x-open" = json!(["visitors"]))),
    responses(
        (status = 201, description = "The cookie was created for this voter.", body = VoterAnswer,
            headers(("Cache-Control" = String)),
            example = json!({ "voter_id": "visitor-0123456789abcdefghijkl" })),
        (status = 200, description = "The caller is this voter already.", body = VoterAnswer,
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
        // A caller who is a voter stays that voter.
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

/// Delete the caller's cookie.
///
/// The cookie is deleted from the caller's browser. A copy of it stays valid.
#[utoipa::path(
    delete,
    path = "/v1/voter",
    operation_id = "forgetVoter",
    tag = "Voters",
    security((), ("voterToken" = []), ("voterCookie" = []), ("apiKey" = ["vote"])),
    extensions(("x-open" = json!(["all"]))),
    responses(
        (status = 204, description = "The browser's cookie is deleted."),
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
        let detail = "This server gives no cookies to voters: TALLY_COOKIE_KEYS is not set.";
        Problem::new(Kind::NotFound, detail)
    })
}
