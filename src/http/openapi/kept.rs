//! Answers that are the same as long as the program runs: a browser keeps them, and asks whether they
//! are still the same.

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

/// What a page may load: its own style sheet.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
/// Bytes of the hash in an ETag.
const ETAG_BYTES: usize = 12;

/// An answer that does not change.
pub(super) struct Kept {
    content_type: &'static str,
    text: &'static str,
    /// Quoted, as in the header.
    etag: String,
}

impl Kept {
    /// An answer of this text, for as long as the program runs.
    pub(super) fn new(content_type: &'static str, text: String) -> Self {
        let hash = Sha256::digest(&text);
        let digits: String = hash
            .iter()
            .take(ETAG_BYTES)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            content_type,
            text: text.leak(),
            etag: format!("\"{digits}\""),
        }
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    /// The answer: 304 if the client has it.
    pub(super) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let known = request.headers().get_all(header::IF_NONE_MATCH);
        let is_known = known
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            // A proxy that compresses marks the ETag as weak.
            .any(|tag| tag.trim().trim_start_matches("W/") == self.etag);
        let mut response = match is_known {
            true => HttpResponse::NotModified(),
            false => HttpResponse::Ok(),
        };
        response
            .insert_header((header::ETAG, self.etag.as_str()))
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
