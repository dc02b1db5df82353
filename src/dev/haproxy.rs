//! A private HAProxy before several servers.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::postgres::last_lines;
use super::process::Process;

/// How long it may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The time between two looks whether it listens.
const START_EVERY: Duration = Duration::from_millis(20);
/// Where Debian and others install it, which is not in everyone's PATH.
const FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// As in deploy/haproxy.cfg, without TLS.
const BEFORE_SERVERS: &str = "global
    maxconn 8000
defaults
    mode http
    option forwardfor
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout check 1s
    retries 3
    retry-on conn-failure
    option redispatch 1
backend tally
    balance leastconn
    option httpchk GET /health/ready
    http-check expect status 200
    default-server check inter 1s fall 1 rise 1
";

/// An HAProxy that runs.
#[derive(Debug)]
pub struct PrivateProxy {
    process: Process,
}

impl PrivateProxy {
    /// Whether HAProxy is installed.
    pub fn is_installed() -> bool {
        program().is_some()
    }

    /// Starts HAProxy at `listen`, before these servers, and waits until it listens.
    ///
    /// # Errors
    /// When it is not installed or does not listen; the error has the end of its log.
    pub async fn start(folder: &Path, listen: SocketAddr, servers: &[SocketAddr]) -> anyhow::Result<Self> {
        let Some(program) = program() else {
            bail!("HAProxy is not installed; it comes with Debian's and Ubuntu's package haproxy");
        };
        // HAProxy would say so in its log alone, and whoever has the address would pass for it.
        drop(TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?);
        std::fs::create_dir_all(folder)?;
        let (settings, log) = (folder.join("haproxy.cfg"), folder.join("log"));
        let mut text = BEFORE_SERVERS.to_owned();
        for (number, server) in (1..).zip(servers) {
            writeln!(text, "    server server{number} {server}")?;
        }
        writeln!(
            text,
            "frontend votes\n    bind {listen}\n    default_backend tally"
        )?;
        std::fs::write(&settings, text)?;
        let options = ["-db".as_ref(), "-f".as_ref(), settings.as_os_str()];
        let mut process = Process::start("HAProxy", program, options, &[], &log, false)?;
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if process.has_ended() || Instant::now() >= deadline {
                bail!(
                    "HAProxy did not start; {} ends with: {}",
                    log.display(),
                    last_lines(&log)
                );
            }
            if TcpStream::connect(listen).await.is_ok() {
                return Ok(Self { process });
            }
            sleep(START_EVERY).await;
        }
    }

    /// Stops it, with the connections that are left.
    pub async fn stop(self) {
        self.process.stop(Signal::SIGTERM).await;
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    folders
        .map(|folder| folder.join("haproxy"))
        .find(|path| path.is_file())
}
