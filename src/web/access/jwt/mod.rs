//! Voters' JSON Web Tokens (RFC 7519): checked, and remembered while they are valid.
//!
//! - `keys`: the keys that tokens are checked with.
//! - `ring`: how a signature is checked.
//! - `fault`: what is wrong with a token that is not valid.

mod fault;
mod keys;
mod ring;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::cache::{Cache, Forgets, Remembers};
use crate::domain::{Digest, VoterId};
pub use crate::web::access::jwt::keys::{JwtSecrets, KeysError};
use crate::web::access::jwt::keys::{Keys, WithoutKeys};

/// The longest token.
const TOKEN_LIMIT_BYTES: usize = 8 * 1024;
/// The most tokens that are remembered: some 2 MB.
const TOKENS_LIMIT: usize = 10_000;
/// The largest difference between the issuer's clock and this server's.
const CLOCK_LIMIT_SKEW: Duration = Duration::from_secs(30);
/// How often the file of keys is checked for changes.
const KEYS_EVERY: Duration = Duration::from_secs(5);
/// How long a read of this file may take before the log says that it hangs, as on a file server that is gone.
const KEYS_LIMIT_READ: Duration = Duration::from_secs(10);
/// The types of tokens that are accepted. Other types have other uses (RFC 8725, 3.11).
const TYPES: [&str; 2] = ["JWT", "at+jwt"];

/// The issuer whose tokens are valid.
#[derive(Clone, Debug)]
pub struct JwtOptions {
    /// The secrets for HS256. Tokens of each are valid.
    pub secrets: Option<JwtSecrets>,
    /// A file with a JSON Web Key Set (RFC 7517), for RS256 and ES256.
    pub keys_file: Option<PathBuf>,
    /// The value that `aud` must contain.
    pub audience: String,
    /// The value that `iss` must have.
    pub issuer: String,
}

/// Checks tokens. Cheap to clone: clones share what is remembered.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    options: JwtOptions,
    keys: RwLock<Arc<Keys>>,
    believed: Cache<Believed>,
}

/// A token that was valid, by its digest. A change of the keys clears all of these.
#[derive(Clone)]
struct Believed {
    voter_id: VoterId,
    /// The last second of its validity, since 1970.
    until: u64,
}

impl Remembers for Believed {
    type Key = Digest;
    type Value = Self;
    const LIMIT: usize = TOKENS_LIMIT;
    const LIMIT_AGE: Option<Duration> = None;

    fn is_over(believed: &Self) -> bool {
        seconds_since_1970().is_none_or(|now| now > believed.until)
    }
}

impl Forgets for Believed {}

/// `None`: the clock is before 1970.
fn seconds_since_1970() -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.as_secs())
}

/// Why a token is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The token was valid until it expired.
    Expired,
    /// What is wrong with the token, in words for whoever makes tokens.
    NotValid(String),
}

/// The claims that are needed here, besides those that the library checks.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// A text, not a list: the library would also accept a list that contains the right issuer.
    #[serde(rename = "iss")]
    _issuer: String,
    /// Seconds since 1970, not always a whole number.
    exp: f64,
}

impl Tokens {
    /// Reads the keys.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or has keys but no usable one.
    pub fn open(options: JwtOptions) -> Result<Self, KeysError> {
        ring::install();
        let file = options.keys_file.as_deref();
        let keys = Keys::read(options.secrets.as_ref(), file, WithoutKeys::Refused)?;
        if file.is_some() && keys.in_file == 0 {
            say_none();
        }
        Ok(Self(Arc::new(Inner {
            options,
            keys: RwLock::new(Arc::new(keys)),
            believed: Cache::default(),
        })))
    }

    /// Reads the file of keys again whenever it has changed. Never ends. If the file cannot be read or is no key
    /// set, the earlier keys stay valid, and the log says so. If it has no usable key, no key is valid: the
    /// issuer has revoked them.
    pub async fn keep_keys(&self) {
        let Some(path) = self.0.options.keys_file.clone() else {
            return std::future::pending().await;
        };
        let mut failed = None;
        loop {
            sleep(KEYS_EVERY).await;
            let (secrets, path) = (self.0.options.secrets.clone(), path.clone());
            let mut read = tokio::task::spawn_blocking(move || {
                Keys::read(secrets.as_ref(), Some(&path), WithoutKeys::Allowed)
            });
            let ended = match timeout(KEYS_LIMIT_READ, &mut read).await {
                Ok(ended) => ended,
                Err(_) => {
                    tracing::error!(
                        "the file of the keys of JWTs does not answer: the earlier keys stay valid until it does"
                    );
                    // One read at a time, however long it hangs.
                    read.await
                }
            };
            match ended {
                Ok(Ok(keys)) => {
                    failed = None;
                    let has_keys = keys.in_file > 0;
                    match (self.set_keys(keys), has_keys) {
                        (true, true) => tracing::info!("the keys of JWTs have changed"),
                        (true, false) => say_none(),
                        (false, _) => {}
                    }
                }
                Ok(Err(error)) => {
                    let text = error.to_string();
                    if failed.as_ref() != Some(&text) {
                        tracing::error!(%error, "the keys of JWTs cannot be read again: the earlier keys stay valid");
                    }
                    failed = Some(text);
                }
                Err(_) => return,
            }
        }
    }

    /// Replaces the keys, and forgets the tokens that were checked with others. Returns whether they are new.
    fn set_keys(&self, keys: Keys) -> bool {
        {
            let mut current = self.0.keys.write().unwrap_or_else(PoisonError::into_inner);
            if current.digest == keys.digest {
                return false;
            }
            *current = Arc::new(keys);
        }
        self.0.believed.forget();
        true
    }

    /// Returns the voter of this token, if the token is valid.
    pub fn voter(&self, token: &str) -> Result<VoterId, TokenError> {
        if token.len() > TOKEN_LIMIT_BYTES {
            return Err(TokenError::NotValid(fault::too_long(token)));
        }
        let digest = Digest::of(&[token.as_bytes()]);
        if let Some(believed) = self.0.believed.get(&digest) {
            return Ok(believed.voter_id);
        }
        let Some(now) = seconds_since_1970() else {
            let detail = "this server's clock is before 1970".to_owned();
            return Err(TokenError::NotValid(detail));
        };
        // `asking` comes before the keys are read: a token that was checked with earlier keys is not remembered.
        let asked = self.0.believed.asking();
        let keys = Arc::clone(&self.0.keys.read().unwrap_or_else(PoisonError::into_inner));
        let (voter_id, until) = check(token, &keys, &self.0.options, now)?;
        let believed = Believed {
            voter_id: voter_id.clone(),
            until,
        };
        self.0.believed.add(digest, believed, asked);
        Ok(voter_id)
    }
}

/// Logs that the file has no usable key.
fn say_none() {
    tracing::error!("TALLY_JWT_KEYS has no usable key: no token signed with RS256 or ES256 is valid");
}

/// Checks a token. Returns its voter, and the last second in which it is valid.
fn check(token: &str, keys: &Keys, options: &JwtOptions, now: u64) -> Result<(VoterId, u64), TokenError> {
    let header = decode_header(token).map_err(|_| TokenError::NotValid(fault::no_header(token)))?;
    let is_known = |typ: &str| TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known));
    if let Some(typ) = header.typ.as_deref().filter(|typ| !is_known(typ)) {
        return Err(TokenError::NotValid(fault::of_type(typ)));
    }
    // Critical header parameters must be understood, and this server knows none (RFC 7515, 4.1.11).
    if header.crit.is_some() {
        return Err(TokenError::NotValid(fault::critical()));
    }
    let validation = validation(header.alg, options);
    let mut error = None;
    for key in keys.candidates(header.alg, header.kid.as_deref()) {
        match decode::<Claims>(token, key, &validation) {
            Ok(decoded) => {
                let Ok(voter_id) = VoterId::parse(decoded.claims.sub) else {
                    let fault = fault::of_claims(token, header.alg, key, options, now);
                    return Err(TokenError::NotValid(fault));
                };
                // Rounded as the library does. Casting a float to an integer saturates.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let expires_at = decoded.claims.exp.round() as u64;
                return Ok((voter_id, expires_at.saturating_add(CLOCK_LIMIT_SKEW.as_secs())));
            }
            Err(wrong) if matches!(wrong.kind(), ErrorKind::ExpiredSignature) => {
                error = Some(TokenError::Expired);
            }
            Err(wrong) if matches!(wrong.kind(), ErrorKind::InvalidSignature) => {
                error.get_or_insert_with(|| TokenError::NotValid(fault::signature()));
            }
            Err(_) => {
                let fault = fault::of_claims(token, header.alg, key, options, now);
                error = Some(TokenError::NotValid(fault));
            }
        }
    }
    Err(error.unwrap_or_else(|| TokenError::NotValid(fault::no_key(token, keys))))
}

/// Returns what a token must have besides its signature.
fn validation(algorithm: Algorithm, options: &JwtOptions) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.leeway = CLOCK_LIMIT_SKEW.as_secs();
    validation.validate_nbf = true;
    validation.set_audience(&[&options.audience]);
    validation.set_issuer(&[&options.issuer]);
    // These claims are required. A forger would leave out a claim that is only checked if present.
    validation.set_required_spec_claims(&["exp", "sub", "aud", "iss"]);
    validation
}

#[cfg(test)]
mod tests;
