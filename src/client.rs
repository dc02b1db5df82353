//! A client of Tally's HTTP interface. It uses only what any client can use.

use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::domain::{ApiKey, Value};

/// How long one request may take. The server takes less for a vote whose batch is stored at once
/// (`limit_relations.rs`), so its answer comes first.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The longest answer that is read into memory. Tally's longest is a page of 1,000 items, some 1.5 MB.
pub(crate) const ANSWER_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// Why an answer could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the answer did not arrive whole")]
    Lost(#[source] reqwest::Error),
    #[error("the answer has more than {ANSWER_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("the answer is not Tally's")]
    NotTally(#[source] serde_json::Error),
}

/// Reads an answer to its end, up to [`ANSWER_LIMIT_BYTES`]. Whoever answers may not be Tally.
pub(crate) async fn read_answer(mut response: reqwest::Response) -> Result<Vec<u8>, AnswerError> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(AnswerError::Lost)? {
        if bytes.len() + piece.len() > ANSWER_LIMIT_BYTES {
            return Err(AnswerError::TooLong);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Reads an answer in JSON, as [`read_answer`] does.
pub(crate) async fn read_json<T: DeserializeOwned>(response: reqwest::Response) -> Result<T, AnswerError> {
    let bytes = read_answer(response).await?;
    serde_json::from_slice(&bytes).map_err(AnswerError::NotTally)
}

/// What became of a vote, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new vote is stored.
    Accepted,
    /// The voter held a vote of another value.
    Changed,
    TakenBack,
    /// Nothing had to change; nothing is stored.
    Repeated,
    /// The server refused the vote. The text is its status and its reason.
    Refused(String),
    /// There is no answer, or one that Tally would not give.
    Failed(String),
}

/// How long a health check waits for the answer.
pub(crate) const HEALTH_LIMIT: Duration = Duration::from_secs(3);

/// The headers of each request of a client with this API key.
pub(crate) fn credentials(api_key: Option<&ApiKey>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = api_key.map(|key| HeaderValue::try_from(format!("Bearer {}", key.as_str())));
    if let Some(Ok(mut value)) = value {
        // Keeps it out of Debug output.
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers
}

/// Asks a URL once. Returns whether the answer is a success, and its body.
///
/// # Errors
/// When there is no answer, or one that is too long.
pub async fn ask(url: &Url, api_key: Option<&ApiKey>) -> anyhow::Result<(bool, String)> {
    let client = reqwest::Client::builder()
        .default_headers(credentials(api_key))
        .timeout(HEALTH_LIMIT)
        .no_proxy()
        .build()?;
    let response = client
        .get(url.clone())
        .send()
        .await
        .with_context(|| format!("no answer from {}", public(url)))?;
    let is_success = response.status().is_success();
    let answer = read_answer(response)
        .await
        .with_context(|| public(url).to_string())?;
    Ok((is_success, String::from_utf8_lossy(&answer).into_owned()))
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

#[derive(Serialize)]
struct ChangeBody {
    value: i16,
}

#[derive(Serialize)]
struct PollBody<'a> {
    title: &'a str,
    choices: &'a [String],
    max_choices: usize,
}

/// An item's counts, as the server shows them.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Item {
    pub id: i64,
    /// `None`: the item's poll hides it.
    pub up_count: Option<i64>,
    pub down_count: Option<i64>,
}

/// A poll and its results, as the server shows them.
#[derive(Debug, Deserialize)]
pub struct Poll {
    pub id: i64,
    pub title: String,
    pub choices: Vec<Choice>,
    /// How many voters hold a choice.
    pub voter_count: Option<i64>,
}

/// A choice of a poll.
#[derive(Debug, Deserialize)]
pub struct Choice {
    pub item_id: i64,
    pub name: String,
    pub vote_count: Option<i64>,
    /// The choice's part of all votes, 0 to 1; `None`: there are no votes.
    pub share: Option<f64>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

/// What the answer to a change says about it, besides its status.
#[derive(Deserialize)]
struct Change {
    #[serde(default)]
    repeated: bool,
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: Option<String>,
}

impl Client {
    /// A client without a connection yet. Keeps up to `connections` open between requests.
    ///
    /// # Errors
    /// When the URL is not an http:// URL.
    pub fn new(base: &Url, connections: usize, api_key: Option<&ApiKey>) -> anyhow::Result<Self> {
        if base.scheme() != "http" || base.cannot_be_a_base() {
            bail!("--url is {}; it takes http://host:port", public(base));
        }
        let http = reqwest::Client::builder()
            .timeout(REQUEST_LIMIT)
            .default_headers(credentials(api_key))
            .tcp_nodelay(true)
            .no_proxy()
            .pool_max_idle_per_host(connections)
            .build()?;
        Ok(Self {
            http,
            base: base.clone(),
        })
    }

    /// Finds the oldest item with this name, or creates one. Returns its id, and whether it was
    /// created.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn find_or_create_item(&self, name: &str) -> anyhow::Result<(i64, bool)> {
        let url = self.base.join("/v1/items")?;
        let found = self
            .http
            .get(url.clone())
            .query(&[("name", name), ("limit", "1")]);
        let list: List = self.ask(found, StatusCode::OK).await?;
        if let Some(item) = list.items.first() {
            return Ok((item.id, false));
        }
        let made = self.http.post(url).json(&serde_json::json!({ "name": name }));
        let item: Item = self.ask(made, StatusCode::CREATED).await?;
        Ok((item.id, true))
    }

    /// An item's counts.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn item(&self, id: i64) -> anyhow::Result<Item> {
        let url = self.base.join(&format!("/v1/items/{id}"))?;
        self.ask(self.http.get(url), StatusCode::OK).await
    }

    /// Creates a poll. `max_choices`: 0 for any number.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn create_poll(
        &self,
        title: &str,
        choices: &[String],
        max_choices: usize,
    ) -> anyhow::Result<Poll> {
        let body = PollBody {
            title,
            choices,
            max_choices,
        };
        let made = self.http.post(self.base.join("/v1/polls")?).json(&body);
        self.ask(made, StatusCode::CREATED).await
    }

    /// A poll and its results.
    ///
    /// # Errors
    /// When the server does not answer, or refuses.
    pub async fn poll(&self, id: i64) -> anyhow::Result<Poll> {
        let url = self.base.join(&format!("/v1/polls/{id}"))?;
        self.ask(self.http.get(url), StatusCode::OK).await
    }

    /// The body of an answer, which must have this status.
    async fn ask<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
        status: StatusCode,
    ) -> anyhow::Result<T> {
        let unavailable = || format!("no answer from {}; is Tally running there?", public(&self.base));
        let response = request.send().await.with_context(unavailable)?;
        let response = expect(response, status).await?;
        read_json(response)
            .await
            .with_context(|| public(&self.base).to_string())
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
                // The body is read to its end, so that the connection can be reused.
                StatusCode::CREATED => read(response, Outcome::Accepted).await,
                StatusCode::OK => read(response, Outcome::Repeated).await,
                _ => Outcome::Refused(problem(response).await),
            },
            Err(error) => Outcome::Failed(root(&error)),
        }
    }

    /// Sets what a voter holds on an item, once; `None` takes the vote back.
    pub async fn set(&self, item: i64, voter: &str, value: Option<Value>) -> Outcome {
        let Some(url) = self.vote_url(item, voter) else {
            return Outcome::Failed(format!("{} cannot be the beginning of a URL", public(&self.base)));
        };
        let request = match value {
            Some(value) => self.http.put(url).json(&ChangeBody { value: value.get() }),
            None => self.http.delete(url),
        };
        match request.send().await {
            Ok(response) => match response.status() {
                StatusCode::CREATED => read(response, Outcome::Accepted).await,
                StatusCode::OK => match read_json(response).await {
                    Ok(Change { repeated: true }) => Outcome::Repeated,
                    Ok(_) if value.is_none() => Outcome::TakenBack,
                    Ok(_) => Outcome::Changed,
                    Err(error) => Outcome::Failed(error.to_string()),
                },
                _ => Outcome::Refused(problem(response).await),
            },
            Err(error) => Outcome::Failed(root(&error)),
        }
    }

    /// The URL of a voter's vote on an item. A proxy may decode `%2F` in a path, and a path has no `.` and
    /// `..`, so a voter with other letters than those that need no encoding stands in the query.
    fn vote_url(&self, item: i64, voter: &str) -> Option<Url> {
        let mut url = self.base.join(&format!("/v1/items/{item}/votes")).ok()?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.');
        if voter.bytes().all(is_plain) && !voter.starts_with('.') {
            url.path_segments_mut().ok()?.push(voter);
        } else {
            url.query_pairs_mut().append_pair("voter_id", voter);
        }
        Some(url)
    }
}

async fn read(response: reqwest::Response, outcome: Outcome) -> Outcome {
    match read_answer(response).await {
        Ok(_) => outcome,
        Err(error) => Outcome::Failed(error.to_string()),
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
    match read_json::<Problem>(response).await {
        Ok(Problem { title, detail }) => format!("{} {}", status.as_u16(), detail.unwrap_or(title)),
        Err(AnswerError::TooLong) => format!("{status}: {}", AnswerError::TooLong),
        Err(_) => status.to_string(),
    }
}

/// A URL without user and password, so that it may be shown.
fn public(url: &Url) -> Url {
    let mut url = url.clone();
    // A URL that cannot have them has none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_whom_a_path_cannot_carry_through_every_proxy_is_in_the_query() {
        let base: Url = "http://127.0.0.1:8080".parse().expect("a URL");
        let client = Client::new(&base, 1, None).expect("a client");
        for (voter, rest) in [
            ("ada", "/ada"),
            ("A-b_c~1.2", "/A-b_c~1.2"),
            ("a/b?c#d%e", "?voter_id=a%2Fb%3Fc%23d%25e"),
            ("ä b+", "?voter_id=%C3%A4+b%2B"),
            ("a\\b", "?voter_id=a%5Cb"),
            (".", "?voter_id=."),
            ("..", "?voter_id=.."),
        ] {
            let url = client.vote_url(7, voter).map(String::from);
            assert_eq!(url, Some(format!("http://127.0.0.1:8080/v1/items/7/votes{rest}")));
        }
    }
}
