//! The CPU time that a run costs each process.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use testkit::benchmark::CpuEach;

/// The processes whose CPU time a run measures.
#[derive(Clone, Debug)]
pub struct Processes {
    pub servers: Vec<Pid>,
    pub worker: Option<Pid>,
    pub postgres: Pid,
    /// Each node of a Redis Cluster.
    pub redis: Vec<Pid>,
}

/// CPU time by process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    pub server: Duration,
    pub worker: Duration,
    pub postgres: Duration,
    pub redis: Duration,
}

impl Processes {
    pub fn cpu(&self) -> Cpu {
        Cpu {
            server: self.servers.iter().map(|id| process(*id)).sum(),
            worker: self.worker.map(process).unwrap_or_default(),
            postgres: family(self.postgres),
            redis: self.redis.iter().map(|id| family(*id)).sum(),
        }
    }
}

impl Cpu {
    pub fn since(self, before: Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            worker: self.worker.saturating_sub(before.worker),
            postgres: self.postgres.saturating_sub(before.postgres),
            redis: self.redis.saturating_sub(before.redis),
        }
    }

    pub fn each(self, generator: Duration, count: u64) -> CpuEach {
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count as f64;
        CpuEach {
            server: each(self.server),
            worker: each(self.worker),
            postgres: each(self.postgres),
            redis: each(self.redis),
            generator: each(generator),
        }
    }
}

/// The CPU time of a process, threads that have ended included.
fn process(id: Pid) -> Duration {
    // A process that has just ended counts as nothing here: its parent's time includes it.
    ClockId::pid_cpu_clock_id(id)
        .and_then(clock_gettime)
        .map(Duration::from)
        .unwrap_or_default()
}

/// The CPU time of a process, of its children, and of the children it has waited for.
fn family(parent: Pid) -> Duration {
    let children: Duration = std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw))
        .filter(|id| stat(*id).is_some_and(|(of, _)| of == parent))
        .map(process)
        .sum();
    let waited = stat(parent).map(|(_, waited)| waited).unwrap_or_default();
    process(parent) + children + waited
}

/// A process' parent, and the CPU time of children that it has waited for.
fn stat(id: Pid) -> Option<(Pid, Duration)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may contain spaces; fields are counted from its end.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Linux reports 100 ticks per second to programs, whatever its own rate is.
    let waited = Duration::from_millis((ticks(13)? + ticks(14)?) * 10);
    Some((Pid::from_raw(fields.get(1)?.parse().ok()?), waited))
}
