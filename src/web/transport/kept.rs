//! Answers that never change while the program runs. Browsers keep them, with or without asking whether they
//! are current. They are compressed once.

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, EntityTag, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};

use crate::web::transport::{gzip, tags};

/// Keep for ever: a year, the longest that RFC 2616 (now RFC 9111) suggested.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// How long a browser uses its copy without asking.
#[derive(Clone, Copy)]
pub(in crate::web) enum Fresh {
    /// The browser asks each time.
    IfAsked,
    /// For ever, because the address names the content.
    ForEver,
}

/// The headers of an answer that a browser may have already.
pub(in crate::web) struct Head<'a> {
    pub content_type: &'static str,
    /// The Content-Security-Policy: what a page of the answer may load, and who may frame it.
    pub policy: &'a str,
    pub tag: EntityTag,
}

impl Head<'_> {
    /// Finishes an answer: without a body if the client has it, or in gzip if the client accepts that.
    /// `compressed` returns the body in gzip, or nothing if that is not smaller.
    pub(in crate::web) fn finish(
        &self,
        request: &HttpRequest,
        mut response: HttpResponseBuilder,
        fresh: Fresh,
        body: Bytes,
        compressed: impl FnOnce() -> Option<Bytes>,
    ) -> HttpResponse {
        let cache = match fresh {
            Fresh::IfAsked => "no-cache",
            Fresh::ForEver => FOR_EVER,
        };
        response
            .insert_header(header::ETag(self.tag.clone()))
            .insert_header((header::CACHE_CONTROL, cache))
            .insert_header((header::VARY, "accept-encoding"))
            .insert_header((header::CONTENT_SECURITY_POLICY, self.policy));
        let mut response = response.finish();
        if response.status() == StatusCode::NOT_MODIFIED {
            return response;
        }
        let content_type = HeaderValue::from_static(self.content_type);
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        match gzip::is_accepted(request).then(compressed).flatten() {
            Some(compressed) => {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
                response.set_body(BoxBody::new(compressed))
            }
            None => response.set_body(BoxBody::new(body)),
        }
    }
}

/// An answer that never changes.
pub(in crate::web) struct Kept {
    head: Head<'static>,
    body: Bytes,
    /// `None` if it would not be smaller.
    compressed: Option<Bytes>,
}

impl Kept {
    /// Makes an answer of this body, for as long as the program runs.
    pub(in crate::web) fn new(
        content_type: &'static str,
        policy: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        let body = body.into();
        let tag = tags::tag_of(&body);
        Self {
            head: Head {
                content_type,
                policy,
                tag,
            },
            compressed: gzip::compress(&body, gzip::Effort::Most),
            body,
        }
    }

    /// Returns the answer: 304 if the client has it.
    pub(in crate::web) fn answer(&self, request: &HttpRequest, fresh: Fresh) -> HttpResponse {
        let response = match tags::has(request, &self.head.tag) {
            true => HttpResponse::NotModified(),
            false => HttpResponse::Ok(),
        };
        let compressed = || self.compressed.clone();
        self.head
            .finish(request, response, fresh, self.body.clone(), compressed)
    }
}
