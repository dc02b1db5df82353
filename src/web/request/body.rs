//! Reads JSON bodies.

use std::future::Future;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::web::limits::BODY_LIMIT;
use crate::web::problem::Problem;
use crate::web::request::form::{Field, Form, unexpected_query, wrong_body};

/// A JSON body. An empty one reads as `{}`.
pub struct Json<T>(pub T);

impl<T: Form + 'static> FromRequest for Json<T> {
    type Error = Problem;
    type Future = Pin<Box<dyn Future<Output = Result<Self, Problem>>>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let has_query = !request.query_string().is_empty();
        let is_json = is_json(request);
        let is_encoded = request.headers().contains_key(header::CONTENT_ENCODING);
        let declared: Option<usize> = request
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok())
            .and_then(|length| length.parse().ok());
        let payload = payload.take();
        Box::pin(async move {
            if has_query {
                return Err(unexpected_query(T::FIELDS));
            }
            if declared.is_some_and(|bytes| bytes > T::LIMIT_BYTES) {
                return Err(T::too_large());
            }
            if is_encoded {
                return Err(Problem::wrong_content_type());
            }
            let bytes = timeout(BODY_LIMIT, read::<T>(payload, declared.unwrap_or(0)))
                .await
                .map_err(|_| Problem::body_too_slow(BODY_LIMIT))??;
            if !bytes.is_empty() && !is_json {
                return Err(Problem::wrong_content_type());
            }
            parse(&bytes).map(Self)
        })
    }
}

/// Says what is wrong with a body, or a part of one, that is not a form with these fields.
pub(in crate::web) fn wrong(bytes: &[u8], fields: &[Field]) -> Problem {
    wrong_body(bytes, fields)
}

fn is_json(request: &HttpRequest) -> bool {
    request.content_type().eq_ignore_ascii_case("application/json")
}

async fn read<T: Form>(mut payload: Payload, expected: usize) -> Result<Bytes, Problem> {
    let mut body = Vec::with_capacity(expected);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| Problem::malformed("body", "The body did not arrive whole."))?;
        // A body nearly always comes in one piece, which needs no copy.
        if body.is_empty() && chunk.len() == expected {
            return Ok(chunk);
        }
        if body.len() + chunk.len() > T::LIMIT_BYTES {
            return Err(T::too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// The byte-order mark of UTF-8, which some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Reads a JSON object, after a byte-order mark if there is one (RFC 8259, 8.1, allows it). An empty body reads as
/// `{}`. The problem names the wrong field.
pub(in crate::web) fn parse<T: Form>(bytes: &[u8]) -> Result<T, Problem> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    // serde would read an array as an object, with its values in the order of the fields.
    let is_array = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let read = if is_array {
        None
    } else {
        serde_json::from_slice(bytes).ok()
    };
    read.ok_or_else(|| wrong_body(bytes, T::FIELDS))
}
