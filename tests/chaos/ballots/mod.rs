//! Clients that spend ballots: once, again, twice at once on both servers, on other choices, and on
//! targets that do not take them. Each client records its answers, and in the end each ballot must
//! agree with them.

mod client;
mod judge;
pub mod tampering;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::credentials;
use crate::pause::Pause;
use client::BallotClient;

/// Clients in a round.
const CLIENTS: u64 = 3;
/// Votes that the limited item takes: fewer than it has ballots.
const MAX_VOTES: usize = 25;
/// The item by ballot whose votes are voided.
pub const VOIDED_ITEM: &str = "voided ballots";
/// The longest that a client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How long all clients may take to learn what became of their ballots.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// What takes ballots: a poll, or an item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// The path of the poll or the item.
    path: String,
    rule: i64,
    /// The poll's choices, or the item.
    items: Vec<i64>,
    takes_down_votes: bool,
    is_secret: bool,
    max_votes: Option<usize>,
}

/// Creates what takes ballots.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(&format!(
        "with made as (
             insert into rule (title, max_choices, by_ballot, is_secret)
             values ('by ballot', 1, true, false), ('secret', 1, true, true) returning id, title)
         insert into item (name, rule_id, takes_down_votes)
         select title, id, false from made, generate_series(1, 3);
         with made as (insert into rule (by_ballot) values (true) returning id),
              item as (insert into item (name, rule_id) select 'limited ballots', id from made returning id)
         insert into place (item_id, max_votes, is_numbered) select id, {MAX_VOTES}, true from item;
         with made as (insert into rule (by_ballot) values (true) returning id),
              item as (insert into item (name, rule_id) select '{VOIDED_ITEM}', id from made returning id)
         insert into place (item_id, is_numbered) select id, true from item"
    ))
    .execute(owner)
    .await?;
    Ok(())
}

/// The rule, whether it is a poll, whether it is secret, its limit, its items, and whether they take
/// down-votes.
type TargetRow = (i64, bool, bool, Option<i64>, Vec<i64>, bool);

async fn targets(owner: &PgPool) -> anyhow::Result<Vec<Target>> {
    let rows: Vec<TargetRow> = sqlx::query_as(
        "select rule.id, rule.title is not null, is_secret, max(max_votes), array_agg(item.id order by item.id),
                bool_and(takes_down_votes)
         from rule join item on item.rule_id = rule.id left join place on place.item_id = item.id
         where by_ballot group by rule.id order by rule.id",
    )
    .fetch_all(owner)
    .await?;
    Ok(rows
        .into_iter()
        .map(
            |(rule, is_poll, is_secret, max_votes, items, takes_down_votes)| Target {
                path: match items.first() {
                    Some(item) if !is_poll => format!("/v1/items/{item}"),
                    _ => format!("/v1/polls/{rule}"),
                },
                rule,
                items,
                takes_down_votes,
                is_secret,
                max_votes: max_votes.and_then(|most| usize::try_from(most).ok()),
            },
        )
        .collect())
}

/// The outcome of a request that spends a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// 201. A secret vote has neither.
    Stored { vote: Option<i64>, number: Option<i64> },
    /// 200, with the vote that it had bought.
    Repeated { vote: i64, number: Option<i64> },
    /// 409: the ballot is unknown, for something else, or spent.
    NotValid,
    /// 409
    Full,
    /// 503, and nothing is stored.
    NoEffect,
    /// It may have bought a vote.
    Unknown,
}

impl Outcome {
    /// Whether the ballot bought a vote, or may have.
    fn may_buy(self) -> bool {
        matches!(self, Self::Stored { .. } | Self::Repeated { .. } | Self::Unknown)
    }
}

/// A request that spends a ballot.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    item: i64,
    value: i64,
    outcome: Outcome,
    called: Instant,
    returned: Instant,
}

/// A ballot that a client was given.
#[derive(Clone, Debug)]
struct Ballot {
    token: String,
    /// Its place among the targets.
    target: usize,
}

/// The ballots of all clients. Each client may spend each of them.
#[derive(Clone, Debug, Default)]
struct Ballots(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: Vec<Ballot>,
    /// The ballots that nobody has spent yet.
    fresh: Vec<usize>,
}

impl Ballots {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the clients of a round asked, and were answered.
#[derive(Clone, Debug, Default)]
pub struct BallotRecords {
    targets: Vec<Target>,
    ballots: Vec<Ballot>,
    /// The attempts on each ballot, by its place in `ballots`.
    attempts: BTreeMap<usize, Vec<Attempt>>,
    wrong_answers: Vec<String>,
}

impl BallotRecords {
    /// Requests that were sent with a ballot.
    pub fn sent(&self) -> u64 {
        self.attempts.values().map(|of_one| of_one.len() as u64).sum()
    }

    /// Ballots that bought a vote, as far as the clients know.
    pub fn bought(&self) -> u64 {
        let bought =
            |attempt: &Attempt| matches!(attempt.outcome, Outcome::Stored { .. } | Outcome::Repeated { .. });
        self.attempts
            .values()
            .filter(|of_one| of_one.iter().any(bought))
            .count() as u64
    }
}

/// The running clients.
pub struct BallotClients {
    targets: Vec<Target>,
    ballots: Ballots,
    running: JoinSet<BallotRecords>,
    over: watch::Sender<bool>,
}

impl BallotClients {
    /// Starts them over all servers.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn start(seed: u64, servers: &[String], pause: &Pause, owner: &PgPool) -> anyhow::Result<Self> {
        let targets = targets(owner).await?;
        let ballots = Ballots::default();
        let over = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let client = BallotClient {
                targets: targets.clone(),
                ballots: ballots.clone(),
                servers: servers.to_vec(),
                random: StdRng::seed_from_u64(seed ^ ((number + 1) << 40)),
                http: credentials::backend(),
                over: over.subscribe(),
                pause: pause.clone(),
                records: BallotRecords::default(),
            };
            running.spawn(client.run());
        }
        Ok(Self {
            targets,
            ballots,
            running,
            over,
        })
    }

    /// Ends them once it is known what became of each ballot.
    ///
    /// # Errors
    /// When a client has failed.
    pub async fn finish(mut self) -> anyhow::Result<BallotRecords> {
        self.over.send_replace(true);
        let mut all = BallotRecords {
            targets: self.targets,
            ..BallotRecords::default()
        };
        while let Some(one) = self.running.join_next().await {
            let one = one?;
            for (ballot, attempts) in one.attempts {
                all.attempts.entry(ballot).or_default().extend(attempts);
            }
            all.wrong_answers.extend(one.wrong_answers);
        }
        all.ballots = self.ballots.with(|state| std::mem::take(&mut state.all));
        Ok(all)
    }
}
