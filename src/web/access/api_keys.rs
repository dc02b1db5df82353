//! What API keys allow: looked up in the ledger, and remembered for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::cache::{Cache, Forgets, Remembers};
use crate::domain::{ApiKeyHash, ApiKeyId, Scope, Scopes};
use crate::ledger::{LedgerError, ServerLedger};
use crate::telemetry::{name, trouble};

/// The longest time that a key's scopes are remembered. A key that was revoked on another server may be used
/// this long.
pub const API_KEY_LIMIT_AGE: Duration = Duration::from_secs(60);
/// While Postgres does not answer, a key with the scope `report` goes on reading metrics for this long: they
/// are needed most then.
pub const REPORTER_LIMIT_AGE: Duration = Duration::from_secs(3600);
/// How long such a key waits for Postgres. Less than a scraper waits.
const REPORTER_WAIT_LIMIT: Duration = Duration::from_millis(500);
/// The most keys that are remembered, and the most that are not valid.
const API_KEYS_LIMIT: usize = 10_000;

/// The API keys of a server. Cheap to clone: its threads share what is remembered.
#[derive(Clone)]
pub struct ApiKeys {
    ledger: ServerLedger,
    limit_age: Duration,
    valid: Arc<Cache<Valid>>,
    not_valid: Arc<Cache<NotValid>>,
    reporters: Arc<Cache<Reporting>>,
}

/// A key that is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidApiKey {
    pub id: ApiKeyId,
    pub scopes: Scopes,
}

/// What is known of a valid key. A revocation on this server, or another run of Postgres, ends all entries.
struct Valid {
    key: ValidApiKey,
    /// When the key expires.
    until: Option<Instant>,
    is_asked_again: AtomicBool,
    /// Counts the requests with this key.
    requests: metrics::Counter,
}

impl Remembers for Valid {
    type Key = ApiKeyHash;
    type Value = Self;
    const LIMIT: usize = API_KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(API_KEY_LIMIT_AGE);

    fn is_over(valid: &Self) -> bool {
        valid.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Forgets for Valid {}

/// Keys that are not valid. They are kept apart, so that guessed keys push no valid key out of memory. A
/// revocation on this server, or another run of Postgres, ends all entries.
struct NotValid;

impl Remembers for NotValid {
    type Key = ApiKeyHash;
    type Value = ();
    const LIMIT: usize = API_KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(API_KEY_LIMIT_AGE);
}

impl Forgets for NotValid {}

/// Keys that may read metrics while Postgres does not answer. What ends valid keys ends them, too.
struct Reporting;

#[derive(Clone)]
struct Reporter {
    /// When the key expires.
    until: Option<Instant>,
    /// Whether someone is looking it up: one look at a time.
    is_asked: Arc<AtomicBool>,
}

impl Remembers for Reporting {
    type Key = ApiKeyHash;
    type Value = Reporter;
    const LIMIT: usize = API_KEYS_LIMIT;
    const LIMIT_AGE: Option<Duration> = Some(REPORTER_LIMIT_AGE);

    fn is_over(reporter: &Self::Value) -> bool {
        reporter.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Forgets for Reporting {}

fn requests_of(key: ApiKeyId) -> metrics::Counter {
    metrics::counter!(name::API_KEY_REQUESTS, "key" => key.0.to_string())
}

/// What is remembered of a key.
enum Known {
    Valid(ValidApiKey),
    /// The same, but it is time to look the key up again. Only one caller gets this.
    Stale(ValidApiKey),
    NotValid,
    Nothing,
}

impl ApiKeys {
    /// Remembers keys for [`API_KEY_LIMIT_AGE`].
    pub fn new(ledger: ServerLedger) -> Self {
        Self::with_limit(ledger, API_KEY_LIMIT_AGE)
    }

    /// Remembers keys for this long. After half of it, one caller looks a key up again while others still use
    /// what is remembered.
    pub fn with_limit(ledger: ServerLedger, limit_age: Duration) -> Self {
        Self {
            valid: Arc::new(Cache::ended_by(ledger.ends()).with_limit_age(limit_age)),
            not_valid: Arc::new(Cache::ended_by(ledger.ends()).with_limit_age(limit_age)),
            reporters: Arc::new(Cache::ended_by(ledger.ends())),
            ledger,
            limit_age,
        }
    }

    /// Finds the key with this hash, and what it allows. `None`: unknown, expired or revoked.
    pub async fn find(&self, key: &ApiKeyHash) -> Result<Option<ValidApiKey>, LedgerError> {
        match self.remembered(key) {
            Some(found) => Ok(found),
            None => {
                let found = self.ask(key).await?;
                if let Some(found) = &found {
                    requests_of(found.id).increment(1);
                }
                Ok(found)
            }
        }
    }

    /// Whether a key that could read metrics lately still can. It can while Postgres does not say otherwise.
    /// `None`: nothing is known of such a key.
    pub async fn still_reports(&self, key: &ApiKeyHash) -> Option<bool> {
        let reporter = self.reporters.get(key)?;
        if reporter.is_asked.swap(true, Ordering::Relaxed) {
            return Some(true);
        }
        // The look goes on when the caller has its answer: what it finds ends the entry, however late.
        let (keys, key) = (self.clone(), *key);
        let looking = tokio::spawn(async move {
            let found = keys.ask(&key).await;
            reporter.is_asked.store(false, Ordering::Relaxed);
            found
        });
        match timeout(REPORTER_WAIT_LIMIT, looking).await {
            Ok(Ok(Ok(found))) => {
                let reports = found.filter(|found| found.scopes.has(Scope::Report));
                if let Some(found) = &reports {
                    requests_of(found.id).increment(1);
                }
                Some(reports.is_some())
            }
            _ => Some(true),
        }
    }

    /// Returns the key if it is remembered; otherwise `None`, and the ledger must be asked. Most keys are
    /// remembered, so most requests know their caller without waiting.
    pub fn remembered(&self, key: &ApiKeyHash) -> Option<Option<ValidApiKey>> {
        match self.known(key) {
            Known::Valid(valid) => Some(Some(valid)),
            Known::NotValid => Some(None),
            Known::Stale(valid) => {
                let (keys, key) = (self.clone(), *key);
                tokio::spawn(async move {
                    if let Err(error) = keys.ask(&key).await {
                        trouble!(warn, %error; "an API key could not be looked up again");
                    }
                });
                Some(Some(valid))
            }
            Known::Nothing => None,
        }
    }

    /// Forgets all keys, because a key was revoked here.
    pub fn forget(&self) {
        self.valid.forget();
        self.not_valid.forget();
        self.reporters.forget();
    }

    fn known(&self, key: &ApiKeyHash) -> Known {
        let valid = self.valid.look(key, |valid, age| {
            valid.requests.increment(1);
            // After half of the time, only one of the callers asks again.
            let is_asked = age < self.limit_age / 2 || valid.is_asked_again.swap(true, Ordering::Relaxed);
            if is_asked {
                Known::Valid(valid.key)
            } else {
                Known::Stale(valid.key)
            }
        });
        match valid {
            Some(known) => known,
            None if self.not_valid.get(key).is_some() => Known::NotValid,
            None => Known::Nothing,
        }
    }

    async fn ask(&self, key: &ApiKeyHash) -> Result<Option<ValidApiKey>, LedgerError> {
        // The age counts from before the question. A key that is revoked meanwhile is not remembered too
        // long.
        let asked_at = Instant::now();
        let (asked, asked_not) = (self.valid.asking(), self.not_valid.asking());
        let asked_reporter = self.reporters.asking();
        let Some(found) = self.ledger.use_api_key(key).await? else {
            self.valid.end(key);
            self.reporters.end(key);
            self.not_valid.add(*key, (), asked_not);
            return Ok(None);
        };
        let answer = ValidApiKey {
            id: found.id,
            scopes: found.scopes,
        };
        let until = found.left.map(|left| asked_at + left);
        if answer.scopes.has(Scope::Report) {
            let reporter = Reporter {
                until,
                is_asked: Arc::default(),
            };
            self.reporters.add(*key, reporter, asked_reporter);
        }
        let valid = Valid {
            key: answer,
            until,
            is_asked_again: AtomicBool::new(false),
            requests: requests_of(found.id),
        };
        self.not_valid.end(key);
        self.valid.add(*key, valid, asked);
        Ok(Some(answer))
    }
}
