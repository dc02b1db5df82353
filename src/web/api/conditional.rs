//! Conditional reads: entity tags, and answers of 304.
//!
//! A client sends the tag of the answer that it has (`If-None-Match`). Recent answers are remembered with the
//! counts that they contain. While these counts have not changed in Redis, the client gets 304, and Postgres
//! is not asked.

use actix_web::http::StatusCode;
use actix_web::http::header::{self, EntityTag, Quality};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;
use utoipa::{IntoParams, IntoResponses};

use crate::counts::ItemCount;
use crate::web::api::known_answers;
pub use crate::web::api::known_answers::Format;
use crate::web::api::known_answers::{KnownAnswer, KnownCount};
use crate::web::api::state::AppState;
use crate::web::problem::Problem;
use crate::web::transport::tags::{asked, matches, tag_of};

/// The content type of CSV with a header line.
pub const CSV: &str = "text/csv; charset=utf-8";

/// The header of a conditional read.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes the header")]
pub struct TagHeader {
    /// The `ETag` of an earlier answer, or several of them.
    #[param(rename = "If-None-Match", example = "W/\"4f0e3bd1c2a59687\"")]
    if_none_match: Option<String>,
}

/// The client's answer is still right.
#[derive(IntoResponses)]
#[response(
    status = 304,
    description = "Not modified: the counts are those that the client has.",
    headers(("ETag" = String), ("Cache-Control" = String))
)]
pub struct NotModified;

/// The formats that a route can answer in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    Json,
    JsonOrCsv,
}

impl Format {
    /// Returns the format that Accept prefers: JSON, unless it weighs JSON below CSV.
    pub fn wanted(request: &HttpRequest) -> Self {
        let Ok(accept) = <header::Accept as header::Header>::parse(request) else {
            return Self::Json;
        };
        let quality = |name: &str, subtype: &str| {
            // The more specific range counts, wherever it stands (RFC 9110, 12.5.1).
            let matching = accept.iter().filter_map(|one| {
                let (of_type, of_subtype) = (one.item.type_().as_str(), one.item.subtype().as_str());
                let specific = match (of_type, of_subtype) {
                    ("*", "*") => 0,
                    (other, "*") if other == name => 1,
                    (other, sub) if other == name && sub == subtype => 2,
                    _ => return None,
                };
                Some((specific, one.quality))
            });
            let best = matching.max_by_key(|(specific, _)| *specific);
            best.map_or(Quality::ZERO, |(_, quality)| quality)
        };
        if quality("text", "csv") > quality("application", "json") {
            Self::Csv
        } else {
            Self::Json
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => CSV,
        }
    }
}

/// What was read for an answer.
pub struct Found {
    body: Vec<u8>,
    /// `None` if the answer must not be remembered, because its counts are not current.
    counts: Option<Vec<KnownCount>>,
    /// What the tag is of. `None`: the body.
    compared: Option<Vec<u8>>,
    /// The header Link.
    link: Option<String>,
}

impl Found {
    /// Makes an answer that contains these counts.
    pub fn with_counts<'a>(body: Vec<u8>, counts: impl IntoIterator<Item = &'a ItemCount>) -> Self {
        let counts = counts.into_iter().map(|one| {
            let rules = one.item.rules.as_deref();
            // Whether an answer is remembered must not depend on a hidden count.
            let is_known = one.is_current && !rules.is_some_and(|rules| rules.hides_count);
            is_known.then_some((one.item.id, one.live_count))
        });
        Self {
            body,
            counts: counts.collect(),
            compared: None,
            link: None,
        }
    }

    /// Sets what the tag is of: the body without what changes while the client's answer is still right.
    #[must_use]
    pub fn compared_by(self, compared: Vec<u8>) -> Self {
        Self {
            compared: Some(compared),
            ..self
        }
    }

    /// Adds the address of the next page, if there is one.
    #[must_use]
    pub fn with_next(self, next: Option<String>) -> Self {
        Self {
            link: next.map(|next| format!("<{next}>; rel=\"next\"")),
            ..self
        }
    }
}

/// Writes a body as JSON. The bodies of this server never fail here.
pub fn json(body: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer could not be written");
        Problem::internal()
    })
}

/// Answers a read: with 304 if the client has what `make` would find.
///
/// Fails as `make` does.
pub async fn answer(
    request: &HttpRequest,
    state: &AppState,
    offered: Offered,
    make: impl AsyncFnOnce(Format) -> Result<Found, Problem>,
) -> Result<HttpResponse, Problem> {
    let format = match offered {
        Offered::Json => Format::Json,
        Offered::JsonOrCsv => Format::wanted(request),
    };
    let tags = asked(request);
    let key = || {
        let path = request.uri().path_and_query();
        (path.map(ToString::to_string).unwrap_or_default(), format)
    };
    if let Some(tags) = &tags
        && let Some((tag, counts)) = known_answers::find(&state.known_answers, &key(), tags)
        && state.counts.are_still(&counts).await
    {
        return Ok(not_modified(tag));
    }
    let asked = state.known_answers.asking();
    let found = make(format).await?;
    let tag = tag_of(found.compared.as_ref().unwrap_or(&found.body));
    if let Some(tags) = tags {
        if let Some(counts) = found.counts {
            let answer = KnownAnswer {
                tag: tag.clone(),
                counts,
            };
            state.known_answers.add(key(), answer, asked);
        }
        if matches(&tags, &tag) {
            return Ok(not_modified(tag));
        }
    }
    let mut response = HttpResponse::Ok();
    response
        .insert_header(header::ETag(tag))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "accept"))
        .insert_header((header::CONTENT_TYPE, format.content_type()));
    if let Some(link) = found.link {
        response.insert_header((header::LINK, link));
    }
    Ok(response.body(found.body))
}

fn not_modified(tag: EntityTag) -> HttpResponse {
    HttpResponse::build(StatusCode::NOT_MODIFIED)
        .insert_header(header::ETag(tag))
        .insert_header((header::CACHE_CONTROL, "no-cache"))
        .insert_header((header::VARY, "accept"))
        .finish()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn wanted(accept: &str) -> Format {
        let request = TestRequest::default().insert_header((header::ACCEPT, accept));
        Format::wanted(&request.to_http_request())
    }

    #[test]
    fn csv_is_sent_to_who_prefers_it_and_json_to_all_others() {
        for accept in [
            "text/csv",
            "text/csv, application/json;q=0.5",
            "text/csv, */*;q=0.1",
            "application/json;q=0, */*",
        ] {
            assert_eq!(wanted(accept), Format::Csv, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "application/json",
            "text/csv, application/json",
            "text/csv;q=0.5, */*",
            "text/html, */*;q=0.8",
            "nonsense",
            "image/png",
        ] {
            assert_eq!(wanted(accept), Format::Json, "{accept}");
        }
        let none = TestRequest::default().to_http_request();
        assert_eq!(Format::wanted(&none), Format::Json);
    }
}
