//! What happens to a program of a pair while a store fails over.

use std::time::Duration;

use anyhow::Context;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use testkit::programs::Program;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::programs::{freeze, kill};

/// How long after the store a program fails, at most: about as long as a failover takes.
const LATER_LIMIT: Duration = Duration::from_millis(4000);
/// How long a program is frozen. It wakes with what it knew. A connection that it is making to Postgres may take 2 s.
const FROZEN: Duration = Duration::from_millis(1500);
/// How long a program is dead.
const DEAD: Duration = Duration::from_millis(200);

/// A fault of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramFault {
    None,
    ServerKilled,
    ServerFrozen,
    WorkerKilled,
    WorkerFrozen,
}

const ALL: [ProgramFault; 5] = [
    ProgramFault::ServerKilled,
    ProgramFault::None,
    ProgramFault::ServerFrozen,
    ProgramFault::WorkerKilled,
    ProgramFault::WorkerFrozen,
];

/// A fault that was drawn: of which of the pair, and how much later than that of the store.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    pub fault: ProgramFault,
    at: usize,
    later: Duration,
}

impl ProgramFault {
    /// Whether votes may have no answer.
    pub fn loses_answers(self) -> bool {
        self == Self::ServerKilled
    }
}

impl Drawn {
    /// Any; the one that `PROGRAM_FAULT` names; or none, if `FAULT` asks for a fault of a store alone.
    ///
    /// # Errors
    /// When `PROGRAM_FAULT` names none.
    pub fn draw(random: &mut StdRng) -> anyhow::Result<Self> {
        let set = |name| std::env::var(name).unwrap_or_default();
        let mut wanted = set("PROGRAM_FAULT");
        if wanted.is_empty() && !set("FAULT").is_empty() {
            wanted = format!("{:?}", ProgramFault::None);
        }
        let is_wanted = |one: &&ProgramFault| wanted.is_empty() || format!("{one:?}") == wanted;
        let chosen: Vec<ProgramFault> = ALL.iter().filter(is_wanted).copied().collect();
        let fault = chosen.choose(random).copied();
        Ok(Self {
            fault: fault.with_context(|| format!("PROGRAM_FAULT is {wanted:?}; it takes one of {ALL:?}"))?,
            at: random.random_range(0..crate::schedule::PAIR),
            later: LATER_LIMIT.mul_f64(random.random()),
        })
    }

    /// Plays it.
    ///
    /// # Errors
    /// When the program ends by itself, or does not start again.
    pub async fn play(self, servers: &[Mutex<Program>], workers: &[Mutex<Program>]) -> anyhow::Result<()> {
        if self.fault != ProgramFault::None {
            sleep(self.later).await;
        }
        match self.fault {
            ProgramFault::None => Ok(()),
            ProgramFault::ServerKilled => kill(&mut *servers[self.at].lock().await, DEAD).await,
            ProgramFault::ServerFrozen => freeze(&*servers[self.at].lock().await, FROZEN).await,
            ProgramFault::WorkerKilled => kill(&mut *workers[self.at].lock().await, DEAD).await,
            ProgramFault::WorkerFrozen => freeze(&*workers[self.at].lock().await, FROZEN).await,
        }
    }
}
