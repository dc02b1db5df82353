//! A problem as the answer to a request.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, ResponseError};
use serde::Serialize;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::{Kind, Problem, Stored, Throttled};
use crate::domain::Cell;
use crate::web::limits::RETRY_AFTER_SECONDS;

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// For a router that sends the request on to this cell.
pub(in crate::web) const TALLY_CELL: &str = "tally-cell";

/// What is wrong with a request, and what would be right (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct Body<'a> {
    /// The problem type: an address on the answering server that explains it.
    #[schema(value_type = ProblemType)]
    r#type: &'static str,
    /// The title, which is the same in each answer of a type.
    title: &'static str,
    /// The HTTP status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong this time, and what would be right. The wording may change.
    detail: &'a str,
    /// More for whoever writes the program: the names of fields, requests and settings. A problem with a hint has a
    /// `detail` that may be shown to a voter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hint: Option<&'a str>,
    /// The part of the request that is wrong: a field, a parameter, a header, `body` or `query`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    field: Option<&'a str>,
    /// Only for a vote that got 503: whether it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Stored)]
    stored: Option<Stored>,
    /// The number of seconds after which a retry makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1)]
    retry_after_seconds: Option<u64>,
    /// Only for 421: the cell that has what the request names. The header Tally-Cell has it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, maximum = 8191)]
    cell: Option<u16>,
}

/// The `type` of a problem, for the schema.
pub(in crate::web) struct ProblemType;

impl PartialSchema for ProblemType {
    fn schema() -> RefOr<Schema> {
        // No enumeration: a generated client would then fail at a type that a later Tally adds.
        ObjectBuilder::new()
            .schema_type(Type::String)
            .examples(Kind::ALL.iter().map(|kind| kind.address()))
            .description(Some(
                "The address of what explains a problem type. More types may follow.",
            ))
            .into()
    }
}

impl ToSchema for ProblemType {}

impl Problem {
    /// Returns the body of the answer as JSON.
    pub fn body(&self) -> String {
        serde_json::to_string(&self.to_body()).unwrap_or_default()
    }

    /// The body of the answer.
    pub fn to_body(&self) -> Body<'_> {
        Body {
            r#type: self.kind.address(),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            hint: self.hint.as_deref(),
            field: self.field.as_deref(),
            stored: self.stored,
            retry_after_seconds: self.throttled.map(|of| of.retry_after_seconds),
            cell: self.cell.map(Cell::get),
        }
    }

    /// Returns the answer with this body: [`Problem::body`], or a body with more members.
    pub(in crate::web) fn answer_with(&self, body: String) -> HttpResponse {
        let status = self.kind.status();
        let mut response = HttpResponse::build(status);
        let waits = [Kind::TooManyStreamsOfAddress, Kind::TooManyListsOfAddress];
        if status == StatusCode::SERVICE_UNAVAILABLE || waits.contains(&self.kind) {
            response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.insert_header((header::WWW_AUTHENTICATE, "Bearer realm=\"tally\""));
        }
        if let Some(Throttled {
            throttle,
            retry_after_seconds,
        }) = self.throttled
        {
            let (limit, window) = (throttle.limit, throttle.interval.as_secs());
            response
                .insert_header((header::RETRY_AFTER, retry_after_seconds))
                .insert_header((
                    RATELIMIT_POLICY.clone(),
                    format!("\"{throttle}\";q={limit};w={window}"),
                ))
                .insert_header((
                    RATELIMIT.clone(),
                    format!("\"{throttle}\";r=0;t={retry_after_seconds}"),
                ));
        }
        if let Some(cell) = self.cell {
            response.insert_header((TALLY_CELL, u64::from(cell.get())));
        }
        if let Some(allow) = self.allow {
            response.insert_header((header::ALLOW, HeaderValue::from_static(allow)));
        }
        response
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .body(body)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.kind.status()
    }

    fn error_response(&self) -> HttpResponse {
        self.answer_with(self.body())
    }
}

/// Answers for a path that is not in the table of routes.
pub async fn not_found(request: actix_web::HttpRequest) -> Result<HttpResponse, Problem> {
    Err(Problem::not_found(request.path()))
}

/// Answers for a method that the resource does not take.
pub fn method_not_allowed(allow: &'static str) -> Result<HttpResponse, Problem> {
    let detail = format!("This resource takes {allow}.");
    Err(Problem {
        allow: Some(allow),
        ..Problem::new(Kind::MethodNotAllowed, detail)
    })
}
