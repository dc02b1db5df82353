//! A private Redis.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::postgres::last_lines;
use super::process::{Process, free_port};
use crate::live;

/// How long a start may take, reading its append-only file, if it has one, included.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const START_EVERY: Duration = Duration::from_millis(10);

/// A Redis in a folder of its own, on a free port of the loopback interface. It keeps
/// nothing on disk: after a restart Tally rebuilds everything, whatever came back.
pub struct PrivateRedis {
    folder: PathBuf,
    is_persistent: bool,
    secret: String,
    port: u16,
    variables: Vec<(String, String)>,
    process: Option<Process>,
}

/// Without its password.
impl std::fmt::Debug for PrivateRedis {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PrivateRedis")
            .field("folder", &self.folder)
            .field("port", &self.port)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl PrivateRedis {
    /// Describes it; nothing is started yet.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new(folder: &Path, secret: &str) -> anyhow::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            is_persistent: false,
            secret: secret.to_owned(),
            port: free_port()?,
            variables: Vec::new(),
            process: None,
        })
    }

    /// With its append-only file, as the tests need it: it comes back from the end of its
    /// process with the counts from before. Nothing waits for the disk.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.is_persistent = true;
        self
    }

    /// With these variables added to its environment, for tests.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// When it does not; the end of its log is in the error.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let log = self.folder.join("log");
        // In a file that is ours alone: every user of the machine can read arguments.
        let configuration = self.folder.join("redis.conf");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&configuration)?;
        file.write_all(
            format!(
                "bind 127.0.0.1\nport {}\ndir \"{}\"\nrequirepass {}\nappendonly {}\nappendfsync no\nsave \"\"\nmaxmemory-policy noeviction\n",
                self.port,
                self.folder.display(),
                self.secret,
                if self.is_persistent { "yes" } else { "no" }
            )
            .as_bytes(),
        )?;
        let mut process = Process::start(
            "Redis",
            "redis-server",
            [&configuration],
            &self.variables,
            &log,
            false,
        )?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let redis = live::Redis::new(&self.url(), &live::KeyPrefix::default(), START_LIMIT)?;
            if redis.ping().await.is_ok() {
                break;
            }
            if process.has_ended() || Instant::now() >= deadline {
                bail!(
                    "Redis did not start (it comes with Debian's and Ubuntu's package redis-server); {} ends with: {}",
                    log.display(),
                    last_lines(&log)
                );
            }
            sleep(START_EVERY).await;
        }
        self.process = Some(process);
        Ok(())
    }

    /// Its URL, password included.
    pub fn url(&self) -> String {
        format!("redis://:{}@127.0.0.1:{}/0", self.secret, self.port)
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().and_then(Process::id)
    }

    /// Stops it; its data are written first.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::SIGTERM).await;
        }
    }

    /// Kills it.
    pub async fn crash(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Holds it where it is: connections stay open, nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match &self.process {
            Some(process) => process.signal(signal),
            None => bail!("Redis does not run"),
        }
    }
}
