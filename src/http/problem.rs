//! Errors as `application/problem+json` (RFC 9457).

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;

use super::limits::RETRY_AFTER_SECONDS;
use crate::counts::ReadError;
use crate::domain::Refusal;
use crate::ledger::LedgerError;
use crate::votes::CastError;

/// Whether a vote that got no acknowledgement is stored. It tells an anonymous voter whether
/// it is safe to try again. A 4xx answer does not say it: such a vote is never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    /// It is not stored and will not be: after another try it counts once.
    No,
    /// It may be stored: after another try without a `voter_id` it may count twice.
    Unknown,
}

/// A problem as a client sees it: what is wrong, and what would be right. The cause of a
/// 5xx is logged and never shown to a client.
#[derive(Debug, thiserror::Error)]
#[error("{title}: {detail}")]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    /// The part of the request that is wrong.
    field: Option<String>,
    /// Of a vote that got no acknowledgement.
    stored: Option<Stored>,
    allow: Option<&'static str>,
}

/// The `type` of a problem whose status and title say all there is (RFC 9457, 4.2.1).
const NO_TYPE: &str = "about:blank";
/// The `type` of a vote that is not stored. It is a name; there is nothing to fetch.
const VOTE_NOT_STORED: &str = "urn:tally:problem:vote-not-stored";
/// The `type` of a vote that its item's rule does not take: what stands behind the colon.
const FULL: &str = "urn:tally:problem:full";
const NOT_OPEN_YET: &str = "urn:tally:problem:not-open-yet";
const CLOSED: &str = "urn:tally:problem:closed";
const TOO_MANY_CHOICES: &str = "urn:tally:problem:too-many-choices";
const TOO_MANY_CHANGES: &str = "urn:tally:problem:too-many-changes";
/// The `type` of an item with a rule that cannot be made beside servers of an older version.
const OLDER_SERVERS: &str = "urn:tally:problem:older-servers";
/// The `type` of a vote that may be stored or not.
const VOTE_UNCONFIRMED: &str = "urn:tally:problem:vote-unconfirmed";

/// The body of a problem's answer.
#[derive(Serialize)]
pub struct Body<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<Stored>,
}

impl Problem {
    fn new(status: StatusCode, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            status,
            kind: NO_TYPE,
            title,
            detail: detail.into(),
            field: None,
            stored: None,
            allow: None,
        }
    }

    /// 400: the request does not have the form that the resource takes.
    pub fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::BAD_REQUEST, "Malformed request", detail);
        Self {
            field: Some(field.into()),
            ..problem
        }
    }

    /// 422: the form is right, but a value is not.
    pub fn invalid(field: &'static str, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid value", detail);
        Self {
            field: Some(field.to_owned()),
            ..problem
        }
    }

    pub fn unknown_item(id: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "Unknown item",
            format!("There is no item {id}."),
        )
    }

    pub fn unknown_poll(id: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "Unknown poll",
            format!("There is no poll {id}."),
        )
    }

    pub fn unknown_vote(id: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "Unknown vote",
            format!("There is no receipt of a vote {id}."),
        )
    }

    pub fn no_vote(item: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "No vote",
            format!("This voter holds no vote on item {item}."),
        )
    }

    /// A vote that its item does not take. Nothing is stored.
    pub fn refused(refusal: Refusal) -> Self {
        let (kind, title, detail) = match refusal {
            Refusal::Full => (FULL, "Full", "The item has as many votes as it takes."),
            Refusal::NotOpenYet => (NOT_OPEN_YET, "Not open yet", "Votes are taken from opens_at on."),
            Refusal::Closed => (CLOSED, "Closed", "Votes were taken until closes_at."),
            Refusal::TooManyChoices => (
                TOO_MANY_CHOICES,
                "Too many choices",
                "The voter would hold more choices than the poll's max_choices; take one back first.",
            ),
            Refusal::TooManyChanges => (
                TOO_MANY_CHANGES,
                "Too many changes",
                "The voter has changed this vote as often as a vote may be changed.",
            ),
            Refusal::NoDownVotes => return Self::invalid("value", "value is -1; this item takes 1."),
            Refusal::NoVoter => {
                return Self::invalid(
                    "voter_id",
                    "voter_id is missing; a poll takes votes of voters only.",
                );
            }
            Refusal::NotInPoll => {
                return Self::invalid("items", "items has one that is no choice of this poll.");
            }
        };
        Self {
            kind,
            ..Self::new(StatusCode::CONFLICT, title, detail)
        }
    }

    pub fn body_too_large(limit_bytes: usize) -> Self {
        let detail = format!("The body may have at most {limit_bytes} bytes.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "Body too large", detail)
    }

    pub fn body_too_slow(limit: std::time::Duration) -> Self {
        let detail = format!("The body must arrive within {} s.", limit.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "Request timeout", detail)
    }

    pub fn wrong_content_type() -> Self {
        let detail = "The body must be plain JSON, with the header Content-Type: application/json.";
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Unsupported content type",
            detail,
        )
    }

    /// 503 to a connection beyond the limit. Nothing is read of it, so if its request is a
    /// vote, the vote is not stored.
    pub fn no_free_connection() -> Self {
        let detail = "Too many connections are open. Nothing of the request was read or stored; try again.";
        Self {
            stored: Some(Stored::No),
            ..Self::unavailable(detail)
        }
    }

    /// The body of the answer, in JSON.
    pub fn body(&self) -> String {
        serde_json::to_string(&self.to_body()).unwrap_or_default()
    }

    /// The body of the answer.
    pub fn to_body(&self) -> Body<'_> {
        Body {
            r#type: self.kind,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
            stored: self.stored,
        }
    }

    /// 500: a defect of Tally's own.
    pub fn internal() -> Self {
        tracing::error!("an answer does not belong to its request");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Internal error",
            "The server has a defect.",
        )
    }

    /// 503: the client may try again after [`RETRY_AFTER_SECONDS`].
    fn unavailable(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", detail)
    }
}

/// Logs the cause: nobody has before.
impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        if matches!(error, LedgerError::OlderServers) {
            let detail = "Servers of a version without rules are connected: stop them, and try again.";
            return Self {
                kind: OLDER_SERVERS,
                title: "Older servers",
                ..Self::unavailable(detail)
            };
        }
        tracing::error!(%error, "the ledger did not answer a request");
        Self::unavailable("The database does not answer at the moment; try again.")
    }
}

/// The batch writer has logged the cause, once for the batch.
impl From<CastError> for Problem {
    fn from(error: CastError) -> Self {
        let (stored, detail) = match error {
            CastError::QueueFull => (
                Stored::No,
                "Too many votes are waiting. The vote is not stored; try again.",
            ),
            CastError::Closing => (
                Stored::No,
                "The server is shutting down. The vote is not stored; try again.",
            ),
            CastError::NotStored => (
                Stored::No,
                "The database did not take the vote. The vote is not stored; try again.",
            ),
            CastError::Busy => (
                Stored::No,
                "Other requests of this voter came first all the time. The vote is not stored; try again.",
            ),
            CastError::UnresolvedRepeat => (
                Stored::No,
                "This voter has voted on this item before, so this vote is not stored. The database \
                 did not say which vote it repeats; try again.",
            ),
            CastError::Unconfirmed => (
                Stored::Unknown,
                "The database did not confirm the vote, which may be stored or not. With a voter_id it \
                 is safe to try again: the vote counts once. Without one, the vote may count twice.",
            ),
        };
        let (kind, title) = match stored {
            Stored::No => (VOTE_NOT_STORED, "Vote not stored"),
            Stored::Unknown => (VOTE_UNCONFIRMED, "Vote unconfirmed"),
        };
        Self {
            kind,
            stored: Some(stored),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, title, detail)
        }
    }
}

/// The reader's task has logged the cause, once for the batch.
impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Self::unavailable(match error {
            ReadError::QueueFull => "Too many reads are waiting; try again.",
            ReadError::LedgerUnavailable => "The database does not answer at the moment; try again.",
            ReadError::Closing => "The server is shutting down; try again.",
        })
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let mut response = HttpResponse::build(self.status);
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        if let Some(allow) = self.allow {
            response.insert_header((header::ALLOW, HeaderValue::from_static(allow)));
        }
        response
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .body(self.body())
    }
}

/// 404 for a path that is not in the route table.
pub async fn not_found(request: actix_web::HttpRequest) -> Result<HttpResponse, Problem> {
    Err(Problem::new(
        StatusCode::NOT_FOUND,
        "Not found",
        format!("There is nothing at {}.", request.path()),
    ))
}

/// 405 for a method that the resource does not take.
pub fn method_not_allowed(allow: &'static str) -> Result<HttpResponse, Problem> {
    let detail = format!("This resource takes {allow}.");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail);
    Err(Problem {
        allow: Some(allow),
        ..problem
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_of_a_vote_says_whether_the_vote_is_stored() {
        for (error, kind, title, stored) in [
            (CastError::QueueFull, VOTE_NOT_STORED, "Vote not stored", "no"),
            (CastError::Closing, VOTE_NOT_STORED, "Vote not stored", "no"),
            (CastError::NotStored, VOTE_NOT_STORED, "Vote not stored", "no"),
            (CastError::Busy, VOTE_NOT_STORED, "Vote not stored", "no"),
            (
                CastError::UnresolvedRepeat,
                VOTE_NOT_STORED,
                "Vote not stored",
                "no",
            ),
            (
                CastError::Unconfirmed,
                VOTE_UNCONFIRMED,
                "Vote unconfirmed",
                "unknown",
            ),
        ] {
            let problem = Problem::from(error);
            let response = problem.error_response();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{error}");
            assert_eq!(
                response.headers().get(header::RETRY_AFTER),
                Some(&HeaderValue::from_static("1")),
                "{error}"
            );
            let body: serde_json::Value = serde_json::from_str(&problem.body()).expect("JSON");
            assert_eq!(
                (&body["type"], &body["title"], &body["stored"]),
                (&kind.into(), &title.into(), &stored.into()),
                "{error}"
            );
        }
    }
}
