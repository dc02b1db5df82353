//! Private Sentinels, which follow a private Redis and its replicas.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::postgres::last_lines;
use super::process::{Process, free_port};
use super::redis::{PrivateRedis, write_for_us_alone};
use crate::live::{self, KeyPrefix};

/// How many of them must find the primary gone: two of three.
const QUORUM: usize = 2;
/// How long the primary may be silent. Sentinel looks once a second.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// How long a failover may take before another one is tried.
const FAILOVER_LIMIT: Duration = Duration::from_secs(10);
/// How long all may take until they answer.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The time between two looks.
const START_EVERY: Duration = Duration::from_millis(50);

/// Sentinels that watch a primary and its replicas.
#[derive(Debug)]
pub struct PrivateSentinels {
    running: Vec<(u16, Process)>,
    secret: String,
}

impl PrivateSentinels {
    /// The name under which they watch the primary.
    pub const NAME: &str = "tally";
    /// How many they are: one of them may be gone.
    pub const NUMBER: usize = 3;

    /// Starts Sentinels in `folder` that watch this primary, which runs, and waits until they answer.
    ///
    /// # Errors
    /// When one of them does not start; the error has the end of its log.
    pub async fn start(folder: &Path, primary: &PrivateRedis) -> anyhow::Result<Self> {
        let (name, secret) = (Self::NAME, primary.secret());
        let mut running = Vec::new();
        for number in 1..=Self::NUMBER {
            let folder = folder.join(number.to_string());
            std::fs::create_dir_all(&folder)?;
            let port = free_port()?;
            let configuration = folder.join("sentinel.conf");
            // A new one each time: Sentinel writes into it what it has learnt, also of processes that are gone.
            write_for_us_alone(
                &configuration,
                &format!(
                    "bind 127.0.0.1\nport {port}\ndir \"{}\"\nrequirepass {secret}\n\
                     sentinel monitor {name} 127.0.0.1 {} {QUORUM}\nsentinel auth-user {name} sentinel\nsentinel auth-pass {name} {secret}\n\
                     sentinel down-after-milliseconds {name} {}\nsentinel failover-timeout {name} {}\n",
                    folder.display(),
                    primary.port(),
                    DOWN_AFTER.as_millis(),
                    FAILOVER_LIMIT.as_millis(),
                ),
            )?;
            let arguments = [configuration.into_os_string(), "--sentinel".into()];
            let log = folder.join("log");
            let process = Process::start("Sentinel", "redis-server", arguments, &[], &log, false)?;
            running.push((port, process));
        }
        let mut sentinels = Self {
            running,
            secret: secret.to_owned(),
        };
        sentinels.wait(folder, primary).await?;
        Ok(sentinels)
    }

    async fn wait(&mut self, folder: &Path, primary: &PrivateRedis) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        for at in 0..self.running.len() {
            let url = self.url_of([at], &primary.url());
            loop {
                let redis = live::Redis::new(&url, &KeyPrefix::default(), START_LIMIT)?;
                if redis.ping().await.is_ok() {
                    break;
                }
                if self.running[at].1.has_ended() || Instant::now() >= deadline {
                    let log = folder.join((at + 1).to_string()).join("log");
                    bail!(
                        "Sentinel did not start; {} ends with: {}",
                        log.display(),
                        last_lines(&log)
                    );
                }
                sleep(START_EVERY).await;
            }
        }
        Ok(())
    }

    /// The URL of one of them, for its own commands.
    pub fn address(&self, at: usize) -> String {
        format!("redis://:{}@127.0.0.1:{}", self.secret, self.running[at].0)
    }

    /// The URL by which a program finds the primary: the login is that of this URL of one of the Redises.
    pub fn url(&self, redis_url: &str) -> String {
        self.url_of(0..self.running.len(), redis_url)
    }

    /// The same with some of the Sentinels only.
    pub fn url_of(&self, which: impl IntoIterator<Item = usize>, redis_url: &str) -> String {
        let hosts: Vec<String> = which
            .into_iter()
            .map(|at| format!("127.0.0.1:{}", self.running[at].0))
            .collect();
        let login = redis_url
            .strip_prefix("redis://")
            .and_then(|rest| rest.rsplit_once('@'))
            .map_or("", |(login, _)| login);
        format!(
            "redis+sentinel://{login}@{}/{}/0?sentinel_password={}",
            hosts.join(","),
            Self::NAME,
            self.secret
        )
    }

    /// Pauses one of them: connections stay open, and nothing answers.
    ///
    /// # Errors
    /// When it does not run.
    pub fn pause(&self, at: usize) -> anyhow::Result<()> {
        self.running[at].1.signal(Signal::SIGSTOP)
    }

    /// Lets one of them go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resume(&self, at: usize) -> anyhow::Result<()> {
        self.running[at].1.signal(Signal::SIGCONT)
    }

    /// Stops all.
    pub async fn stop(self) {
        for (_, process) in self.running {
            process.stop(Signal::SIGTERM).await;
        }
    }
}
