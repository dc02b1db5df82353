//! The keys that JWTs are checked with. Each is for one algorithm, which the token cannot choose. So a public
//! key is never used as the secret of HS256 (RFC 8725, 2.1).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;

use crate::domain::{Digest, wrapping};
use crate::files::{self, FileError};

/// The shortest secret: as long as the hash (RFC 7518, 3.2).
const SECRET_LEAST_BYTES: usize = 32;
/// The largest file of keys.
const FILE_LIMIT_BYTES: u64 = 1024 * 1024;
/// The most usable keys in a file. A token that names no key is tried with each of them.
const KEYS_LIMIT: usize = 32;
/// The sizes of an RSA modulus: 2,048 bits (RFC 7518, 3.3) to the most that ring takes.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// A point of P-256: a byte and two coordinates.
const P256_BYTES: usize = 65;

/// The most secrets: the one in use, and earlier ones.
const SECRETS_LIMIT: usize = 8;

/// The secrets of HS256. Each secret is the bytes of its text.
#[derive(Clone)]
pub struct JwtSecrets(Vec<String>);

/// Separated by commas, so that there can be two while one is being replaced.
impl FromStr for JwtSecrets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let secrets: Vec<String> = text.split(',').map(str::to_owned).collect();
        // Each byte counts. So Tally guesses nothing: the issuer may read the same file otherwise.
        if let Some(wrapping) = secrets.iter().find_map(|one| wrapping(one)) {
            return Err(format!(
                "a secret {wrapping}; it takes the secret alone, which the issuer uses too"
            ));
        }
        if secrets.len() > SECRETS_LIMIT || secrets.iter().any(|one| one.len() < SECRET_LEAST_BYTES) {
            // The error does not repeat the value.
            return Err(format!(
                "it takes up to {SECRETS_LIMIT} secrets, separated by commas, of at least {SECRET_LEAST_BYTES} bytes \
                 each, for example 64 digits that `openssl rand -hex 32` makes"
            ));
        }
        Ok(Self(secrets))
    }
}

impl fmt::Debug for JwtSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "JwtSecrets({} of them)", self.0.len())
    }
}

/// Why a file of keys is not usable.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("TALLY_JWT_KEYS: {0}")]
    File(FileError),
    #[error("TALLY_JWT_KEYS: {} is no JSON Web Key Set: it takes {{\"keys\": […]}}", path.display())]
    NoKeySet { path: PathBuf },
    #[error(
        "TALLY_JWT_KEYS: {} has {usable} keys that can be used; it takes 1 to {KEYS_LIMIT}, for RS256 (RSA of 2,048 bits or more) or ES256 (P-256)",
        path.display()
    )]
    NoKeys { path: PathBuf, usable: usize },
}

/// A key and its use.
struct Key {
    algorithm: Algorithm,
    /// The key's name in tokens.
    id: Option<String>,
    key: DecodingKey,
}

/// All keys.
pub(super) struct Keys {
    keys: Vec<Key>,
    /// The digest of the file that has the keys.
    pub digest: Digest,
    /// How many of them the file has.
    pub in_file: usize,
}

/// What a file without a usable key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithoutKeys {
    /// A mistake, unless the file's list of keys is empty: then the issuer has revoked all of them.
    Refused,
    /// No token of the file's keys is valid any more. The issuer has taken its usable keys back, and RFC 7517
    /// allows an empty list. To keep the earlier keys would keep revoked ones.
    Allowed,
}

/// A key set whose keys are not yet read. A key that is not understood is ignored, as RFC 7517, 5 requires.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    /// Reads the secrets and the keys of this file, if given.
    ///
    /// # Errors
    /// Fails when the file cannot be read or has too many keys, or no usable key and that is not allowed.
    pub fn read(
        secrets: Option<&JwtSecrets>,
        file: Option<&Path>,
        without_keys: WithoutKeys,
    ) -> Result<Self, KeysError> {
        let mut keys: Vec<Key> = secrets
            .iter()
            .flat_map(|secrets| &secrets.0)
            .map(|secret| Key {
                algorithm: Algorithm::HS256,
                id: None,
                key: DecodingKey::from_secret(secret.as_bytes()),
            })
            .collect();
        let mut bytes = Vec::new();
        let mut in_file = 0;
        if let Some(path) = file {
            bytes = files::read(path, FILE_LIMIT_BYTES).map_err(KeysError::File)?;
            let set: KeySet = serde_json::from_slice(&bytes).map_err(|_| KeysError::NoKeySet {
                path: path.to_owned(),
            })?;
            let may_be_none = set.keys.is_empty() || without_keys == WithoutKeys::Allowed;
            let of_file: Vec<Key> = set.keys.into_iter().filter_map(read_key).collect();
            in_file = of_file.len();
            if in_file > KEYS_LIMIT || (in_file == 0 && !may_be_none) {
                return Err(KeysError::NoKeys {
                    path: path.to_owned(),
                    usable: in_file,
                });
            }
            keys.extend(of_file);
        }
        Ok(Self {
            keys,
            digest: Digest::of(&[&bytes]),
            in_file,
        })
    }

    /// Returns the algorithms that there are keys for, each once.
    pub fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms: Vec<Algorithm> = Vec::new();
        for key in &self.keys {
            if !algorithms.contains(&key.algorithm) {
                algorithms.push(key.algorithm);
            }
        }
        algorithms
    }

    /// Returns the keys that may have signed a token with this algorithm and key id.
    pub fn candidates<'a>(
        &'a self,
        algorithm: Algorithm,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a DecodingKey> {
        let may_be = move |key: &&Key| {
            key.algorithm == algorithm
                && match (key.id.as_deref(), id) {
                    (Some(of_key), Some(of_token)) => of_key == of_token,
                    _ => true,
                }
        };
        self.keys.iter().filter(may_be).map(|key| &key.key)
    }
}

/// Reads a usable key: for signatures, of RSA or P-256. A symmetric key is not usable, because a reader of a
/// file of public keys could sign with it.
fn read_key(value: serde_json::Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let (algorithm, name) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let is_for_it = common.key_algorithm.is_none_or(|of_key| of_key == name)
        && common
            .public_key_use
            .as_ref()
            .is_none_or(|use_| *use_ == PublicKeyUse::Signature)
        && common
            .key_operations
            .as_ref()
            .is_none_or(|all| all.contains(&KeyOperations::Verify));
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    let is_of_size = match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => RSA_BYTES.contains(&n.len()),
        DecodingKeyKind::SecretOrDer(point) => point.len() == P256_BYTES,
    };
    (is_for_it && is_of_size).then(|| Key {
        algorithm,
        id: jwk.common.key_id,
        key,
    })
}
