//! Errors as `application/problem+json` (RFC 9457).

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;

use super::limits::RETRY_AFTER_SECONDS;
use crate::counts::ReadError;
use crate::ledger::LedgerError;
use crate::votes::CastError;

/// Whether a vote that was not acknowledged is stored. Decides whether it is safe to try
/// again without a `voter_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stored {
    /// It is not, and will not be: trying again counts it once.
    No,
    /// It may be: trying again without a `voter_id` may count it twice.
    Unknown,
}

/// A problem, as a client sees it: what was wrong, and what would be right. The
/// cause is logged where it is turned into a problem, and not reported to the client.
#[derive(Debug, thiserror::Error)]
#[error("{title}: {detail}")]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    /// The part of the request that was wrong.
    field: Option<String>,
    /// Of a vote that was not acknowledged.
    stored: Option<Stored>,
    allow: Option<&'static str>,
}

/// The `type` of a problem that has no type of its own: its title says all.
const NO_TYPE: &str = "about:blank";
/// The `type` of a vote that is not stored. A name, not an address to fetch.
const VOTE_NOT_STORED: &str = "urn:tally:problem:vote-not-stored";
/// The `type` of a vote of which it is not known whether it is stored.
const VOTE_UNCONFIRMED: &str = "urn:tally:problem:vote-unconfirmed";

#[derive(Serialize)]
struct Body<'a> {
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

    /// 400: the request is not of the form that is asked for.
    pub fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::BAD_REQUEST, "Malformed request", detail);
        Self {
            field: Some(field.into()),
            ..problem
        }
    }

    /// 422: the form is right, a value is not.
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

    pub fn body_too_large(limit_bytes: usize) -> Self {
        let detail = format!("The body may have {limit_bytes} bytes at the most.");
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

    /// 503, to be tried again after [`RETRY_AFTER_SECONDS`].
    fn unavailable(detail: &str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Unavailable", detail)
    }
}

/// Logs the cause, here and nowhere else.
impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
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
        let body = Body {
            r#type: self.kind,
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field.as_deref(),
            stored: self.stored,
        };
        response
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .body(serde_json::to_string(&body).unwrap_or_default())
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

/// 405 for a method that the resource does not know.
pub fn method_not_allowed(allow: &'static str) -> Result<HttpResponse, Problem> {
    let detail = format!("This resource takes {allow}.");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", detail);
    Err(Problem {
        allow: Some(allow),
        ..problem
    })
}
