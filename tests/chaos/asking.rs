//! One request, and what came of it.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::Value;
use tokio::time::sleep;

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its status and body; `None`: no whole answer came.
    pub answer: Option<(u16, Value)>,
    /// Just before it was sent.
    pub called: Instant,
    /// Just after the answer had come, or the client had given it up.
    pub returned: Instant,
}

impl Asked {
    pub fn answer(&self) -> Option<(u16, &Value)> {
        self.answer.as_ref().map(|(status, body)| (*status, body))
    }
}

/// The status of a request that a throttle refused. Such a request had no effect.
const THROTTLED: u16 = 429;
/// When such a request is sent again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Sends a request, with a body unless that is null, until no throttle refuses it.
pub async fn ask(
    http: &reqwest::Client,
    method: Method,
    url: String,
    body: &Value,
    limit: Duration,
) -> Asked {
    let called = Instant::now();
    let answer = loop {
        let left = limit.saturating_sub(called.elapsed());
        let mut request = http.request(method.clone(), &url).timeout(left);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            Some((status, response.json::<Value>().await.ok()?))
        };
        match answer.await {
            Some((THROTTLED, _)) => sleep(AGAIN_AFTER).await,
            answer => break answer,
        }
    };
    Asked {
        answer,
        called,
        returned: Instant::now(),
    }
}
