//! Answers that are the same as long as the program runs: a browser keeps them, and asks whether they
//! are still the same.

use actix_web::http::header::{self, EntityTag};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::conditional;

/// What a page may load: its own style sheet, and an icon that is in it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// An answer that does not change.
pub(super) struct Kept {
    content_type: &'static str,
    text: &'static str,
    tag: EntityTag,
}

impl Kept {
    /// An answer of this text, for as long as the program runs.
    pub(super) fn new(content_type: &'static str, text: String) -> Self {
        let tag = conditional::tag_of(text.as_bytes());
        Self {
            content_type,
            text: text.leak(),
            tag,
        }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    /// The answer: 304 if the client has it.
    pub(super) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let is_known = conditional::has(request, &self.tag);
        let mut response = match is_known {
            true => HttpResponse::NotModified(),
            false => HttpResponse::Ok(),
        };
        response
            .insert_header(header::ETag(self.tag.clone()))
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY));
        if is_known {
            return response.finish();
        }
        response
            .insert_header((header::CONTENT_TYPE, self.content_type))
            .body(Bytes::from_static(self.text.as_bytes()))
    }
}
