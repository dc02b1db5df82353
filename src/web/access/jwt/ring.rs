//! Checks signatures of JWTs with ring: HS256, RS256 and ES256, and no others.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

static PROVIDER: CryptoProvider = CryptoProvider {
    // Tally signs no tokens.
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    // Needed only to write keys.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Lets `jsonwebtoken` check signatures with ring. Safe to call again.
pub(super) fn install() {
    // An error means that it is installed already.
    let _ = PROVIDER.install_default();
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let key = match (algorithm, key.family(), key.kind()) {
        (Algorithm::HS256, AlgorithmFamily::Hmac, DecodingKeyKind::SecretOrDer(secret)) => {
            Key::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret))
        }
        (Algorithm::RS256, AlgorithmFamily::Rsa, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            Key::Rsa(RsaPublicKeyComponents {
                n: n.clone(),
                e: e.clone(),
            })
        }
        (Algorithm::ES256, AlgorithmFamily::Ec, DecodingKeyKind::SecretOrDer(point)) => {
            Key::P256(UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point.clone()))
        }
        _ => return Err(ErrorKind::InvalidAlgorithm.into()),
    };
    Ok(Box::new(ByRing {
        algorithm: *algorithm,
        key,
    }))
}

struct ByRing {
    algorithm: Algorithm,
    key: Key,
}

enum Key {
    Secret(hmac::Key),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    P256(UnparsedPublicKey<Vec<u8>>),
}

impl Verifier<Vec<u8>> for ByRing {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        let verified = match &self.key {
            Key::Secret(key) => hmac::verify(key, message, signature),
            Key::Rsa(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            Key::P256(key) => key.verify(message, signature),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for ByRing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
