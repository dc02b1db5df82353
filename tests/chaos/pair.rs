//! Two servers and two workers on stores that fail over, and votes at full speed. Nobody audits: the counts must become
//! exact by themselves.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::dev::free_port;
use tally::ledger::Role;
use testkit::load::{Load, Mix, Pace, Requests, Spread};
use testkit::programs::{Program, command, until_ready};
use testkit::stores::{Stores, environment};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::check::{self, Counts};
use crate::programs::{SYNC_WORKER, TALLY};
use crate::schedule::PAIR;

pub const ITEMS: i64 = 400;
const CONNECTIONS: usize = 32;
/// How long votes may have no count after a fault, and how long all may take to be exact.
const COUNTED_LIMIT: Duration = Duration::from_secs(60);
const EXACT_LIMIT: Duration = Duration::from_secs(60);
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The programs.
pub struct Pair {
    servers: Vec<SocketAddr>,
    /// Dropping them ends them.
    _programs: Vec<Program>,
}

impl Pair {
    /// Makes items, and starts all programs. `redis_url`: where a program with this role finds Redis.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(
        folder: &Path,
        stores: &Stores,
        redis_url: impl Fn(Role) -> String,
    ) -> anyhow::Result<Self> {
        sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
            .bind(ITEMS)
            .execute(&stores.pool())
            .await?;
        let find = |program: &mut Command, role| {
            program.envs(environment(stores.login_url(role), redis_url(role)));
        };
        let (mut servers, mut programs) = (Vec::new(), Vec::new());
        for number in 1..=PAIR {
            let listen = SocketAddr::from(([127, 0, 0, 1], free_port()?));
            let mut serve = command(TALLY);
            find(&mut serve, Role::Server);
            serve.arg("serve").env("TALLY_LISTEN", listen.to_string());
            programs.push(Program::start(serve, folder, &format!("server-{number}"))?);
            servers.push(listen);
            let mut worker = command(SYNC_WORKER);
            find(&mut worker, Role::Worker);
            worker.envs([
                ("TALLY_FLUSH_EVERY", "200ms"),
                ("TALLY_SCAN_EVERY", "1h"),
                ("TALLY_AUDIT_CRON", "0 0 0 1 1 *"),
            ]);
            programs.push(Program::start(worker, folder, &format!("worker-{number}"))?);
        }
        for server in &servers {
            until_ready(&format!("http://{server}")).await?;
        }
        Ok(Self {
            servers,
            _programs: programs,
        })
    }

    /// Votes on all items, at full speed, at both servers.
    pub fn load(&self) -> anyhow::Result<Load> {
        let requests = Requests::render(usize::try_from(ITEMS)?, Spread::Uniform, Mix::Votes, false);
        Ok(Load::start(
            &self.servers,
            CONNECTIONS,
            Arc::new(requests),
            Pace::Closed,
            0,
        ))
    }

    /// Waits until each server's votes are counted again.
    ///
    /// # Errors
    /// When they are not within a minute.
    pub async fn until_counted(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + COUNTED_LIMIT;
        let http = reqwest::Client::builder().no_proxy().build()?;
        for server in &self.servers {
            loop {
                let ready = http.get(format!("http://{server}/health/ready")).send().await?;
                if ready.text().await?.contains(r#""status":"ready""#) {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("{server} counts no votes again");
                }
                sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// Waits until the three counts of each item agree, and there are as many votes as were acknowledged. `counts`: what the
/// stores hold, if they answer.
///
/// # Errors
/// When there are not as many votes, or the counts do not agree within a minute.
pub async fn until_exact(
    owner: &PgPool,
    acknowledged: u64,
    counts: impl AsyncFn() -> anyhow::Result<Vec<Counts>>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    loop {
        let rows: i64 = sqlx::query_scalar("select count(*) from vote")
            .fetch_one(owner)
            .await?;
        if u64::try_from(rows)? != acknowledged {
            bail!("{acknowledged} votes were acknowledged, and {rows} are stored");
        }
        // A Redis that is demoted ends its connections.
        let counted = counts().await;
        if let Ok(counts) = &counted
            && check::are_exact(counts)
        {
            return Ok(began.elapsed());
        }
        if began.elapsed() > EXACT_LIMIT {
            let counts = counted?;
            let wrong: Vec<_> = counts.iter().filter(|one| !one.are_exact()).take(5).collect();
            bail!("the counts are not exact: {wrong:?}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The median and the worst of these times, in seconds.
pub fn spread(times: &mut [Duration]) -> Value {
    times.sort();
    let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
    json!({ "median": at(times.len() / 2), "worst": at(times.len().saturating_sub(1)) })
}
