//! A client of Tally's HTTP interface. It knows the server only as any client does.

use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};

use crate::domain::Value;

/// How long one request may take. It is longer than the server takes at the most for a vote
/// whose batch is stored at once (`limits.rs`), so the server's answer comes first.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// What became of a vote, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Repeated,
    /// The server refused the vote; the text is its status and its reason.
    Refused(String),
    /// There is no answer, or none that Tally would give.
    Failed(String),
}

/// How long a health check waits for the answer.
pub(crate) const HEALTH_LIMIT: Duration = Duration::from_secs(3);

/// Asks a URL once: whether the answer is a success, and its body.
///
/// # Errors
/// When there is no answer.
pub async fn ask(url: &Url) -> anyhow::Result<(bool, String)> {
    let client = reqwest::Client::builder()
        .timeout(HEALTH_LIMIT)
        .no_proxy()
        .build()?;
    let response = client
        .get(url.clone())
        .send()
        .await
        .with_context(|| format!("no answer from {}", public(url)))?;
    Ok((response.status().is_success(), response.text().await?))
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
}

#[derive(Serialize)]
struct VoteBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    voter_id: Option<&'a str>,
    value: i16,
}

#[derive(Deserialize)]
struct Item {
    id: i64,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: Option<String>,
}

impl Client {
    /// Makes no connection yet. Keeps up to `connections` open between requests.
    ///
    /// # Errors
    /// When the URL is not an http:// URL.
    pub fn new(base: &Url, connections: usize) -> anyhow::Result<Self> {
        if base.scheme() != "http" || base.cannot_be_a_base() {
            bail!("--url is {}; it takes http://host:port", public(base));
        }
        let http = reqwest::Client::builder()
            .timeout(REQUEST_LIMIT)
            .tcp_nodelay(true)
            .no_proxy()
            .pool_max_idle_per_host(connections)
            .build()?;
        Ok(Self {
            http,
            base: base.clone(),
        })
    }

    /// The id of the oldest item with this name. The item is made if there is none.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn find_or_create_item(&self, name: &str) -> anyhow::Result<i64> {
        let url = self.base.join("/v1/items")?;
        let unavailable = || format!("no answer from {}; is Tally running there?", public(&self.base));
        let found = self
            .http
            .get(url.clone())
            .query(&[("name", name), ("limit", "1")]);
        let found = found.send().await.with_context(unavailable)?;
        let list: List = expect(found, StatusCode::OK).await?.json().await?;
        if let Some(item) = list.items.first() {
            return Ok(item.id);
        }
        let made = self.http.post(url).json(&serde_json::json!({ "name": name }));
        let made = made.send().await.with_context(unavailable)?;
        let item: Item = expect(made, StatusCode::CREATED).await?.json().await?;
        Ok(item.id)
    }

    /// Casts one vote, once.
    pub async fn cast(&self, item: i64, voter: Option<&str>, value: Value) -> Outcome {
        let url = match self.base.join(&format!("/v1/items/{item}/votes")) {
            Ok(url) => url,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let body = VoteBody {
            voter_id: voter,
            value: value.get(),
        };
        match self.http.post(url).json(&body).send().await {
            Ok(response) => match response.status() {
                // The body is read to its end, so that the connection can be used again.
                StatusCode::CREATED => read(response, Outcome::Accepted).await,
                StatusCode::OK => read(response, Outcome::Repeated).await,
                _ => Outcome::Refused(problem(response).await),
            },
            Err(error) => Outcome::Failed(root(&error)),
        }
    }
}

async fn read(response: reqwest::Response, outcome: Outcome) -> Outcome {
    match response.bytes().await {
        Ok(_) => outcome,
        Err(error) => Outcome::Failed(root(&error)),
    }
}

async fn expect(response: reqwest::Response, status: StatusCode) -> anyhow::Result<reqwest::Response> {
    if response.status() == status {
        return Ok(response);
    }
    let (url, got) = (public(response.url()), response.status());
    bail!("{url} answered {got}: {}", problem(response).await)
}

/// The status of a refusal, and its reason if it is a problem+json.
async fn problem(response: reqwest::Response) -> String {
    let status = response.status();
    match response.json::<Problem>().await {
        Ok(Problem { title, detail }) => format!("{} {}", status.as_u16(), detail.unwrap_or(title)),
        Err(_) => status.to_string(),
    }
}

/// A URL as it may be shown: without user and password.
fn public(url: &Url) -> Url {
    let mut url = url.clone();
    // A URL that can have neither has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// The innermost cause: the outer ones repeat the URL.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
