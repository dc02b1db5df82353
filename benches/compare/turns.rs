//! Votes with each kind of credential, and under throttles, in many short turns on servers that all
//! run at the same time. A credential costs far less than two equal runs differ by, but neighbouring
//! seconds are alike.

use std::time::Duration;

use testkit::benchmark::{CredentialRow, Spread, With};
use testkit::load::{Load, Pace};
use tokio::time::sleep;

use crate::credentials::{prepare, server_of};
use crate::measure::Processes;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::systems::System;
use crate::voting;
use crate::workloads::{CONNECTIONS, EMPTY};

pub const WORKLOAD: &str = "credentials";
/// Turns of each kind in a round.
const TURNS: usize = 24;
const QUICK_TURNS: usize = 4;
/// The time until a turn's connections are made and its batches have their usual size.
const WARM_UP: Duration = Duration::from_millis(150);
const TURN: Duration = Duration::from_millis(400);

/// The line of one kind's turns in a round.
pub fn line(row: &CredentialRow) -> String {
    let more = |spread: Option<Spread>| match spread {
        Some(one) => format!(
            "{:+6.2} ({:+.2} to {:+.2})",
            one.median, one.quarter, one.three_quarters
        ),
        None => "-".to_owned(),
    };
    format!(
        "{:<24} {:>7.0} requests/s, CPU {:6.2} µs, {:6.2} of it the server; more than with nothing: {}; the server alone: {}{}",
        row.with.title(),
        row.requests_per_second,
        row.cpu_us_per_request,
        row.server_us_per_request,
        more(row.more_us),
        more(row.server_more_us),
        row.fault
            .as_ref()
            .map(|fault| format!("  NOT VERIFIED: {fault}"))
            .unwrap_or_default()
    )
}

/// One turn of one kind.
#[derive(Clone, Copy)]
struct Turn {
    requests_per_second: f64,
    cpu_us: f64,
    server_us: f64,
}

pub async fn measure(stores: &Stores, round: usize, settings: &Settings) -> Vec<CredentialRow> {
    let database = stores.database(&EMPTY).await;
    let items = usize::try_from(EMPTY.items).expect("items");
    let prepared = prepare(stores, &database, items).await;
    let of_servers = prepared.settings.each_ref().map(Vec::as_slice);
    let servers = Servers::start_each(stores, &database, System::Tally, &of_servers).await;
    let processes = servers.processes(stores);
    let turns = if settings.quick { QUICK_TURNS } else { TURNS };
    let kinds = prepared.requests.len();
    let mut taken: Vec<Vec<Turn>> = vec![Vec::new(); kinds];
    let (mut rows, mut failed) = (0, None);
    // The first turn of each kind seeds counters and fills caches, and does not count.
    for turn in 0..=turns {
        for at in 0..kinds {
            // Each turn begins with another kind, and a kind does not always follow the same one.
            let kind = (turn + at * (1 + turn % (kinds - 1))) % kinds;
            let (with, requests) = &prepared.requests[kind];
            let server = server_of(*with) as usize;
            let of_turn = Processes {
                servers: vec![processes.servers[server]],
                ..processes.clone()
            };
            let address = [servers.addresses[server]];
            let load = Load::start(&address, CONNECTIONS, requests.clone(), Pace::Closed, 0);
            sleep(WARM_UP).await;
            let before = of_turn.cpu();
            load.measure();
            sleep(TURN).await;
            let cpu = of_turn.cpu().since(before);
            let outcome = load.stop().await;
            rows += outcome.acknowledged_rows;
            failed = failed.or(outcome.expect_all_answered().err());
            let cpu = cpu.each(outcome.cpu, outcome.requests);
            if turn > 0 {
                taken[kind].push(Turn {
                    requests_per_second: outcome.requests as f64 / outcome.measured.as_secs_f64(),
                    cpu_us: cpu.sum(),
                    server_us: cpu.server,
                });
            }
        }
    }
    let checked = match failed
        .map_or(Ok(()), Err)
        .and(servers.stop(stores, &database).await)
    {
        Ok(()) => voting::check(stores, &database, System::Tally, &EMPTY, rows).await,
        Err(fault) => Err(fault),
    };
    stores.drop(database).await;
    let fault = checked.err();
    let kinds = prepared.requests.iter().map(|(with, _)| *with);
    kinds
        .zip(&taken)
        .map(|(with, turns)| row(round, with, turns, &taken[0], fault.clone()))
        .collect()
}

fn row(
    round: usize,
    with: With,
    turns: &[Turn],
    with_nothing: &[Turn],
    fault: Option<String>,
) -> CredentialRow {
    let median = |figure: fn(&Turn) -> f64| {
        let all = Spread::of(turns.iter().map(figure).collect());
        all.map_or(f64::NAN, |all| all.median)
    };
    let more = |figure: fn(&Turn) -> f64| {
        let pairs = turns.iter().zip(with_nothing);
        let differences = pairs.map(|(one, nothing)| figure(one) - figure(nothing));
        Spread::of(differences.collect()).filter(|_| with != With::Nothing)
    };
    CredentialRow {
        workload: WORKLOAD.to_owned(),
        round,
        with,
        turns: turns.len(),
        requests_per_second: median(|turn| turn.requests_per_second),
        cpu_us_per_request: median(|turn| turn.cpu_us),
        server_us_per_request: median(|turn| turn.server_us),
        more_us: more(|turn| turn.cpu_us),
        server_more_us: more(|turn| turn.server_us),
        fault,
    }
}
