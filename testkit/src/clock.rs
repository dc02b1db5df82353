//! A wall clock for a store or a program, which a test can step.
//! A small library in C (`clock.c`) is loaded into it. It adds an offset that it reads from a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, bail};

const SOURCE: &str = include_str!("clock.c");

/// A clock for the programs that have its variables in their environment.
pub struct Clock {
    file: File,
    path: PathBuf,
    library: PathBuf,
    /// How far it is ahead, in seconds.
    ahead: Mutex<i64>,
}

impl Clock {
    /// A clock that shows the machine's time, with its file in `folder`.
    ///
    /// # Errors
    /// When its library cannot be built, or its file cannot be written.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("clock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        // Postgres may run as another user.
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.write_all_at(&0_i64.to_ne_bytes(), 0)?;
        Ok(Self {
            file,
            path,
            library: library()?,
            ahead: Mutex::new(0),
        })
    }

    /// The variables that give a program this clock.
    pub fn variables(&self) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.library.display().to_string()),
            ("TALLY_TEST_CLOCK".to_owned(), self.path.display().to_string()),
        ]
    }

    /// Steps the clock, forward or back.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn step(&self, seconds: i64) -> anyhow::Result<()> {
        let mut ahead = self.ahead.lock().expect("nobody panics with the lock");
        *ahead += seconds;
        Ok(self.file.write_all_at(&ahead.to_ne_bytes(), 0)?)
    }
}

/// Builds the library and returns its path.
fn library() -> anyhow::Result<PathBuf> {
    /// Set once it is built in this process.
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("nobody panics with the lock");
    if let Some(library) = &*built {
        return Ok(library.clone());
    }
    let folder = crate::stores::folder("clock")?;
    let source = folder.join(format!("clock-{}.c", std::process::id()));
    let fresh = source.with_extension("so");
    std::fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&fresh, &source])
        .output()
        .context("cc, the C compiler, could not be started")?;
    if !output.status.success() {
        bail!("cc: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    std::fs::remove_file(source)?;
    let library = folder.join("clock.so");
    // A process that has loaded the earlier library keeps it.
    std::fs::rename(fresh, &library)?;
    *built = Some(library.clone());
    Ok(library)
}
