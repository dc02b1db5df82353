//! Clients whose voters and addresses reach throttles with windows of a day: one window for the whole round,
//! whatever becomes of Redis. Not every throttle looks at each of their votes: a vote of a backend has no
//! address, and an anonymous one no voter.

mod client;
mod judge;
pub mod tampering;

use std::collections::BTreeMap;
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::StdRng;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::credentials;
use crate::pause::Pause;
use client::ThrottledClient;

/// Clients in a round.
const CLIENTS: u64 = 2;
/// Addresses, and voters, whose windows they fill.
const ADDRESSES: u64 = 3;
const VOTERS: u64 = 2;
/// Attempts that a window of an address, and of a voter, takes in a day: see [`credentials::settings`]. No other
/// client's voter or address comes near.
pub const ADDRESS_LIMIT: u64 = 6;
pub const VOTER_LIMIT: u64 = 400;
/// The name of their item.
const ITEM: &str = "throttled";

/// Creates their item.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::query("insert into item (name) values ($1)")
        .bind(ITEM)
        .execute(owner)
        .await?;
    Ok(())
}

/// Whose window of a day an attempt is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Window {
    Address(u64),
    Voter(u64),
}

impl Window {
    fn limit(self) -> u64 {
        match self {
            Self::Address(_) => ADDRESS_LIMIT,
            Self::Voter(_) => VOTER_LIMIT,
        }
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It took a place in each of its windows.
    Admitted,
    /// Its window of a day was full.
    Refused,
    /// Another throttle refused it, so it took no place.
    RefusedByOther,
    /// It may have taken a place.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    outcome: Outcome,
    began: Instant,
    ended: Instant,
}

/// What the clients of a round tried, and were answered.
#[derive(Clone, Debug, Default)]
pub struct ThrottledRecords {
    attempts: BTreeMap<Window, Vec<Attempt>>,
    wrong_answers: Vec<String>,
}

impl ThrottledRecords {
    /// How many attempts were admitted, and how many a window of a day refused.
    pub fn attempts(&self) -> (u64, u64) {
        let count = |outcome: Outcome| {
            let all = self.attempts.values().flatten();
            all.filter(|attempt| attempt.outcome == outcome).count() as u64
        };
        (count(Outcome::Admitted), count(Outcome::Refused))
    }
}

/// The running clients.
pub struct ThrottledClients {
    running: JoinSet<ThrottledRecords>,
    over: watch::Sender<bool>,
}

impl ThrottledClients {
    /// Starts them over all servers.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn start(seed: u64, servers: &[String], pause: &Pause, owner: &PgPool) -> anyhow::Result<Self> {
        let item = sqlx::query_scalar("select id from item where name = $1")
            .bind(ITEM)
            .fetch_one(owner)
            .await?;
        let over = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let client = ThrottledClient {
                number,
                item,
                sent: 0,
                servers: servers.to_vec(),
                random: StdRng::seed_from_u64(seed ^ ((number + 1) << 56)),
                backend: credentials::backend(),
                voters: reqwest::Client::new(),
                over: over.subscribe(),
                pause: pause.clone(),
                records: ThrottledRecords::default(),
            };
            running.spawn(client.run());
        }
        Ok(Self { running, over })
    }

    /// Ends them.
    ///
    /// # Errors
    /// When a client has failed.
    pub async fn finish(mut self) -> anyhow::Result<ThrottledRecords> {
        self.over.send_replace(true);
        let mut all = ThrottledRecords::default();
        while let Some(one) = self.running.join_next().await {
            let one = one?;
            for (window, attempts) in one.attempts {
                all.attempts.entry(window).or_default().extend(attempts);
            }
            all.wrong_answers.extend(one.wrong_answers);
        }
        Ok(all)
    }
}
