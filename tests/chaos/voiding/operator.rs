//! The operator: runs `tally void`, and does not always wait for its end.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use sqlx::PgPool;
use testkit::programs::{Program, command};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::plan::{Plan, Plans, Work};
use super::{Targets, VoidingRecords};
use crate::cluster::Cluster;
use crate::pause::Pause;
use crate::programs::TALLY;
use crate::schedule::PAIR;

/// Runs for one plan while faults begin. The rest of the plan is done at the end.
const RUNS_AT_FIRST: usize = 5;
/// The part of these runs that is killed.
const KILLED: f64 = 0.5;
/// The part of all runs that two programs do at once, to go on with a voiding.
const TWICE: f64 = 0.3;
/// When a run is killed, at the latest.
const KILL_LIMIT: Duration = Duration::from_millis(600);
/// How often the operator looks whether a run has reached the point where it is killed.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A run that takes longer is killed.
const RUN_LIMIT: Duration = Duration::from_secs(20);
/// How long all that is left may take once all faults have ended.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// When a program is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    Never,
    After(Duration),
    /// Once it has created a voiding, or stored a chunk, this often.
    Changes(u32),
}

impl Kill {
    fn draw(random: &mut StdRng) -> Self {
        if !random.random_bool(KILLED) {
            Self::Never
        } else if random.random_bool(0.4) {
            let limit = u64::try_from(KILL_LIMIT.as_millis()).unwrap_or(u64::MAX);
            Self::After(Duration::from_millis(random.random_range(0..limit)))
        } else {
            Self::Changes(random.random_range(1..=3))
        }
    }
}

/// What the operator works with.
struct Tools {
    /// The variables that lead to the stores, through each server's proxies.
    environments: Vec<[(&'static str, String); 2]>,
    owner: PgPool,
    folder: PathBuf,
    runs: AtomicU64,
    killed: AtomicU64,
}

pub(super) struct Operator {
    tools: Arc<Tools>,
    pause: Pause,
    random: StdRng,
}

impl Operator {
    pub async fn new(seed: u64, cluster: &Cluster, owner: &PgPool, folder: &Path) -> Self {
        let mut environments = Vec::new();
        for server in 0..PAIR {
            environments.push(cluster.environment(tally::ledger::Role::Operator, server).await);
        }
        Self {
            tools: Arc::new(Tools {
                environments,
                owner: owner.clone(),
                folder: folder.to_owned(),
                runs: AtomicU64::new(0),
                killed: AtomicU64::new(0),
            }),
            pause: cluster.orderly.clone(),
            random: StdRng::seed_from_u64(seed ^ (1 << 52)),
        }
    }

    pub async fn run(
        mut self,
        targets: Targets,
        over: watch::Receiver<bool>,
    ) -> anyhow::Result<VoidingRecords> {
        let mut plans = Plans::new(&mut self.random);
        let mut all: Vec<Plan> = Vec::new();
        while !*over.borrow() {
            let span = self.tools.span(targets.span).await;
            let mut plan = plans.next(&targets, span, &mut self.random);
            for _ in 0..RUNS_AT_FIRST {
                // Does nothing during a pause.
                let _busy = self.pause.go_on().await;
                if plan.is_done() || *over.borrow() {
                    break;
                }
                let kill = Kill::draw(&mut self.random);
                let is_twice = self.random.random_bool(TWICE);
                self.tools.advance(&mut plan, kill, is_twice).await;
            }
            all.push(plan);
        }
        Ok(VoidingRecords {
            plans: self.finish(all).await?,
            killed: self.tools.killed.load(Ordering::Relaxed),
            ..VoidingRecords::default()
        })
    }

    /// Finishes what was begun, for all plans at once.
    async fn finish(&self, mut plans: Vec<Plan>) -> anyhow::Result<Vec<Plan>> {
        let ends = Instant::now() + FINISH_LIMIT;
        let listed = loop {
            if let Some(listed) = self.tools.run(&["--list"], Kill::Never, "").await {
                break listed;
            }
            if Instant::now() > ends {
                return Ok(plans);
            }
        };
        plans.retain(|plan| plan.is_there(&listed));
        let mut finishing = JoinSet::new();
        for mut plan in plans {
            let (tools, listed) = (Arc::clone(&self.tools), listed.clone());
            finishing.spawn(async move {
                if plan.is_left(&listed) {
                    tools.go_on(&mut plan, listed, Kill::Never, false).await;
                }
                while !plan.is_done() && Instant::now() < ends {
                    tools.advance(&mut plan, Kill::Never, false).await;
                }
                plan
            });
        }
        let mut plans = Vec::new();
        while let Some(plan) = finishing.join_next().await {
            plans.push(plan?);
        }
        Ok(plans)
    }
}

impl Tools {
    /// Two times with votes on an item between them, as an operator reads them in the table.
    async fn span(&self, item: i64) -> Option<(String, String)> {
        let found = sqlx::query_as(
            r#"select to_char(min(created_at), format), to_char(max(created_at), format)
               from (select created_at at time zone 'UTC' as created_at from vote
                     where item_id = $1 order by random() limit 2) as two,
                    (values ('YYYY-MM-DD"T"HH24:MI:SS.US"Z"')) as shape (format)
               group by format"#,
        )
        .bind(item)
        .fetch_optional(&self.owner);
        timeout(KILL_LIMIT, found).await.ok()?.ok()?
    }

    /// Runs what is next for a plan.
    async fn advance(&self, plan: &mut Plan, kill: Kill, is_twice: bool) {
        // If the last program came to its end, its output is enough.
        let listed = if plan.is_unclear {
            let Some(listed) = self.run(&["--list"], Kill::Never, &plan.reason).await else {
                return;
            };
            listed
        } else {
            plan.reports.last().cloned().into_iter().collect()
        };
        self.go_on(plan, listed, kill, is_twice).await;
    }

    /// The same, with what `tally void` said of the plan's voidings.
    async fn go_on(&self, plan: &mut Plan, listed: Vec<Value>, kill: Kill, is_twice: bool) {
        let of_plan: Vec<Value> = listed
            .into_iter()
            .filter(|voiding| voiding["reason"] == plan.reason.as_str())
            .collect();
        let called = Instant::now();
        if of_plan.is_empty() {
            plan.voiding.get_or_insert(Work {
                called,
                returned: None,
            });
            let scope = plan.scope.arguments();
            let mut arguments: Vec<&str> = scope.iter().map(String::as_str).collect();
            arguments.extend(["--reason", &plan.reason, "--apply"]);
            let reports = self.run(&arguments, kill, &plan.reason).await;
            plan.is_unclear = reports.is_none();
            if let Some(reports) = reports {
                plan.reports.extend(reports);
                finish(&mut plan.voiding);
            }
            return;
        }
        let is_voided = plan.voiding.is_some_and(|work| work.returned.is_some())
            && of_plan.iter().all(|voiding| voiding["done"] == true);
        let mut is_whole = true;
        for voiding in of_plan {
            let id = voiding["voiding"].to_string();
            // Undoing that was begun goes on as voiding does.
            let has_begun = !voiding["restored_votes"].is_null();
            let way = if is_voided && plan.is_undone && !has_begun {
                "--undo"
            } else {
                "--resume"
            };
            if is_voided && plan.is_undone {
                plan.undoing.get_or_insert(Work {
                    called,
                    returned: None,
                });
            }
            let arguments = [way, id.as_str()];
            let second = async {
                if is_twice {
                    self.run(&arguments, Kill::Never, &plan.reason).await
                } else {
                    None
                }
            };
            let (first, second) = tokio::join!(self.run(&arguments, kill, &plan.reason), second);
            is_whole &= first.is_some() || second.is_some();
            plan.reports.extend(first.into_iter().chain(second).flatten());
        }
        plan.is_unclear = !is_whole;
        if is_whole {
            finish(if is_voided && plan.is_undone {
                &mut plan.undoing
            } else {
                &mut plan.voiding
            });
        }
    }

    /// Runs `tally void`. Returns its output if it succeeded.
    async fn run(&self, arguments: &[&str], kill: Kill, reason: &str) -> Option<Vec<Value>> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let environment = &self.environments[usize::try_from(run).unwrap_or_default() % PAIR];
        let mut command = command(TALLY);
        command
            .arg("void")
            .args(arguments)
            .arg("--json")
            .envs(environment.clone());
        let before = self.progress(kill, reason).await;
        let mut program = Program::start(command, &self.folder, &format!("void-{run}")).ok()?;
        let is_time = async {
            match kill {
                Kill::Never => pending().await,
                Kill::After(moment) => sleep(moment).await,
                Kill::Changes(changes) => {
                    let mut last = before;
                    let mut seen = 0;
                    while seen < changes {
                        sleep(LOOK_EVERY).await;
                        let now = self.progress(kill, reason).await;
                        seen += u32::from(now != last);
                        last = now;
                    }
                }
            }
        };
        let ended = tokio::select! {
            code = timeout(RUN_LIMIT, program.wait()) => code.ok(),
            () = is_time => None,
        };
        let Some(code) = ended else {
            self.killed
                .fetch_add(u64::from(program.kill().await.is_ok()), Ordering::Relaxed);
            return None;
        };
        let said = program.output();
        let said = said.lines().filter_map(|line| serde_json::from_str(line).ok());
        (code == Some(0)).then(|| said.collect())
    }

    /// A value that changes with each voiding that is created and each chunk that is stored for this reason.
    async fn progress(&self, kill: Kill, reason: &str) -> Option<(i64, i64, i64)> {
        if !matches!(kill, Kill::Changes(_)) {
            return None;
        }
        sqlx::query_as(
            "select count(*), coalesce(sum(done_vote_id), 0)::bigint, coalesce(sum(undone_vote_id + 1), 0)::bigint
             from voiding where reason = $1",
        )
        .bind(reason)
        .fetch_one(&self.owner)
        .await
        .ok()
    }
}

fn finish(work: &mut Option<Work>) {
    if let Some(work) = work {
        work.returned = Some(Instant::now());
    }
}
