//! Which pages may frame the pages of single polls and items. Nobody frames any other page: a page around it
//! could make its visitors press what they do not see.

use std::str::FromStr;
use std::sync::Arc;

use crate::web::access::origins::Origin;

/// The longest list of origins. Each answer that may be framed has the list in a header, and nginx by default
/// refuses an answer whose headers have over 4 KiB.
pub const FRAME_ORIGINS_LIMIT_BYTES: usize = 2048;

/// The origins whose pages may frame. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct FrameOrigins(Option<Arc<str>>);

impl FrameOrigins {
    /// Returns whether no page may frame.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the sources of `frame-ancestors` in a Content-Security-Policy.
    pub fn ancestors(&self) -> &str {
        self.0.as_deref().unwrap_or("'none'")
    }
}

/// Reads origins, separated by commas. An empty text means none.
impl FromStr for FrameOrigins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self(None));
        }
        let origins = text.split(',').map(str::trim).map(|one| {
            let origin: Origin = one.parse()?;
            // A policy names hosts by these characters alone, so it cannot name an IPv6 address.
            let (_, authority) = origin.as_str().split_once("://").unwrap_or_default();
            let is_source = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
            match authority.bytes().all(is_source) {
                true => Ok(origin.as_str().to_owned()),
                false => Err(format!(
                    "{one}: browsers compare only hosts of letters, digits, - and ., so give a name or an IPv4 address"
                )),
            }
        });
        let origins = origins.collect::<Result<Vec<_>, _>>()?.join(" ");
        if origins.len() > FRAME_ORIGINS_LIMIT_BYTES {
            return Err(format!(
                "it has {} bytes; it takes at most {FRAME_ORIGINS_LIMIT_BYTES}",
                origins.len()
            ));
        }
        Ok(Self(Some(origins.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ancestors(text: &str) -> Result<String, String> {
        text.parse()
            .map(|origins: FrameOrigins| origins.ancestors().to_owned())
    }

    #[test]
    fn nobody_frames_unless_an_origin_is_named() {
        for none in ["", "  "] {
            assert_eq!(ancestors(none), Ok("'none'".to_owned()));
        }
        assert!(FrameOrigins::default().is_empty());
        assert_eq!(FrameOrigins::default().ancestors(), "'none'");
    }

    #[test]
    fn origins_are_sources_of_a_policy_as_browsers_write_them() {
        assert_eq!(
            ancestors("https://CMS.example.org , http://127.0.0.1:8000,https://xn--bcher-kva.example"),
            Ok("https://cms.example.org http://127.0.0.1:8000 https://xn--bcher-kva.example".to_owned())
        );
    }

    #[test]
    fn what_would_be_another_source_or_another_directive_is_refused() {
        for wrong in [
            "*",
            "https://*.example.org",
            "https:",
            "'self'",
            "https://example.org/page",
            "https://example.org;script-src",
            "https://a https://b",
            "https://example.org,",
            "http://[::1]:8000",
            "ftp://example.org",
        ] {
            assert!(ancestors(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_list_that_a_proxy_would_refuse_in_a_header_is_refused_at_the_start() {
        let of = |origins: usize| vec!["https://cms.example.org"; origins].join(",");
        let each = "https://cms.example.org ".len();
        assert!(ancestors(&of(FRAME_ORIGINS_LIMIT_BYTES / each)).is_ok());
        let refused = ancestors(&of(FRAME_ORIGINS_LIMIT_BYTES / each + 1));
        assert!(refused.is_err_and(|why| why.contains("2048")));
    }
}
