//! Cookies and tokens of voters, right and wrong ones.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};
use tally::domain::VoterId;
use tally::web::ServerOptions;
use tally::web::access::{JwtOptions, VoterCookies};

use super::Credential;

pub const SECRET: &str = "a secret of thirty-two bytes or more";
pub const AUDIENCE: &str = "votes";
pub const ISSUER: &str = "https://id.example";

pub fn key(digit: char) -> String {
    digit.to_string().repeat(64)
}

pub fn keys(digits: &[char]) -> VoterCookies {
    let keys: Vec<String> = digits.iter().copied().map(key).collect();
    keys.join(",").parse().expect("keys")
}

/// Lets a server believe the cookies and tokens of this file.
pub fn knows_voters(options: &mut ServerOptions) {
    options.access.cookies = Some(keys(&['a']));
    options.access.jwt = Some(JwtOptions {
        secrets: Some(SECRET.parse().expect("a secret")),
        keys_file: None,
        audience: AUDIENCE.to_owned(),
        issuer: ISSUER.to_owned(),
    });
}

pub fn cookie_by(keys: &VoterCookies, voter: &str) -> Credential {
    let voter = VoterId::parse(voter.to_owned()).expect("a voter");
    let set = keys.issue(&voter).expect("a cookie");
    of_set_cookie(set.to_str().expect("text"))
}

/// The credential that a browser sends after this Set-Cookie header.
pub fn of_set_cookie(set: &str) -> Credential {
    Credential::Cookie(set.split(';').next().expect("a cookie").to_owned())
}

/// This voter's cookie.
pub fn cookie(voter: &str) -> Credential {
    cookie_by(&keys(&['a']), voter)
}

pub fn forged_cookie(voter: &str) -> Credential {
    cookie_by(&keys(&['f']), voter)
}

pub fn in_seconds(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs().cast_signed() + seconds
}

/// A token with these claims, signed by `sign`.
pub fn token_by(header: &Value, voter: &str, expires_at: i64, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let claims = json!({ "sub": voter, "aud": AUDIENCE, "iss": ISSUER, "exp": expires_at });
    signed(header, &claims, sign)
}

pub fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = URL_SAFE_NO_PAD.encode(sign(text.as_bytes()));
    format!("{text}.{signature}")
}

pub fn by_secret(secret: &str) -> impl Fn(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    move |text| hmac::sign(&key, text).as_ref().to_vec()
}

pub fn hs256(voter: &str, expires_at: i64, secret: &str) -> String {
    token_by(&json!({ "alg": "HS256" }), voter, expires_at, by_secret(secret))
}

/// A token for this audience, from this issuer.
pub fn token_for(audience: &str, issuer: &str, secret: &str) -> String {
    let claims = json!({ "sub": "visitor-x", "aud": audience, "iss": issuer, "exp": in_seconds(600) });
    signed(&json!({ "alg": "HS256" }), &claims, by_secret(secret))
}

/// This voter's token.
pub fn token(voter: &str) -> String {
    hs256(voter, in_seconds(600), SECRET)
}

pub fn expired_token(voter: &str) -> String {
    hs256(voter, in_seconds(-60), SECRET)
}

pub fn forged_token(voter: &str) -> String {
    hs256(voter, in_seconds(600), "another secret of thirty-two bytes")
}

/// Makes a private RSA key with the `openssl` command.
/// Returns the key and its JSON Web Key.
pub fn rsa_key(folder: &Path, id: &str) -> (ring::signature::RsaKeyPair, Value) {
    let path = folder.join(format!("{id}.der"));
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new("openssl").args(arguments).output();
        let output = output.expect("openssl is installed");
        assert!(output.status.success(), "{output:?}");
    };
    let pem = folder.join(format!("{id}.pem"));
    let (pem, der) = (pem.to_str().expect("text"), path.to_str().expect("text"));
    run(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-out",
        pem,
    ]);
    run(&[
        "pkcs8", "-topk8", "-nocrypt", "-in", pem, "-outform", "DER", "-out", der,
    ]);
    let bytes = std::fs::read(der).expect("a key");
    let pair = ring::signature::RsaKeyPair::from_pkcs8(&bytes).expect("an RSA key");
    let public: ring::signature::RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
    let jwk = json!({
        "kty": "RSA", "kid": id, "use": "sig",
        "n": URL_SAFE_NO_PAD.encode(public.n), "e": URL_SAFE_NO_PAD.encode(public.e),
    });
    (pair, jwk)
}

pub fn rs256(pair: &ring::signature::RsaKeyPair, id: &str, voter: &str) -> String {
    let header = json!({ "alg": "RS256", "kid": id });
    token_by(&header, voter, in_seconds(600), |text| {
        let mut signature = vec![0; pair.public().modulus_len()];
        let random = ring::rand::SystemRandom::new();
        pair.sign(&ring::signature::RSA_PKCS1_SHA256, &random, text, &mut signature)
            .expect("a signature");
        signature
    })
}
