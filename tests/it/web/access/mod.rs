//! Access: who may do what.

mod addresses;
mod api_keys;
mod attacks;
pub mod credentials;
mod headers;
mod matrix;
mod open_items;
mod origins;
pub mod raw;
mod trail;
mod voters;
mod votes_of_keys;

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tally::domain::{ApiKey, ApiKeyId, NewApiKey, Scope};
use tally::ledger::{OperatorLedger, Role};

use crate::helpers::answers;
use crate::helpers::tally::Tally;

/// The ledger of `tally key`, with the login of an operator.
fn operator(tally: &Tally) -> OperatorLedger {
    OperatorLedger::new(tally.stores.login_url(Role::Operator), "test").expect("a URL")
}

/// Makes an API key with these scopes.
pub async fn api_key(tally: &Tally, scopes: &[Scope]) -> (ApiKeyId, ApiKey) {
    let key = ApiKey::fresh();
    let new = NewApiKey {
        name: "test".to_owned(),
        scopes: scopes.iter().copied().collect(),
        expires_at: None,
    };
    let id = operator(tally).create_api_key(&key.hash(), &new).await;
    (id.expect("Postgres answers"), key)
}

/// The credential that a request carries.
#[derive(Clone, Debug)]
pub enum Credential {
    None,
    Bearer(String),
    /// The value of the header Cookie.
    Cookie(String),
}

/// Sends a request with this Authorization header.
/// Returns its status and its problem's name.
async fn send(
    tally: &Tally,
    base: &str,
    request: (Method, &str),
    authorization: Option<&str>,
    body: Option<&Value>,
) -> (StatusCode, String) {
    let header = authorization.map(|value| ("authorization", value));
    send_with(tally, base, request, header, body).await
}

/// Sends a request with this credential. Returns its status and its problem's name.
async fn send_as(
    tally: &Tally,
    base: &str,
    request: (Method, &str),
    credential: &Credential,
    body: Option<&Value>,
) -> (StatusCode, String) {
    match credential {
        Credential::None => send_with(tally, base, request, None, body).await,
        Credential::Cookie(value) => send_with(tally, base, request, Some(("cookie", value)), body).await,
        Credential::Bearer(token) => {
            let value = format!("Bearer {token}");
            send_with(tally, base, request, Some(("authorization", &value)), body).await
        }
    }
}

async fn send_with(
    tally: &Tally,
    base: &str,
    (method, path): (Method, &str),
    header: Option<(&str, &str)>,
    body: Option<&Value>,
) -> (StatusCode, String) {
    let mut request = tally.http.request(method.clone(), format!("{base}{path}"));
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    let (status, headers) = (answer.status(), answer.headers().clone());
    // A stream has no end.
    if headers
        .get("content-type")
        .is_some_and(|kind| kind == "text/event-stream")
    {
        return (status, String::new());
    }
    let text = answer.text().await.expect("a text");
    answers::check(&method, path, status, &headers, text.as_bytes());
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let name = body["type"].as_str().unwrap_or_default();
    (status, name.trim_start_matches("/problems/").to_owned())
}
