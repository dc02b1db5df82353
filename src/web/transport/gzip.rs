//! Compresses pages and what they load. Answers to programs are small, and are not compressed.

use std::io::Write as _;

use actix_web::HttpRequest;
use actix_web::http::header::{AcceptEncoding, Encoding, Header as _};
use actix_web::web::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

/// How much effort to spend.
#[derive(Clone, Copy)]
pub(in crate::web) enum Effort {
    /// For an answer that is made for one request.
    Least,
    /// For an answer that is made once.
    Most,
}

/// Compresses this body with gzip. `None` if the result is not smaller.
pub(in crate::web) fn compress(body: &[u8], effort: Effort) -> Option<Bytes> {
    let level = match effort {
        Effort::Least => Compression::fast(),
        Effort::Most => Compression::best(),
    };
    let mut encoder = GzEncoder::new(Vec::new(), level);
    // Writing to memory never fails.
    encoder.write_all(body).ok()?;
    let compressed = encoder.finish().ok()?;
    (compressed.len() < body.len()).then(|| compressed.into())
}

/// Returns whether the client accepts gzip and does not prefer an uncompressed answer.
pub(in crate::web) fn is_accepted(request: &HttpRequest) -> bool {
    let gzip = Encoding::gzip();
    AcceptEncoding::parse(request).is_ok_and(|accepted| {
        !accepted.is_empty() && accepted.negotiate([gzip.clone(), Encoding::identity()].iter()) == Some(gzip)
    })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::ACCEPT_ENCODING;
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn gzip_is_sent_to_who_asks_for_it_and_to_nobody_else() {
        let accepts = |text: &str| {
            let request = TestRequest::default().insert_header((ACCEPT_ENCODING, text));
            is_accepted(&request.to_http_request())
        };
        assert!(accepts("gzip, deflate, br, zstd") && accepts("br;q=1.0, gzip;q=0.8"));
        for text in ["", "identity", "br", "gzip;q=0", "identity, gzip;q=0.5", "gzip;"] {
            assert!(!accepts(text), "{text}");
        }
        assert!(!is_accepted(&TestRequest::default().to_http_request()));
    }

    #[test]
    fn what_would_not_shrink_is_left_as_it_is() {
        assert!(compress(b"x", Effort::Most).is_none());
        let text = "vote ".repeat(100);
        assert!(compress(text.as_bytes(), Effort::Least).is_some_and(|small| small.len() < 100));
    }
}
