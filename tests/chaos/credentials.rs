//! The credentials of a round. Its servers are closed, know voters by cookies and tokens, and have
//! throttles that refuse some votes on the busiest item.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng;
use rand::rngs::StdRng;
use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use ring::hmac;
use serde_json::json;
use sqlx::PgPool;
use tally::domain::{ApiKey, VoterId};
use tally::web::access::VoterCookies;

/// The API key of a backend that may do everything. It exists only in a round's own stores.
const API_KEY: &str = "tally_00c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a050";
const COOKIE_KEY: &str = "00c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a0500c4a050";
pub const ADDRESS_KEY: &str = "00add4e500add4e500add4e500add4e500add4e500add4e500add4e500add4e5";
const SECRET: &str = "the secret of the tokens of a round";
const AUDIENCE: &str = "chaos";
const ISSUER: &str = "https://id.example";
/// How long most tokens are valid: longer than any clock steps.
const TOKEN_LIMIT: Duration = Duration::from_secs(30 * 86_400);
/// How long the others are: a server whose clock is an hour ahead refuses them.
const SHORT_TOKEN_LIMIT: Duration = Duration::from_secs(1800);
/// The part of the others.
const SHORT: f64 = 0.2;
/// The first one refuses now and then, and the two with a day what [`crate::throttled`] sends. The others look
/// at each vote, and refuse hardly any. A vote of a backend has no address, and an anonymous one no voter.
const THROTTLES: &str =
    "item:100/1s,voter:60/1s,address:100000/1s,voter:400/24h,item:100000/10s,address:6/24h";

/// A server's settings.
pub fn settings() -> [(&'static str, &'static str); 7] {
    [
        ("TALLY_PROXIES", "127.0.0.0/8"),
        ("TALLY_OPEN", ""),
        ("TALLY_COOKIE_KEYS", COOKIE_KEY),
        ("TALLY_JWT_SECRET", SECRET),
        ("TALLY_JWT_AUDIENCE", AUDIENCE),
        ("TALLY_JWT_ISSUER", ISSUER),
        ("TALLY_THROTTLE", THROTTLES),
    ]
}

/// Creates the round's API key.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    let key = ApiKey::parse(API_KEY).expect("an API key");
    sqlx::query("insert into api_key (key_hash, name, scopes) values ($1, 'chaos', '{vote,admin,report}')")
        .bind(key.hash().as_bytes())
        .execute(owner)
        .await?;
    Ok(())
}

/// A client with the API key.
pub fn backend() -> reqwest::Client {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {API_KEY}")).expect("a header");
    headers.insert(AUTHORIZATION, value);
    reqwest::Client::builder()
        .default_headers(headers)
        .build()
        .expect("a client")
}

/// Adds one of the credentials that may cast this voter's vote. Returns also whether it runs out at a server
/// whose clock is ahead.
pub fn add(request: RequestBuilder, voter: Option<&str>, random: &mut StdRng) -> (RequestBuilder, bool) {
    // An address of its own, as a proxy names it.
    let [a, b, c] = random.random::<[u8; 3]>();
    let request = request.header("x-forwarded-for", format!("10.{a}.{b}.{c}"));
    match (voter, random.random_range(0..3)) {
        (Some(voter), 0) => (request.header("cookie", cookie(voter)), false),
        (Some(voter), 1) => {
            let is_short = random.random_bool(SHORT);
            let limit = if is_short { SHORT_TOKEN_LIMIT } else { TOKEN_LIMIT };
            (request.bearer_auth(token(voter, limit)), is_short)
        }
        _ => (request.bearer_auth(API_KEY), false),
    }
}

/// Adds a token of this voter, and an address as a proxy names it.
pub fn add_from(request: RequestBuilder, voter: &str, address: &str) -> RequestBuilder {
    request
        .header("x-forwarded-for", address)
        .bearer_auth(token(voter, TOKEN_LIMIT))
}

fn cookie(voter: &str) -> String {
    let keys: VoterCookies = COOKIE_KEY.parse().expect("a key");
    let voter = VoterId::parse(voter.to_owned()).expect("a voter");
    let set = keys.issue(&voter).expect("a cookie");
    let set = set.to_str().expect("text");
    set.split(';').next().expect("a cookie").to_owned()
}

fn token(voter: &str, limit: Duration) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    let expires_at = (now + limit).as_secs();
    let claims = json!({ "sub": voter, "aud": AUDIENCE, "iss": ISSUER, "exp": expires_at });
    let text = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256" }).to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
    format!("{text}.{signature}")
}
