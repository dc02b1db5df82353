//! The parsers of requests, without HTTP, for `crate::properties`.

use std::net::IpAddr;

use actix_web::ResponseError;
use actix_web::body::MessageBody;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

use crate::domain::{
    Ballot, Edit, ItemId, ItemName, NewApiKey, NewItem, NewPoll, NewVote, Reference, TrailFilter, VoidingId,
    VoterEditId, VoterId,
};
use crate::web::access;
use crate::web::access::{FoundCookie, JwtOptions, Origins, Proxies, Tokens, VoterCookies};
use crate::web::api::api_keys::{NewApiKeyBody, RotationBody};
use crate::web::api::ballots::BallotsBody;
use crate::web::api::batches::{BatchBody, BatchEntry};
use crate::web::api::choices::NewChoiceBody;
use crate::web::api::copies::PollCopyBody;
use crate::web::api::edits::{ItemEditBody, PollEditBody};
use crate::web::api::held_votes::HeldQuery;
use crate::web::api::items::NewItemBody;
use crate::web::api::lists::ListQuery;
use crate::web::api::poll_lists::PollListQuery;
use crate::web::api::polls::NewPollBody;
use crate::web::api::selections::SelectionBody;
use crate::web::api::status_history::HistoryQuery;
use crate::web::api::streams::StreamQuery;
use crate::web::api::top::TopQuery;
use crate::web::api::trail::TrailQuery;
use crate::web::api::voidings::VoidingsQuery;
use crate::web::api::voidings::new::NewVoidingBody;
use crate::web::api::voter_edits::VoterEditsQuery;
use crate::web::api::voter_edits::new::NewVoterEditBody;
use crate::web::api::votes::VoteBody;
use crate::web::pages::oembed;
use crate::web::problem::Problem;
use crate::web::request::{body, idempotency, path, query, reference};
use crate::web::transport::framing::Framing;

pub use crate::web::api::api_keys::GRACE_LIMIT_SECONDS;
pub use crate::web::api::ballots::BALLOTS_LIMIT;
pub use crate::web::api::copies::NewCopy;
pub use crate::web::api::held_votes::{HELD_LIMIT_ITEMS, HELD_LIMIT_POLLS, HeldAsked};
pub use crate::web::api::lists::{Listed, PAGE_LIMIT_ITEMS};
pub use crate::web::api::poll_lists::{PAGE_LIMIT_POLLS, PollPage};
pub use crate::web::api::streams::Wanted;
pub use crate::web::api::top::{TopAsked, TopAskedOf};
pub use crate::web::api::trail::TRAIL_LIMIT_ACTS;
pub use crate::web::api::voidings::PAGE_LIMIT_VOIDINGS;
pub use crate::web::api::voidings::new::WantedVoiding;
pub use crate::web::api::voter_edits::PAGE_LIMIT_VOTER_EDITS;
pub use crate::web::api::voter_edits::new::WantedVoterEdit;

/// The answer to a request that is refused.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let response = problem.error_response();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        Self {
            status: response.status().as_u16(),
            content_type: content_type
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            body: response
                .into_body()
                .try_into_bytes()
                .map(Into::into)
                .unwrap_or_default(),
        }
    }
}

/// Reads the body of `POST /v1/items/{id}/votes`.
pub fn vote(item_id: ItemId, bytes: &[u8]) -> Result<NewVote, Refusal> {
    Ok(body::parse::<VoteBody>(bytes)?.into_vote(item_id)?)
}

/// Reads the body of `POST /v1/votes`.
pub fn batch(bytes: &[u8]) -> Result<Vec<Result<BatchEntry, Refusal>>, Refusal> {
    let votes = body::parse::<BatchBody>(bytes)?.into_votes()?;
    Ok(votes
        .into_iter()
        .map(|vote| vote.map_err(Refusal::from))
        .collect())
}

/// Reads the query of `GET /v1/polls`.
pub fn poll_list(text: &str) -> Result<PollPage, Refusal> {
    Ok(query::parse::<PollListQuery>(text)?.into_page()?)
}

/// Reads the query of `GET /v1/votes`.
pub fn held(text: &str) -> Result<HeldAsked, Refusal> {
    Ok(query::parse::<HeldQuery>(text)?.into_asked()?)
}

/// Reads the query of `GET /v1/stream`.
pub fn stream(text: &str) -> Result<Wanted, Refusal> {
    Ok(query::parse::<StreamQuery>(text)?.into_wanted()?)
}

/// Reads the body of `POST /v1/polls`.
pub fn poll(bytes: &[u8]) -> Result<NewPoll, Refusal> {
    Ok(body::parse::<NewPollBody>(bytes)?.into_poll()?)
}

/// Reads the body of `POST /v1/polls/{id}/choices`.
pub fn choice(bytes: &[u8]) -> Result<ItemName, Refusal> {
    Ok(body::parse::<NewChoiceBody>(bytes)?.into_name()?)
}

/// Reads the body of `POST /v1/polls/{id}/copy`.
pub fn poll_copy(bytes: &[u8]) -> Result<NewCopy, Refusal> {
    Ok(body::parse::<PollCopyBody>(bytes)?.into_copy()?)
}

/// Reads the query of `GET /v1/items/top`.
pub fn top(text: &str) -> Result<TopAsked, Refusal> {
    Ok(query::parse::<TopQuery>(text)?.into_asked()?)
}

/// Reads the body of `PUT /v1/polls/{id}/votes/{voter_id}`.
pub fn selection(bytes: &[u8]) -> Result<Vec<ItemId>, Refusal> {
    Ok(body::parse::<SelectionBody>(bytes)?.into_items()?)
}

/// Reads a voter in a path.
pub fn voter(text: &str) -> Result<VoterId, Refusal> {
    Ok(path::voter(text)?)
}

/// Reads the body of `POST /v1/items`.
pub fn item(bytes: &[u8]) -> Result<NewItem, Refusal> {
    Ok(body::parse::<NewItemBody>(bytes)?.into_item()?)
}

/// Reads the query of `GET /v1/items`.
pub fn list(text: &str) -> Result<Listed, Refusal> {
    Ok(query::parse::<ListQuery>(text)?.into_listed()?)
}

/// Reads the body of `PATCH /v1/items/{id}`.
pub fn item_edit(bytes: &[u8]) -> Result<Edit, Refusal> {
    Ok(body::parse::<ItemEditBody>(bytes)?.into_edit()?)
}

/// Reads the body of `PATCH /v1/polls/{id}`.
pub fn poll_edit(bytes: &[u8]) -> Result<Edit, Refusal> {
    Ok(body::parse::<PollEditBody>(bytes)?.into_edit()?)
}

/// Reads the body of `POST /v1/polls/{id}/ballots`.
pub fn ballots(bytes: &[u8]) -> Result<Vec<Ballot>, Refusal> {
    Ok(body::parse::<BallotsBody>(bytes)?.into_ballots()?.0)
}

/// Reads the body of `POST /v1/voidings`.
pub fn voiding(bytes: &[u8]) -> Result<WantedVoiding, Refusal> {
    Ok(body::parse::<NewVoidingBody>(bytes)?.into_wanted()?)
}

/// Reads the query of `GET /v1/voidings`.
pub fn voidings(text: &str) -> Result<(Option<VoidingId>, i64), Refusal> {
    Ok(query::parse::<VoidingsQuery>(text)?.into_page()?)
}

/// Reads the body of `POST /v1/voter-edits`.
pub fn voter_edit(bytes: &[u8]) -> Result<WantedVoterEdit, Refusal> {
    Ok(body::parse::<NewVoterEditBody>(bytes)?.into_wanted()?)
}

/// Reads the query of `GET /v1/voter-edits`.
pub fn voter_edits(text: &str) -> Result<(Option<VoterEditId>, i64), Refusal> {
    Ok(query::parse::<VoterEditsQuery>(text)?.into_page()?)
}

/// Reads the body of `POST /v1/api-keys`.
pub fn api_key(bytes: &[u8]) -> Result<NewApiKey, Refusal> {
    Ok(body::parse::<NewApiKeyBody>(bytes)?.into_new()?)
}

/// Reads the body of `POST /v1/api-keys/{id}/rotate`.
pub fn rotation(bytes: &[u8]) -> Result<std::time::Duration, Refusal> {
    Ok(body::parse::<RotationBody>(bytes)?.into_grace()?)
}

/// Reads the query of `GET /v1/trail`.
pub fn trail(text: &str) -> Result<(TrailFilter, i64), Refusal> {
    Ok(query::parse::<TrailQuery>(text)?.into_filter()?)
}

/// Reads the query of `GET /v1/status/history`.
pub fn history(text: &str) -> Result<u32, Refusal> {
    Ok(query::parse::<HistoryQuery>(text)?.into_after()?)
}

/// Reads an item in a path.
pub fn item_reference(part: &str) -> Result<Reference<ItemId>, Refusal> {
    Ok(reference::path_reference(part)?)
}

/// Reads the header Authorization.
pub fn authorization(value: &[u8]) -> Option<&str> {
    access::bearer(value)
}

/// Returns whether a request with this Host and Origin may write, if pages of `allowed` may. `None`: no
/// request can have these headers.
pub fn may_write(allowed: &Origins, host: &[u8], origin: &[u8]) -> Option<bool> {
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, HeaderValue::from_bytes(host).ok()?);
    headers.insert(header::ORIGIN, HeaderValue::from_bytes(origin).ok()?);
    Some(allowed.may_write(&headers))
}

/// Returns the address of the frame that a query of oEmbed names at this host.
pub fn oembed(host: &[u8], query: &str) -> Result<String, Refusal> {
    Ok(oembed::frame_of(query, host)?)
}

/// Reads the header Idempotency-Key.
pub fn idempotency_key(value: &[u8]) -> Result<String, Refusal> {
    Ok(idempotency::read(value)?)
}

/// Keys, secrets and names that only the properties use.
mod own {
    pub const COOKIE_KEY: &str = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e70000";
    pub const SECRET: &str = "a secret of thirty-two bytes or more";
    pub const AUDIENCE: &str = "votes";
    pub const ISSUER: &str = "https://id.example";
}

fn cookies() -> Option<VoterCookies> {
    own::COOKIE_KEY.parse().ok()
}

/// Returns the voter of this Cookie header.
pub fn voter_cookie(value: &[u8]) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::COOKIE, HeaderValue::from_bytes(value).ok()?);
    match cookies()?.find(&headers) {
        FoundCookie::Voter { voter_id, .. } => Some(voter_id.as_str().to_owned()),
        FoundCookie::None | FoundCookie::NotValid => None,
    }
}

/// Returns the voter of a signed cookie with this text.
pub fn signed_cookie(text: &str) -> Option<String> {
    let value = cookies()?.signed(text)?;
    voter_cookie(format!("__Host-voter={value}").as_bytes())
}

fn tokens() -> Option<Tokens> {
    Tokens::open(JwtOptions {
        secrets: own::SECRET.parse().ok(),
        keys_file: None,
        audience: own::AUDIENCE.to_owned(),
        issuer: own::ISSUER.to_owned(),
    })
    .ok()
}

/// Returns the voter of this token.
pub fn voter_token(token: &str) -> Option<String> {
    Some(tokens()?.voter(token).ok()?.as_str().to_owned())
}

/// Returns the voter of a signed token with this header and these claims.
pub fn signed_token(header: &str, claims: &str) -> Option<String> {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims)
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, own::SECRET.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
    voter_token(&format!("{text}.{signature}"))
}

/// Returns the client of a request that a proxy has sent with this header. `None`: no request can have this
/// header.
pub fn client_behind_proxy(name: &'static str, value: &[u8]) -> Option<IpAddr> {
    let proxies = Proxies {
        networks: "10.0.0.0/8".parse().ok()?,
        header: name.parse().ok()?,
        hops: None,
    };
    let mut headers = HeaderMap::new();
    headers.insert(
        HeaderName::from_static(name),
        HeaderValue::from_bytes(value).ok()?,
    );
    Some(proxies.client(IpAddr::from([10, 0, 0, 1]), &headers))
}

/// What is read of the bytes of one connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Framed {
    /// As actix-http gets them.
    pub bytes: Vec<u8>,
    /// Behind which byte each request ends.
    pub ends: Vec<usize>,
    /// Whether the last request has no certain end.
    pub is_unclear: bool,
}

/// Finds where the requests of a connection end, if they come in pieces of this size.
pub fn framed(bytes: &[u8], size: usize) -> Framed {
    let mut framing = Framing::default();
    let (mut bytes, mut ends) = (bytes.to_vec(), Vec::new());
    for (at, piece) in bytes.chunks_mut(size).enumerate() {
        let mut taken = 0;
        while taken < piece.len() && !framing.is_unclear() {
            let request = framing.take(&mut piece[taken..]);
            taken += request.bytes;
            if request.is_end {
                ends.push(at * size + taken);
            }
        }
    }
    Framed {
        bytes,
        ends,
        is_unclear: framing.is_unclear(),
    }
}
