//! What is wrong with a token, in words for whoever makes tokens.
//!
//! What the server takes is said only of a token that one of its own keys has signed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::domain::VoterId;
use crate::web::access::jwt::keys::Keys;
use crate::web::access::jwt::{CLOCK_LIMIT_SKEW, JwtOptions, TOKEN_LIMIT_BYTES, TYPES};

/// How much of a claim is repeated.
const SHOWN_LIMIT_CHARACTERS: usize = 100;

/// The token is longer than any token.
pub(super) fn too_long(token: &str) -> String {
    format!(
        "it has {} bytes; it takes at most {TOKEN_LIMIT_BYTES}",
        token.len()
    )
}

/// The header cannot be read.
pub(super) fn no_header(token: &str) -> String {
    match decode_header_as_json(token).and_then(|header| header.get("alg").cloned()) {
        Some(algorithm) => format!("its alg is {}; it takes HS256, RS256 or ES256", shown(&algorithm)),
        None => {
            "it is no JWT: that is a header with alg, claims and a signature, each in base64url, with dots \
                 between them"
                .to_owned()
        }
    }
}

/// The library reads only headers whose algorithm it knows.
fn decode_header_as_json(token: &str) -> Option<Map<String, Value>> {
    let mut parts = token.split('.');
    let header = parts.next()?;
    // Two more parts follow.
    parts.nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()
}

/// The token's type has another use.
pub(super) fn of_type(of: &str) -> String {
    let types = TYPES.join(" or ");
    format!("its typ is {}; it takes {types}", shown(&Value::from(of)))
}

/// The header has parameters that must be understood.
pub(super) fn critical() -> String {
    "its header has crit; this server understands no critical parameters".to_owned()
}

/// The server has no key that may have signed the token.
pub(super) fn no_key(token: &str, keys: &Keys) -> String {
    let Ok(header) = decode_header(token) else {
        return no_header(token);
    };
    let algorithms = keys.algorithms();
    let name = |algorithm: &Algorithm| format!("{algorithm:?}");
    if !algorithms.contains(&header.alg) {
        let takes = match algorithms.is_empty() {
            true => "no key".to_owned(),
            false => format!(
                "keys for {}",
                algorithms.iter().map(name).collect::<Vec<_>>().join(", ")
            ),
        };
        return format!("its alg is {}; this server has {takes}", name(&header.alg));
    }
    let id = header.kid.map_or(Value::Null, Value::from);
    format!(
        "its kid is {}, which none of this server's keys has (TALLY_JWT_KEYS)",
        shown(&id)
    )
}

/// None of the keys that may have signed the token has.
pub(super) fn signature() -> String {
    "its signature is by none of this server's keys (TALLY_JWT_SECRET, TALLY_JWT_KEYS), or it was changed or cut \
     since"
        .to_owned()
}

/// The token is not valid, and its signature is not the reason, or not alone.
///
/// `now` is in seconds since 1970.
pub(super) fn of_claims(
    token: &str,
    algorithm: Algorithm,
    key: &DecodingKey,
    options: &JwtOptions,
    now: u64,
) -> String {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    match decode::<Map<String, Value>>(token, key, &validation) {
        Ok(decoded) => wrong(&decoded.claims, options, now),
        Err(_) => {
            "its signature or its claims cannot be read: claims are one JSON object in base64url".to_owned()
        }
    }
}

/// Says what is wrong with the claims of a token whose signature is right.
fn wrong(claims: &Map<String, Value>, options: &JwtOptions, now: u64) -> String {
    let claim = |name: &str| claims.get(name).filter(|value| !value.is_null());
    match claim("sub") {
        None => return "it has no sub; sub is the voter's id".to_owned(),
        Some(Value::String(voter)) => {
            if let Err(error) = VoterId::parse(voter.clone()) {
                return format!("its sub is no voter's id: {error}");
            }
        }
        Some(other) => return format!("its sub is {}; it takes text, the voter's id", shown(other)),
    }
    let (issuer, audience) = (
        shown(&Value::from(&*options.issuer)),
        shown(&Value::from(&*options.audience)),
    );
    match claim("iss") {
        None => return format!("it has no iss; this server takes {issuer} (TALLY_JWT_ISSUER)"),
        Some(Value::String(iss)) if *iss == options.issuer => {}
        Some(other) => {
            return format!(
                "its iss is {}; this server takes {issuer} (TALLY_JWT_ISSUER)",
                shown(other)
            );
        }
    }
    let is_ours = |one: &Value| one.as_str() == Some(&*options.audience);
    match claim("aud") {
        None => return format!("it has no aud; this server takes {audience} (TALLY_JWT_AUDIENCE)"),
        Some(Value::Array(several)) if several.iter().any(is_ours) => {}
        Some(one) if is_ours(one) => {}
        Some(other) => {
            return format!(
                "its aud is {}; this server takes {audience} (TALLY_JWT_AUDIENCE)",
                shown(other)
            );
        }
    }
    let seconds = "seconds since 1970";
    match claim("exp") {
        None => return format!("it has no exp; exp says until when it is valid, in {seconds}"),
        Some(exp) if exp.as_f64().is_some_and(|exp| exp >= 0.0) => {}
        Some(other) => return format!("its exp is {}; it takes {seconds}", shown(other)),
    }
    let skew = CLOCK_LIMIT_SKEW.as_secs();
    match claim("nbf").map(|nbf| (nbf, nbf.as_f64())) {
        // Exact for whole seconds of the next hundred million years.
        #[allow(clippy::cast_precision_loss)]
        Some((nbf, Some(begins))) if begins > (now + skew) as f64 => format!(
            "it is valid only from its nbf on, {}; this server's clock says {now}, and may differ by {skew} s",
            shown(nbf)
        ),
        Some((nbf, None)) => format!("its nbf is {}; it takes {seconds}", shown(nbf)),
        _ => "its claims cannot be read; each stands once".to_owned(),
    }
}

/// A value as JSON, cut if it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_LIMIT_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
