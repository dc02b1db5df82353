//! Asks a server, as any client does.

use anyhow::{Context, bail};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use crate::client::{REQUEST_LIMIT, credentials};
use crate::config::operator::Remote;

/// A server's HTTP interface.
pub struct Api {
    http: reqwest::Client,
    base: Url,
}

impl Api {
    /// Makes no connection yet.
    ///
    /// # Errors
    /// When the URL is not an http:// URL.
    pub fn new(remote: &Remote) -> anyhow::Result<Self> {
        let base = &remote.url;
        if base.scheme() != "http" || base.cannot_be_a_base() {
            bail!("--url takes http://host:port");
        }
        let http = reqwest::Client::builder()
            .timeout(REQUEST_LIMIT)
            .default_headers(credentials(remote.credential.api_key.as_ref()))
            .no_proxy()
            .build()?;
        Ok(Self {
            http,
            base: base.clone(),
        })
    }

    /// Sends a request; `path` has the parts of the path, as they are before encoding. Returns the
    /// status and the answer.
    ///
    /// # Errors
    /// When the server does not answer, or refuses: in the server's own words.
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
        let response = request.send().await;
        let host = self.base.host_str().unwrap_or_default();
        let port = self.base.port_or_known_default().unwrap_or_default();
        let response = response
            .with_context(|| format!("no answer from http://{host}:{port}; is Tally running there?"))?;
        let status = response.status();
        let answer: Option<Value> = response.json().await.ok();
        match answer {
            Some(answer) if status.is_success() => Ok((status, answer)),
            Some(Value::Object(problem)) => {
                let said = problem.get("detail").or_else(|| problem.get("title"));
                let said = said.and_then(Value::as_str).unwrap_or("no reason is given");
                bail!("{} {said}", status.as_u16())
            }
            _ => bail!("http://{host}:{port} answered {status}, and not as Tally does"),
        }
    }
}
