//! `tally doctor`: looks at everything that an installation's stores can have wrong, and says it in sentences,
//! each with what to do.
//!
//! - `findings`: what facts mean. Pure.

mod findings;

use std::fmt;

use serde::Serialize;
use tokio::time::{Duration, timeout};

pub use findings::{Finding, Level, of_postgres, of_redis};

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
    let (of_postgres, of_redis) = tokio::join!(postgres(ledger), live(redis));
    let mut findings: Vec<Finding> = of_postgres.into_iter().chain(of_redis).collect();
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

async fn postgres(ledger: &WorkerLedger) -> Vec<Finding> {
    let looking = async {
        // It names what no program works with.
        let fit = ledger.check().await.err().filter(|error| error.is_unfit());
        let mut findings: Vec<Finding> = fit
            .map(|error| Finding::wrong(format!("Postgres: {error}"), "what it says"))
            .into_iter()
            .collect();
        match ledger.facts().await {
            Ok(facts) => findings.extend(of_postgres(&facts, Moment::now())),
            Err(error) if error.is_not_migrated() => findings.push(Finding::wrong(
                "Postgres has not all tables of this version",
                "tally migrate, with the owner's login",
            )),
            Err(error) if error.is_denied() => findings.push(Finding::wrong(
                format!("Postgres: {error}"),
                "run tally migrate with the owner's login, and this with a login in tally_worker",
            )),
            Err(error) => findings.push(Finding::wrong(
                format!("Postgres: {error}"),
                "see that it runs, and that DATABASE_URL is right",
            )),
        }
        findings
    };
    timeout(LOOK_LIMIT, looking).await.unwrap_or_else(|_| {
        vec![Finding::wrong(
            "Postgres did not answer within 30 s",
            "look for a lock or a full disk, docs/operating/runbook.md",
        )]
    })
}

async fn live(redis: &Redis) -> Vec<Finding> {
    let looking = async {
        let fit = redis.check(Program::Worker).await.err();
        let refused = fit.filter(|error| error.is_unfit() || error.is_refusal());
        let mut findings: Vec<Finding> = refused
            .map(|error| Finding::wrong(format!("Redis: {error}"), "what it says"))
            .into_iter()
            .collect();
        match redis.facts().await {
            Ok(facts) => findings.extend(of_redis(&facts, Moment::now())),
            Err(error) => findings.push(Finding::wrong(
                format!("Redis: {error}"),
                "see that it runs, and that REDIS_URL and its user are right",
            )),
        }
        findings
    };
    timeout(LOOK_LIMIT, looking).await.unwrap_or_else(|_| {
        vec![Finding::wrong(
            "Redis did not answer within 30 s",
            "see whether it is busy or hangs, docs/operating/redis-errors.md",
        )]
    })
}
