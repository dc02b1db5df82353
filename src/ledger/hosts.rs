//! The hosts in a database URL. One of them takes writes: the primary.
//!
//! libpq takes several hosts, and connects to the first that suits. sqlx takes one (its issues 2290 and 3333). So each
//! connection is made to the host that took writes last, and the others are asked when it does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::InvalidDatabaseUrl;
use crate::telemetry;

/// The most hosts in a URL.
const HOSTS_LIMIT: usize = 8;
/// How long a connection to the host that took writes last may take before the others are asked, too.
pub const PATIENCE: Duration = Duration::from_millis(300);
/// How long each host may take to say whether it takes writes. All are asked at once.
const LOOK_LIMIT: Duration = Duration::from_secs(1);
/// What a look has found is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
const PORT: u16 = 5432;

/// The hosts in a database URL. Cheap to clone; clones share which of them took writes last.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Empty: the URL has one host, and the options lead there.
    several: Vec<(String, u16)>,
    /// Which of them took writes last.
    at: AtomicUsize,
    were_asked: AtomicBool,
    /// When they were last asked.
    asked_at: Mutex<Option<Instant>>,
}

/// What a host says of itself.
struct Said {
    takes_writes: bool,
    /// Each promotion begins another timeline, with a higher number.
    timeline: u32,
}

impl Hosts {
    /// Splits a URL with several hosts, as libpq has them: `postgres://user@one:5432,two:5432/database`. Returns the
    /// URL with the first host alone, too.
    ///
    /// # Errors
    /// When a host is missing, a port is none, or there are too many.
    pub fn of_url(database_url: &str) -> Result<(String, Self), InvalidDatabaseUrl> {
        let (scheme, rest) = database_url.split_once("://").unwrap_or(("", database_url));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut several = Vec::new();
        if hosts.contains(',') {
            for host in hosts.split(',') {
                several.push(host_and_port(host).map_err(wrong)?);
            }
        }
        if several.len() > HOSTS_LIMIT {
            return Err(wrong(format!("it names more than {HOSTS_LIMIT} hosts")));
        }
        let first = hosts.split(',').next().unwrap_or_default();
        let login = if login.is_empty() {
            String::new()
        } else {
            format!("{login}@")
        };
        let hosts = Self(Arc::new(Shared {
            several,
            at: AtomicUsize::new(0),
            were_asked: AtomicBool::new(false),
            asked_at: Mutex::default(),
        }));
        Ok((format!("{scheme}://{login}{first}{after}"), hosts))
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        !self.0.several.is_empty()
    }

    /// Whether they were asked at least once. Until then nobody knows which of them was promoted last.
    pub fn were_asked(&self) -> bool {
        self.0.were_asked.load(Ordering::Relaxed)
    }

    /// The number of the host that took writes last.
    pub fn at(&self) -> usize {
        self.0.at.load(Ordering::Relaxed)
    }

    /// These options, with the host that took writes last.
    pub fn lead(&self, options: &PgConnectOptions) -> PgConnectOptions {
        self.lead_to(self.at(), options)
    }

    fn lead_to(&self, at: usize, options: &PgConnectOptions) -> PgConnectOptions {
        match self.0.several.get(at) {
            Some((host, port)) => options.clone().host(host).port(*port),
            None => options.clone(),
        }
    }

    /// Asks all of them, unless that was done just now. The one that takes writes is used from then on; of several,
    /// that with the latest timeline: the others were replaced.
    pub async fn look(&self, options: &PgConnectOptions) {
        let mut asked_at = self.0.asked_at.lock().await;
        if asked_at.is_some_and(|at| at.elapsed() < BELIEVED_FOR) {
            return;
        }
        let asking = (0..self.0.several.len()).map(|at| {
            let options = self.lead_to(at, options);
            async move { timeout(LOOK_LIMIT, ask(&options)).await.ok().and_then(Result::ok) }
        });
        let said = join_all(asking).await;
        *asked_at = Some(Instant::now());
        self.0.were_asked.store(true, Ordering::Relaxed);
        let before = self.at();
        let Some(at) = primary(&said, before) else { return };
        self.0.at.store(at, Ordering::Relaxed);
        if at != before {
            let (host, port) = &self.0.several[at];
            tracing::warn!(
                host,
                port,
                "another host in the database URL takes writes: it is used"
            );
        } else if said.iter().flatten().filter(|said| said.takes_writes).count() > 1
            && telemetry::is_news("two primaries", &"several hosts in the database URL take writes")
        {
            let (host, port) = &self.0.several[at];
            tracing::error!(
                host,
                port,
                "several hosts in the database URL take writes: the one that was promoted last is used; stop the others"
            );
        }
    }
}

fn wrong(why: String) -> InvalidDatabaseUrl {
    InvalidDatabaseUrl::Url(sqlx::Error::Configuration(
        format!("{why}; it takes postgres://user:password@host1:5432,host2:5432/database").into(),
    ))
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let port = port.parse().map_err(|_| format!("{port} is no port"))?;
            (host, port)
        }
        _ => (text, PORT),
    };
    if host.is_empty() {
        return Err("a host is missing".to_owned());
    }
    Ok((host.to_owned(), port))
}

async fn ask(options: &PgConnectOptions) -> Result<Said, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    let said = sqlx::query!(
        r#"select current_setting('transaction_read_only') = 'off' as "takes_writes!",
                  case when not pg_is_in_recovery()
                      then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
                      else 0 end as "timeline!""#
    )
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(Said {
        takes_writes: said.takes_writes,
        timeline: said.timeline.cast_unsigned(),
    })
}

/// Which host is the primary. The one from before stays it, unless another one was promoted later.
fn primary(said: &[Option<Said>], before: usize) -> Option<usize> {
    let those = said.iter().enumerate();
    let writable = those.filter_map(|(at, said)| {
        said.as_ref()
            .filter(|said| said.takes_writes)
            .map(|said| (at, said))
    });
    writable
        .max_by_key(|(at, said)| (said.timeline, *at == before, usize::MAX - at))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> (String, Vec<(String, u16)>) {
        let (first, hosts) = Hosts::of_url(url).expect("a URL");
        (first, hosts.0.several.clone())
    }

    #[test]
    fn one_host_is_left_as_it_is() {
        for url in [
            "postgres://user:pass@host:5432/tally?sslmode=require",
            "postgres:///tally?host=/var/run/postgresql",
            "postgres://host",
            "postgres://user:a,b@host/tally",
            "postgres://user@host/tally?options=a,b",
        ] {
            assert_eq!(split(url), (url.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn several_hosts_are_split_each_with_its_port() {
        let (first, several) = split("postgres://u:p%40@one:6432,two,[::1],[::2]:7/tally?sslmode=require");
        assert_eq!(first, "postgres://u:p%40@one:6432/tally?sslmode=require");
        let several: Vec<(&str, u16)> = several
            .iter()
            .map(|(host, port)| (host.as_str(), *port))
            .collect();
        assert_eq!(
            several,
            [("one", 6432), ("two", 5432), ("[::1]", 5432), ("[::2]", 7)]
        );
    }

    #[test]
    fn a_wrong_list_of_hosts_is_refused_with_how_it_looks() {
        let too_many = format!("postgres://{}/tally", ["h"; HOSTS_LIMIT + 1].join(","));
        for (url, words) in [
            ("postgres://one,,two/tally", "a host is missing"),
            ("postgres://one:x,two/tally", "x is no port"),
            ("postgres://one,two:99999/tally", "99999 is no port"),
            (too_many.as_str(), "more than 8 hosts"),
        ] {
            let error = Hosts::of_url(url).expect_err("wrong").to_string();
            assert!(
                error.contains(words) && error.contains("host1:5432,host2"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn the_primary_that_was_promoted_last_is_used_and_otherwise_the_one_from_before() {
        let said = |takes_writes, timeline| {
            Some(Said {
                takes_writes,
                timeline,
            })
        };
        assert_eq!(primary(&[None, said(false, 0), said(true, 1)], 0), Some(2));
        assert_eq!(primary(&[said(true, 1), said(true, 2)], 0), Some(1), "promoted");
        assert_eq!(
            primary(&[said(true, 2), said(true, 2)], 1),
            Some(1),
            "from before"
        );
        assert_eq!(primary(&[said(true, 2), said(true, 2)], 5), Some(0), "the first");
        assert_eq!(primary(&[said(false, 0), None], 1), None);
    }
}
