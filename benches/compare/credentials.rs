//! What votes come with: credentials, or throttles that look at them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use tally::domain::{ApiKey, VoterId};
use tally::web::access::VoterCookies;
use testkit::benchmark::With;
use testkit::load::{Credentials, Requests};

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
/// The voters who take turns, each with a credential of its own. The server remembers all of
/// their tokens.
const VOTERS: u64 = 1000;
/// So many voters that the server forgets a token before its voter's next turn.
const VOTERS_TOO_MANY: u64 = 30_000;
/// How many voter numbers each kind has.
const VOTERS_OF_A_KIND: u64 = 1_000_000;

/// Which of the three servers takes the votes: they share their stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Takes votes with and without a credential.
    Open,
    Throttled,
    Refusing,
}

/// The servers' settings, and the requests of each kind, all for one database.
pub struct Prepared {
    /// In the order of [`Server`].
    pub settings: [Vec<(&'static str, String)>; 3],
    pub requests: Vec<(With, Arc<Requests>)>,
}

/// Which server takes these votes.
pub fn server_of(with: With) -> Server {
    match with {
        With::Throttles => Server::Throttled,
        With::FullThrottle => Server::Refusing,
        _ => Server::Open,
    }
}

/// No two kinds have a voter in common.
fn first_voter(with: With) -> u64 {
    let kind = With::ALL.iter().position(|one| *one == with);
    kind.unwrap_or_default() as u64 * VOTERS_OF_A_KIND
}

/// The voters who take turns.
fn voters(with: With) -> std::ops::Range<u64> {
    let count = match with {
        With::FreshToken => VOTERS_TOO_MANY,
        _ => VOTERS,
    };
    first_voter(with)..first_voter(with) + count
}

/// Votes that name their voter; each has these lines in its head.
fn naming(with: With, head: &str) -> Credentials {
    Credentials {
        heads: voters(with).map(|_| head.to_owned()).collect(),
        first_voter: Some(first_voter(with)),
    }
}

/// Votes whose credential says who votes.
fn showing(with: With, head: impl Fn(u64) -> String) -> Credentials {
    Credentials {
        heads: voters(with).map(head).collect(),
        first_voter: None,
    }
}

fn voter(number: u64) -> String {
    format!("voter-{number:016}")
}

/// Prepares the servers' settings and all requests for votes on so many items.
pub async fn prepare(stores: &Stores, database: &Database, items: usize) -> Prepared {
    let key = ApiKey::fresh();
    sqlx::query("insert into api_key (key_hash, name, scopes) values ($1, 'bench', '{vote}')")
        .bind(key.hash().as_bytes())
        .execute(&database.pool)
        .await
        .expect("a key");
    let cookies: VoterCookies = COOKIE_KEY.parse().expect("a key");
    let cookie = |number| {
        let voter = VoterId::parse(voter(number)).expect("a voter");
        let set = cookies.issue(&voter).expect("a cookie");
        let set = set.to_str().expect("text");
        format!("cookie: {}\r\n", set.split(';').next().expect("a cookie"))
    };
    let tokens = Tokens::new(stores);
    let requests = With::ALL.map(|with| {
        let credentials = match with {
            With::Nothing | With::Throttles | With::FullThrottle => naming(with, ""),
            With::ApiKey => naming(with, &format!("authorization: Bearer {}\r\n", key.as_str())),
            With::Cookie => showing(with, cookie),
            With::Token | With::FreshToken => showing(with, |number| tokens.head(number)),
        };
        (with, Arc::new(Requests::with_credentials(items, credentials)))
    });
    let mut open = tokens.settings;
    open.push(("TALLY_COOKIE_KEYS", COOKIE_KEY.to_owned()));
    Prepared {
        settings: [
            open,
            vec![("TALLY_THROTTLE", THROTTLES.to_owned())],
            vec![("TALLY_THROTTLE", FULL_THROTTLE.to_owned())],
        ],
        requests: requests.into(),
    }
}

/// Signs tokens of ES256.
struct Tokens {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    expires_at: u64,
    /// What a server needs to check them.
    settings: Vec<(&'static str, String)>,
}

impl Tokens {
    fn new(stores: &Stores) -> Self {
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
        Self {
            pair,
            random,
            expires_at: now.as_secs() + TOKEN_SECONDS,
            settings: vec![
                ("TALLY_JWT_KEYS", file.to_str().expect("text").to_owned()),
                ("TALLY_JWT_AUDIENCE", AUDIENCE.to_owned()),
                ("TALLY_JWT_ISSUER", ISSUER.to_owned()),
            ],
        }
    }

    fn head(&self, number: u64) -> String {
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "bench" });
        let claims = json!({
            "sub": voter(number), "aud": AUDIENCE, "iss": ISSUER, "exp": self.expires_at,
        });
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = self
            .pair
            .sign(&self.random, text.as_bytes())
            .expect("a signature");
        format!(
            "authorization: Bearer {text}.{}\r\n",
            URL_SAFE_NO_PAD.encode(signature)
        )
    }
}
