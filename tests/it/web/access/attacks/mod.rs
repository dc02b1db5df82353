//! An attacker writes bytes to a closed server, without the right credential.
//! Each request is refused or harmless: afterwards the ledger holds nothing more.

mod framing;

use std::fmt::Write as _;

use sqlx::PgPool;
use tally::domain::{ApiKey, Moment, NewApiKey, Scope};
use tally::web::access::{CreateItems, Open};

use super::raw::{exchange, header, statuses};
use super::{api_key, operator};
use crate::helpers::tally::Tally;

/// A closed server on which a vote can create an item, with a key of each scope.
struct Target {
    tally: Tally,
    vote: String,
    admin: String,
    report: String,
}

impl Target {
    async fn start() -> Self {
        let tally = Tally::start_with(|options| {
            options.access.open = Open::default();
            options.voting.creates = CreateItems::Any;
        })
        .await;
        tally.item("x").await;
        let mut keys = Vec::new();
        for scope in Scope::ALL {
            keys.push(api_key(&tally, &[scope]).await.1.as_str().to_owned());
        }
        let [vote, admin, report] = keys.try_into().expect("three scopes");
        Self {
            tally,
            vote,
            admin,
            report,
        }
    }

    fn host(&self) -> &str {
        self.tally.base.trim_start_matches("http://")
    }

    /// A whole request with the right key, which would create an item.
    fn hidden(&self) -> String {
        request(
            "POST",
            "/v1/items",
            self.host(),
            &bearer(&self.admin),
            "{\"name\":\"smuggled\"}",
        )
    }

    async fn send(&self, bytes: impl AsRef<[u8]>) -> String {
        exchange(&self.tally.base, bytes.as_ref()).await
    }
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// A request with these further headers, and a JSON body.
fn request(method: &str, path: &str, host: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Counts the rows of everything that a request could add, change or take away.
async fn held(pool: &PgPool) -> Vec<i64> {
    let mut counted = Vec::new();
    for what in [
        "vote",
        "item",
        "item where name <> 'x'",
        "rule",
        "place",
        "ballot",
        "voided",
        "idempotency_key",
        "voiding",
        "api_key",
        "api_key where revoked_at is null",
    ] {
        let statement = format!("select count(*) from {what}");
        let count = sqlx::query_scalar(&statement);
        counted.push(count.fetch_one(pool).await.expect("Postgres answers"));
    }
    counted
}

/// Tries everything but the right key in the right place.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_almost_a_credential_is_none() {
    let target = Target::start().await;
    let Target {
        tally,
        admin,
        vote,
        report,
        ..
    } = &target;
    let expired = ApiKey::fresh();
    let new = NewApiKey {
        name: "test".to_owned(),
        scopes: Scope::ALL.into_iter().collect(),
        expires_at: Some(Moment::from_micros(1_000_000)),
    };
    operator(tally)
        .create_api_key(&expired.hash(), &new)
        .await
        .expect("Postgres answers");
    let (id, revoked) = api_key(tally, &Scope::ALL).await;
    operator(tally)
        .revoke_api_key(id)
        .await
        .expect("Postgres answers");
    let before = held(&tally.pool).await;
    let (first, second) = admin.split_at(admin.len() / 2);
    let swapped = format!("{second}{first}");
    let other_end = format!(
        "{}{}",
        &admin[..admin.len() - 1],
        if admin.ends_with('0') { '1' } else { '0' }
    );
    let authorization = |value: &str| format!("authorization: {value}\r\n");
    let headers: Vec<String> = [
        format!("Bearer {}", &admin[..admin.len() - 1]),
        format!("Bearer {admin}0"),
        format!("Bearer {other_end}"),
        format!("Bearer {swapped}"),
        format!("Bearer {}", admin.to_uppercase()),
        format!("Bearer {}", &admin["tally_".len()..]),
        format!("Bearer{admin}"),
        format!("Bearer\t{admin}"),
        format!("Bearer \"{admin}\""),
        format!("Bearer {admin}, Bearer {admin}"),
        format!("Bearer {admin} {admin}"),
        format!("Bearer {admin};"),
        format!("Bearer {first} {second}"),
        format!("Bearer {first}%20{second}"),
        format!("Basic {admin}"),
        format!("Token {admin}"),
        admin.clone(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        String::new(),
        format!("Bearer {}", expired.as_str()),
        format!("Bearer {}", revoked.as_str()),
        format!("Bearer {}", ApiKey::fresh().as_str()),
        format!("Bearer {vote}"),
        format!("Bearer {report}"),
        format!("Bearer {}", "a".repeat(100_000)),
    ]
    .iter()
    .map(|value| authorization(value))
    .chain([
        String::new(),
        bearer(admin) + &bearer(admin),
        bearer(report) + &bearer(admin),
        bearer(admin).to_uppercase() + "x: y\r\n",
        format!("authorization: Bearer {first}\r\n {second}\r\n"),
        format!("authorization: Bearer {admin}\0\r\n"),
        format!("proxy-authorization: Bearer {admin}\r\n"),
        format!("x-api-key: {admin}\r\nx-authorization: Bearer {admin}\r\n"),
        format!("cookie: authorization=Bearer {admin}; api_key={admin}; tally={admin}\r\n"),
        format!("www-authenticate: Bearer {admin}\r\n"),
        "x-forwarded-for: 127.0.0.1\r\nx-real-ip: 127.0.0.1\r\nforwarded: for=127.0.0.1\r\n".to_owned(),
    ])
    .collect();
    let mut wrong = String::new();
    let mut look = async |what: String, bytes: String| {
        let answer = target.send(&bytes).await;
        let (got, now) = (statuses(&answer), held(&tally.pool).await);
        let is_refused = got.len() == 1 && [400, 401, 403, 405, 431].contains(&got[0]);
        // A client may learn which credential would do. Nobody may learn which key was wrong.
        let asks = got != [401] || header(&answer, "www-authenticate") == ["Bearer realm=\"tally\""];
        let is_silent = !answer.contains(&admin[10..40]);
        if !is_refused || !asks || !is_silent || now != before {
            let _ = writeln!(wrong, "{what:?}: {got:?} {now:?}");
        }
    };
    for headers in headers {
        for (method, path, body) in [
            ("POST", "/v1/items", "{\"name\":\"y\"}"),
            ("DELETE", "/v1/api-keys/1", ""),
        ] {
            let bytes = request(method, path, target.host(), &headers, body);
            look(format!("{method} {path} {headers}"), bytes).await;
        }
    }
    // In the path, in the query, in the URI.
    let body = "{\"name\":\"y\"}";
    for uri in [
        format!("/v1/items?api_key={admin}"),
        format!("/v1/items?access_token={admin}&authorization=Bearer%20{admin}"),
        format!("/v1/items#Bearer%20{admin}"),
        format!("http://{admin}@{}/v1/items", target.host()),
        format!("http://Bearer:{admin}@{}/v1/items", target.host()),
    ] {
        let bytes = request("POST", &uri, target.host(), "", body);
        look(uri, bytes).await;
    }
    // Headers that ask for another method than the first line.
    for headers in [
        "x-http-method-override: POST\r\n",
        "x-method-override: DELETE\r\nx-http-method: DELETE\r\n",
    ] {
        for (method, path) in [
            ("POST", "/v1/items/1/votes/ada"),
            ("POST", "/v1/api-keys/1"),
            ("PUT", "/v1/items"),
        ] {
            let bytes = request(method, path, target.host(), &(bearer(admin) + headers), body);
            look(format!("{method} {path} {headers}"), bytes).await;
        }
    }
    // A key does what its scope says, and nothing else.
    for (key, method, path, body) in [
        (vote, "POST", "/v1/items", body),
        (
            vote,
            "POST",
            "/v1/polls",
            "{\"title\":\"x\",\"choices\":[\"a\",\"b\"]}",
        ),
        (vote, "PATCH", "/v1/items/1", "{\"name\":\"y\"}"),
        (vote, "POST", "/v1/items/1/ballots", "{\"count\":1}"),
        (vote, "GET", "/v1/api-keys", ""),
        (vote, "DELETE", "/v1/api-keys/1", ""),
        (vote, "GET", "/metrics", ""),
        (report, "POST", "/v1/items/1/votes", "{}"),
        (report, "PUT", "/v1/items/1/votes/ada", "{\"value\":1}"),
        (report, "GET", "/v1/items/1/votes/ada", ""),
        (report, "GET", "/v1/api-keys", ""),
        (admin, "POST", "/v1/items/1/votes", "{\"voter_id\":\"ada\"}"),
        (admin, "POST", "/v1/items/key:new/votes", "{\"voter_id\":\"ada\"}"),
        (admin, "PUT", "/v1/items/1/votes/ada", "{\"value\":1}"),
        (admin, "GET", "/metrics", ""),
    ] {
        let bytes = request(method, path, target.host(), &bearer(key), body);
        look(format!("{method} {path}"), bytes).await;
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The right key in the right place, with the scheme in other letters.
    let headers = format!("AUTHORIZATION: bEARER {admin}\r\n");
    let bytes = request("POST", "/v1/items", target.host(), &headers, body);
    assert_eq!(statuses(&target.send(&bytes).await), [201]);
}

/// Paths that a proxy and a server could read as two.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_is_read_in_one_way_and_no_other_spelling_of_it_needs_less() {
    let target = Target::start().await;
    let before = held(&target.tally.pool).await;
    let mut wrong = String::new();
    for (method, path, body) in [
        ("GET", "/%6detrics", ""),
        ("GET", "/metrics/", ""),
        ("GET", "//metrics", ""),
        ("GET", "/./metrics", ""),
        ("GET", "/health/../metrics", ""),
        ("GET", "/health/%2e%2e/metrics", ""),
        ("GET", "/health/..%2fmetrics", ""),
        ("GET", "/metrics%00", ""),
        ("GET", "/metrics%20", ""),
        ("GET", "/metrics;x", ""),
        ("GET", "/METRICS", ""),
        ("GET", "/metrics?x=/health/live", ""),
        ("GET", "/v1/%61pi-keys", ""),
        ("GET", "/v1/items/../api-keys", ""),
        ("GET", "/v1/items/%2e%2e%2fapi-keys", ""),
        ("GET", "/v1/items/1/votes/%2e%2e", ""),
        ("GET", "/v1/items/1%2fvotes%2fada", ""),
        ("GET", "/v1/items/1/votes/ada/../bob", ""),
        ("GET", "\\v1\\api-keys", ""),
        ("GET", "/v1\\api-keys", ""),
        ("GET", "http://evil.example/metrics", ""),
        ("GET", "*", ""),
        ("OPTIONS", "*", ""),
        ("TRACE", "/", ""),
        ("CONNECT", "evil.example:443", ""),
        ("post", "/v1/items", "{\"name\":\"y\"}"),
        ("POST", "/v1//items", "{\"name\":\"y\"}"),
        ("POST", "/v1/items/", "{\"name\":\"y\"}"),
        ("POST", "/v1/items%2f", "{\"name\":\"y\"}"),
        ("POST", "/v1%2fitems", "{\"name\":\"y\"}"),
        ("POST", "/%76%31/items", "{\"name\":\"y\"}"),
        ("POST", "http://evil.example/v1/items", "{\"name\":\"y\"}"),
        ("POST", "https://evil.example/v1/items", "{\"name\":\"y\"}"),
        ("POST", "/v1/items/%31/votes", "{\"voter_id\":\"ada\"}"),
        ("POST", "/v1/items/key%3anew/votes", "{\"voter_id\":\"ada\"}"),
        ("POST", "/v1/items/1/votes%3f", "{\"voter_id\":\"ada\"}"),
        ("PUT", "/v1/items/1/votes/%00", "{\"value\":1}"),
        (
            "PUT",
            "/v1/items/1/votes/..%2f..%2f2%2fvotes%2fada",
            "{\"value\":1}",
        ),
        ("PUT", "/v1/items/1/votes/%ff", "{\"value\":1}"),
        ("PUT", "/v1/items/1/votes/%", "{\"value\":1}"),
        ("DELETE", "/v1/api-keys/%31", ""),
        ("DELETE", "/v1/api-keys/1%00", ""),
        ("DELETE", "/v1/api-keys/01", ""),
        ("DELETE", "/v1/api-keys/1/", ""),
    ] {
        let bytes = request(method, path, target.host(), "", body);
        let answer = target.send(&bytes).await;
        let (got, now) = (statuses(&answer), held(&target.tally.pool).await);
        let is_refused = got.len() == 1 && [400, 401, 404, 405, 422].contains(&got[0]);
        if !is_refused || now != before || answer.contains("tally_votes_total") {
            let _ = writeln!(wrong, "{method} {path}: {got:?} {now:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    // A server's name in the first line does not send the request elsewhere.
    let elsewhere = request("GET", "http://evil.example/v1/items", target.host(), "", "");
    let answer = target.send(&elsewhere).await;
    assert_eq!(statuses(&answer), [200]);
    assert!(!answer.contains("evil"), "{answer}");
}

/// The server is open: a page's writes need no credential there, only an origin.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_page_writes_nothing_whatever_it_says_of_where_it_is_from() {
    let tally = Tally::start().await;
    tally.item("x").await;
    let host = tally.base.trim_start_matches("http://").to_owned();
    let before = held(&tally.pool).await;
    let simple = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
    ];
    let origins = [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        String::new(),
        format!("http://{host}.evil.example"),
        format!("http://{host}@evil.example"),
        format!("http://evil.example#http://{host}"),
        format!("http://evil.example, http://{host}"),
        format!("http://{host} http://evil.example"),
        format!("http://{host}/"),
        format!("//{host}"),
        format!("ftp://{host}"),
        host.clone(),
        format!("file://{host}"),
        format!("http://{}", host.split(':').next().expect("a host")),
        format!("http://{host}0"),
    ];
    let mut wrong = String::new();
    let mut look = async |headers: String, line: &str| {
        for body in ["", "{}"] {
            let bytes = format!(
                "{line} HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            let answer = exchange(&tally.base, bytes.as_bytes()).await;
            let (got, now) = (statuses(&answer), held(&tally.pool).await);
            let is_refused = got == [403] || got == [400];
            if !is_refused || now != before || !header(&answer, "access-control-allow-origin").is_empty() {
                let _ = writeln!(wrong, "{line} {headers:?}: {got:?} {now:?}");
            }
        }
    };
    for origin in &origins {
        for content_type in simple {
            let content_type = match content_type {
                "" => String::new(),
                named => format!("content-type: {named}\r\n"),
            };
            let headers = format!("host: {host}\r\norigin: {origin}\r\n{content_type}");
            look(headers, "POST /v1/items/1/votes").await;
        }
    }
    let evil = "origin: https://evil.example\r\n";
    for (headers, line) in [
        (format!("host: {host}\r\n{evil}{evil}"), "POST /v1/items/1/votes"),
        (
            format!("host: {host}\r\norigin: http://{host}\r\n{evil}"),
            "POST /v1/items/1/votes",
        ),
        (
            format!("host: {host}\r\n{evil}origin: http://{host}\r\n"),
            "POST /v1/items/1/votes",
        ),
        (
            format!(
                "host: {host}\r\nx-forwarded-host: evil.example\r\nforwarded: host=evil.example\r\n{evil}"
            ),
            "POST /v1/items/1/votes",
        ),
        (
            format!("host: {host}\r\nx-original-host: evil.example\r\nreferer: http://{host}/\r\n{evil}"),
            "POST /v1/items/1/votes",
        ),
        (
            format!("host: {host}\r\n{evil}"),
            "POST https://evil.example/v1/items/1/votes",
        ),
        (
            format!("host: {host}\r\n{evil}x-http-method-override: GET\r\n"),
            "POST /v1/items/1/votes",
        ),
        (
            format!("host: {host}\r\nhost: evil.example\r\n{evil}"),
            "POST /v1/items/1/votes",
        ),
        (format!("{evil}x: y\r\n"), "POST /v1/items/1/votes"),
        (format!("host:\r\n{evil}"), "POST /v1/items/1/votes"),
        (format!("host: {host}\r\n{evil}"), "POST /v1/items"),
        (format!("host: {host}\r\n{evil}"), "POST /v1/votes"),
        (format!("host: {host}\r\n{evil}"), "PUT /v1/items/1/votes/ada"),
        (format!("host: {host}\r\n{evil}"), "DELETE /v1/api-keys/1"),
        (format!("host: {host}\r\n{evil}"), "PROPFIND /v1/items"),
    ] {
        look(headers, line).await;
    }
    assert!(wrong.is_empty(), "{wrong}");
    // The server's own page may write: it was the origin that was refused.
    let own = format!(
        "POST /v1/items/1/votes HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\ncontent-length: 0\r\n\r\n"
    );
    assert_eq!(statuses(&exchange(&tally.base, own.as_bytes()).await), [201]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_key_is_its_hash_alone() {
    let target = Target::start().await;
    let (is_hash, row): (bool, String) =
        sqlx::query_as("select key_hash = sha256(convert_to($1, 'utf8')), to_jsonb(api_key)::text from api_key where 'admin' = any(scopes)")
            .bind(&target.admin)
            .fetch_one(&target.tally.pool)
            .await
            .expect("Postgres answers");
    assert!(is_hash, "{row}");
    let digits = target.admin.trim_start_matches("tally_");
    for part in [&digits[..16], &digits[16..32], &digits[48..]] {
        assert!(!row.contains(part), "{row}");
    }
}
