//! `tally doctor`: looks at everything that an installation's stores can have wrong, and says it in sentences,
//! each with what to do.
//!
//! - `of_postgres`, `of_redis`: what the facts of each mean. Pure.
//! - `finding`: a finding.

mod finding;
mod of_postgres;
mod of_redis;

use std::fmt;

use serde::Serialize;
use tokio::time::{Duration, timeout};

pub use finding::{Finding, Level};

use crate::domain::Moment;
use crate::ledger::{PostgresFacts, WorkerLedger};
use crate::live::{LiveError, Redis, RedisFacts};
use crate::telemetry::{Plain, Program};

/// How long each store may take.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// What was found, the worst first.
#[derive(Debug, Serialize)]
pub struct Report {
    findings: Vec<Finding>,
    #[serde(skip)]
    pub postgres: Option<Seen<PostgresFacts>>,
    #[serde(skip)]
    /// Those of each primary of a Redis Cluster.
    pub redis: Option<Seen<Vec<RedisFacts>>>,
}

/// What a store says of itself, and when that came, by this machine's clock.
#[derive(Debug)]
pub struct Seen<Facts> {
    pub facts: Facts,
    pub at: Moment,
}

/// Looks at both stores.
pub async fn look(ledger: &WorkerLedger, redis: &Redis) -> Report {
    let ((in_postgres, postgres), (in_redis, redis)) = tokio::join!(
        ask(
            "Postgres",
            look_at_postgres(ledger),
            "look for a lock or a full disk, docs/operating/runbook.md"
        ),
        ask(
            "Redis",
            look_at_redis(redis),
            "see whether it is busy or hangs, docs/operating/redis-errors.md"
        )
    );
    let mut findings: Vec<Finding> = in_postgres.into_iter().chain(in_redis).collect();
    findings.sort_by_key(|finding| finding.level);
    Report {
        findings,
        postgres,
        redis,
    }
}

impl Report {
    /// How many findings are of this level.
    pub fn count(&self, level: Level) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    }

    /// Whether nothing is wrong.
    pub fn is_well(&self) -> bool {
        self.count(Level::Wrong) == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { level, what, remedy } in &self.findings {
            let level = match level {
                Level::Wrong => "wrong",
                Level::Look => "look ",
                Level::Well => "well ",
            };
            writeln!(out, "{level}  {}", Plain(what))?;
            if let Some(remedy) = remedy {
                writeln!(out, "       do: {}", Plain(remedy))?;
            }
        }
        Ok(())
    }
}

/// What was found in a store, and what it says of itself; `None`: nothing.
type Looked<Facts> = (Vec<Finding>, Option<Seen<Facts>>);

/// Asks a store, for so long as it may take. `hung` is what to do if it does not answer.
async fn ask<Facts>(store: &str, looking: impl Future<Output = Looked<Facts>>, hung: &str) -> Looked<Facts> {
    let looked = timeout(LOOK_LIMIT, looking).await;
    looked.unwrap_or_else(|_| {
        let what = format!("{store} did not answer within {} s", LOOK_LIMIT.as_secs());
        (vec![Finding::wrong(what, hung)], None)
    })
}

async fn look_at_postgres(ledger: &WorkerLedger) -> Looked<PostgresFacts> {
    // It names what no program works with.
    let (unfit, unreached) = match ledger.check().await {
        Err(error) if error.is_unfit() => (Some(error), None),
        Err(error) => (None, Some(error)),
        Ok(()) => (None, None),
    };
    let mut found: Vec<Finding> = unfit.iter().map(|error| refused("Postgres", error)).collect();
    match ledger.facts().await {
        Ok(facts) => {
            let at = Moment::now();
            found.extend(of_postgres::findings(&facts, at));
            return (found, Some(Seen { facts, at }));
        }
        // The first finding says why.
        Err(_) if !found.is_empty() => {}
        Err(error) if error.is_not_migrated() => found.push(Finding::wrong(
            "Postgres has not all tables of this version",
            "tally migrate, with the owner's login",
        )),
        Err(error) => {
            let remedy = match error.is_denied() {
                true => "run tally migrate with the owner's login, and this with a login in tally_worker",
                false => "see that it runs, and that DATABASE_URL is right",
            };
            // A pool says only that no connection came in time.
            let error = unreached.unwrap_or(error);
            found.push(Finding::wrong(named("Postgres", &error), remedy));
        }
    }
    (found, None)
}

async fn look_at_redis(redis: &Redis) -> Looked<Vec<RedisFacts>> {
    let unfit = redis.check(Program::Worker).await.err();
    let unfit = unfit.filter(|error| error.is_unfit() || error.is_refusal());
    let mut found: Vec<Finding> = unfit.iter().map(|error| refused("Redis", error)).collect();
    match redis.facts().await {
        Ok(asked) => {
            let at = Moment::now();
            let mut facts = Vec::with_capacity(asked.len());
            for one in asked {
                match one {
                    Ok(one) => {
                        for finding in of_redis::findings(&one, at) {
                            // What is so of all primaries is said once.
                            if !found.contains(&finding) {
                                found.push(finding);
                            }
                        }
                        facts.push(one);
                    }
                    Err(error) => unreached(&mut found, &error),
                }
            }
            let seen = (!facts.is_empty()).then_some(Seen { facts, at });
            (found, seen)
        }
        Err(error) => {
            unreached(&mut found, &error);
            (found, None)
        }
    }
}

/// Adds that this Redis, or this node, is not reached. Where no program works with it, the first finding says why.
fn unreached(found: &mut Vec<Finding>, error: &LiveError) {
    if !error.is_unfit() && !error.is_refusal() {
        found.push(Finding::wrong(
            named("Redis", error),
            "see that it runs, and that REDIS_URL and its user are right",
        ));
    }
}

/// No program works with this store. The error says what would be right.
fn refused(store: &str, error: &impl fmt::Display) -> Finding {
    Finding::wrong(named(store, error), "what it says")
}

/// The error, with the store's name before it unless it begins with that.
fn named(store: &str, error: &impl fmt::Display) -> String {
    let error = error.to_string();
    if error.starts_with(store) {
        error
    } else {
        format!("{store}: {error}")
    }
}
