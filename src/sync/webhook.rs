//! The webhook: one request to it, as the Standard Webhooks specification has it, and when to send the next.
//!
//! Its URL is a setting of the worker alone, so nobody who uses Tally has a request sent anywhere. It gets nothing
//! but POST requests: no redirect is followed, and no proxy of the environment is used.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use tokio::time::Instant;

use crate::domain::{Moment, SecretKeys, Thresholds, without_wrapping};
use crate::ledger::{DueEvent, EVENT_LIMIT_WAIT, FailedDelivery};

/// How long connecting to the webhook may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long one delivery may take, from the connection to the end of the answer.
const DELIVERY_LIMIT: Duration = Duration::from_secs(10);
/// The most that is read of an answer, so that the connection serves the next request. Nothing in it matters.
const ANSWER_LIMIT_BYTES: usize = 64 << 10;
/// The most characters of why a delivery failed.
const PROBLEM_LIMIT_CHARS: usize = 300;

/// The wait before an event's second try, at most. It doubles with each try, up to [`EVENT_LIMIT_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The least wait before a try.
const WAIT_LEAST: Duration = Duration::from_millis(100);
/// How long nothing is sent after a round in which nothing was delivered, at most. It doubles with each such round,
/// up to [`PAUSE_LIMIT`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause of a webhook that does not answer. One event at a time then asks whether it does again.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// The most events of a round after one in which a webhook refused all: it answers, and may take others.
const REFUSED_ROUND_LIMIT_EVENTS: i64 = 8;
/// The longest pause of a webhook that answers, and refuses what it gets.
const REFUSED_PAUSE_LIMIT: Duration = Duration::from_secs(5);

/// The URL of a webhook. It may hold a password or a token, so debug output does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

/// Reads an absolute URL with http or https. What files and env files put around it is left out.
impl FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The message does not repeat the input: it may hold a secret.
        match Url::parse(without_wrapping(text)) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Self(url)),
            _ => Err("it takes a URL like https://example.org/tally".to_owned()),
        }
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("WebhookUrl(…)")
    }
}

/// Which webhook gets events, and which events there are.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    pub url: WebhookUrl,
    /// Each signs.
    pub keys: SecretKeys,
    pub thresholds: Thresholds,
}

/// A webhook. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhook {
    client: Client,
    options: WebhookOptions,
    pause: Arc<Mutex<Pause>>,
}

/// How one delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Delivered,
    Failed(FailedDelivery),
}

impl Webhook {
    /// Makes a client, which connects to nothing yet.
    ///
    /// # Errors
    /// When the URL has https, and this system trusts no authority.
    pub fn new(options: &WebhookOptions) -> anyhow::Result<Self> {
        let mut client = Client::builder()
            .user_agent(format!("tally/{}", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .timeout(DELIVERY_LIMIT);
        if options.url.0.scheme() == "https" {
            client = client.use_preconfigured_tls(tls()?);
        }
        Ok(Self {
            client: client.build().map_err(reqwest::Error::without_url)?,
            options: options.clone(),
            pause: Arc::default(),
        })
    }

    pub(super) fn thresholds(&self) -> &Thresholds {
        &self.options.thresholds
    }

    /// Sends an event.
    pub(super) async fn deliver(&self, event: &DueEvent) -> Delivery {
        match self.send(event).await {
            Ok(()) => Delivery::Delivered,
            Err(failure) => Delivery::Failed(FailedDelivery {
                is_refusal: failure.is_refusal,
                wait: wait(event.tries, rand::random_range(0.0..1.0)).max(failure.retry_after),
                problem: failure.problem.chars().take(PROBLEM_LIMIT_CHARS).collect(),
            }),
        }
    }

    async fn send(&self, event: &DueEvent) -> Result<(), Failure> {
        let body = body(event);
        let timestamp = (Moment::now().micros() / 1_000_000).to_string();
        let signatures = signatures(&self.options.keys, &event.message_id, &timestamp, &body);
        let request = self
            .client
            .post(self.options.url.0.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &event.message_id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signatures)
            .body(body);
        let answer = request.send().await?;
        let (status, retry_after) = (answer.status(), retry_after(&answer));
        // A webhook that does not end its answer has taken the event if it said so.
        drain(answer).await;
        if status.is_success() {
            return Ok(());
        }
        let redirects = if status.is_redirection() {
            ": no redirect is followed"
        } else {
            ""
        };
        Err(Failure {
            is_refusal: is_refusal(status),
            retry_after,
            problem: format!("the webhook answered {status}{redirects}"),
        })
    }

    /// How many events may be sent now, up to `most`.
    pub(super) fn may_send(&self, most: i64) -> i64 {
        let pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.may_send(most, Instant::now())
    }

    /// Notes how the deliveries of a round ended.
    pub(super) fn note_round(&self, round: &[Delivery]) {
        let mut pause = self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        pause.note(round, Instant::now(), rand::random_range(0.5..1.0));
    }
}

/// TLS that trusts the authorities of this system; `SSL_CERT_FILE` names others.
fn tls() -> anyhow::Result<rustls::ClientConfig> {
    let mut trusted = rustls::RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    trusted.add_parsable_certificates(found.certs);
    if trusted.is_empty() {
        let why = found
            .errors
            .first()
            .map_or(String::new(), |error| format!(": {error}"));
        anyhow::bail!(
            "TALLY_WEBHOOK_URL: no authority is trusted here{why}; install ca-certificates, or name a file in SSL_CERT_FILE"
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TALLY_WEBHOOK_URL: TLS")?;
    Ok(config.with_root_certificates(trusted).with_no_client_auth())
}

/// Why an event is not delivered.
struct Failure {
    is_refusal: bool,
    retry_after: Duration,
    problem: String,
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        let problem = if error.is_timeout() {
            format!("the webhook did not answer within {} s", DELIVERY_LIMIT.as_secs())
        } else {
            // The URL may hold a password.
            let error = error.without_url();
            let mut text = format!("the webhook is unavailable: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            text
        };
        Self {
            is_refusal: false,
            retry_after: Duration::ZERO,
            problem,
        }
    }
}

/// What the webhook gets: the same bytes at each try.
fn body(event: &DueEvent) -> String {
    // Postgres gives `data` as an object of JSON, and kinds are plain words.
    let DueEvent {
        kind,
        happened_at,
        data,
        ..
    } = event;
    format!(r#"{{"type":"{kind}","timestamp":"{happened_at}","data":{data}}}"#)
}

/// Pure: the header webhook-signature, with a signature by each key.
fn signatures(keys: &SecretKeys, id: &str, timestamp: &str, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    let signatures = keys.signatures(signed.as_bytes());
    let signatures: Vec<String> = signatures
        .map(|one| format!("v1,{}", BASE64_STANDARD.encode(one)))
        .collect();
    signatures.join(" ")
}

/// Pure: whether this status says that the webhook will not take the event, rather than not now.
fn is_refusal(status: StatusCode) -> bool {
    let is_for_now = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
    );
    status.is_client_error() && !is_for_now
}

/// For how long the answer asks to wait, in whole seconds; nothing, if it does not, or names a date.
fn retry_after(answer: &Response) -> Duration {
    let seconds = answer.headers().get(RETRY_AFTER);
    let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(EVENT_LIMIT_WAIT)
}

async fn drain(mut answer: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = answer.chunk().await {
        read += chunk.len();
        if read > ANSWER_LIMIT_BYTES {
            return;
        }
    }
}

/// Pure: the wait before the next try of an event that was tried so often before. `part`: of the longest wait, 0 to 1.
fn wait(tries: u32, part: f64) -> Duration {
    let longest = FIRST_WAIT
        .saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX))
        .min(EVENT_LIMIT_WAIT);
    longest.mul_f64(part).max(WAIT_LEAST)
}

/// Whether events are sent: not while the webhook does not answer.
#[derive(Debug, Default)]
struct Pause {
    /// Rounds without a delivery, since the last delivery.
    rounds: u32,
    until: Option<Instant>,
    /// Whether the webhook answered in the last of these rounds.
    is_answering: bool,
}

impl Pause {
    /// How many events may be sent now: one after a pause, since the webhook may still be down; some, if it answered.
    fn may_send(&self, most: i64, now: Instant) -> i64 {
        match self.until {
            Some(until) if now < until => 0,
            _ if self.rounds > 0 && self.is_answering => most.min(REFUSED_ROUND_LIMIT_EVENTS),
            _ if self.rounds > 0 => most.min(1),
            _ => most,
        }
    }

    /// Notes a round. `part`: how much of the pause to wait, 0 to 1, so that workers do not come at once.
    fn note(&mut self, round: &[Delivery], now: Instant, part: f64) {
        let failed: Vec<&FailedDelivery> = round
            .iter()
            .filter_map(|one| match one {
                Delivery::Delivered => None,
                Delivery::Failed(failed) => Some(failed),
            })
            .collect();
        if failed.len() < round.len() {
            *self = Self::default();
        } else if !round.is_empty() {
            self.is_answering = failed.iter().any(|one| one.is_refusal);
            let limit = match self.is_answering {
                true => REFUSED_PAUSE_LIMIT,
                false => PAUSE_LIMIT,
            };
            let pause = FIRST_PAUSE
                .saturating_mul(1_u32.checked_shl(self.rounds).unwrap_or(u32::MAX))
                .min(limit);
            self.rounds = self.rounds.saturating_add(1);
            self.until = Some(now + pause.mul_f64(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(is_refusal: bool) -> Delivery {
        Delivery::Failed(FailedDelivery {
            is_refusal,
            wait: Duration::ZERO,
            problem: String::new(),
        })
    }

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // An example of the specification, with its key in hexadecimal digits.
        let key = "3092e8eb0e4b8c5b3a8a5d0e9cbc4d9b".repeat(2);
        let keys: SecretKeys = format!("{key},{}", "ab".repeat(32)).parse().expect("keys");
        let header = signatures(&keys, "msg_1", "1614265330", "{\"test\": 2432232314}");
        let parts: Vec<&str> = header.split(' ').collect();
        assert_eq!(parts.len(), 2, "{header}");
        for (part, key) in parts.iter().zip([key, "ab".repeat(32)]) {
            let key: Vec<u8> = (0..32)
                .map(|at| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).expect("a digit"))
                .collect();
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
            let signature = part.strip_prefix("v1,").expect("its version");
            let signature = BASE64_STANDARD.decode(signature).expect("base64");
            let signed = b"msg_1.1614265330.{\"test\": 2432232314}";
            ring::hmac::verify(&key, signed, &signature).expect("it is signed");
        }
    }

    #[test]
    fn waits_double_from_a_second_to_an_hour_and_are_drawn() {
        let longest: Vec<u64> = (0..14).map(|tries| wait(tries, 1.0).as_secs()).collect();
        assert_eq!(
            longest,
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]
        );
        assert_eq!(wait(5, 0.5), Duration::from_secs(16));
        assert_eq!(
            (wait(5, 0.0), wait(u32::MAX, 1.0)),
            (WAIT_LEAST, EVENT_LIMIT_WAIT)
        );
    }

    #[test]
    fn a_webhook_that_does_not_answer_gets_one_event_after_each_pause() {
        let mut pause = Pause::default();
        let mut now = Instant::now();
        assert_eq!(pause.may_send(100, now), 100);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pause.note(&[failed(false)], now, 1.0);
            let until = pause.until.expect("a pause");
            assert_eq!(pause.may_send(100, now), 0);
            pauses.push((until - now).as_secs());
            now = until;
            assert_eq!(pause.may_send(100, now), 1);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        // Nothing was due.
        pause.note(&[], now, 1.0);
        assert_eq!(pause.may_send(100, now), 1);
        pause.note(&[failed(false), Delivery::Delivered], now, 1.0);
        assert_eq!(pause.may_send(100, now), 100);
        // One that answers is asked again sooner.
        for _ in 0..8 {
            pause.note(&[failed(true)], now, 1.0);
        }
        let may_send = |pause: &Pause| pause.may_send(100, now + REFUSED_PAUSE_LIMIT);
        assert_eq!(may_send(&pause), REFUSED_ROUND_LIMIT_EVENTS);
        pause.note(&[failed(false)], now, 0.0);
        assert_eq!(may_send(&pause), 1);
    }

    #[test]
    fn a_url_is_absolute_and_never_shown() {
        for wrong in [
            "",
            "secret",
            "ftp://example.org/secret",
            "https://",
            "/secret",
            "mailto:secret",
        ] {
            let error = wrong.parse::<WebhookUrl>().expect_err("no URL");
            assert!(
                error.contains("like https://") && !error.contains("secret"),
                "{error}"
            );
        }
        let url: WebhookUrl = "\"https://a:secret@example.org/x\"\n".parse().expect("a URL");
        assert!(!format!("{url:?}").contains("secret"));
    }
}
