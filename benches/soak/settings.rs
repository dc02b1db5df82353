//! What the caller chooses with environment variables.

use std::time::Duration;

/// How long a soak votes, unless `MINUTES` or `SECONDS` says otherwise.
const DEFAULT: Duration = Duration::from_secs(30 * 60);
/// A shorter run has too few samples in a quarter.
const SHORTEST: Duration = Duration::from_secs(60);
/// How many samples a run has at most, one a second or fewer.
const SAMPLES_LIMIT: u32 = 600;
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `MINUTES=30`, `SECONDS=180`: how long it votes, not counting what comes before and after.
    pub run: Duration,
    pub sample_every: Duration,
}

impl Settings {
    pub fn read() -> Self {
        let seconds = variable("SECONDS").or_else(|| variable("MINUTES").map(|minutes| minutes * 60.0));
        let run = seconds.map_or(DEFAULT, Duration::from_secs_f64);
        if run < SHORTEST {
            stop(&format!("a soak takes at least {SHORTEST:?}"));
        }
        Self {
            run,
            sample_every: SAMPLE_EVERY.max(run / SAMPLES_LIMIT),
        }
    }
}

fn variable(name: &str) -> Option<f64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(value) if (0.0..1e6).contains(&value) => Some(value),
        _ => stop(&format!("{name} is {text:?}; it takes a number")),
    }
}

fn stop(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}
