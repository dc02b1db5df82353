//! Voters' cookies: they name the voter of a browser, signed by the server.
//!
//! A cookie's value is `<issued at>.<voter id>.<signature>`: whole seconds since 1970, then two texts in
//! base64 without padding, safe in URLs. The signature is HMAC-SHA-256 of [`CONTEXT`] and everything before
//! the signature's dot.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_web::http::header::{self, HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::domain::{SecretKeys, VoterId};

/// The cookie's name. Because of `__Host-`, a browser takes it only from this host, over TLS and for all
/// paths. A neighbour under the same domain cannot set another one (RFC 6265bis, 4.1.3.2).
pub const VOTER_COOKIE: &str = "__Host-voter";
/// How long a cookie is valid: the longest that browsers keep one (RFC 6265bis, 5.5).
pub const VOTER_COOKIE_LIMIT_AGE: Duration = Duration::from_secs(400 * 86_400);
/// A cookie that was issued further in the future than this, by a server whose clock is ahead, is renewed.
const CLOCK_LIMIT_AHEAD: Duration = Duration::from_secs(300);
/// Random bytes in the id of a visitor: 128 bits.
const VISITOR_BYTES: usize = 16;
/// The beginning of each signed text. A signature made for another purpose is not valid here.
const CONTEXT: &[u8] = b"tally voter cookie 1\n";

/// The keys that sign voters' cookies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct VoterCookies(SecretKeys);

/// Reads keys as [`SecretKeys`] does. The first key signs, and cookies signed by any key are valid.
impl FromStr for VoterCookies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self)
    }
}

/// The cookie of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundCookie {
    /// There is no cookie.
    None,
    /// A valid cookie of this voter. With `is_renewed` the answer should have a new cookie, because another
    /// key signs now, half of the cookie's time is over, or the cookie's time is far in the future.
    Voter { voter_id: VoterId, is_renewed: bool },
    /// None of the keys has signed the cookie, it is too old, or there are several cookies.
    NotValid,
}

impl VoterCookies {
    /// Reads the cookie among these headers.
    pub fn find(&self, headers: &HeaderMap) -> FoundCookie {
        self.find_at(headers, SystemTime::now())
    }

    fn find_at(&self, headers: &HeaderMap, now: SystemTime) -> FoundCookie {
        let mut values = headers
            .get_all(header::COOKIE)
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
            .filter_map(|pair| {
                pair.trim_ascii()
                    .strip_prefix(VOTER_COOKIE.as_bytes())?
                    .strip_prefix(b"=")
            });
        let value = match (values.next(), values.next()) {
            (None, _) => return FoundCookie::None,
            (Some(value), None) => value,
            (Some(_), Some(_)) => return FoundCookie::NotValid,
        };
        std::str::from_utf8(value)
            .ok()
            .and_then(|value| self.read(value, now))
            .unwrap_or(FoundCookie::NotValid)
    }

    fn read(&self, value: &str, now: SystemTime) -> Option<FoundCookie> {
        let (signed, signature) = value.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let text = [CONTEXT, signed.as_bytes()].concat();
        let by = self.0.signer(&text, &signature)?;
        let (issued_at, voter) = signed.split_once('.')?;
        let issued_at = UNIX_EPOCH.checked_add(Duration::from_secs(issued_at.parse().ok()?))?;
        let (age, is_ahead) = match now.duration_since(issued_at) {
            Ok(age) if age < VOTER_COOKIE_LIMIT_AGE => (age, false),
            Ok(_) => return None,
            // Only a server can have signed it, so a clock is wrong: perhaps this server's. To refuse the
            // cookie would make its voter a new one, who votes once more.
            Err(early) => (Duration::ZERO, early.duration() > CLOCK_LIMIT_AHEAD),
        };
        let voter = String::from_utf8(URL_SAFE_NO_PAD.decode(voter).ok()?).ok()?;
        Some(FoundCookie::Voter {
            voter_id: VoterId::parse(voter).ok()?,
            is_renewed: by != 0 || is_ahead || age >= VOTER_COOKIE_LIMIT_AGE / 2,
        })
    }

    /// Returns the value of a `Set-Cookie` header that gives a browser this voter's cookie.
    pub fn issue(&self, voter_id: &VoterId) -> Option<HeaderValue> {
        let value = self.sign(voter_id, SystemTime::now())?;
        let text = format!(
            "{VOTER_COOKIE}={value}; Path=/; Max-Age={}; HttpOnly; Secure; SameSite=Lax",
            VOTER_COOKIE_LIMIT_AGE.as_secs()
        );
        let mut value = HeaderValue::from_str(&text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Returns the value of a `Set-Cookie` header that deletes the cookie from a browser.
    pub fn removal() -> HeaderValue {
        HeaderValue::from_static("__Host-voter=; Path=/; Max-Age=0; HttpOnly; Secure; SameSite=Lax")
    }

    /// Signs a cookie. `None`: the clock is before 1970.
    fn sign(&self, voter_id: &VoterId, now: SystemTime) -> Option<String> {
        let issued_at = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        self.signed(&format!(
            "{issued_at}.{}",
            URL_SAFE_NO_PAD.encode(voter_id.as_str())
        ))
    }

    /// Returns this text, a dot and the text's signature.
    pub(in crate::web) fn signed(&self, signed: &str) -> Option<String> {
        let text = [CONTEXT, signed.as_bytes()].concat();
        let signature = self.0.sign(&text)?;
        Some(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// Draws the id of a new voter.
pub fn new_visitor() -> VoterId {
    let bytes: [u8; VISITOR_BYTES] = rand::random();
    VoterId::visitor(&URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn keys(digits: &[char]) -> VoterCookies {
        let keys: Vec<String> = digits.iter().map(|digit| digit.to_string().repeat(64)).collect();
        keys.join(",").parse().expect("keys")
    }

    fn new_visitor_of(text: &str) -> VoterId {
        VoterId::visitor(text.strip_prefix("visitor-").expect("a visitor"))
    }

    fn ada() -> VoterId {
        VoterId::parse("ada".to_owned()).expect("a voter")
    }

    fn find(keys: &VoterCookies, cookies: &[&str], now: SystemTime) -> FoundCookie {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(header::COOKIE, HeaderValue::from_str(cookie).expect("a header"));
        }
        keys.find_at(&headers, now)
    }

    fn voter(is_renewed: bool) -> FoundCookie {
        FoundCookie::Voter {
            voter_id: ada(),
            is_renewed,
        }
    }

    #[test]
    fn a_cookie_names_its_voter_wherever_it_stands_in_the_header() {
        let (keys, now) = (keys(&['a']), SystemTime::now());
        let value = keys.sign(&ada(), now).expect("a cookie");
        for cookie in [
            format!("__Host-voter={value}"),
            format!("a=b; __Host-voter={value}; c=d"),
            format!("a=b;__Host-voter={value}"),
        ] {
            assert_eq!(find(&keys, &[&cookie], now), voter(false), "{cookie}");
        }
        assert_eq!(find(&keys, &[], now), FoundCookie::None);
        for other in [
            format!("voter={value}"),
            format!("__host-voter={value}"),
            format!("x__Host-voter={value}"),
        ] {
            assert_eq!(find(&keys, &[&other], now), FoundCookie::None, "{other}");
        }
    }

    #[test]
    fn a_cookie_that_was_changed_or_cut_anywhere_is_not_valid() {
        let (keys, now) = (keys(&['a']), SystemTime::now());
        let value = keys.sign(&ada(), now).expect("a cookie");
        for at in 0..value.len() {
            let cut = format!("__Host-voter={}", &value[..at]);
            assert_eq!(find(&keys, &[&cut], now), FoundCookie::NotValid, "{cut}");
            let mut bytes = value.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = format!("__Host-voter={}", String::from_utf8(bytes).expect("ASCII"));
            assert_eq!(find(&keys, &[&changed], now), FoundCookie::NotValid, "{changed}");
        }
    }

    #[test]
    fn two_cookies_of_the_name_are_not_valid_even_if_each_is() {
        let (keys, now) = (keys(&['a']), SystemTime::now());
        let one = format!("__Host-voter={}", keys.sign(&ada(), now).expect("a cookie"));
        assert_eq!(find(&keys, &[&one, &one], now), FoundCookie::NotValid);
        assert_eq!(
            find(&keys, &[&format!("{one}; {one}")], now),
            FoundCookie::NotValid
        );
    }

    #[test]
    fn an_earlier_key_is_believed_and_its_cookie_renewed_and_a_dropped_one_is_not() {
        let now = SystemTime::now();
        let cookie = format!(
            "__Host-voter={}",
            keys(&['a']).sign(&ada(), now).expect("a cookie")
        );
        assert_eq!(find(&keys(&['b', 'a']), &[&cookie], now), voter(true));
        assert_eq!(find(&keys(&['a', 'b']), &[&cookie], now), voter(false));
        assert_eq!(find(&keys(&['b']), &[&cookie], now), FoundCookie::NotValid);
    }

    #[test]
    fn a_cookie_ends_after_400_days_and_is_renewed_after_half_of_them() {
        let (keys, now) = (keys(&['a']), SystemTime::now());
        let cookie = format!("__Host-voter={}", keys.sign(&ada(), now).expect("a cookie"));
        let find = |at| find(&keys, &[&cookie], at);
        assert_eq!(find(now + 199 * DAY), voter(false));
        assert_eq!(find(now + 200 * DAY), voter(true));
        assert_eq!(find(now + 399 * DAY), voter(true));
        assert_eq!(find(now + 400 * DAY), FoundCookie::NotValid);
    }

    #[test]
    fn a_cookie_of_a_server_whose_clock_is_ahead_is_valid_and_renewed() {
        let (keys, now) = (keys(&['a']), SystemTime::now());
        let cookie = format!("__Host-voter={}", keys.sign(&ada(), now).expect("a cookie"));
        let find = |at| find(&keys, &[&cookie], at);
        assert_eq!(find(now - Duration::from_secs(200)), voter(false));
        assert_eq!(find(now - Duration::from_secs(600)), voter(true));
        assert_eq!(find(now - 1000 * DAY), voter(true));
    }

    #[test]
    fn two_visitors_are_never_the_same_voter() {
        assert_ne!(new_visitor(), new_visitor());
        let text = new_visitor().as_str().to_owned();
        assert_eq!(VoterId::parse(text.clone()), Ok(new_visitor_of(&text)));
    }
}
