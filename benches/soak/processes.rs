//! What /proc says of the processes: CPU time and memory.
//!
//! benches/compare/measure.rs reads CPU clocks, for runs of two seconds with one worker. Here one
//! look at /proc serves all processes, and its steps of 10 ms are fine enough.

use std::time::Duration;

use anyhow::Context;
use nix::unistd::Pid;

use crate::system::Ids;

/// Linux reports 100 ticks per second to programs, whatever its own rate is.
const TICK: Duration = Duration::from_millis(10);

/// CPU time so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    pub servers: Duration,
    pub workers: Duration,
    pub postgres: Duration,
    pub redis: Duration,
    /// CPU time of everything else on the machine, without this program, which is the load.
    pub others: Duration,
}

/// Memory, in MiB.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Resident.
    pub servers: Vec<f64>,
    /// Resident.
    pub workers: Vec<f64>,
    /// Resident.
    pub redis: f64,
    /// The private memory of all Postgres processes. Leaves out shared buffers, since each process
    /// counts them again, and autovacuum's workers, since they come and go with much memory of
    /// their own (`maintenance_work_mem`).
    pub postgres: f64,
}

struct Process {
    id: Pid,
    parent: Pid,
    cpu: Duration,
    /// The CPU time of children that it has waited for.
    waited: Duration,
}

impl Cpu {
    /// # Errors
    /// When the system does not say.
    pub fn read(ids: &Ids) -> anyhow::Result<Self> {
        let processes = all()?;
        let own = |id: &Pid| {
            let process = processes.iter().find(|one| one.id == *id);
            process.map(|one| one.cpu).unwrap_or_default()
        };
        let this = own(&nix::unistd::getpid());
        let family = processes
            .iter()
            .filter(|one| one.id == ids.postgres || one.parent == ids.postgres);
        let mut cpu = Self {
            servers: ids.servers.iter().map(own).sum(),
            workers: ids.workers.iter().map(own).sum(),
            postgres: family
                .map(|one| {
                    if one.id == ids.postgres {
                        one.cpu + one.waited
                    } else {
                        one.cpu
                    }
                })
                .sum(),
            redis: own(&ids.redis),
            others: Duration::ZERO,
        };
        let ours = this + cpu.servers + cpu.workers + cpu.postgres + cpu.redis;
        cpu.others = machine()?.saturating_sub(ours);
        Ok(cpu)
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            servers: self.servers.saturating_sub(before.servers),
            workers: self.workers.saturating_sub(before.workers),
            postgres: self.postgres.saturating_sub(before.postgres),
            redis: self.redis.saturating_sub(before.redis),
            others: self.others.saturating_sub(before.others),
        }
    }
}

impl Memory {
    /// # Errors
    /// When a process has ended.
    pub fn read(ids: &Ids) -> anyhow::Result<Self> {
        let resident =
            |id: &Pid| status_mib(*id, "VmRSS:").with_context(|| format!("process {id} does not run"));
        let postgres = all()?
            .into_iter()
            .filter(|one| (one.id == ids.postgres || one.parent == ids.postgres) && !is_autovacuum(one.id));
        Ok(Self {
            servers: ids.servers.iter().map(resident).collect::<Result<_, _>>()?,
            workers: ids.workers.iter().map(resident).collect::<Result<_, _>>()?,
            redis: resident(&ids.redis)?,
            // A process that has just ended has no memory.
            postgres: postgres
                .map(|one| status_mib(one.id, "RssAnon:").unwrap_or_default())
                .sum(),
        })
    }
}

fn is_autovacuum(id: Pid) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/cmdline"))
        .is_ok_and(|title| title.contains("autovacuum worker"))
}

fn status_mib(id: Pid, name: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

fn all() -> anyhow::Result<Vec<Process>> {
    let ids = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    Ok(ids.filter_map(stat).collect())
}

fn stat(id: Pid) -> Option<Process> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may contain spaces; fields are counted from its end.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok().map(|ticks| TICK * ticks);
    Some(Process {
        id,
        parent: Pid::from_raw(fields.get(1)?.parse().ok()?),
        cpu: ticks(11)? + ticks(12)?,
        waited: ticks(13)? + ticks(14)?,
    })
}

/// The time for which the machine's cores were busy, or taken by its host.
fn machine() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u32> = line
        .split_whitespace()
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    // user, nice, system, (idle, iowait,) irq, softirq, steal
    Ok([0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|at| ticks.get(*at))
        .map(|ticks| TICK * *ticks)
        .sum())
}
