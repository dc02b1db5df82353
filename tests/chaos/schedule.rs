//! The faults of a round and when they begin, drawn from the round's seed alone.

use std::collections::HashMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use crate::faults::{Fault, Target};
use crate::stores::sessions::{self, SessionSetting};

/// How long votes are cast and faults begin.
pub const LOAD: Duration = Duration::from_secs(9);
/// How many servers there are, and how many workers.
pub const PAIR: usize = 2;
/// The shortest time between two faults of one target.
const BETWEEN: Duration = Duration::from_millis(300);

/// One fault of a round.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it begins, from the round's beginning on.
    pub at: Duration,
    pub fault: Fault,
    /// Which server or worker: 0 or 1.
    pub which: usize,
    /// How long it lasts: down, stopped, stalled.
    pub lasting: Duration,
    /// Which program's connections a fault of connections breaks: the servers come first,
    /// then the workers. `None`: those of all programs.
    pub program: Option<usize>,
}

/// The programs' settings in a round, and its items.
#[derive(Clone, Debug)]
pub struct Settings {
    pub items: i64,
    pub clients: usize,
    pub flush_every: &'static str,
    pub flush_page: &'static str,
    pub scan_every: &'static str,
    pub retention: &'static str,
    pub max_age: &'static str,
    /// When the workers audit, and repair what they find. In half of the rounds they never do:
    /// there the counts must become right without an audit.
    pub audit_cron: &'static str,
    /// Whether the servers are open to everyone, without credentials and throttles.
    pub is_open: bool,
    /// Settings of the programs' sessions in Postgres that they must not follow, from the beginning on.
    pub sessions: Vec<SessionSetting>,
}

/// Every second, and once a year.
pub const AUDIT_OFTEN: &str = "* * * * * *";
const AUDIT_NEVER: &str = "0 0 0 1 1 *";

/// A round's whole plan.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub seed: u64,
    pub settings: Settings,
    pub steps: Vec<Step>,
}

/// Draws a round's plan. Among four seeds in a row, each fault is in at least two rounds. With
/// `only`, a round has that fault alone, several times.
pub fn draw(seed: u64, only: Option<Fault>) -> Schedule {
    let mut random = StdRng::seed_from_u64(seed);
    let settings = Settings {
        items: *[20, 400, 5000].choose(&mut random).unwrap_or(&100),
        clients: random.random_range(12..=24),
        flush_every: pick(&["50ms", "200ms", "1s"], &mut random),
        flush_page: pick(&["7", "100", "1000"], &mut random),
        // Never in half of the rounds: an unsaved counter that the index misses then stays unsaved.
        scan_every: pick(&["200ms", "1h"], &mut random),
        retention: pick(&["1ms", "300ms", "10m"], &mut random),
        // Eviction by age hides what else was wrong with a count.
        max_age: pick(&["700ms", "1h", "1h", "1h"], &mut random),
        audit_cron: pick(&[AUDIT_OFTEN, AUDIT_NEVER], &mut random),
        is_open: false,
        sessions: sessions::draw(&mut random),
    };
    let mut faults = match only {
        Some(fault) => vec![fault; 3],
        None => dealt(seed, &mut random),
    };
    faults.shuffle(&mut random);
    let latest = u64::try_from(LOAD.as_millis()).unwrap_or(u64::MAX) * 9 / 10;
    let mut steps: Vec<Step> = faults
        .into_iter()
        .map(|fault| Step {
            at: Duration::from_millis(random.random_range(300..latest)),
            fault,
            which: random.random_range(0..PAIR),
            lasting: fault.lasting(&mut random),
            program: random.random_bool(0.6).then(|| random.random_range(0..2 * PAIR)),
        })
        .collect();
    steps.sort_by_key(|step| step.at);
    take_turns(&mut steps);
    Schedule {
        seed,
        settings,
        steps,
    }
}

/// Faults of one target do not overlap; faults of different targets may.
fn take_turns(steps: &mut [Step]) {
    let mut free_from: HashMap<(Target, usize), Duration> = HashMap::new();
    for step in steps {
        let target = step.fault.target();
        let which = match target {
            Target::Server | Target::Worker | Target::ServerClock | Target::WorkerClock => step.which,
            _ => 0,
        };
        let free_from = free_from.entry((target, which)).or_default();
        step.at = step.at.max(*free_from);
        *free_from = step.at + step.lasting + BETWEEN;
    }
}

/// A round's faults, by its seed. After some faults everything is rebuilt (an epoch), or every
/// item with recent votes (a server's lost connections to Postgres). That would hide what other
/// faults have done, so most rounds have only some of them.
fn dealt(seed: u64, random: &mut StdRng) -> Vec<Fault> {
    let wanted = |fault: &Fault| {
        let epoch = fault.begins_epoch();
        match (seed % 4, fault.target()) {
            // Nothing that begins an epoch: every answer is checked.
            (0, _) => !epoch,
            // Every fault of Redis; none of Postgres and the servers.
            (1, target) => matches!(
                target,
                Target::Redis
                    | Target::RedisConnections
                    | Target::RedisClock
                    | Target::RedisDatabase
                    | Target::Worker
                    | Target::WorkerClock
            ),
            // Every fault of Postgres; none of Redis.
            (2, target) => !matches!(
                target,
                Target::Redis | Target::RedisConnections | Target::RedisClock | Target::RedisDatabase
            ),
            // The worst faults, together.
            (_, target) => {
                epoch
                    || matches!(
                        target,
                        Target::Server | Target::ServerClock | Target::PostgresConnections
                    )
            }
        }
    };
    let mut faults: Vec<Fault> = Fault::ALL.iter().copied().filter(wanted).collect();
    // One more, since a fault may miss its point.
    faults.extend(faults.clone().choose(random));
    if seed % 4 < 3 {
        faults.extend(Fault::AT_A_POINT.choose(random));
    }
    faults
}

fn pick(from: &[&'static str], random: &mut StdRng) -> &'static str {
    from.choose(random).copied().unwrap_or_default()
}
