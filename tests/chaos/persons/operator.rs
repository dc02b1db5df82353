//! The operator: runs `tally voter` and `tally import`, and does not always wait for their end.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use testkit::programs::{Program, command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::pause::Pause;
use crate::programs::TALLY;
use crate::schedule::PAIR;

/// The part of all runs that is killed while faults begin.
const KILLED: f64 = 0.5;
/// When a run is killed, at the latest.
const KILL_LIMIT_MS: u64 = 700;
/// A run that takes longer is killed.
const RUN_LIMIT: Duration = Duration::from_secs(20);

pub(super) struct Operator {
    /// The variables that lead to the stores, through each server's proxies.
    environments: Vec<[(&'static str, String); 2]>,
    folder: PathBuf,
    pause: Pause,
    runs: AtomicU64,
}

impl Operator {
    pub async fn new(cluster: &Cluster, folder: &Path) -> Self {
        let mut environments = Vec::new();
        for server in 0..PAIR {
            environments.push(cluster.environment(tally::ledger::Role::Operator, server).await);
        }
        Self {
            environments,
            folder: folder.to_owned(),
            pause: cluster.orderly.clone(),
            runs: AtomicU64::new(0),
        }
    }

    /// Runs `tally` with these arguments. Returns whether it succeeded. `killed` counts the runs that are killed.
    pub async fn run(
        &self,
        arguments: &[String],
        random: &mut StdRng,
        over: &watch::Receiver<bool>,
        killed: &mut u64,
    ) -> bool {
        let is_killed = !*over.borrow() && random.random_bool(KILLED);
        let kill_at = Duration::from_millis(random.random_range(0..KILL_LIMIT_MS));
        // Does nothing during a pause.
        let _busy = self.pause.go_on().await;
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let environment = &self.environments[usize::try_from(run).unwrap_or_default() % PAIR];
        let mut command = command(TALLY);
        command.args(arguments).arg("--json").envs(environment.clone());
        let Ok(mut program) = Program::start(command, &self.folder, &format!("person-{run}")) else {
            return false;
        };
        let is_time = async {
            if is_killed {
                sleep(kill_at).await;
            } else {
                pending::<()>().await;
            }
        };
        let ended = tokio::select! {
            code = timeout(RUN_LIMIT, program.wait()) => code.ok(),
            () = is_time => None,
        };
        if ended.is_none() {
            *killed += u64::from(program.kill().await.is_ok());
        }
        ended == Some(Some(0))
    }
}
