//! What votes come with: credentials, or throttles that look at them.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde::Serialize;
use serde_json::json;
use tally::domain::{ApiKey, VoterId};
use tally::http::access::VoterCookies;
use testkit::load::Credentials;

use crate::stores::{Database, Stores};

/// How long a token of the bench is valid.
const TOKEN_SECONDS: u64 = 3600;
const COOKIE_KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const AUDIENCE: &str = "bench";
const ISSUER: &str = "https://id.example";
/// Throttles on three dimensions, which never refuse.
const THROTTLES: &str = "voter:1000000/1h,address:1000000000/1h,item:1000000000/1h";
/// One that each voter's first vote fills.
const FULL_THROTTLE: &str = "voter:1/24h";
/// The voters who take turns, each with a credential of its own, and all of their tokens are
/// remembered.
const VOTERS: u64 = 1000;
/// So many that a token is forgotten before its voter's next turn.
const VOTERS_TOO_MANY: u64 = 30_000;

/// What votes come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum With {
    /// Nothing, and everything is open.
    Nothing,
    /// A backend's key.
    ApiKey,
    Cookie,
    /// A token of ES256 that the server has checked before.
    Token,
    /// One that it has not.
    FreshToken,
    /// No credential, and throttles.
    Throttles,
    /// A throttle that refuses nearly all.
    FullThrottle,
}

impl With {
    pub fn title(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ApiKey => "an API key",
            Self::Cookie => "a cookie",
            Self::Token => "a remembered token",
            Self::FreshToken => "a fresh token",
            Self::Throttles => "three throttles",
            Self::FullThrottle => "a throttle that refuses",
        }
    }
}

/// What the server needs for it, and what the requests have.
pub struct Prepared {
    pub settings: Vec<(&'static str, String)>,
    pub credentials: Credentials,
}

fn voter(number: u64) -> String {
    format!("voter-{number:016}")
}

impl With {
    /// Prepares the server's settings and the requests' heads.
    pub async fn prepare(self, stores: &Stores, database: &Database) -> Prepared {
        let same = |head: &str| Credentials {
            heads: vec![head.to_owned(); VOTERS as usize],
            names_voter: true,
        };
        match self {
            Self::Nothing => Prepared {
                settings: Vec::new(),
                credentials: same(""),
            },
            Self::Throttles => Prepared {
                settings: vec![("TALLY_THROTTLE", THROTTLES.to_owned())],
                credentials: same(""),
            },
            Self::FullThrottle => Prepared {
                settings: vec![("TALLY_THROTTLE", FULL_THROTTLE.to_owned())],
                credentials: same(""),
            },
            Self::ApiKey => {
                let key = ApiKey::fresh();
                sqlx::query("insert into api_key (key_hash, name, scopes) values ($1, 'bench', '{vote}')")
                    .bind(key.hash().as_bytes())
                    .execute(&database.pool)
                    .await
                    .expect("a key");
                Prepared {
                    settings: vec![("TALLY_OPEN", String::new())],
                    credentials: same(&format!("authorization: Bearer {}\r\n", key.as_str())),
                }
            }
            Self::Cookie => {
                let cookies: VoterCookies = COOKIE_KEY.parse().expect("a key");
                let head = |number| {
                    let voter = VoterId::parse(voter(number)).expect("a voter");
                    let set = cookies.issue(&voter).expect("a cookie");
                    let set = set.to_str().expect("text");
                    format!("cookie: {}\r\n", set.split(';').next().expect("a cookie"))
                };
                Prepared {
                    settings: vec![
                        ("TALLY_OPEN", String::new()),
                        ("TALLY_COOKIE_KEYS", COOKIE_KEY.to_owned()),
                    ],
                    credentials: Credentials {
                        heads: (0..VOTERS).map(head).collect(),
                        names_voter: false,
                    },
                }
            }
            Self::Token => tokens(stores, VOTERS),
            Self::FreshToken => tokens(stores, VOTERS_TOO_MANY),
        }
    }
}

fn tokens(stores: &Stores, voters: u64) -> Prepared {
    let random = SystemRandom::new();
    let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
    let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key");
    let point = pair.public_key().as_ref();
    let keys = json!({ "keys": [{
        "kty": "EC", "crv": "P-256", "kid": "bench", "alg": "ES256", "use": "sig",
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..]),
    }]});
    let file = stores.folder().join("keys.json");
    std::fs::write(&file, keys.to_string()).expect("a file");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    let expires_at = now.as_secs() + TOKEN_SECONDS;
    let head = |number| {
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "bench" });
        let claims = json!({ "sub": voter(number), "aud": AUDIENCE, "iss": ISSUER, "exp": expires_at });
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = pair.sign(&random, text.as_bytes()).expect("a signature");
        format!(
            "authorization: Bearer {text}.{}\r\n",
            URL_SAFE_NO_PAD.encode(signature)
        )
    };
    Prepared {
        settings: vec![
            ("TALLY_OPEN", String::new()),
            ("TALLY_JWT_KEYS", file.to_str().expect("text").to_owned()),
            ("TALLY_JWT_AUDIENCE", AUDIENCE.to_owned()),
            ("TALLY_JWT_ISSUER", ISSUER.to_owned()),
        ],
        credentials: Credentials {
            heads: (0..voters).map(head).collect(),
            names_voter: false,
        },
    }
}
