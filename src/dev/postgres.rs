//! A private Postgres.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::process::{self, Process, free_port, give, run_to_end};
use crate::ledger::{self, Role};

/// How long a start may take, with recovery after a crash.
const START_LIMIT: Duration = Duration::from_secs(60);
/// What Postgres says while a process of a killed Postgres has not ended yet.
const PREDECESSOR: &str = "pre-existing shared memory block";
/// The time between two looks whether it answers.
const START_EVERY: Duration = Duration::from_millis(20);
const USER: &str = "tally";

/// Whether commits survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Postgres' own default.
    Full,
    /// For tests: commits survive the end of any process, but not of the machine.
    ProcessOnly,
}

/// A Postgres in a folder of its own, on a free port of the loopback interface.
pub struct PrivatePostgres {
    folder: PathBuf,
    secret: String,
    durability: Durability,
    port: u16,
    variables: Vec<(String, String)>,
    process: Option<Process>,
    /// The logins' passwords, one a role, in the order of [`Role::ALL`]; drawn anew each time.
    passwords: [String; 4],
}

/// Shows no passwords.
impl std::fmt::Debug for PrivatePostgres {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PrivatePostgres")
            .field("folder", &self.folder)
            .field("port", &self.port)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl PrivatePostgres {
    /// Describes the Postgres, and starts nothing yet.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new(folder: &Path, secret: &str, durability: Durability) -> anyhow::Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            secret: secret.to_owned(),
            durability,
            port: free_port()?,
            variables: Vec::new(),
            process: None,
            passwords: Role::ALL.map(|_| format!("{:032x}", rand::random::<u128>())),
        })
    }

    /// Creates the data folder unless it exists.
    ///
    /// # Errors
    /// When Postgres is not installed, or the folder cannot be created.
    pub async fn initialize(&self) -> anyhow::Result<()> {
        if self.data().join("PG_VERSION").exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.folder)?;
        give(&self.folder)?;
        // Created beside its place and then renamed, so that nobody takes a half-made folder for a
        // database.
        let fresh = self.folder.join("data.new");
        let password = self.folder.join("password");
        if fresh.exists() {
            std::fs::remove_dir_all(&fresh)?;
        }
        if password.exists() {
            std::fs::remove_file(&password)?;
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&password)?;
        file.write_all(self.secret.as_bytes())?;
        give(&password)?;
        let options = [
            format!("--pgdata={}", fresh.display()),
            format!("--username={USER}"),
            "--auth=scram-sha-256".to_owned(),
            format!("--pwfile={}", password.display()),
            "--encoding=UTF8".to_owned(),
            "--locale=C".to_owned(),
            "--no-sync".to_owned(),
        ];
        let made = run_to_end(program("initdb")?, options).await;
        std::fs::remove_file(&password)?;
        made?;
        Ok(std::fs::rename(fresh, self.data())?)
    }

    /// Starts Postgres, and waits until it answers.
    ///
    /// # Errors
    /// When it does not answer; the error has the end of its log.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        self.initialize().await?;
        self.wait_for_predecessor().await;
        let log = self.folder.join("log");
        let mut options = vec![
            "-D".to_owned(),
            self.data().display().to_string(),
            "-p".to_owned(),
            self.port.to_string(),
        ];
        let mut set = |setting: &str| options.extend(["-c".to_owned(), setting.to_owned()]);
        set("listen_addresses=127.0.0.1");
        set("unix_socket_directories=");
        if self.durability == Durability::ProcessOnly {
            set("fsync=off");
            set("shared_buffers=16MB");
            // In Postgres' own directory, so that a killed server leaves no memory behind.
            set("dynamic_shared_memory_type=mmap");
        }
        let start = || {
            let program = program("postgres")?;
            // The signal for an immediate shutdown. Killed, Postgres would leave a piece of System
            // V shared memory.
            Process::start("Postgres", program, options.clone(), &self.variables, &log, true)
                .map(|process| process.ended_by(Signal::SIGQUIT))
        };
        let mut process = start()?;
        let deadline = Instant::now() + START_LIMIT;
        while !ledger::answers(&self.url("postgres")).await {
            if process.has_ended() && Instant::now() < deadline && last_lines(&log).contains(PREDECESSOR) {
                sleep(START_EVERY).await;
                process = start()?;
            } else if process.has_ended() || Instant::now() >= deadline {
                bail!(
                    "Postgres did not start; {} ends with: {}",
                    log.display(),
                    last_lines(&log)
                );
            }
            sleep(START_EVERY).await;
        }
        self.process = Some(process);
        Ok(())
    }

    /// A Postgres whose owner was killed takes a moment to end. Until then nobody else can have its
    /// folder.
    async fn wait_for_predecessor(&self) {
        let deadline = Instant::now() + START_LIMIT;
        let runs = || {
            let note = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
            let name = std::fs::read_to_string(format!("/proc/{}/comm", note.lines().next()?.trim())).ok()?;
            (name.trim() == "postgres").then_some(())
        };
        while runs().is_some() && Instant::now() < deadline {
            sleep(START_EVERY).await;
        }
    }

    /// Creates a database unless it exists, and returns its URL.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn create_database(&self, name: &str) -> anyhow::Result<String> {
        ledger::create_database(&self.url("postgres"), name).await?;
        Ok(self.url(name))
    }

    /// The URL of a database in this Postgres.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://{USER}:{}@127.0.0.1:{}/{database}",
            self.secret, self.port
        )
    }

    /// Its port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates a login for each role, in a migrated database. Only this [`PrivatePostgres`] knows
    /// their passwords.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn create_logins(&self) -> anyhow::Result<()> {
        let logins: Vec<_> = Role::ALL
            .into_iter()
            .zip(&self.passwords)
            .map(|(role, password)| (role, login(role), password.as_str()))
            .collect();
        Ok(ledger::create_logins(&self.url("postgres"), &logins).await?)
    }

    /// The URL of a database, for the login with this role.
    pub fn login_url(&self, role: Role, database: &str) -> String {
        format!(
            "postgres://{}:{}@127.0.0.1:{}/{database}",
            login(role),
            self.password(role),
            self.port
        )
    }

    /// How `psql` logs in with this role, and the line for its password file. So no password stands
    /// in a command.
    pub fn psql(&self, role: Role, database: &str) -> (String, String) {
        let login = login(role);
        (
            format!("psql -h 127.0.0.1 -p {} -U {login} {database}", self.port),
            format!("127.0.0.1:*:{database}:{login}:{}\n", self.password(role)),
        )
    }

    fn password(&self, role: Role) -> &str {
        let [server, worker, report, operator] = &self.passwords;
        match role {
            Role::Server => server,
            Role::Worker => worker,
            Role::Report => report,
            Role::Operator => operator,
        }
    }

    /// Whether it has data and takes writes: it never followed another one, or was promoted since.
    pub fn is_primary(&self) -> bool {
        self.data().join("PG_VERSION").exists() && !self.data().join("standby.signal").exists()
    }

    /// Its timeline: each promotion begins another one, with a higher number.
    pub fn timeline(&self) -> u32 {
        // Postgres keeps a file for each timeline but the first.
        let files = std::fs::read_dir(self.data().join("pg_wal"));
        let names = files.into_iter().flatten().flatten().map(|file| file.file_name());
        let timelines = names.filter_map(|name| {
            let name = name.to_str()?.strip_suffix(".history")?;
            u32::from_str_radix(name, 16).ok()
        });
        timelines.max().unwrap_or(1)
    }

    /// Deletes its data. It must be stopped.
    ///
    /// # Errors
    /// When they cannot be deleted.
    pub fn delete(&self) -> anyhow::Result<()> {
        // Out of its place first, so that nobody takes what a killed program left for a database.
        let old = self.folder.join("data.old");
        if old.exists() {
            std::fs::remove_dir_all(&old)?;
        }
        if self.data().exists() {
            std::fs::rename(self.data(), &old)?;
            std::fs::remove_dir_all(&old)?;
        }
        Ok(())
    }

    /// The process id of its first process, the parent of all others.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().and_then(Process::id)
    }

    /// Stops Postgres, and ends open connections (a fast shutdown).
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::SIGINT).await;
        }
    }

    /// Ends Postgres at once, as in a crash (an immediate shutdown). The next start recovers.
    pub async fn crash(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop(Signal::SIGQUIT).await;
        }
    }

    /// Kills all of its processes at once, as when a machine goes down. The next start recovers.
    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            // The first process first, so that it starts no others.
            let members = process.family();
            process.kill().await;
            for member in members {
                let _ = nix::sys::signal::kill(member, Signal::SIGKILL);
            }
        }
    }

    /// Sends a signal to all of its processes, the first one first.
    ///
    /// # Errors
    /// When it does not run.
    pub fn signal_all(&self, signal: Signal) -> anyhow::Result<()> {
        let process = self.process.as_ref().context("Postgres does not run")?;
        // Listed before too: while all are stopped the list is whole, and once they go on, Linux
        // may leave some out of it.
        let mut members = process.family();
        process.signal(signal)?;
        members.extend(process.family());
        for member in members {
            let _ = nix::sys::signal::kill(member, signal);
        }
        Ok(())
    }

    /// Whether Postgres was started and has not ended since.
    pub fn runs(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| !process.has_ended())
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

/// The login with this role.
pub(super) fn login(role: Role) -> &'static str {
    match role {
        Role::Server => "server",
        Role::Worker => "worker",
        Role::Report => "report",
        Role::Operator => "operator",
    }
}

/// One of Postgres' own programs. Debian keeps them out of PATH, in a folder for each version.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let in_path = std::env::var_os("PATH")
        .map(|path| {
            std::env::split_paths(&path)
                .map(|folder| folder.join(name))
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    let found = std::process::Command::new("pg_config")
        .arg("--bindir")
        .output()
        .ok();
    let found = found.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join(name));
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|folders| {
            folders
                .flatten()
                .map(|folder| folder.path().join("bin").join(name))
                .collect()
        })
        .unwrap_or_default();
    // The newest version comes last in order, so it is taken first.
    debian.sort_by_key(|path| version(path));
    in_path
        .into_iter()
        .chain(debian.into_iter().rev())
        .chain(found)
        .find(|path| path.is_file())
        .with_context(|| {
            format!("{name} is not installed; it comes with Debian's and Ubuntu's package postgresql")
        })
}

fn version(program: &Path) -> u32 {
    let folder = program.ancestors().nth(2).and_then(Path::file_name);
    folder.and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// The end of a log, for an error message.
pub(super) fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}

/// For a test's copy of a data folder.
impl PrivatePostgres {
    /// Adds these variables to its environment.
    #[must_use]
    pub fn with_variables(mut self, variables: Vec<(String, String)>) -> Self {
        self.variables = variables;
        self
    }

    /// Copies the folder of another Postgres, which must be stopped.
    ///
    /// # Errors
    /// When the copy fails.
    pub async fn copy_from(&self, other: &Self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        give(&self.folder)?;
        let (from, to) = (other.data(), self.data());
        run_to_end("cp", ["-a".as_ref(), from.as_os_str(), to.as_os_str()]).await?;
        process::give(&to)
    }

    /// Becomes a standby of another Postgres: takes a base backup while that one runs, and follows it
    /// from its next start on.
    ///
    /// # Errors
    /// When the backup fails.
    pub async fn follow(&mut self, primary: &Self) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        give(&self.folder)?;
        // As in `initialize`: nobody takes a half-made folder for a database.
        let fresh = self.folder.join("data.new");
        if fresh.exists() {
            std::fs::remove_dir_all(&fresh)?;
        }
        let options = [
            format!("--dbname={}", primary.url("postgres")),
            format!("--pgdata={}", fresh.display()),
            "--write-recovery-conf".to_owned(),
            "--checkpoint=fast".to_owned(),
            "--no-sync".to_owned(),
        ];
        run_to_end(program("pg_basebackup")?, options).await?;
        std::fs::rename(fresh, self.data())?;
        self.passwords.clone_from(&primary.passwords);
        Ok(())
    }
}
