//! The hosts in a database URL. One of them takes writes: the primary.
//!
//! libpq takes several hosts, and connects to the first that suits. sqlx takes one (its issues 2290 and 3333). So each
//! connection is made to the host that took writes last, and the others are asked when it does not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::InvalidDatabaseUrl;
use crate::domain::HostList;
use crate::store_url::StoreUrl;
use crate::telemetry;

/// The most hosts in a URL.
const HOSTS_LIMIT: usize = 8;
/// How long a connection to the host that took writes last may take before the others are asked, too.
pub const PATIENCE: Duration = Duration::from_millis(300);
/// How long each host may take to say whether it takes writes. All are asked at once.
pub const LOOK_LIMIT: Duration = Duration::from_secs(1);
/// What a look has found is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
const PORT: u16 = 5432;

/// The hosts in a database URL. Cheap to clone; clones share which of them took writes last.
#[derive(Clone, Debug)]
pub(super) struct Hosts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Its login may be read again.
    url: StoreUrl,
    /// Empty: the URL has one host, and the options lead there.
    several: Vec<(String, u16)>,
    /// Which of them took writes last.
    at: AtomicUsize,
    were_asked: AtomicBool,
    has_primary: AtomicBool,
    /// When they were last asked.
    asked_at: Mutex<Option<Instant>>,
    /// The latest timeline of a primary until then; 0: there was none.
    timeline: AtomicU32,
}

/// What a host says of itself.
pub struct Said {
    pub takes_writes: bool,
    /// Each promotion begins another timeline, with a higher number.
    pub timeline: u32,
}

impl Hosts {
    /// Splits a URL with several hosts, as libpq has them: `postgres://user@one:5432,two:5432/database`. Returns the
    /// URL with the first host alone, too.
    ///
    /// # Errors
    /// When a host is missing, a port is none, or there are too many.
    pub fn of_url(url: &StoreUrl) -> Result<(String, Self), InvalidDatabaseUrl> {
        let database_url = url.as_str();
        let (scheme, rest) = database_url.split_once("://").unwrap_or(("", database_url));
        let list = HostList::of(rest);
        let mut several = Vec::new();
        if list.are_several() {
            several = list
                .read(PORT, HOSTS_LIMIT)
                .map_err(|why| InvalidDatabaseUrl::Hosts(why.to_string()))?;
            let query = list.after.split_once('?').map_or("", |(_, query)| query);
            let mut names = query
                .split('&')
                .map(|pair| pair.split('=').next().unwrap_or_default());
            if names.any(|name| ["host", "hostaddr", "port"].contains(&name)) {
                let why = "several hosts stand before the database, so it takes no host, hostaddr and port after it";
                return Err(InvalidDatabaseUrl::Hosts(why.to_owned()));
            }
        }
        let hosts = Self(Arc::new(Shared {
            url: url.clone(),
            several,
            at: AtomicUsize::new(0),
            were_asked: AtomicBool::new(false),
            has_primary: AtomicBool::new(false),
            asked_at: Mutex::default(),
            timeline: AtomicU32::new(0),
        }));
        let (login, first, after) = (list.login, list.first(), list.after);
        Ok((format!("{scheme}://{login}{first}{after}"), hosts))
    }

    /// Whether there are several.
    pub fn are_several(&self) -> bool {
        !self.0.several.is_empty()
    }

    /// The URL that they stand in.
    pub fn url(&self) -> &StoreUrl {
        &self.0.url
    }

    /// Whether Postgres refused a login ([`StoreUrl::login_number`]), and there is another one by now.
    pub async fn has_other_login(&self, number: u64, error: &sqlx::Error) -> bool {
        is_login_refused(error) && self.0.url.has_other_login(number).await
    }

    /// Whether they were asked at least once. Until then nobody knows which of them was promoted last.
    pub fn were_asked(&self) -> bool {
        self.0.were_asked.load(Ordering::Relaxed)
    }

    /// The number of the host that took writes last.
    pub fn at(&self) -> usize {
        self.0.at.load(Ordering::Relaxed)
    }

    /// These options, with the host that took writes last, and the present login.
    pub fn lead(&self, options: &PgConnectOptions) -> PgConnectOptions {
        self.lead_to(self.at(), options)
    }

    /// The same with the host that has this number. Without several there is only one.
    fn lead_to(&self, at: usize, options: &PgConnectOptions) -> PgConnectOptions {
        let options = self.log_in(options);
        match self.0.several.get(at) {
            Some((host, port)) => options.host(host).port(*port),
            None => options,
        }
    }

    /// These options, with the present login.
    fn log_in(&self, options: &PgConnectOptions) -> PgConnectOptions {
        let options = options.clone();
        let Some(login) = self.0.url.new_login() else {
            return options;
        };
        let options = options.username(&login.user);
        match login.password {
            Some(password) => options.password(&password),
            None => options,
        }
    }

    /// Asks all of them, unless that was done just now. The one that takes writes is used from then on; of several,
    /// that with the latest timeline. One with an earlier timeline than was seen before was replaced, and is not used,
    /// also while no other one answers.
    pub async fn look(&self, options: &PgConnectOptions) {
        let mut asked_at = self.0.asked_at.lock().await;
        if asked_at.is_some_and(|at| at.elapsed() < BELIEVED_FOR) {
            return;
        }
        let asking = (0..self.0.several.len()).map(|at| async move {
            timeout(LOOK_LIMIT, self.ask(at, options))
                .await
                .ok()
                .and_then(Result::ok)
        });
        let said = join_all(asking).await;
        let is_first = asked_at.is_none();
        let seen = self.timeline();
        *asked_at = Some(Instant::now());
        self.0.were_asked.store(true, Ordering::Relaxed);
        self.warn_of_replaced(&said, seen);
        let before = self.at();
        let found = primary(&said, before, seen);
        self.0.has_primary.store(found.is_some(), Ordering::Relaxed);
        let Some((at, timeline)) = found else { return };
        self.0.timeline.store(timeline, Ordering::Relaxed);
        self.0.at.store(at, Ordering::Relaxed);
        let (host, port) = &self.0.several[at];
        match (at == before, is_first) {
            (true, _) => {}
            (false, true) => tracing::info!(host, port, "this host in the database URL takes writes"),
            (false, false) => tracing::warn!(
                host,
                port,
                timeline,
                "another host in the database URL takes writes: it is used"
            ),
        }
    }

    async fn ask(&self, at: usize, options: &PgConnectOptions) -> Result<Said, sqlx::Error> {
        let mut connection = self.connect(at, options).await?;
        let said = ask(&mut connection).await?;
        connection.close().await?;
        Ok(said)
    }

    /// A connection to the host with this number, or to the only one. It is not set up.
    ///
    /// # Errors
    /// When it does not answer, or refuses the login.
    pub async fn connect(&self, at: usize, options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
        self.0.url.refresh().await;
        let login = self.0.url.login_number();
        match PgConnection::connect_with(&self.lead_to(at, options)).await {
            Err(error) if self.has_other_login(login, &error).await => {
                PgConnection::connect_with(&self.lead_to(at, options)).await
            }
            connected => connected,
        }
    }

    /// How many there are, of several.
    pub fn number(&self) -> usize {
        self.0.several.len()
    }

    /// The latest timeline of a primary that was found; 0: none was.
    pub fn timeline(&self) -> u32 {
        self.0.timeline.load(Ordering::Relaxed)
    }

    /// Logs which hosts take writes though another one was promoted after them. `seen`: the latest timeline until now.
    fn warn_of_replaced(&self, said: &[Option<Said>], seen: u32) {
        let writable: Vec<_> = said
            .iter()
            .zip(&self.0.several)
            .filter_map(|(said, host)| Some((said.as_ref().filter(|said| said.takes_writes)?, host)))
            .collect();
        let timelines = writable.iter().map(|(said, _)| said.timeline);
        let latest = timelines.chain([seen]).max().unwrap_or(seen);
        let mut is_taken = false;
        for (said, (host, port)) in writable {
            // Two with one timeline: nobody can say which was replaced.
            let is_replaced = said.timeline < latest || is_taken;
            is_taken |= said.timeline == latest;
            if is_replaced && telemetry::is_news("a replaced primary takes writes", &format!("{host}:{port}"))
            {
                tracing::error!(
                    host,
                    port,
                    timeline = said.timeline,
                    latest,
                    "this host in the database URL takes writes, but another one was promoted later: stop it"
                );
            }
        }
    }

    /// Whether one of them took writes when they were last asked.
    pub fn have_primary(&self) -> bool {
        self.0.has_primary.load(Ordering::Relaxed)
    }
}

/// Whether Postgres, or a pooler before it, takes user or password for wrong. Nothing else is a reason to try
/// another login: too many connections, a start, a line of pg_hba.conf that is missing.
fn is_login_refused(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    let says = |words: &str| error.message().contains(words);
    match error.code().as_deref() {
        Some("28P01") => true,
        Some("28000") => !says("pg_hba.conf"),
        // pgbouncer's code for all that it refuses.
        Some("08P01") => says("authentication failed") || says("no such user"),
        _ => false,
    }
}

/// None of the hosts takes writes.
pub(super) fn no_primary() -> sqlx::Error {
    let none = "no host in the database URL takes writes, or has the latest timeline";
    io::Error::new(io::ErrorKind::NotConnected, none).into()
}

/// Asks the host that this connection leads to.
pub(super) async fn ask(connection: &mut PgConnection) -> Result<Said, sqlx::Error> {
    let said = sqlx::query!(
        r#"select current_setting('transaction_read_only') = 'off' as "takes_writes!",
                  case when not pg_is_in_recovery()
                      then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
                      else 0 end as "timeline!""#
    )
    .fetch_one(connection)
    .await?;
    Ok(Said {
        takes_writes: said.takes_writes,
        timeline: said.timeline.cast_unsigned(),
    })
}

/// Which host is the primary, and its timeline: the one from before, unless another one was promoted later. `seen` is
/// the latest timeline until now.
fn primary(said: &[Option<Said>], before: usize, seen: u32) -> Option<(usize, u32)> {
    said.iter()
        .enumerate()
        .filter_map(|(at, said)| Some((at, said.as_ref()?)))
        .filter(|(_, said)| said.takes_writes && said.timeline >= seen)
        .max_by_key(|(at, said)| (said.timeline, *at == before, usize::MAX - at))
        .map(|(at, said)| (at, said.timeline))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> (String, Vec<(String, u16)>) {
        let (first, hosts) = Hosts::of_url(&url.into()).expect("a URL");
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
    fn of_several_hosts_the_first_is_left_in_the_url() {
        let (first, several) = split("postgres://u:p%40@one:6432,two/tally?sslmode=require");
        assert_eq!(first, "postgres://u:p%40@one:6432/tally?sslmode=require");
        assert_eq!(several, [("one".to_owned(), 6432), ("two".to_owned(), 5432)]);
    }

    #[test]
    fn a_wrong_list_of_hosts_is_refused_with_how_it_looks() {
        let too_many = format!("postgres://{}/tally", ["h"; HOSTS_LIMIT + 1].join(","));
        for (url, words) in [
            ("postgres://one,,two/tally", "a host is missing"),
            (
                "postgres://one,two/tally?sslmode=require&port=1",
                "no host, hostaddr and port",
            ),
            (too_many.as_str(), "more than 8 hosts"),
        ] {
            let error = Hosts::of_url(&url.into()).expect_err("wrong").to_string();
            assert!(
                error.contains(words) && error.contains("host1:5432,host2"),
                "{url}: {error}"
            );
        }
    }

    #[test]
    fn an_error_shows_nothing_of_the_url() {
        let error = Hosts::of_url(&"postgres://server:qX7zW9,127.0.0.1:5432/tally".into()).expect_err("no @");
        assert!(!error.to_string().contains("qX7zW9"), "{error}");
    }

    #[test]
    fn the_primary_that_was_promoted_last_is_used_and_otherwise_the_one_from_before() {
        let said = |takes_writes, timeline| {
            Some(Said {
                takes_writes,
                timeline,
            })
        };
        let of = |said: [Option<Said>; 2], before, seen| primary(&said, before, seen).map(|(at, _)| at);
        assert_eq!(of([said(false, 0), said(true, 1)], 0, 0), Some(1));
        assert_eq!(of([said(true, 1), said(true, 2)], 0, 1), Some(1), "promoted");
        assert_eq!(of([said(true, 2), said(true, 2)], 1, 2), Some(1), "from before");
        assert_eq!(of([said(true, 2), said(true, 2)], 5, 0), Some(0), "the first");
        assert_eq!(
            of([said(true, 1), None], 1, 2),
            None,
            "the new primary does not answer"
        );
        assert_eq!(of([said(false, 0), None], 1, 0), None);
    }
}
