//! Answers that are the same as long as the program runs: a browser keeps them, and asks whether they
//! are still the same, or need not ask. They are compressed once.

use actix_web::http::header::{self, EntityTag};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};

use crate::http::conditional;
use crate::http::gzip;

/// For as long as anything is kept: a year, the longest that RFC 9111 (then RFC 2616) thinks of.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// For how long a browser uses what it has without asking.
#[derive(Clone, Copy)]
pub(super) enum Fresh {
    /// It asks each time.
    IfAsked,
    /// The address names the content.
    ForEver,
}

/// An answer that does not change.
pub(super) struct Kept {
    content_type: &'static str,
    /// What a page of it may load.
    policy: &'static str,
    body: Bytes,
    /// Not there where it would be no smaller.
    compressed: Option<Bytes>,
    tag: EntityTag,
}

impl Kept {
    /// An answer of this body, for as long as the program runs.
    pub(super) fn new(content_type: &'static str, policy: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        Self {
            content_type,
            policy,
            compressed: gzip::compress(&body, gzip::Effort::Most),
            tag: conditional::tag_of(&body),
            body,
        }
    }

    /// The answer: 304 if the client has it.
    pub(super) fn answer(&self, request: &HttpRequest, fresh: Fresh) -> HttpResponse {
        let is_known = conditional::has(request, &self.tag);
        let mut response = match is_known {
            true => HttpResponse::NotModified(),
            false => HttpResponse::Ok(),
        };
        let cache = match fresh {
            Fresh::IfAsked => "no-cache",
            Fresh::ForEver => FOR_EVER,
        };
        response
            .insert_header(header::ETag(self.tag.clone()))
            .insert_header((header::CACHE_CONTROL, cache))
            .insert_header((header::VARY, "accept-encoding"))
            .insert_header((header::CONTENT_SECURITY_POLICY, self.policy));
        if is_known {
            return response.finish();
        }
        response.insert_header((header::CONTENT_TYPE, self.content_type));
        match &self.compressed {
            Some(compressed) if gzip::is_accepted(request) => response
                .insert_header((header::CONTENT_ENCODING, "gzip"))
                .body(compressed.clone()),
            _ => response.body(self.body.clone()),
        }
    }
}
