//! A pool of connections whose statements end in time, even if Postgres is lost.
//!
//! Postgres ends a statement that takes too long, and says so. A machine that loses its power says
//! nothing, and neither does a firewall that forgets a connection. A client that waits for an
//! answer only reads, so it would wait for ever. sqlx asks the system for no probes of its
//! connections (its `net/socket/mod.rs`, 0.8.6). So each statement has a limit here, longer than
//! Postgres' own, and a connection without an answer is closed in the end.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, Row as _};
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::destination::Destination;
use super::error::OtherRun;
use super::lost_waits::end_old_waits;
use super::runs::run_of;
use super::safe_commit::{commit_is_safe, listening, until_safe};
use crate::domain::PostgresRun;

/// A connection without an answer is closed after this many statement timeouts. Nobody waits for it
/// any more. But a Postgres that is only slow, for example in a commit that waits for a standby, is
/// still busy with it, and must not get a new connection for each slow statement.
const LINGER_TIMES: u32 = 5;
/// A connection without an answer is closed after this at the latest. Then it counts as lost, and
/// another one may take its place.
const LINGER_LIMIT: Duration = Duration::from_secs(60);
/// How long closing all connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Ends a transaction of which nobody knows how far it is. Outside of one it does nothing.
const ROLLBACK: &str = "rollback";

/// How a pool of connections is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    pub used: usize,
    pub idle: usize,
}

/// A pool of connections. Cheap to clone. A statement runs over any of them. Every call fails when
/// Postgres is unavailable.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Pool {
    connections: PgPool,
    /// How long a statement may take until its answer.
    answer_limit: Duration,
    /// Only connections to this run of Postgres are used. `None`: to any.
    only_in: Option<PostgresRun>,
    /// `None`: the URL has one host, and stands in no file.
    destination: Option<Arc<Destination>>,
}

impl Pool {
    /// Limits each statement of these connections to `answer_limit`.
    pub fn new(connections: PgPool, answer_limit: Duration) -> Self {
        Self {
            connections,
            answer_limit,
            only_in: None,
            destination: None,
        }
    }

    /// The same pool, whose connections lead to this destination.
    pub fn that_leads_to(self, destination: Destination) -> Self {
        Self {
            destination: Some(Arc::new(destination)),
            ..self
        }
    }

    /// The same connections, but a statement fails ([`OtherRun`]) if it would reach another run of
    /// Postgres. Each statement then costs another one.
    pub fn only_in(&self, run: PostgresRun) -> Self {
        Self {
            only_in: Some(run),
            ..self.clone()
        }
    }

    /// How many connections are in use, and how many are idle.
    pub fn uses(&self) -> PoolUse {
        let idle = self.connections.num_idle();
        PoolUse {
            used: (self.connections.size() as usize).saturating_sub(idle),
            idle,
        }
    }

    /// The connections without the limit: for migrations, which an operator watches.
    pub async fn unlimited(&self) -> &PgPool {
        if let Some(destination) = &self.destination {
            destination.find(&self.connections).await;
        }
        &self.connections
    }

    /// One of the connections, to use for one thing.
    ///
    /// # Errors
    /// When all are in use for too long.
    pub async fn acquire(&self) -> Result<InUse, sqlx::Error> {
        let mut using = InUse {
            connection: Some(self.connection().await?),
            answer_limit: self.answer_limit,
            last: None,
            pool: self.connections.clone(),
        };
        if let Some(wanted) = self.only_in
            && run_of(&mut using).await? != wanted
        {
            return Err(sqlx::Error::Configuration(OtherRun.into()));
        }
        Ok(using)
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        match &self.destination {
            Some(destination) => destination.acquire(&self.connections).await,
            None => self.connections.acquire().await,
        }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        let mut using = self.acquire().await?;
        using.last = Some(ROLLBACK);
        (&mut using).execute("begin").await?;
        Ok(Transaction(using))
    }

    /// Whether a commit of its own is safe ([`commit_is_safe`]). Without an answer in time, Postgres is
    /// asked to end the connection: a commit may wait for a standby for ever.
    ///
    /// # Errors
    /// When the commit fails, or has no answer.
    pub async fn commits_safely(&self, first: &str) -> Result<bool, sqlx::Error> {
        let mut using = self.acquire().await?;
        let process = using
            .call(async |connection| {
                let row = connection.fetch_one("select pg_backend_pid()").await?;
                row.try_get::<i32, _>(0)
            })
            .await?;
        using.last = Some(ROLLBACK);
        let committing = commit_is_safe(using.connection()?, first);
        let Ok(is_safe) = timeout(self.answer_limit, committing).await else {
            // Its process cannot be another one's yet.
            let end = format!("select pg_terminate_backend({process})");
            self.acquire().await?.execute(end.as_str()).await?;
            return Err(no_answer(self.answer_limit));
        };
        let is_safe = is_safe?;
        using.last = None;
        Ok(is_safe)
    }

    /// Closes all connections. If that takes too long, they stay until the process ends.
    pub async fn close(&self) {
        let _ = timeout(CLOSE_LIMIT, self.connections.close()).await;
    }
}

/// A connection that is in use. Dropping it lets it go.
#[derive(Debug)]
pub(in crate::ledger) struct InUse {
    /// `None`: the connection gave no answer, and was let go.
    connection: Option<PoolConnection<Postgres>>,
    answer_limit: Duration,
    /// The last statement before the connection is given back. `None`: each statement commits by itself.
    last: Option<&'static str>,
    /// Ends the connection if Postgres stays busy with it.
    pool: PgPool,
}

impl InUse {
    /// Makes a call over the connection. A connection without an answer is let go.
    ///
    /// # Errors
    /// The errors of the call. Also when the call does not end in time.
    pub async fn call<Answer, Error: From<sqlx::Error>>(
        &mut self,
        call: impl AsyncFnOnce(&mut PgConnection) -> Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        let limit = self.answer_limit;
        let ended = timeout(limit, call(self.connection()?)).await;
        self.unless_late(ended)
    }

    /// Ends a transaction.
    async fn end(&mut self, how: &'static str) -> Result<(), sqlx::Error> {
        let limit = self.answer_limit;
        let connection = self.connection()?;
        let ending = async {
            let (ended, has_warned) = listening(connection.execute(how)).await;
            until_safe(connection, ended, has_warned).await
        };
        let ended = timeout(limit, ending).await;
        self.unless_late(ended).map(drop)
    }

    /// Waits until what a statement committed is safe, if it was no part of a transaction.
    async fn until_safe<Answer>(&mut self, answer: Answer, has_warned: bool) -> Result<Answer, sqlx::Error> {
        if !has_warned || self.last.is_some() {
            return Ok(answer);
        }
        // It opens a transaction. Whoever gives up the wait leaves it open.
        self.last = Some(ROLLBACK);
        let answer = until_safe(self.connection()?, Ok(answer), has_warned).await?;
        self.last = None;
        Ok(answer)
    }

    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(no_answer(self.answer_limit)),
        }
    }

    fn unless_late<Answer, Error: From<sqlx::Error>>(
        &mut self,
        ended: Result<Result<Answer, Error>, Elapsed>,
    ) -> Result<Answer, Error> {
        ended.unwrap_or_else(|_| {
            self.let_go();
            Err(no_answer(self.answer_limit).into())
        })
    }

    fn let_go(&mut self) {
        if let Some(connection) = self.connection.take() {
            let_go(connection, self.last, self.answer_limit, self.pool.clone());
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// A transaction. If it is dropped, Postgres rolls it back.
#[derive(Debug)]
pub(in crate::ledger) struct Transaction(InUse);

impl Deref for Transaction {
    type Target = InUse;

    fn deref(&self) -> &InUse {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut InUse {
        &mut self.0
    }
}

impl Transaction {
    /// Commits after a success; after an error, waits until Postgres has rolled back.
    ///
    /// # Errors
    /// The error of what was done; or that of the commit, which may still have happened.
    pub async fn end<Answer, Error: From<sqlx::Error>>(
        mut self,
        done: Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        let how = if done.is_ok() { "commit" } else { "rollback" };
        match (self.0.end(how).await, done) {
            (Ok(_), done) => {
                self.0.last = None;
                done
            }
            (Err(error), Ok(_)) => Err(error.into()),
            (Err(error), done) => {
                tracing::debug!(%error, "a transaction that failed was not undone in time");
                done
            }
        }
    }
}

/// Gives a connection back to its pool once it has answered. It answers what it was asked, and this
/// last statement; if that takes too long, the connection is closed. Nobody waits for it. sqlx
/// gives connections back by itself, but first asks each whether it is open, and waits for that
/// answer for ever.
fn let_go(
    mut connection: PoolConnection<Postgres>,
    last: Option<&'static str>,
    answer_limit: Duration,
    pool: PgPool,
) {
    let Ok(runtime) = Handle::try_current() else {
        drop(connection.detach());
        return;
    };
    let limit = answer_limit.saturating_mul(LINGER_TIMES).min(LINGER_LIMIT);
    runtime.spawn(async move {
        let is_late = match last {
            None => false,
            Some(last) => match timeout(limit, connection.execute(last)).await {
                Ok(Ok(_)) => false,
                Ok(Err(_)) => {
                    drop(connection.detach());
                    return;
                }
                Err(_) => true,
            },
        };
        if is_late {
            drop(connection.detach());
        // The future owns the connection, and closes it when it is dropped.
        } else if timeout(limit, connection.return_to_pool()).await.is_ok() {
            return;
        }
        end_old_waits(&pool, limit.max(answer_limit)).await;
    });
}

fn no_answer(limit: Duration) -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")).into()
}

type Row = Either<PgQueryResult, PgRow>;
type Rows = Vec<Row>;

/// All rows and results of a statement, as sqlx wants them.
fn stream<'e>(
    rows: impl Future<Output = Result<Rows, sqlx::Error>> + Send + 'e,
) -> BoxStream<'e, Result<Row, sqlx::Error>> {
    stream::once(rows)
        .map_ok(|rows| stream::iter(rows.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

impl<'c> Executor<'c> for &'c mut InUse {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Row, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        stream(async move {
            let limit = self.answer_limit;
            let fetching = async {
                let rows = self.connection()?.fetch_many(query).try_collect::<Rows>();
                let (rows, has_warned) = listening(rows).await;
                self.until_safe(rows?, has_warned).await
            };
            let ended = timeout(limit, fetching).await;
            self.unless_late(ended)
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        async move {
            let limit = self.answer_limit;
            let fetching = async {
                let (row, has_warned) = listening(self.connection()?.fetch_optional(query)).await;
                self.until_safe(row?, has_warned).await
            };
            let ended = timeout(limit, fetching).await;
            self.unless_late(ended)
        }
        .boxed()
    }

    fn prepare_with<'e, 'q: 'e>(
        self,
        sql: &'q str,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement<'q>, sqlx::Error>>
    where
        'c: 'e,
    {
        async move { self.connection()?.prepare_with(sql, parameters).await }.boxed()
    }

    fn describe<'e, 'q: 'e>(self, sql: &'q str) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        async move { self.connection()?.describe(sql).await }.boxed()
    }
}

impl<'c> Executor<'c> for &'c Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Row, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        stream(async move { self.acquire().await?.fetch_many(query).try_collect().await })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        async move { self.acquire().await?.fetch_optional(query).await }.boxed()
    }

    fn prepare_with<'e, 'q: 'e>(
        self,
        sql: &'q str,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement<'q>, sqlx::Error>>
    where
        'c: 'e,
    {
        async move { self.acquire().await?.prepare_with(sql, parameters).await }.boxed()
    }

    fn describe<'e, 'q: 'e>(self, sql: &'q str) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        async move { self.acquire().await?.describe(sql).await }.boxed()
    }
}
