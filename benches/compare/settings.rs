//! What the caller chooses with environment variables.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use crate::systems::System;

/// What to run, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `QUICK=1`: a few workloads, once, in about three and a half minutes.
    pub quick: bool,
    /// `WORKLOADS=hot,flush`: only these.
    pub workloads: Option<Vec<String>>,
    /// `SYSTEMS=no-op,tally`: only these.
    pub systems: Vec<System>,
    /// `ROUNDS=3`: how often the systems take their turns.
    pub rounds: usize,
    /// `RUN_SECONDS=2`: how long a run is measured.
    pub run: Duration,
    /// `WARM_UP_SECONDS=1`: how long it runs before that; twice as long over many items.
    pub warm_up: Duration,
    /// `LONG_SECONDS=60`: how long the workloads `long_tail` and `open_snapshot` vote.
    pub long: Duration,
    /// `LEDGER_VOTES=100000000`: votes in a full ledger.
    pub ledger_votes: Option<i64>,
}

impl Settings {
    pub fn read() -> Self {
        let quick = variable::<u8>("QUICK").is_some_and(|value| value != 0);
        let systems = list("SYSTEMS").map_or(System::ALL.to_vec(), |names| {
            names
                .iter()
                .map(|name| {
                    System::named(name).unwrap_or_else(|| {
                        let all = System::ALL.map(System::name).join(", ");
                        stop(&format!("SYSTEMS: {name} is none of {all}"))
                    })
                })
                .collect()
        });
        Self {
            quick,
            workloads: list("WORKLOADS"),
            systems,
            rounds: variable("ROUNDS").unwrap_or(if quick { 1 } else { 3 }).max(1),
            run: Duration::from_secs_f64(variable("RUN_SECONDS").unwrap_or(if quick { 1.5 } else { 2.0 })),
            warm_up: Duration::from_secs_f64(variable("WARM_UP_SECONDS").unwrap_or(1.0)),
            long: Duration::from_secs_f64(variable("LONG_SECONDS").unwrap_or(if quick {
                10.0
            } else {
                60.0
            })),
            ledger_votes: variable("LEDGER_VOTES"),
        }
    }

    /// Whether a workload runs. One in `WORKLOADS` runs even if `QUICK=1` leaves it out.
    pub fn includes(&self, name: &str, in_quick: bool) -> bool {
        match &self.workloads {
            Some(names) => names.iter().any(|one| one == name),
            None => in_quick || !self.quick,
        }
    }

    /// Stops the bench if `WORKLOADS` names one that does not exist.
    pub fn check(&self, all: &[&str]) {
        for name in self.workloads.iter().flatten() {
            if !all.contains(&name.as_str()) {
                stop(&format!("WORKLOADS: {name} is none of {}", all.join(", ")));
            }
        }
    }
}

fn list(name: &str) -> Option<Vec<String>> {
    let text = std::env::var(name).ok()?;
    let names: Vec<String> = text
        .split([',', ' '])
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
        .collect();
    (!names.is_empty()).then_some(names)
}

fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => stop(&format!("{name} is {text:?}: {error}")),
    }
}

fn stop(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}
