//! Where the connections of a pool lead: to the host that takes writes, with the present login.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::time::timeout;

use super::hosts::{Hosts, PATIENCE, no_primary};

/// The destination of a pool's new connections. A pool has one if its URL has several hosts, or stands in a file.
pub(super) struct Destination {
    hosts: Hosts,
    /// How to connect to any of them.
    options: PgConnectOptions,
    /// What the pool connects with.
    led: Mutex<Led>,
}

#[derive(PartialEq, Eq)]
struct Led {
    /// The number of the host.
    at: usize,
    /// The number of the login.
    login: u64,
}

impl Destination {
    /// That of a pool whose options are those of `hosts` now, or later ones.
    pub fn new(hosts: Hosts, options: PgConnectOptions) -> Self {
        let led = Mutex::new(Led::of(&hosts));
        Self { hosts, options, led }
    }

    /// Looks which of several hosts takes writes. New connections lead there, with the login that stands in the file by
    /// now.
    pub async fn find(&self, pool: &PgPool) {
        self.hosts.url().refresh().await;
        if self.hosts.are_several() {
            self.hosts.look(&self.options).await;
        }
        self.lead(pool);
    }

    /// A connection of the pool, a new one with the login that stands in the file by now.
    ///
    /// # Errors
    /// When all are in use for too long, or no host takes writes.
    pub async fn acquire(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        self.hosts.url().refresh().await;
        let login = self.hosts.url().login_number();
        let connection = if self.hosts.are_several() {
            // In a box: it stands deep in the futures of all programs.
            Box::pin(self.acquire_to_primary(pool)).await
        } else {
            self.lead(pool);
            pool.acquire().await
        };
        match connection {
            Err(error) if self.hosts.has_other_login(login, &error).await => {
                self.lead(pool);
                pool.acquire().await
            }
            connection => connection,
        }
    }

    async fn acquire_to_primary(&self, pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        if !self.hosts.were_asked() {
            self.hosts.look(&self.options).await;
        }
        self.lead(pool);
        let mut acquiring = pin!(pool.acquire());
        let first = timeout(PATIENCE, &mut acquiring).await;
        if let Ok(Ok(connection)) = first {
            return Ok(connection);
        }
        self.hosts.look(&self.options).await;
        self.lead(pool);
        let acquired = match first {
            Ok(_) => pool.acquire().await,
            // sqlx reads the options again at each try.
            Err(_) => acquiring.await,
        };
        acquired.map_err(|error| match error {
            sqlx::Error::PoolTimedOut if !self.hosts.have_primary() => no_primary(),
            error => error,
        })
    }

    /// Has new connections made to the host that took writes last, with the present login.
    fn lead(&self, pool: &PgPool) {
        // Held until the pool has the options: another caller may be about to set older ones.
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Led::of(&self.hosts);
        if *led != now {
            pool.set_connect_options(self.hosts.lead(&self.options));
            *led = now;
        }
    }
}

impl Led {
    fn of(hosts: &Hosts) -> Self {
        Self {
            at: hosts.at(),
            login: hosts.url().login_number(),
        }
    }
}

/// sqlx's options would show their password.
impl std::fmt::Debug for Destination {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Destination")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}
