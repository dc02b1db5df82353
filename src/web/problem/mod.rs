//! Errors as `application/problem+json` (RFC 9457).
//!
//! - `kinds`: the table of problem types.
//! - `answer`: a problem as the answer to a request.
//! - `causes`: the problems for errors of other modules.
//! - `votes`: problems of requests that vote.
//! - `explanations`: docs/problems.md, which explains each type.

mod answer;
mod causes;
mod explanations;
mod kinds;
mod votes;

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{ArchiveId, Cell, OtherCell, Scope, Throttle, ThrottledBy};
use crate::web::limits::UNCREDENTIALED_LIMIT_BALLOTS;
pub(in crate::web) use crate::web::problem::answer::TALLY_CELL;
pub use crate::web::problem::answer::{Body, method_not_allowed, not_found};
pub(in crate::web) use crate::web::problem::explanations::{DOCUMENT, example, meaning, sections};
pub use crate::web::problem::kinds::Kind;
pub use crate::web::problem::votes::VoteProblem;

/// What a voter reads whose own credential is not valid.
const SIGN_IN_AGAIN: &str = "Your sign-in is not valid here. Sign in again.";
/// What a voter reads when nothing is wrong with the request, and it was not carried out.
const BUSY: &str = "The server cannot answer right now. Try again in a moment.";
/// The same of a vote.
const NOT_STORED: &str = "The vote is not stored. Try again in a moment.";

/// Whether a vote without an acknowledgement is stored. It tells an anonymous voter whether a retry is safe.
/// A 4xx answer does not have it: such a vote is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    /// The vote is not stored and will not be. A retry counts once.
    No,
    /// The vote may be stored. A retry without a `voter_id` may count twice.
    Unknown,
}

/// An error as a client sees it: what is wrong, and what would be right.
///
/// A problem that reaches voters has a `detail` that may be shown to them, without names of fields, requests or
/// settings. Its `hint` has those. The `detail` of any other problem speaks to whoever writes the program.
///
/// The cause of a 5xx is logged and never shown to a client. A function that asks Postgres returns
/// `unavailable` when Postgres does not answer; its docstring does not repeat that.
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", kind.title())]
pub struct Problem {
    kind: Kind,
    detail: String,
    /// More for whoever writes the program, where `detail` is fit to be shown to a voter.
    hint: Option<Box<str>>,
    /// The part of the request that is wrong.
    field: Option<String>,
    /// Only for a vote without an acknowledgement.
    stored: Option<Stored>,
    allow: Option<&'static str>,
    throttled: Option<Throttled>,
    /// The cell that has what the request names.
    cell: Option<Cell>,
}

/// A throttle that is full, for the headers of draft-ietf-httpapi-ratelimit-headers-10.
#[derive(Clone, Copy, Debug)]
struct Throttled {
    throttle: Throttle,
    /// The seconds until its window ends, rounded up, so that a client that waits so long is not too early.
    retry_after_seconds: u64,
}

impl Problem {
    /// Makes a problem of this type. `detail` says what would be right.
    pub(in crate::web) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            hint: None,
            field: None,
            stored: None,
            allow: None,
            throttled: None,
            cell: None,
        }
    }

    /// Its type.
    pub(in crate::web) fn kind(&self) -> Kind {
        self.kind
    }

    /// The cell that has what the request names, if it is another one.
    pub(in crate::web) fn cell(&self) -> Option<Cell> {
        self.cell
    }

    /// Makes a problem whose `detail` is fit to be shown to a voter. `hint` says the rest to whoever writes the program.
    pub(in crate::web) fn for_voters(kind: Kind, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into().into_boxed_str()),
            ..Self::new(kind, detail)
        }
    }

    /// Names the part of the request that is wrong.
    pub(in crate::web) fn on_field(self, field: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..self
        }
    }

    /// Says whether the vote of the request is stored.
    fn of_vote(self, stored: Stored) -> Self {
        Self {
            stored: Some(stored),
            ..self
        }
    }

    /// The request does not have the form that the resource needs.
    pub fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, detail).on_field(field)
    }

    /// The form is right, but a value is not.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        Self::new(Kind::InvalidValue, detail).on_field(field)
    }

    pub fn unknown_item(id: impl std::fmt::Display) -> Self {
        let detail = format!("There is no item {id}.");
        Self::for_voters(Kind::UnknownItem, detail, "GET /v1/items lists the items.")
    }

    pub fn unknown_poll(id: impl std::fmt::Display) -> Self {
        let detail = format!("There is no poll {id}.");
        Self::for_voters(Kind::UnknownPoll, detail, "GET /v1/polls lists the polls.")
    }

    pub fn unknown_vote(id: impl std::fmt::Display) -> Self {
        let detail = format!("There is no receipt of vote {id}; the answer to a vote has its vote_id.");
        Self::new(Kind::UnknownVote, detail)
    }

    /// The same where the vote may be one of an archive.
    pub fn archived_vote(id: impl std::fmt::Display, archive: ArchiveId) -> Self {
        let detail = format!(
            "There is no receipt of vote {id}. If it was a vote, it is counted and archived: archive {} has votes with \
             lower and higher ids.",
            archive.0
        );
        Self::new(Kind::UnknownVote, detail)
    }

    /// What the request names lies in another cell. Nothing of the request was done.
    pub fn other_cell(other: &OtherCell) -> Self {
        let detail = format!(
            "{other}; the router before the cells sends this request to cell {}.",
            other.of
        );
        Self {
            cell: Some(other.of),
            ..Self::new(Kind::OtherCell, detail)
        }
    }

    pub fn no_vote(item: impl std::fmt::Display) -> Self {
        let detail = format!("This voter holds no vote on item {item}; PUT or POST casts a vote.");
        Self::new(Kind::NoVote, detail)
    }

    /// The same where nobody knows it any more.
    pub fn votes_archived(item: impl std::fmt::Display, archive: ArchiveId) -> Self {
        let detail = format!(
            "The votes on item {item} are counted and archived (archive {}), so Tally does not know who held one.",
            archive.0
        );
        Self::new(Kind::NoVote, detail)
    }

    /// The request has no voter's own credential.
    pub fn no_voter() -> Self {
        let detail = "This request has no voter's cookie or token; POST /v1/voter gives a cookie.";
        Self::new(Kind::NoVoter, detail)
    }

    pub fn unknown_api_key(id: impl std::fmt::Display) -> Self {
        let detail = format!("There is no API key {id}; GET /v1/api-keys lists the keys.");
        Self::new(Kind::UnknownApiKey, detail)
    }

    /// The key cannot be rotated.
    pub fn no_valid_api_key(id: impl std::fmt::Display) -> Self {
        let detail = format!("There is no valid API key {id}; GET /v1/api-keys says which keys are valid.");
        Self::new(Kind::UnknownApiKey, detail)
    }

    /// The request has no credential, and not everyone may do this.
    pub fn credential_missing(scope: Scope) -> Self {
        let key = format!("an API key with the scope {scope}: Authorization: Bearer tally_…");
        if scope != Scope::Vote {
            return Self::new(Kind::CredentialMissing, format!("This takes {key}."));
        }
        let hint = format!(
            "This takes a voter's cookie (POST /v1/voter) or token (Authorization: Bearer …). A backend sends {key}, \
             which never belongs into a page."
        );
        Self::for_voters(Kind::CredentialMissing, "You need to sign in for this.", hint)
    }

    /// The batch has more ballots than a caller without a credential may send.
    pub fn too_many_ballots() -> Self {
        let detail = format!(
            "Without an API key with the scope vote, one request takes {UNCREDENTIALED_LIMIT_BALLOTS} ballots; send the others in more requests."
        );
        Self::new(Kind::CredentialMissing, detail).on_field("ballot")
    }

    /// Tally does not know the API key. The problem does not say why, because that would help a guesser.
    pub fn api_key_not_valid() -> Self {
        let detail = "Authorization: the API key is unknown, expired or revoked; tally key list shows which are valid.";
        Self::new(Kind::CredentialNotValid, detail).on_field("Authorization")
    }

    /// The header Authorization has no API key and no token.
    pub fn authorization_not_valid() -> Self {
        let detail = "Authorization: it takes Bearer, a space, and one API key or token.";
        Self::new(Kind::CredentialNotValid, detail).on_field("Authorization")
    }

    /// This server takes no tokens of voters.
    pub fn takes_no_tokens() -> Self {
        let hint = "Authorization: it is no API key, which is tally_ and 64 hexadecimal digits, and this server takes no \
                    voters' tokens: TALLY_JWT_SECRET or TALLY_JWT_KEYS is not set.";
        Self::for_voters(Kind::CredentialNotValid, SIGN_IN_AGAIN, hint).on_field("Authorization")
    }

    /// The voter's token is not valid, for this reason.
    pub fn token_not_valid(why: &str) -> Self {
        let hint = format!("Authorization: the token is not valid: {why}.");
        Self::for_voters(Kind::CredentialNotValid, SIGN_IN_AGAIN, hint).on_field("Authorization")
    }

    /// The cookie is not valid on this server.
    pub fn cookie_not_valid() -> Self {
        let hint = "Cookie: __Host-voter is not valid, or is given twice; POST /v1/voter without it gives a new one.";
        let detail = "This browser's cookie for voting is not valid any more.";
        Self::for_voters(Kind::CredentialNotValid, detail, hint).on_field("Cookie")
    }

    /// The token has expired, and is right otherwise.
    pub fn token_expired() -> Self {
        let hint = "Authorization: the token's exp is over; ask its issuer for a new one.";
        Self::for_voters(
            Kind::TokenExpired,
            "Your sign-in has expired. Sign in again.",
            hint,
        )
        .on_field("Authorization")
    }

    /// The credential is a voter's own, and the vote is another voter's.
    pub fn not_your_vote() -> Self {
        let hint = "voter_id: the cookie or token belongs to another voter; leave voter_id out, or give the voter that GET \
                    /v1/voter shows.";
        Self::for_voters(Kind::NotYourVote, "This vote is someone else's.", hint).on_field("voter_id")
    }

    /// The API key is valid, but does not allow this.
    pub fn not_allowed(scope: Scope) -> Self {
        let detail = format!("The API key does not allow this; it needs the scope {scope}.");
        Self::new(Kind::NotAllowed, detail)
    }

    /// A voter's own credential does not allow this.
    pub fn voter_not_allowed(scope: Scope) -> Self {
        let hint = format!(
            "The request has a voter's cookie or token; this takes an API key with the scope {scope}: Authorization: \
             Bearer tally_…."
        );
        Self::for_voters(Kind::NotAllowed, "You are not allowed to do this.", hint)
    }

    /// The same for a scope that the caller wants to give to a new API key. `opened_by` is what TALLY_OPEN would
    /// need.
    pub fn of_scope_to_give(self, scope: Scope, opened_by: &str) -> Self {
        let detail = format!(
            "scopes has {scope}; a caller gives only scopes that its own API key has, or that are open to anyone, and \
             {opened_by} is missing in this server's TALLY_OPEN."
        );
        Self { detail, ..self }.on_field("scopes")
    }

    /// There were as many attempts as this throttle allows. Nothing was done for this one.
    pub fn throttled(throttle: Throttle, left: Duration) -> Self {
        let retry_after_seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let Throttle { by, limit, interval } = throttle;
        let of = match by {
            ThrottledBy::Voter => "of one voter",
            ThrottledBy::Address => "of one client address",
            ThrottledBy::Item => "on one item",
        };
        let detail = format!("There are too many votes at once. Try again in {retry_after_seconds} s.");
        let hint = format!(
            "This server takes {limit} votes {of} in {} s (TALLY_THROTTLE).",
            interval.as_secs()
        );
        Self {
            throttled: Some(Throttled {
                throttle,
                retry_after_seconds: retry_after_seconds.max(1),
            }),
            ..Self::for_voters(Kind::Throttled, detail, hint)
        }
    }

    /// A page of another origin tries to write.
    pub fn foreign_origin() -> Self {
        let hint = "Pages of this origin may not write here; TALLY_ORIGINS lists the origins that may.";
        Self::for_voters(Kind::ForeignOrigin, "You cannot vote from this page.", hint).on_field("Origin")
    }

    pub fn body_too_large(limit_bytes: usize) -> Self {
        let detail = format!("The body may have at most {limit_bytes} bytes.");
        Self::new(Kind::BodyTooLarge, detail)
    }

    pub fn body_too_slow(limit: Duration) -> Self {
        let detail = format!("The body must arrive within {} s.", limit.as_secs());
        Self::new(Kind::BodyTooSlow, detail)
    }

    pub fn wrong_content_type() -> Self {
        let detail = "The body must be plain JSON, with the header Content-Type: application/json.";
        Self::new(Kind::UnsupportedContentType, detail)
    }

    /// The connection is beyond the limit. Nothing of it is read, so if its request is a vote, the vote is
    /// not stored.
    pub fn no_free_connection() -> Self {
        let hint = "Too many connections are open. Nothing of the request was read or stored.";
        Self::for_voters(Kind::TooManyConnections, BUSY, hint).of_vote(Stored::No)
    }

    /// There is no route for this path.
    pub fn not_found(path: &str) -> Self {
        // A key or a voter with a slash, which a proxy has decoded.
        let is_decoded = path.starts_with("/v1/") && (path.contains("/key:") || path.contains("/votes/"));
        let hint = match is_decoded {
            true => {
                " If a proxy decodes %2F, give the key as ?key= behind key:, and the voter as ?voter_id= behind votes."
            }
            false => "",
        };
        let detail = format!("There is nothing at {path}; /docs lists the paths.{hint}");
        Self::new(Kind::NotFound, detail)
    }

    /// Tally has a defect.
    pub fn internal() -> Self {
        tracing::error!("an answer does not belong to its request");
        let hint = "The server has a defect; its log says more, under the answer's x-request-id.";
        Self::for_voters(Kind::Internal, "Something went wrong in the server.", hint)
    }

    /// Adds that no vote of the request is stored, because none was sent to be stored.
    pub(in crate::web) fn without_vote(self) -> Self {
        match self.kind {
            Kind::Unavailable => Self {
                kind: Kind::VoteNotStored,
                detail: NOT_STORED.to_owned(),
                stored: Some(Stored::No),
                ..self
            },
            _ => self,
        }
    }

    /// The client may retry after [`RETRY_AFTER_SECONDS`](crate::web::limits::RETRY_AFTER_SECONDS).
    pub(in crate::web) fn unavailable(hint: &str) -> Self {
        Self::for_voters(Kind::Unavailable, BUSY, hint)
    }
}
