//! A client of a server's HTTP API.

use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;

use crate::client::{AnswerError, REQUEST_LIMIT, credentials, read_json};
use crate::config::remote::Remote;

/// The content type of a stream.
const EVENTS: &str = "text/event-stream";
/// How long a stream may be silent: three heartbeats of a server.
const SILENCE_LIMIT: Duration = Duration::from_secs(45);

/// The HTTP API of a server.
pub struct Api {
    http: reqwest::Client,
    /// The client for answers without an end.
    streams: reqwest::Client,
    base: Url,
}

impl Api {
    /// Makes the client, but no connection yet. Fails when the URL is not an http:// URL.
    pub fn new(remote: &Remote) -> anyhow::Result<Self> {
        let base = &remote.url;
        if base.scheme() != "http" || base.cannot_be_a_base() {
            bail!("--url takes http://host:port");
        }
        let client = || {
            reqwest::Client::builder()
                .default_headers(credentials(remote.credential.api_key.as_ref()))
                .no_proxy()
        };
        Ok(Self {
            http: client().timeout(REQUEST_LIMIT).build()?,
            streams: client()
                .connect_timeout(REQUEST_LIMIT)
                .read_timeout(SILENCE_LIMIT)
                .build()?,
            base: base.clone(),
        })
    }

    /// Sends a request, and returns the status and the answer.
    ///
    /// `path` has the parts of the path before encoding.
    ///
    /// # Errors
    /// Fails when the server does not answer, or refuses. The error then has the server's own words.
    pub async fn ask(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut url = self.base.clone();
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.clear().extend(path);
        }
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| self.no_answer())?;
        let status = response.status();
        if !status.is_success() {
            bail!(self.refusal(response).await);
        }
        match read_json(response).await {
            Ok(answer) => Ok((status, answer)),
            Err(AnswerError::NotTally(_)) => bail!(self.none_of_tally(status)),
            Err(error) => Err(anyhow::Error::from(error).context(self.address())),
        }
    }

    /// Opens a stream after the event with this id. A refusal is returned as an answer.
    ///
    /// # Errors
    /// Fails when the server does not answer, or answers with something other than a stream.
    pub async fn stream(&self, query: &[(&str, String)], last_id: &str) -> anyhow::Result<Response> {
        let mut url = self.base.clone();
        url.set_path("/v1/stream");
        let mut request = self.streams.get(url).query(query).header(ACCEPT, EVENTS);
        if !last_id.is_empty() {
            request = request.header("last-event-id", last_id);
        }
        let response = request.send().await.with_context(|| self.no_answer())?;
        let kind = response.headers().get(CONTENT_TYPE);
        let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(EVENTS.as_bytes()));
        if response.status().is_success() && !is_stream {
            bail!(self.none_of_tally(response.status()));
        }
        Ok(response)
    }

    /// Returns a refusal in the server's own words.
    pub async fn refusal(&self, response: Response) -> String {
        let status = response.status();
        let problem = match read_json(response).await {
            Ok(Value::Object(problem)) => problem,
            Ok(_) | Err(AnswerError::NotTally(_)) => return self.none_of_tally(status),
            Err(error) => return format!("{}: {error}", self.address()),
        };
        let said = problem.get("detail").or_else(|| problem.get("title"));
        let said = said.and_then(Value::as_str).unwrap_or("no reason is given");
        match problem.get("hint").and_then(Value::as_str) {
            Some(hint) => format!("{} {said} {hint}", status.as_u16()),
            None => format!("{} {said}", status.as_u16()),
        }
    }

    fn no_answer(&self) -> String {
        format!("no answer from {}; is Tally running there?", self.address())
    }

    fn none_of_tally(&self, status: StatusCode) -> String {
        format!("{} answered {status}, but not like Tally", self.address())
    }

    /// Returns the address without user and password.
    fn address(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        let port = self.base.port_or_known_default().unwrap_or_default();
        format!("http://{host}:{port}")
    }
}
