//! What the bench runs on.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many syncs are timed, and of how many bytes: a page of the write-ahead log.
const SYNCS: usize = 101;
const SYNC_BYTES: usize = 8192;

/// The machine, in figures.
pub struct Machine {
    cores: usize,
    memory_gib: f64,
    fsync: Duration,
}

impl Machine {
    /// Measures the machine, and the disk of this folder.
    pub fn measure(folder: &Path) -> Self {
        let memory_kib: f64 = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| {
                let line = text
                    .lines()
                    .find(|line| line.starts_with("MemTotal:"))?
                    .to_owned();
                line.split_whitespace().nth(1)?.parse().ok()
            })
            .unwrap_or(f64::NAN);
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory_kib / 1024.0 / 1024.0,
            fsync: fsync(folder),
        }
    }

    /// Prints what it is, and which stores run on it.
    pub fn print(&self, stores: &str) {
        println!(
            "{} cores, {:.0} GiB; the disk takes {:.2} ms to write and sync {SYNC_BYTES} bytes (median); {stores}",
            self.cores,
            self.memory_gib,
            self.fsync.as_secs_f64() * 1000.0
        );
    }
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
