//! What API keys allow: asked of the ledger, and remembered for a while.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{ApiKeyHash, ApiKeyId, Scopes};
use crate::ledger::{LedgerError, ServerLedger};

/// How long what a key allows is remembered, at the most: so long may one be used that was revoked
/// elsewhere.
pub const API_KEY_LIMIT_AGE: Duration = Duration::from_secs(60);
/// Keys that are remembered, and as many that are not valid.
const API_KEYS_LIMIT: usize = 10_000;

/// The API keys of a server. Cheap to clone: its threads share what is remembered.
#[derive(Clone)]
pub struct ApiKeys {
    ledger: ServerLedger,
    limit_age: Duration,
    remembered: Arc<RwLock<Remembered>>,
}

#[derive(Default)]
struct Remembered {
    valid: HashMap<ApiKeyHash, Valid>,
    /// Apart, so that whoever guesses keys makes nobody forget those that there are.
    not_valid: HashSet<ApiKeyHash>,
    /// When the first of `not_valid` was noted.
    not_valid_since: Option<Instant>,
    /// How often all was forgotten: what was asked before that is not noted.
    forgotten: u64,
}

/// A key that allows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidApiKey {
    pub id: ApiKeyId,
    pub scopes: Scopes,
}

struct Valid {
    key: ValidApiKey,
    asked_at: Instant,
    /// When the key expires.
    until: Option<Instant>,
    is_asked_again: bool,
}

/// What is remembered of a key.
enum Known {
    Valid(ValidApiKey),
    /// The same, and it is time to ask again: one caller gets this.
    Stale(ValidApiKey),
    NotValid,
    Nothing,
}

impl ApiKeys {
    /// Remembers for [`API_KEY_LIMIT_AGE`].
    pub fn new(ledger: ServerLedger) -> Self {
        Self::with_limit(ledger, API_KEY_LIMIT_AGE)
    }

    /// Remembers for so long. From half of it on the ledger is asked again, while what is remembered
    /// still holds.
    pub fn with_limit(ledger: ServerLedger, limit_age: Duration) -> Self {
        Self {
            ledger,
            limit_age,
            remembered: Arc::default(),
        }
    }

    /// The key with this hash, and what it allows; `None`: there is no such key, or it is expired or revoked.
    ///
    /// # Errors
    /// When Postgres is needed and does not answer.
    pub async fn find(&self, key: &ApiKeyHash) -> Result<Option<ValidApiKey>, LedgerError> {
        match self.remembered(key) {
            Some(found) => Ok(found),
            None => self.ask(key).await,
        }
    }

    /// The same, if it is remembered; `None`: the ledger is to be asked. Mostly it is: then a request has
    /// its caller without waiting.
    pub fn remembered(&self, key: &ApiKeyHash) -> Option<Option<ValidApiKey>> {
        match self.known(key) {
            Known::Valid(valid) => Some(Some(valid)),
            Known::NotValid => Some(None),
            Known::Stale(valid) => {
                let (keys, key) = (self.clone(), *key);
                tokio::spawn(async move {
                    if let Err(error) = keys.ask(&key).await {
                        tracing::warn!(%error, "an API key could not be looked up again");
                    }
                });
                Some(Some(valid))
            }
            Known::Nothing => None,
        }
    }

    /// Forgets all: a key was revoked here.
    pub fn forget(&self) {
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        *remembered = Remembered {
            forgotten: remembered.forgotten + 1,
            ..Remembered::default()
        };
    }

    fn known(&self, key: &ApiKeyHash) -> Known {
        let now = Instant::now();
        let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(valid) = remembered.valid.get(key) {
            let age = now.duration_since(valid.asked_at);
            if age >= self.limit_age || valid.until.is_some_and(|until| now >= until) {
                return Known::Nothing;
            }
            if age < self.limit_age / 2 || valid.is_asked_again {
                return Known::Valid(valid.key);
            }
        } else {
            let is_fresh = remembered
                .not_valid_since
                .is_some_and(|since| now.duration_since(since) < self.limit_age);
            return if is_fresh && remembered.not_valid.contains(key) {
                Known::NotValid
            } else {
                Known::Nothing
            };
        }
        drop(remembered);
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        match remembered.valid.get_mut(key) {
            Some(valid) if !valid.is_asked_again => {
                valid.is_asked_again = true;
                Known::Stale(valid.key)
            }
            Some(valid) => Known::Valid(valid.key),
            None => Known::Nothing,
        }
    }

    async fn ask(&self, key: &ApiKeyHash) -> Result<Option<ValidApiKey>, LedgerError> {
        // It holds from before the question on: a key that is revoked meanwhile is not remembered
        // for longer than it may be.
        let asked_at = Instant::now();
        let forgotten = {
            let remembered = self.remembered.read().unwrap_or_else(PoisonError::into_inner);
            remembered.forgotten
        };
        let found = self.ledger.use_api_key(key).await?;
        let answer = found.map(|found| ValidApiKey {
            id: found.id,
            scopes: found.scopes,
        });
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.forgotten != forgotten {
            return Ok(answer);
        }
        match found {
            Some(found) => {
                if remembered.valid.len() >= API_KEYS_LIMIT {
                    remembered.valid.clear();
                }
                let valid = Valid {
                    key: ValidApiKey {
                        id: found.id,
                        scopes: found.scopes,
                    },
                    asked_at,
                    until: found.left.map(|left| asked_at + left),
                    is_asked_again: false,
                };
                remembered.valid.insert(*key, valid);
            }
            None => {
                remembered.valid.remove(key);
                let is_old = remembered
                    .not_valid_since
                    .is_none_or(|since| asked_at.duration_since(since) >= self.limit_age);
                if is_old || remembered.not_valid.len() >= API_KEYS_LIMIT {
                    remembered.not_valid.clear();
                    remembered.not_valid_since = Some(asked_at);
                }
                remembered.not_valid.insert(*key);
            }
        }
        Ok(answer)
    }
}
