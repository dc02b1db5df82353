//! What the bench runs on: measures it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::benchmark::Machine;

/// How many syncs are timed, and of how many bytes: a page of the write-ahead log.
const SYNCS: usize = 101;
const SYNC_BYTES: usize = 8192;

/// Measures the machine, and the disk of this folder.
pub fn measure(folder: &Path, stores: String) -> Machine {
    let memory_kib: f64 = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.split_whitespace().next()?.parse().ok()
        })
        .unwrap_or(0.0);
    Machine {
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_gib: memory_kib / 1024.0 / 1024.0,
        sync_ms: fsync(folder).as_secs_f64() * 1000.0,
        stores,
    }
}

/// Says what it is, and which stores run on it.
pub fn line(machine: &Machine) -> String {
    format!(
        "{} cores, {:.0} GiB; the disk takes {:.2} ms to write and sync {SYNC_BYTES} bytes (median); {}",
        machine.cores, machine.memory_gib, machine.sync_ms, machine.stores
    )
}

/// The median time of a write and its fdatasync, as Postgres syncs its log.
fn fsync(folder: &Path) -> Duration {
    let path = folder.join("fsync");
    let mut file = File::create(&path).expect("a file");
    // The space exists already, as in the log's recycled files.
    file.write_all(&vec![1; SYNC_BYTES]).expect("a write");
    file.sync_all().expect("a sync");
    let mut times: Vec<Duration> = (0..SYNCS)
        .map(|_| {
            let started = Instant::now();
            std::os::unix::fs::FileExt::write_all_at(&file, &[2; SYNC_BYTES], 0).expect("a write");
            file.sync_data().expect("a sync");
            started.elapsed()
        })
        .collect();
    times.sort();
    let _ = std::fs::remove_file(path);
    times[SYNCS / 2]
}
