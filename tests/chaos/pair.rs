//! Two servers and two workers on stores that fail over, votes without a pause, and requests of rules. In most rounds one of the programs fails
//! too. Nobody audits: the counts must become exact by themselves.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::dev::free_port;
use tally::ledger::Role;
use testkit::load::{Load, Mix, Pace, Requests, Spread};
use testkit::programs::{Program, command, run_well, until_ready};
use testkit::stores::{Stores, environment, redis_connection};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::check::{self, Counts};
use crate::pause::Pause;
use crate::program_faults::Drawn;
use crate::programs::{SYNC_WORKER, TALLY};
use crate::ruled::{self, RuledClients};
use crate::schedule::PAIR;
use crate::voters::{Judge, Voters};
use crate::{DEFAULT_ROUNDS, credentials, number, number_from_one};

/// How many items there are, unless `ITEMS` says it.
const DEFAULT_ITEMS: u64 = 400;
/// How many more there are, whose voters note each answer.
const NOTED_ITEMS: u64 = 64;
const CONNECTIONS: usize = 32;
/// How long votes are cast before a fault, and after it.
pub const BEFORE: Duration = Duration::from_millis(700);
/// How long votes may have no count after a fault, and how long all may take to be exact.
const COUNTED_LIMIT: Duration = Duration::from_secs(60);
const EXACT_LIMIT: Duration = Duration::from_secs(60);
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The programs.
pub struct Pair {
    servers: Vec<SocketAddr>,
    items: usize,
    pace: Pace,
    /// Dropping them ends them.
    programs: Arc<Programs>,
}

#[derive(Default)]
struct Programs {
    servers: Vec<Mutex<Program>>,
    workers: Vec<Mutex<Program>>,
}

impl Pair {
    /// Makes items, and starts all programs. `redis_url`: where a program with this role and this number, from 1 on, finds
    /// Redis.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(
        folder: &Path,
        stores: &Stores,
        redis_url: impl Fn(Role, usize) -> String,
    ) -> anyhow::Result<Self> {
        let items = number_from_one("ITEMS")?.unwrap_or(DEFAULT_ITEMS);
        let pace = number_from_one("RATE")?.map_or(Pace::Closed, |rate| Pace::Open {
            per_second: rate as f64,
        });
        sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
            .bind(i64::try_from(items + NOTED_ITEMS)?)
            .execute(&stores.pool())
            .await?;
        credentials::create(&stores.pool()).await?;
        let find = |program: &mut Command, role, number| {
            program.envs(environment(stores.login_url(role), redis_url(role, number)));
        };
        let (mut servers, mut programs) = (Vec::new(), Programs::default());
        for number in 1..=PAIR {
            let listen = SocketAddr::from(([127, 0, 0, 1], free_port()?));
            let mut serve = command(TALLY);
            find(&mut serve, Role::Server, number);
            serve.arg("serve").env("TALLY_LISTEN", listen.to_string());
            // At the other, first votes make live counts, since there are few items.
            if number == 1 {
                serve.env("TALLY_SEED", "warm");
            }
            let server = Program::start(serve, folder, &format!("server-{number}"))?;
            programs.servers.push(Mutex::new(server));
            servers.push(listen);
            let mut worker = command(SYNC_WORKER);
            find(&mut worker, Role::Worker, number);
            worker.envs([
                ("TALLY_FLUSH_EVERY", "200ms"),
                ("TALLY_SCAN_EVERY", "1h"),
                ("TALLY_AUDIT_CRON", "0 0 0 1 1 *"),
            ]);
            let worker = Program::start(worker, folder, &format!("worker-{number}"))?;
            programs.workers.push(Mutex::new(worker));
        }
        for server in &servers {
            until_ready(&format!("http://{server}")).await?;
        }
        Ok(Self {
            servers,
            items: usize::try_from(items)?,
            pace,
            programs: Arc::new(programs),
        })
    }

    /// Votes on all items at both servers: `RATE` votes per second, or at full speed.
    fn load(&self) -> Load {
        let requests = Requests::render(self.items, Spread::Uniform, Mix::Votes, false);
        Load::start(&self.servers, CONNECTIONS, Arc::new(requests), self.pace, 0)
    }

    /// Votes on the items that are left, whose answers are noted.
    fn voters(&self, seed: u64) -> anyhow::Result<Voters> {
        let (after, noted) = (i64::try_from(self.items)?, i64::try_from(NOTED_ITEMS)?);
        Ok(Voters::start(&self.servers, &(after + 1..=after + noted), seed))
    }

    /// Clients of new items and polls with rules, whose histories are judged.
    async fn ruled(&self, owner: &PgPool, seed: u64) -> anyhow::Result<RuledClients> {
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|server| format!("http://{server}"))
            .collect();
        ruled::create(owner).await?;
        RuledClients::start(seed, &servers, &Pause::default(), owner).await
    }

    /// How many votes of the load and of the voters are stored.
    async fn stored(&self, owner: &PgPool) -> anyhow::Result<u64> {
        stored_on(owner, 1, u64::try_from(self.items)? + NOTED_ITEMS).await
    }

    /// How many votes of the voters are stored.
    async fn stored_noted(&self, owner: &PgPool) -> anyhow::Result<u64> {
        let items = u64::try_from(self.items)?;
        stored_on(owner, items + 1, items + NOTED_ITEMS).await
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

/// How many votes are stored on the items from one to another.
async fn stored_on(owner: &PgPool, first: u64, last: u64) -> anyhow::Result<u64> {
    let rows: i64 = sqlx::query_scalar("select count(*) from vote where item_id between $1 and $2")
        .bind(i64::try_from(first)?)
        .bind(i64::try_from(last)?)
        .fetch_one(owner)
        .await?;
    Ok(u64::try_from(rows)?)
}

/// Stores that fail over, with a pair on them.
pub trait Breakable {
    /// What is broken, and how.
    type Fault: Copy + Debug;

    /// The scenario's name.
    const NAME: &str;

    fn pair(&self) -> &Pair;

    fn stores(&self) -> &Stores;

    /// Where a worker finds Redis.
    fn worker_redis_url(&self) -> String;

    /// The fault of this round, the first of which has 1.
    fn draw(&self, round: usize, random: &mut StdRng) -> anyhow::Result<Self::Fault>;

    /// Whether Redis may forget counts by this fault. Then they may be too low until a worker has entered the new epoch.
    fn forgets(fault: Self::Fault) -> bool;

    /// Prepares a round.
    async fn prepare(&mut self, round: usize) -> anyhow::Result<()>;

    /// Breaks something, and waits until it is replaced or mended.
    async fn break_it(&mut self, fault: Self::Fault) -> anyhow::Result<()>;

    /// The three counts of each item.
    async fn counts(&self) -> anyhow::Result<Vec<Counts>>;

    /// Waits until what was replaced follows what replaced it.
    async fn until_followed(&mut self) -> anyhow::Result<()>;
}

/// Plays `ROUNDS` faults, drawn from `SEED`, or of the kind `FAULT` alone. Returns the figures, and what was wrong.
///
/// # Errors
/// When something never becomes right.
pub async fn play<B: Breakable>(mut broken: B) -> anyhow::Result<(Value, Vec<String>)> {
    let seed = number("SEED")?.unwrap_or(0);
    let mut random = StdRng::seed_from_u64(seed);
    let rounds = usize::try_from(number_from_one("ROUNDS")?.unwrap_or(DEFAULT_ROUNDS))?;
    // All rows of the load and the voters, those of the voters who note each answer, and how many votes had no answer in
    // all. Requests of rules that were answered.
    let (mut stored, mut stored_noted, mut unanswered, mut decided) = (0, 0, 0, 0);
    let mut failures = Vec::new();
    let (mut without_count, mut exact_after) = (Vec::new(), Vec::new());
    let mut answers_without = (0, Vec::new());
    let mut judge = Judge::default();
    let owner = broken.stores().pool();
    for round in 1..=rounds {
        let fault = broken.draw(round, &mut random)?;
        let beside = Drawn::draw(&mut random)?;
        let name = format!("SEED={seed}, round {round}: {fault:?}, {:?}", beside.fault);
        broken.prepare(round).await?;
        let load = broken.pair().load();
        let voters = broken.pair().voters(random.random())?;
        let ruled = broken.pair().ruled(&owner, random.random()).await?;
        sleep(BEFORE + Duration::from_millis(random.random_range(0..500))).await;
        let began = Instant::now();
        let programs = Arc::clone(&broken.pair().programs);
        let broken_and_mended = async {
            tokio::try_join!(
                broken.break_it(fault),
                beside.play(&programs.servers, &programs.workers)
            )?;
            broken.pair().until_counted().await?;
            let counted = began.elapsed();
            sleep(BEFORE).await;
            Ok::<_, anyhow::Error>(counted)
        };
        let mut answers = WithoutCount::default();
        let counted = tokio::select! {
            counted = broken_and_mended => counted.with_context(|| name.clone())?,
            never = answers.watch(&load, began) => never,
        };
        let (load, noted, ruled) = tokio::join!(load.stop(), voters.stop(), ruled.finish());
        let (noted, ruled) = (noted.with_context(|| name.clone())?, ruled?);
        decided += ruled.answered;
        let lost_answers = load.failures + noted.unanswered.len() as u64;
        let mut refused = load.refused + noted.refusals.len() as u64;
        let mut may_lose = 0;
        if beside.fault.loses_answers() {
            may_lose = lost_answers;
        } else {
            refused += lost_answers + noted.unsent;
        }
        unanswered += may_lose;
        if refused > 0 {
            let first = load.first_failure.as_ref().or(noted.refusals.first());
            failures.push(format!(
                "{name}: {refused} votes were refused or not answered, the first: {first:?}"
            ));
        }
        let forgets_from = B::forgets(fault).then_some(began.into_std());
        let impossible = judge.judge(&noted, forgets_from);
        failures.extend(impossible.into_iter().map(|found| format!("{name}: {found}")));
        let least = stored + load.acknowledged_votes + noted.votes() as u64;
        let (rows, exact) = until_exact(&broken, least..=least + may_lose)
            .await
            .with_context(|| name.clone())?;
        stored = rows;
        let wrong = ruled.judge(&owner).await?;
        failures.extend(wrong.into_iter().map(|found| format!("{name}: {found}")));
        let least = stored_noted + noted.votes() as u64;
        stored_noted = broken.pair().stored_noted(&owner).await?;
        if !(least..=least + noted.unanswered.len() as u64).contains(&stored_noted) {
            failures.push(format!(
                "{name}: of the voters who note each answer {stored_noted} votes are stored, and {least} were acknowledged"
            ));
        }
        println!(
            "{round} of {rounds}: {fault:?}, {:?}, {stored} votes, counts again after {:.1} s, exact after {:.1} s more; \
             {} answers without a count, the last one after {:.1} s, the longest time in a row {:.1} s",
            beside.fault,
            counted.as_secs_f64(),
            exact.as_secs_f64(),
            answers.total,
            answers.last.as_secs_f64(),
            answers.longest.as_secs_f64(),
        );
        without_count.push(counted);
        answers_without.0 += answers.total;
        answers_without.1.push(answers.longest);
        exact_after.push(exact);
        broken.until_followed().await?;
    }
    let mut audit = command(TALLY);
    let database_url = broken.stores().login_url(Role::Worker);
    audit
        .arg("audit")
        .envs(environment(database_url, broken.worker_redis_url()));
    run_well(audit).await.context("tally audit")?;
    let figures = json!({
        "scenario": B::NAME,
        "seed": seed,
        "faults": rounds,
        "stored_votes": stored,
        "votes_without_an_answer": unanswered,
        "requests_of_rules": decided,
        "seconds_until_counts_are_back": spread(&mut without_count),
        "answers_without_count": answers_without.0,
        "seconds_with_answers_without_count": spread(&mut answers_without.1),
        "seconds_until_exact_after_the_last_vote": spread(&mut exact_after),
    });
    Ok((figures, failures))
}

/// The answers without a count since a fault.
#[derive(Default)]
struct WithoutCount {
    total: u64,
    /// When the last one was seen after the fault.
    last: Duration,
    /// The longest time in which each look found more of them.
    longest: Duration,
}

impl WithoutCount {
    async fn watch(&mut self, load: &Load, fault: Instant) -> ! {
        let before = load.without_count();
        let mut since = fault.elapsed();
        loop {
            sleep(LOOK_EVERY).await;
            let total = load.without_count() - before;
            let now = fault.elapsed();
            if total > self.total {
                (self.total, self.last) = (total, now);
                self.longest = self.longest.max(now - since);
            } else {
                since = now;
            }
        }
    }
}

/// Waits until the three counts of each item agree. Returns how many votes there are.
///
/// # Errors
/// When there are fewer than were acknowledged, or more than that and those without an answer, or the counts do not agree
/// within a minute.
async fn until_exact(
    broken: &impl Breakable,
    expected: RangeInclusive<u64>,
) -> anyhow::Result<(u64, Duration)> {
    let began = Instant::now();
    let owner = broken.stores().pool();
    loop {
        let rows = broken.pair().stored(&owner).await?;
        if !expected.contains(&rows) {
            bail!("{expected:?} votes must be stored, and {rows} are");
        }
        // A Redis that is demoted ends its connections.
        let counted = broken.counts().await;
        if let Ok(counts) = &counted
            && check::are_exact(counts)
        {
            return Ok((rows, began.elapsed()));
        }
        if began.elapsed() > EXACT_LIMIT {
            let counts = counted?;
            let wrong: Vec<_> = counts.iter().filter(|one| !one.are_exact()).take(5).collect();
            bail!("the counts are not exact: {wrong:?}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The kind of fault of this round: each of all in turn, and then any, or the one that `FAULT` names.
///
/// # Errors
/// When it names none.
pub fn draw<Fault: Copy + Debug>(all: &[Fault], round: usize, random: &mut StdRng) -> anyhow::Result<Fault> {
    let only = std::env::var("FAULT").unwrap_or_default();
    let is_chosen = |fault: &&Fault| only.is_empty() || format!("{fault:?}") == only;
    let chosen: Vec<Fault> = all.iter().filter(is_chosen).copied().collect();
    let fault = chosen.get(round - 1).or_else(|| chosen.choose(random));
    let fault = fault.copied();
    fault.with_context(|| format!("FAULT is {only:?}; it takes one of {all:?}"))
}

/// Ends a primary's connections to its replicas. One that is frozen has what was sent to it, and misses what comes from
/// now on; without the cut, all of it would wait for it in the sockets.
///
/// # Errors
/// When Redis is unavailable.
pub async fn cut_replicas(url: &str) -> anyhow::Result<()> {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("replica");
    Ok(kill.exec_async(&mut redis_connection(url).await?).await?)
}

/// The median and the worst of these times, in seconds.
fn spread(times: &mut [Duration]) -> Value {
    times.sort();
    let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
    json!({ "median": at(times.len() / 2), "worst": at(times.len().saturating_sub(1)) })
}
