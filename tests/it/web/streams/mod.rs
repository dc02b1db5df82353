//! Live streams: what they show, and how much of the server their clients may use.

mod clients;
mod counts;
mod polls;

use std::collections::HashMap;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use crate::helpers::tally::Tally;

/// Longer than any event takes. No test measures it.
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// A client that reads a stream.
pub struct Reader {
    answer: Response,
    rest: Vec<u8>,
    /// The id of the last event.
    pub last_id: String,
    /// What the stream showed last of each item and each poll.
    pub items: HashMap<i64, Value>,
    pub polls: HashMap<i64, Value>,
    /// What does not exist, as the stream said when it opened.
    pub unknown: Option<Value>,
}

impl Reader {
    /// Opens a stream at this path, which must be accepted.
    pub async fn open(tally: &Tally, base: &str, path: &str) -> Self {
        Self::open_after(tally, base, path, "").await
    }

    /// The same for a client that was shown something before.
    pub async fn open_after(tally: &Tally, base: &str, path: &str, last_id: &str) -> Self {
        let mut request = tally.http.get(format!("{base}{path}"));
        if !last_id.is_empty() {
            request = request.header("last-event-id", last_id);
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["cache-control"], "no-store, no-transform");
        assert_eq!(answer.headers()["x-accel-buffering"], "no");
        Self {
            answer,
            rest: Vec::new(),
            last_id: String::new(),
            items: HashMap::new(),
            polls: HashMap::new(),
            unknown: None,
        }
    }

    /// The next event with counts; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.frame().await? {
                return Some(event);
            }
        }
    }

    /// Reads until the stream has said what does not exist.
    pub async fn until_unknown(&mut self) -> &Value {
        while self.unknown.is_none() {
            self.frame().await.expect("the stream goes on");
        }
        self.unknown.as_ref().expect("it was said")
    }

    /// The next frame: an event with counts, or something else.
    async fn frame(&mut self) -> Option<Option<Value>> {
        loop {
            // A chunk may end within a character.
            if let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
                let frame = self.rest.drain(..end + 2).collect();
                let frame = String::from_utf8(frame).expect("UTF-8");
                return Some(self.take(&frame));
            }
            let bytes = timeout(EVENT_LIMIT, self.answer.chunk()).await.expect("an event");
            // A stream that is cut off has ended, too.
            self.rest.extend_from_slice(&bytes.ok()??);
        }
    }

    fn take(&mut self, frame: &str) -> Option<Value> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ")?;
        if field("event: ") == Some("unknown") {
            assert!(
                self.unknown.is_none() && self.last_id.is_empty() && field("id: ").is_none(),
                "it comes once, and first: {frame}"
            );
            self.unknown = Some(serde_json::from_str(data).expect("JSON"));
            return None;
        }
        assert_eq!(field("event: "), Some("counts"), "{frame}");
        self.last_id = field("id: ").expect("an id").to_owned();
        let event: Value = serde_json::from_str(data).expect("JSON");
        for (name, shown) in [("items", &mut self.items), ("polls", &mut self.polls)] {
            for one in event[name].as_array().expect("an array") {
                shown.insert(one["id"].as_i64().expect("an id"), one.clone());
            }
        }
        Some(event)
    }

    /// Reads events until this is true of what was shown.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let shown = timeout(EVENT_LIMIT, async {
            while !is_so(self) {
                self.next().await.expect("the stream goes on");
            }
        });
        if shown.await.is_err() {
            panic!("{what}: {:?} {:?}", self.items, self.polls);
        }
    }

    /// The last count that the stream showed of this item.
    pub fn count(&self, item: i64) -> Option<i64> {
        self.items.get(&item)?["vote_count"].as_i64()
    }
}

/// An item or a poll as a stream shows it, without a current count's saved part.
/// That part changes when a worker saves.
fn without_saved(mut shown: Value) -> Value {
    if shown["current"] == true
        && let Some(fields) = shown.as_object_mut()
    {
        fields.remove("saved");
    }
    shown
}
