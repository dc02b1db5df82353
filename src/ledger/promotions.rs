//! A promoted standby is found also while the primary that it replaced still answers.
//!
//! What that one stores is lost, and no connection to it fails: a network may be cut, or a machine may have been frozen.
//! So a server or worker with several hosts in its URL asks each of the others once a second, over a connection that it
//! keeps. One that has begun a later timeline was promoted.

use std::future::pending;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::{Instant, sleep, timeout};

use super::LedgerError;
use super::connect::Database;
use super::hosts::{Hosts, LOOK_LIMIT};
use super::runs::Runs;

/// How often each host is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long asking the new primary may take which run it is.
const LEAD_LIMIT: Duration = Duration::from_secs(2);
/// The longest pause before a host that does not answer is asked again. Each is twice the one before.
const PAUSE_LIMIT: Duration = Duration::from_secs(10);

/// A host that is asked again and again.
#[derive(Default)]
struct Asked {
    kept: Option<PgConnection>,
    /// `None`: it answered last.
    pause: Option<Pause>,
}

struct Pause {
    until: Instant,
    length: Duration,
}

impl Database {
    /// Leads all connections that note their run in `runs` to a host that is promoted later than the one in use. Never
    /// ends. Does nothing where the URL has one host.
    pub async fn keep_finding_promotions(&self, runs: &Runs) {
        let hosts = self.session.hosts();
        if !hosts.are_several() {
            return pending().await;
        }
        let mut asked: Vec<Asked> = (0..hosts.number()).map(|_| Asked::default()).collect();
        // The timeline and the run to which connections were led last.
        let mut led = None;
        loop {
            sleep(ASK_EVERY).await;
            if is_replaced(hosts, &mut asked, &self.options).await {
                hosts.look(&self.options).await;
            }
            // Another task may have found it, and a connection that was being made may have come to the old one since.
            let now = (hosts.timeline(), runs.last());
            if hosts.were_asked() && led != Some(now) {
                match self.lead(runs).await {
                    Ok(()) => led = Some((now.0, runs.last())),
                    Err(error) => tracing::debug!(%error, "no connection to the host that was promoted yet"),
                }
            }
        }
    }

    /// A connection to the primary ends all that are kept to an old one.
    async fn lead(&self, runs: &Runs) -> Result<(), LedgerError> {
        let mut connection = self.session.connect(&self.options).await?;
        let leading = async {
            runs.learn(&mut connection).await?;
            connection.close().await
        };
        timeout(LEAD_LIMIT, leading)
            .await
            .map_err(|_| LedgerError::Timeout(LEAD_LIMIT))??;
        Ok(())
    }
}

/// Whether another host than the one in use has begun a later timeline.
async fn is_replaced(hosts: &Hosts, asked: &mut [Asked], options: &PgConnectOptions) -> bool {
    if !hosts.were_asked() {
        return false;
    }
    let used = hosts.at();
    // It was one of the others before a promotion.
    if let Some(one) = asked.get_mut(used) {
        *one = Asked::default();
    }
    let others = asked.iter_mut().enumerate().filter(|(at, _)| *at != used);
    let timelines = join_all(others.map(|(at, one)| one.timeline(hosts, at, options))).await;
    let latest = timelines.into_iter().flatten().max().unwrap_or_default();
    latest > hosts.timeline()
}

impl Asked {
    /// The timeline of this host, if it answers and takes writes.
    async fn timeline(&mut self, hosts: &Hosts, at: usize, options: &PgConnectOptions) -> Option<u32> {
        if let Some(pause) = &self.pause
            && Instant::now() < pause.until
        {
            return None;
        }
        let kept = self.kept.take();
        let asking = async {
            let mut connection = match kept {
                Some(kept) => kept,
                None => hosts.connect(at, options).await?,
            };
            let said = super::hosts::ask(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, said))
        };
        match timeout(LOOK_LIMIT, asking).await {
            Ok(Ok((connection, said))) => {
                *self = Self {
                    kept: Some(connection),
                    pause: None,
                };
                said.takes_writes.then_some(said.timeline)
            }
            Ok(Err(_)) | Err(_) => {
                let length = self.pause.as_ref().map_or(ASK_EVERY, |pause| pause.length * 2);
                let length = length.min(PAUSE_LIMIT);
                self.pause = Some(Pause {
                    until: Instant::now() + length,
                    length,
                });
                None
            }
        }
    }
}
