//! How the cost of a vote grows: with the number of items, of votes in the ledger, of votes on items without a live
//! count, and of connections. `make growth`.
//!
//! Each curve varies one thing of one base: 10,000 items, an empty ledger, 256 connections in a closed loop. Tally and
//! the batched transaction, which has no Redis, take turns at each point.
//!
//! It prints a table, and leaves it in target/bench as growth.md, its rows as growth.json, and a picture as growth.svg.

mod plot;

use std::fmt::Write;
use std::process::ExitCode;

use indicatif::ProgressBar;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use testkit::benchmark::{Line, Row, median_row};
use testkit::load::Spread;

use crate::machine;
use crate::report;
use crate::results::{folder, write_json};
use crate::settings::Settings;
use crate::stores::{Stores, Template};
use crate::systems::System::{self, BatchedTransaction, Tally};
use crate::version;
use crate::voting;
use crate::workloads::{COLD, Case, EMPTY, ITEMS, UNIFORM};

/// The word that asks for it.
pub const WORD: &str = "growth";
const SYSTEMS: [System; 2] = [BatchedTransaction, Tally];
/// Names of the templates with so many items, or so many votes. A template's name is that of its database: letters.
const OF_ITEMS: [(&str, i64); 8] = [
    ("items_one", 1),
    ("items_ten", 10),
    ("items_hundred", 100),
    ("items_thousand", 1000),
    ("items_ten_thousand", 10_000),
    ("items_hundred_thousand", 100_000),
    ("items_million", 1_000_000),
    ("items_ten_million", 10_000_000),
];
const OF_VOTES: [(&str, i64); 4] = [
    ("votes_none", 0),
    ("votes_million", 1_000_000),
    ("votes_ten_million", 10_000_000),
    ("votes_hundred_million", 100_000_000),
];
const COLD_PERCENTS: [u32; 8] = [0, 1, 5, 10, 25, 50, 75, 100];
const CONNECTIONS: [usize; 8] = [1, 4, 16, 64, 256, 1024, 4096, 8192];
/// Files that this program may have open beside its connections.
const OTHER_FILES: u64 = 1024;

/// What is varied.
struct Curve {
    title: &'static str,
    points: Vec<Point>,
}

/// A value of what is varied.
struct Point {
    label: String,
    case: Case,
}

/// What was measured, as in growth.json.
#[derive(Serialize)]
struct Measured {
    curve: &'static str,
    point: String,
    #[serde(flatten)]
    row: Row,
}

/// The medians at a point, of each of [`SYSTEMS`]; `None`: none of its runs was verified.
struct Medians {
    label: String,
    lines: Vec<Option<Line>>,
}

fn curves() -> [Curve; 4] {
    let point = |value: i64, case| Point {
        label: label(value),
        case: Case {
            may_refuse: true,
            ..case
        },
    };
    let of_items = OF_ITEMS.map(|(name, items)| {
        let template = Template { name, items, ..EMPTY };
        point(items, Case { template, ..UNIFORM })
    });
    let of_votes = OF_VOTES.map(|(name, votes)| {
        let template = Template {
            name,
            count: votes / ITEMS,
            ..EMPTY
        };
        point(votes, Case { template, ..UNIFORM })
    });
    let of_cold = COLD_PERCENTS.map(|percent| {
        let warm = usize::try_from(ITEMS).expect("items");
        let case = Case {
            spread: Spread::PartlyCold { warm, percent },
            template: COLD,
            ..UNIFORM
        };
        point(percent.into(), case)
    });
    let of_connections = CONNECTIONS.map(|connections| {
        let case = Case {
            connections,
            ..UNIFORM
        };
        point(connections as i64, case)
    });
    let curve = |title, points: Vec<Point>| Curve { title, points };
    [
        curve("items, all alike", of_items.into()),
        curve("votes in the ledger", of_votes.into()),
        curve("votes in a hundred that are on cold items", of_cold.into()),
        curve("connections that vote without a pause", of_connections.into()),
    ]
}

/// Measures all curves, or those that `WORKLOADS` names by a part of their titles.
pub async fn measure(settings: &Settings) -> ExitCode {
    allow_files();
    let curves: Vec<Curve> = curves()
        .into_iter()
        .filter(|curve| match &settings.workloads {
            Some(names) => names.iter().any(|name| curve.title.contains(name.as_str())),
            None => true,
        })
        .collect();
    let stores = Stores::start().await;
    let machine = machine::measure(stores.folder(), stores.versions().await);
    let stamp = format!(
        "{}, commit {}{}: medians of {} rounds of {} s; {}.",
        time::OffsetDateTime::now_utc().date(),
        version::commit().unwrap_or_else(|| "unknown".to_owned()),
        if version::has_changes() {
            " with changes"
        } else {
            ""
        },
        settings.rounds,
        settings.run.as_secs_f64(),
        machine::line(&machine),
    );
    println!("{stamp}");
    let points: usize = curves.iter().map(|curve| curve.points.len()).sum();
    let bar = ProgressBar::new((points * SYSTEMS.len() * settings.rounds) as u64);
    let mut measured: Vec<Measured> = Vec::new();
    for curve in &curves {
        bar.suspend(|| println!("\n{}", curve.title));
        for point in &curve.points {
            for round in 0..settings.rounds {
                for system in SYSTEMS {
                    let case = Case { system, ..point.case };
                    let number = u32::try_from(measured.len()).expect("a number");
                    let row = voting::measure(&stores, &case, WORD, round, number, settings).await;
                    bar.suspend(|| println!("{:>12} {}", point.label, report::voting_line(&row)));
                    measured.push(Measured {
                        curve: curve.title,
                        point: point.label.clone(),
                        row,
                    });
                    write_json("growth.json", &measured);
                    bar.inc(1);
                }
            }
            // Large ones would fill the disk.
            stores.drop_template(&point.case.template).await;
        }
    }
    bar.finish_and_clear();
    stores.stop().await;
    let medians: Vec<(&str, Vec<Medians>)> = curves
        .iter()
        .map(|curve| {
            let points = curve
                .points
                .iter()
                .map(|point| medians(&measured, curve.title, point));
            (curve.title, points.collect())
        })
        .collect();
    let table = table(&medians, &stamp);
    println!("\n{table}");
    std::fs::write(folder().join("growth.md"), table).expect("the table");
    std::fs::write(folder().join("growth.svg"), plot::draw(&medians, &stamp)).expect("the picture");
    let faults: Vec<&str> = measured
        .iter()
        .filter_map(|one| one.row.fault.as_deref())
        .collect();
    for fault in &faults {
        eprintln!("not verified: {fault}");
    }
    if faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn medians(measured: &[Measured], curve: &str, point: &Point) -> Medians {
    let of = |system: System| {
        let rows = measured
            .iter()
            .filter(|one| one.curve == curve && one.point == point.label);
        let rows: Vec<&Row> = rows
            .map(|one| &one.row)
            .filter(|row| row.system == system && row.fault.is_none())
            .collect();
        (!rows.is_empty()).then(|| median_row(&rows))
    };
    Medians {
        label: point.label.clone(),
        lines: SYSTEMS.map(of).into(),
    }
}

/// A table in Markdown, all curves one below the other.
fn table(curves: &[(&str, Vec<Medians>)], stamp: &str) -> String {
    let mut text = String::new();
    for (title, points) in curves {
        let _ = write!(text, "| {title} |");
        for system in SYSTEMS {
            let _ = write!(
                text,
                " {name}: votes a second | CPU µs: server + worker + Postgres + Redis | = |",
                name = system.title()
            );
        }
        let _ = writeln!(text, "\n|--:|{}", "--:|".repeat(3 * SYSTEMS.len()));
        for point in points {
            let _ = write!(text, "| {} |", point.label);
            for line in &point.lines {
                let Some(line) = line else {
                    text.push_str(" | | |");
                    continue;
                };
                let cpu = &line.cpu;
                let _ = write!(
                    text,
                    " {:.0} | {:.1} + {:.1} + {:.1} + {:.1} | {:.1} |",
                    line.rate,
                    cpu.server,
                    cpu.worker,
                    cpu.postgres,
                    cpu.redis,
                    cpu.sum()
                );
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text += stamp;
    text.push('\n');
    text
}

/// A whole number, short: 10, 1000, 10 k, 1 M.
fn label(value: i64) -> String {
    match value {
        1_000_000.. => format!("{} M", value / 1_000_000),
        10_000.. => format!("{} k", value / 1000),
        _ => value.to_string(),
    }
}

/// Lets this program open as many files as the most connections need, if the system allows that.
fn allow_files() {
    let wanted = CONNECTIONS.into_iter().max().unwrap_or_default() as u64 + OTHER_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).expect("a limit");
    }
}
