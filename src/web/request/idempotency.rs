//! Reads the Idempotency-Key header (IETF draft-ietf-httpapi-idempotency-key-header).

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use futures_util::future;

use crate::web::problem::Problem;

const NAME: &str = "Idempotency-Key";
/// The longest key.
pub const IDEMPOTENCY_KEY_LIMIT_BYTES: usize = 255;

/// The key in the header, if there is one, without quotation marks. The draft requires the marks, but many
/// clients leave them out.
pub struct KeyHeader(pub Option<String>);

impl FromRequest for KeyHeader {
    type Error = Problem;
    type Future = future::Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let mut values = request.headers().get_all(NAME);
        future::ready(match (values.next(), values.next()) {
            (None, _) => Ok(Self(None)),
            (Some(value), None) => read(value.as_bytes()).map(|key| Self(Some(key))),
            (Some(_), Some(_)) => Err(malformed("it is given more than once")),
        })
    }
}

fn malformed(what: &str) -> Problem {
    let detail =
        format!("{NAME}: {what}; it takes 1 to {IDEMPOTENCY_KEY_LIMIT_BYTES} visible ASCII characters.");
    Problem::malformed(NAME, detail)
}

/// Reads a key. Fails when it is empty, too long, or has other characters.
pub(in crate::web) fn read(value: &[u8]) -> Result<String, Problem> {
    let inner = value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""));
    let key = inner.unwrap_or(value);
    if key.is_empty() {
        return Err(malformed("it is empty"));
    }
    if key.len() > IDEMPOTENCY_KEY_LIMIT_BYTES {
        return Err(malformed("it is too long"));
    }
    match std::str::from_utf8(key) {
        Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(text.to_owned()),
        _ => Err(malformed("it has another character")),
    }
}
