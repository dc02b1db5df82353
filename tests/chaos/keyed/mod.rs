//! Clients that name items by their keys. A vote on a new key makes its item. When Postgres fails over to a
//! standby that lagged, such items are gone, and other keys get their ids. A vote must then be on the item
//! whose key its client named, or on none.

mod client;
mod judge;
pub mod tampering;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::credentials;
use crate::pause::Pause;
use client::KeyedClient;

/// Clients in a round.
const CLIENTS: u64 = 8;
/// What each of their keys begins with, and each of their voters.
pub const PREFIX: &str = "keyed-";
/// The longest that a client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How long all clients may take to have their votes acknowledged once all faults have ended.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// A vote on the item of a key.
#[derive(Clone, Debug)]
struct Cast {
    key: String,
    /// `None`: it is anonymous, and never sent again after a failure.
    voter: Option<String>,
    value: i16,
    /// How often it was sent, without the requests that certainly stored nothing.
    requests: u64,
    acknowledged: Vec<Acknowledged>,
}

#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    vote: i64,
    item: i64,
    /// When its request was sent.
    began: Instant,
}

/// The keys of all clients, in the order in which they were first named.
#[derive(Clone, Debug, Default)]
struct Keys(Arc<Mutex<Vec<String>>>);

impl Keys {
    fn with<T>(&self, change: impl FnOnce(&mut Vec<String>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the clients of a round asked, and were answered.
#[derive(Clone, Debug, Default)]
pub struct KeyedRecords {
    casts: Vec<Cast>,
    /// Answers with 404: the key was gone with a primary, and nobody had made it again.
    pub not_found: u64,
    /// Reads by key that were answered with the item.
    pub reads: u64,
    wrong_answers: Vec<String>,
}

impl KeyedRecords {
    /// Votes that were acknowledged; each counts once.
    pub fn acknowledged(&self) -> u64 {
        let acknowledged = self.casts.iter().filter(|cast| !cast.acknowledged.is_empty());
        acknowledged.count() as u64
    }
}

/// The running clients.
pub struct KeyedClients {
    running: JoinSet<KeyedRecords>,
    over: watch::Sender<bool>,
}

impl KeyedClients {
    /// Starts them over all servers.
    pub fn start(seed: u64, servers: &[String], pause: &Pause) -> Self {
        let over = watch::Sender::new(false);
        let keys = Keys::default();
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let client = KeyedClient {
                number,
                keys: keys.clone(),
                servers: servers.to_vec(),
                random: StdRng::seed_from_u64(seed ^ ((number + 1) << 36)),
                http: credentials::backend(),
                over: over.subscribe(),
                pause: pause.clone(),
                records: KeyedRecords::default(),
            };
            running.spawn(client.run());
        }
        Self { running, over }
    }

    /// Ends them once each vote with a voter is acknowledged.
    ///
    /// # Errors
    /// When a client has failed.
    pub async fn finish(mut self) -> anyhow::Result<KeyedRecords> {
        self.over.send_replace(true);
        let mut all = KeyedRecords::default();
        while let Some(one) = self.running.join_next().await {
            let one = one?;
            all.casts.extend(one.casts);
            all.not_found += one.not_found;
            all.reads += one.reads;
            all.wrong_answers.extend(one.wrong_answers);
        }
        Ok(all)
    }
}
