//! Takes the samples while the load runs, and opens a report's snapshot now and then.

use std::time::{Duration, Instant};

use anyhow::Context;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool};
use tally::ledger::Role;
use testkit::stores::{DATABASE, redis_info};
use tokio::time::{MissedTickBehavior, interval};

use crate::curves::{self, Samples};
use crate::load::{Mixed, Window};
use crate::processes::{Cpu, Memory};
use crate::settings::Settings;
use crate::system::{Ids, System};

/// How many reports a run has: two in each quarter, so that the quarters are alike.
const REPORTS: u32 = 8;
/// When in its turn a report takes its snapshot: it holds it for the middle third.
const REPORT_FROM_PART: f64 = 1.0 / 3.0;
const REPORT_UNTIL_PART: f64 = 2.0 / 3.0;

/// For how long a report holds its snapshot.
fn report_for(settings: &Settings) -> Duration {
    (settings.run / REPORTS).mul_f64(REPORT_UNTIL_PART - REPORT_FROM_PART)
}

/// Whether a report is to hold its snapshot at this time.
fn is_report_due(elapsed: Duration, settings: &Settings) -> bool {
    let turn = (settings.run / REPORTS).as_secs_f64();
    let part = elapsed.as_secs_f64() % turn / turn;
    (REPORT_FROM_PART..REPORT_UNTIL_PART).contains(&part)
}

/// Begins a transaction like that of pg_dump or a long report: it has read `item`, and sees the
/// table of that moment until it ends.
async fn open_report(url: &str) -> anyhow::Result<PgConnection> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql("begin isolation level repeatable read read only; select sum(vote_count) from item")
        .execute(&mut connection)
        .await?;
    Ok(connection)
}

async fn close_report(mut connection: PgConnection) -> anyhow::Result<()> {
    sqlx::raw_sql("commit").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// The last sample's values, to subtract from the next one's.
struct Former {
    at: Instant,
    cpu: Cpu,
}

/// Samples until the run is over. After an error too, `samples` has what was sampled.
///
/// # Errors
/// When a program has ended, or a store does not answer.
pub async fn run(
    system: &mut System,
    load: &mut Mixed,
    earlier_votes: u64,
    settings: &Settings,
    samples: &mut Samples,
    tell: impl Fn(&Samples),
) -> anyhow::Result<()> {
    let ids = system.ids()?;
    let report_url = system.postgres.login_url(Role::Report, DATABASE);
    let mut report = None;
    let began = Instant::now();
    let mut former = Former {
        at: began,
        cpu: Cpu::read(&ids)?,
    };
    // Drops what came before the first sample.
    load.window().await;
    let mut ticks = interval(settings.sample_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once.
    ticks.tick().await;
    while began.elapsed() < settings.run {
        ticks.tick().await;
        system.expect_running()?;
        let is_due = is_report_due(began.elapsed(), settings);
        report = match report.take() {
            None if is_due => Some(open_report(&report_url).await.context("a report")?),
            Some(open) if !is_due => {
                close_report(open).await.context("a report")?;
                None
            }
            as_before => as_before,
        };
        samples.begin(began.elapsed().as_secs_f64(), report.is_some());
        sample_memory(system, &ids, samples).await?;
        let window = load.window().await;
        former = sample_load(load, &window, &ids, &former, samples)?;
        let votes = earlier_votes + load.acknowledged_votes();
        sample_ledger(&system.pool, load, votes, settings, samples).await?;
        tell(samples);
    }
    if let Some(open) = report {
        close_report(open).await.context("a report")?;
    }
    Ok(())
}

async fn sample_memory(system: &System, ids: &Ids, samples: &mut Samples) -> anyhow::Result<()> {
    let memory = Memory::read(ids)?;
    for (number, mib) in (1..).zip(&memory.servers) {
        let name = format!("server {number}");
        samples.push(curves::SERVERS, &name, curves::OF_PROGRAMS, *mib);
    }
    for (number, mib) in (1..).zip(&memory.workers) {
        let name = format!("worker {number}");
        samples.push(curves::WORKERS, &name, curves::OF_PROGRAMS, *mib);
    }
    samples.push(curves::REDIS, "resident", curves::OF_REDIS, memory.redis);
    let info = redis_info(&system.redis.url(), "memory").await?;
    let used: f64 = info.get("used_memory").context("used_memory")?;
    samples.push(curves::REDIS, "used", curves::OF_REDIS, used / 1024.0 / 1024.0);
    samples.push(
        curves::POSTGRES,
        "all processes",
        curves::OF_POSTGRES,
        memory.postgres,
    );
    Ok(())
}

fn sample_load(
    load: &Mixed,
    window: &Window,
    ids: &Ids,
    former: &Former,
    samples: &mut Samples,
) -> anyhow::Result<Former> {
    let now = Former {
        at: Instant::now(),
        cpu: Cpu::read(ids)?,
    };
    let seconds = (now.at - former.at).as_secs_f64();
    let of = |count: u64| count as f64 / seconds;
    samples.push(curves::RATES, "votes", curves::OF_RATE, of(window.votes));
    if load.reads_per_second > 0.0 {
        samples.push(curves::RATES, "reads", curves::OF_RATE, of(window.reads));
    }
    for (panel, latency) in [
        (curves::VOTE_LATENCY, &window.vote_latency_us),
        (curves::READ_LATENCY, &window.read_latency_us),
    ] {
        for (name, part, rule) in [("p50", 0.5, curves::OF_P50), ("p99", 0.99, curves::OF_P99)] {
            let ms = if latency.is_empty() {
                f64::NAN
            } else {
                latency.value_at_quantile(part) as f64 / 1000.0
            };
            samples.push(panel, name, rule, ms);
        }
    }
    let cpu = now.cpu.since(former.cpu);
    for (name, cpu) in [
        ("servers", cpu.servers),
        ("workers", cpu.workers),
        ("Postgres", cpu.postgres),
        ("Redis", cpu.redis),
    ] {
        let each = cpu.as_secs_f64() * 1e6 / window.votes as f64;
        let each = if window.votes == 0 { f64::NAN } else { each };
        samples.push(curves::CPU, name, curves::OF_CPU, each);
    }
    let others = cpu.others.as_secs_f64() / seconds;
    samples.push(curves::OTHERS, "others", curves::OF_OTHERS, others);
    Ok(now)
}

async fn sample_ledger(
    pool: &PgPool,
    load: &Mixed,
    votes: u64,
    settings: &Settings,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let (tail, saved, vote): (i64, Option<f64>, i64) = sqlx::query_as(
        "select greatest((select last_value from vote_id_seq) - (select vote_id from watermark), 0),
                (select extract(epoch from clock_timestamp() - counted_at)::float8 from item where id = 1),
                pg_table_size('vote')",
    )
    .fetch_one(pool)
    .await?;
    let tail_seconds = tail as f64 / load.votes_per_second;
    samples.push(curves::TAIL, "tail", curves::OF_TAIL, tail_seconds);
    let saved = saved.unwrap_or(f64::NAN);
    samples.push(curves::SAVED, "saved", curves::OF_SAVED, saved);
    let indexes: Vec<(String, i64)> = sqlx::query_as(
        "select indexrelid::regclass::text, pg_relation_size(indexrelid)
         from pg_index where indrelid = 'vote'::regclass order by 1",
    )
    .fetch_all(pool)
    .await?;
    for (name, bytes) in std::iter::once(("vote".to_owned(), vote)).chain(indexes) {
        samples.push(curves::DISK, &name, curves::OF_DISK, bytes as f64 / votes as f64);
    }
    sample_tables(pool, settings, samples).await
}

/// The sizes of all tables but the ledger's.
async fn sample_tables(pool: &PgPool, settings: &Settings, samples: &mut Samples) -> anyhow::Result<()> {
    let sizes: Vec<(String, i64)> = sqlx::query_as(
        "select case when relname in ('item', 'audited_count', 'recent_change') then relname::text
                     else 'all others' end as name,
                sum(pg_total_relation_size(oid))::bigint
         from pg_class
         where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> 'vote'
         group by 1 order by 1",
    )
    .fetch_all(pool)
    .await?;
    let report_for = report_for(settings);
    for (name, bytes) in sizes {
        let rule = match name.as_str() {
            "item" => curves::of_item(report_for),
            "audited_count" => curves::of_audited_count(report_for),
            "recent_change" => curves::of_recent_change(report_for, settings.run),
            _ => curves::OF_OTHER_TABLES,
        };
        samples.push(curves::TABLES, &name, rule, bytes as f64 / 1024.0 / 1024.0);
    }
    Ok(())
}
