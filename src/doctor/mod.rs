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
use crate::ledger::WorkerLedger;
use crate::live::Redis;
use crate::telemetry::{Plain, Program};

/// How long each store may take.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// What was found, the worst first.
#[derive(Debug, Serialize)]
pub struct Report {
    findings: Vec<Finding>,
}

/// Looks at both stores.
pub async fn look(ledger: &WorkerLedger, redis: &Redis) -> Report {
    let (in_postgres, in_redis) = tokio::join!(
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
    Report { findings }
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_well(&self) -> bool {
        self.findings.iter().all(|finding| finding.level != Level::Wrong)
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

/// Asks a store, for so long as it may take. `hung` is what to do if it does not answer.
async fn ask(store: &str, looking: impl Future<Output = Vec<Finding>>, hung: &str) -> Vec<Finding> {
    let looked = timeout(LOOK_LIMIT, looking).await;
    looked.unwrap_or_else(|_| {
        let what = format!("{store} did not answer within {} s", LOOK_LIMIT.as_secs());
        vec![Finding::wrong(what, hung)]
    })
}

async fn look_at_postgres(ledger: &WorkerLedger) -> Vec<Finding> {
    // It names what no program works with.
    let unfit = ledger.check().await.err().filter(|error| error.is_unfit());
    let mut found: Vec<Finding> = unfit.iter().map(|error| refused("Postgres", error)).collect();
    match ledger.facts().await {
        Ok(facts) => found.extend(of_postgres::findings(&facts, Moment::now())),
        Err(error) if error.is_not_migrated() => found.push(Finding::wrong(
            "Postgres has not all tables of this version",
            "tally migrate, with the owner's login",
        )),
        Err(error) => {
            let remedy = match error.is_denied() {
                true => "run tally migrate with the owner's login, and this with a login in tally_worker",
                false => "see that it runs, and that DATABASE_URL is right",
            };
            found.push(Finding::wrong(format!("Postgres: {error}"), remedy));
        }
    }
    found
}

async fn look_at_redis(redis: &Redis) -> Vec<Finding> {
    let unfit = redis.check(Program::Worker).await.err();
    let unfit = unfit.filter(|error| error.is_unfit() || error.is_refusal());
    let mut found: Vec<Finding> = unfit.iter().map(|error| refused("Redis", error)).collect();
    match redis.facts().await {
        Ok(facts) => found.extend(of_redis::findings(&facts, Moment::now())),
        Err(error) => found.push(Finding::wrong(
            format!("Redis: {error}"),
            "see that it runs, and that REDIS_URL and its user are right",
        )),
    }
    found
}

/// No program works with this store. The error says what would be right.
fn refused(store: &str, error: &impl fmt::Display) -> Finding {
    Finding::wrong(format!("{store}: {error}"), "what it says")
}
