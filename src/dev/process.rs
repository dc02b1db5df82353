//! A private server as a child process that never outlives this process.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, User};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a server may take to stop before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A user that a server can run as when we are root.
struct Unprivileged {
    name: String,
    uid: Uid,
    gid: Gid,
}

/// The user that Postgres runs as; `None`: we are not root, and it runs as us.
fn unprivileged() -> anyhow::Result<Option<Unprivileged>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(Unprivileged {
                name: user.name,
                uid: user.uid,
                gid: user.gid,
            }));
        }
    }
    bail!("Postgres does not run as root, and there is neither a user postgres nor a user nobody")
}

/// Whether the user that Postgres runs as can enter this folder.
pub fn can_enter(folder: &Path) -> anyhow::Result<bool> {
    if unprivileged()?.is_none() {
        return Ok(true);
    }
    let status = std_command("test", true)?.arg("-x").arg(folder).status()?;
    Ok(status.success())
}

/// Gives a folder or file to the user that Postgres runs as.
pub fn give(path: &Path) -> anyhow::Result<()> {
    if let Some(user) = unprivileged()? {
        std::os::unix::fs::chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(())
}

/// A command, run as the unprivileged user if asked for and we are root. On Linux, the kernel sends
/// it a signal when we die, however that happens. `setpriv` is part of util-linux, and so of every
/// Debian and Ubuntu.
fn std_command(program: impl AsRef<OsStr>, as_unprivileged: bool) -> anyhow::Result<std::process::Command> {
    let user = if as_unprivileged { unprivileged()? } else { None };
    if !cfg!(target_os = "linux") {
        if let Some(user) = user {
            bail!(
                "Postgres does not run as root; run this as another user than root, such as {}",
                user.name
            );
        }
        return Ok(std::process::Command::new(program));
    }
    let mut command = std::process::Command::new("setpriv");
    command.args(["--pdeathsig", "INT"]);
    if let Some(user) = user {
        command
            .arg(format!("--reuid={}", user.uid))
            .arg(format!("--regid={}", user.gid));
        command.arg("--clear-groups");
    }
    command.arg("--").arg(program);
    Ok(command)
}

/// Runs a program to its end. If it fails, the error has its output.
pub async fn run_to_end<I: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = I>,
) -> anyhow::Result<()> {
    let mut command = std_command(&program, true)?;
    command.args(arguments).current_dir("/");
    let output = Command::from(command).output().await?;
    if !output.status.success() {
        let program = program.as_ref().to_string_lossy();
        bail!(
            "{program} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// A running server.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// The signal that ends the process when it is dropped.
    last_signal: Signal,
}

impl Process {
    /// Starts a server with these variables added to our own environment. Its output is appended to
    /// `log`. Call it on a thread that lives as long as the server should: the kernel ends the
    /// server with the thread.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start<I: AsRef<OsStr>>(
        name: &str,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = I>,
        variables: &[(String, String)],
        log: &Path,
        as_unprivileged: bool,
    ) -> anyhow::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = std_command(program, as_unprivileged)?;
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut command = Command::from(command);
        // A process group of its own: the terminal's Ctrl-C is for us, and we stop the servers in
        // order.
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} could not be started"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            last_signal: Signal::SIGKILL,
        })
    }

    /// Sends this signal when it is dropped, instead of killing.
    pub fn ended_by(mut self, signal: Signal) -> Self {
        self.last_signal = signal;
        self
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The process' id; `None` once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// The processes that this one started and that are still its children.
    pub fn family(&self) -> Vec<Pid> {
        let Some(id) = self.id() else { return Vec::new() };
        let children = format!("/proc/{id}/task/{id}/children");
        std::fs::read_to_string(children)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|child| child.parse().ok().map(Pid::from_raw))
            .collect()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self
            .child
            .id()
            .with_context(|| format!("{} has ended", self.name))?;
        Ok(kill(Pid::from_raw(i32::try_from(id)?), signal)?)
    }

    /// Asks the process to end, waits for it, and kills it if it takes too long.
    pub async fn stop(mut self, signal: Signal) {
        if self.signal(signal).is_err() {
            return;
        }
        if timeout(STOP_LIMIT, self.child.wait()).await.is_err() {
            tracing::warn!(server = self.name, limit = ?STOP_LIMIT, "did not stop in time: killing it");
            let _ = self.child.kill().await;
        }
    }

    /// Kills the process, as a power cut would.
    pub async fn kill(mut self) {
        let _ = self.child.kill().await;
    }
}

/// Does not wait: the runtime notes the end.
impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process would not hear the other signal. If it has ended, there is nothing to
        // do.
        let _ = self.signal(Signal::SIGCONT);
        let _ = self.signal(self.last_signal);
    }
}

/// The range of ports, below those that Linux gives to outgoing connections. Those are
/// net.ipv4.ip_local_port_range. One of them could take a server's port while it restarts.
const PORTS: std::ops::Range<u16> = 10_000..32_000;
/// How many ports a process takes at once.
const BLOCK_PORTS: u16 = 32;
/// The most ports and blocks that are tried.
const PORT_LIMIT_TRIES: usize = 1000;

/// The ports of this process. A server that restarts needs its port again. Meanwhile the port looks
/// free to other processes too, such as other tests. So each process takes blocks of ports that no
/// other process has.
static OWN_PORTS: Mutex<OwnPorts> = Mutex::new(OwnPorts {
    held: Vec::new(),
    left: Vec::new(),
});

struct OwnPorts {
    /// The block is ours while this is open.
    held: Vec<Hold>,
    /// The ports that are not given out yet.
    left: Vec<u16>,
}

/// A name that only one process of this network namespace has at a time. The kernel frees it when
/// the process ends, and it leaves no file behind.
#[cfg(target_os = "linux")]
type Hold = std::os::unix::net::UnixDatagram;
#[cfg(not(target_os = "linux"))]
type Hold = ();

#[cfg(target_os = "linux")]
fn hold(block: u16) -> std::io::Result<Hold> {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("tally-ports-{block}");
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    std::os::unix::net::UnixDatagram::bind_addr(&address)
}

/// Other systems have no such names, so two processes may draw one block.
#[cfg(not(target_os = "linux"))]
fn hold(_block: u16) -> std::io::Result<Hold> {
    Ok(())
}

/// A free port that this process gets only once.
///
/// # Errors
/// When no port is free.
pub fn free_port() -> anyhow::Result<u16> {
    // No panic leaves it half changed, so the poison means nothing.
    let mut own = OWN_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..PORT_LIMIT_TRIES {
        let Some(port) = own.left.pop() else {
            let first = rand::random_range(0..PORTS.len() as u16 / BLOCK_PORTS) * BLOCK_PORTS + PORTS.start;
            if let Ok(held) = hold(first) {
                own.held.push(held);
                own.left = (first..first + BLOCK_PORTS).collect();
            }
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port was found in {PORT_LIMIT_TRIES} tries")
}
