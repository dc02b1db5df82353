//! Reads ids and voters in paths.

use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future;
use percent_encoding::percent_decode_str;

use crate::domain::{ApiKeyId, ItemId, PollId, VoidingId, VoteId, VoterEditId, VoterId};
use crate::web::problem::Problem;

/// The `{id}` of a path: a positive 64-bit number.
pub struct PathId<Id>(pub Id);

pub type PathItem = PathId<ItemId>;
pub type PathPoll = PathId<PollId>;
pub type PathVote = PathId<VoteId>;
pub type PathApiKey = PathId<ApiKeyId>;
pub type PathVoiding = PathId<VoidingId>;
pub type PathVoterEdit = PathId<VoterEditId>;

impl<Id: FromStr> FromRequest for PathId<Id> {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let text = request.match_info().query("id");
        let detail = "id: it takes a whole number from 1 to 9223372036854775807.";
        future::ready(
            text.parse()
                .map(Self)
                .map_err(|_| Problem::malformed("id", detail)),
        )
    }
}

/// The voter in the last part of a path, percent-encoded.
pub struct PathVoter(pub VoterId);

impl FromRequest for PathVoter {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        if !request.query_string().is_empty() {
            let detail = "query: this takes no parameters.";
            return future::ready(Err(Problem::malformed("query", detail)));
        }
        // As it was sent: actix would have decoded a part of it.
        let path = request.uri().path();
        let last = path.rsplit_once('/').map_or(path, |(_, last)| last);
        future::ready(voter(last).map(Self))
    }
}

/// Reads a percent-encoded voter.
pub(in crate::web) fn voter(text: &str) -> Result<VoterId, Problem> {
    VoterId::parse(decoded("voter_id", text)?)
        .map_err(|error| Problem::invalid("voter_id", format!("{error}.")))
}

/// Decodes a percent-encoded part of a path. Fails when the encoding is wrong, or it is not UTF-8.
pub(super) fn decoded(field: &'static str, text: &str) -> Result<String, Problem> {
    let malformed = |what: &str| {
        let detail = format!("{field}: it {what}; it takes UTF-8, percent-encoded.");
        Problem::malformed(field, detail)
    };
    let is_encoded =
        |after: &str| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !text.split('%').skip(1).all(is_encoded) {
        return Err(malformed("has a % without two hexadecimal digits"));
    }
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| malformed("is not UTF-8"))?;
    Ok(decoded.into_owned())
}
