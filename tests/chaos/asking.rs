//! One request, and what came of it.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its status and body; `None`: no whole answer came.
    pub answer: Option<(u16, Value)>,
    /// Just before it was sent.
    pub called: Instant,
    /// Just after the answer had come, or was waited for no longer.
    pub returned: Instant,
}

impl Asked {
    pub fn answer(&self) -> Option<(u16, &Value)> {
        self.answer.as_ref().map(|(status, body)| (*status, body))
    }
}

/// Sends a request, with a body unless that is null.
pub async fn ask(
    http: &reqwest::Client,
    method: Method,
    url: String,
    body: &Value,
    limit: Duration,
) -> Asked {
    let mut request = http.request(method, url).timeout(limit);
    if !body.is_null() {
        request = request.json(body);
    }
    let called = Instant::now();
    let answer = async {
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json::<Value>().await.ok()?))
    };
    let answer = answer.await;
    Asked {
        answer,
        called,
        returned: Instant::now(),
    }
}
