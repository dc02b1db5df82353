//! A pool of connections whose statements end in time, also when Postgres is lost without a word.
//!
//! Postgres ends a statement that takes too long, and says so. A machine that loses its power, or a
//! firewall that forgets a connection, says nothing: whoever waits for an answer only reads, and would
//! wait for ever. sqlx asks the system for no probes of its connections (its `net/socket/mod.rs`, 0.8.6).
//! So each statement has a limit here, longer than Postgres' own, and a connection without an answer is
//! closed in the end.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How many times as long as a statement may take a connection without an answer stays in use, while
/// nobody waits for it any more: a Postgres that is only slow, in a commit that waits for a standby, say,
/// is busy with it all the same, and must not get a new connection for each.
const LINGER_TIMES: u32 = 5;
/// How long it stays so at the most. Then it counts as lost, and another one may take its place.
const LINGER_LIMIT: Duration = Duration::from_secs(60);
/// How long closing all connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A pool of connections. Cheap to clone. A statement runs over any of them.
#[derive(Clone, Debug)]
pub(in crate::ledger) struct Pool {
    connections: PgPool,
    /// How long a statement may take until its answer.
    answer_limit: Duration,
}

impl Pool {
    /// Limits the statements of these connections to so long each.
    pub fn new(connections: PgPool, answer_limit: Duration) -> Self {
        Self {
            connections,
            answer_limit,
        }
    }

    /// The connections without the limit: for migrations, which an operator watches.
    pub fn unlimited(&self) -> &PgPool {
        &self.connections
    }

    /// One of the connections, to use for one thing.
    ///
    /// # Errors
    /// When Postgres is unavailable, or all are in use for too long.
    pub async fn acquire(&self) -> Result<InUse, sqlx::Error> {
        Ok(InUse {
            connection: Some(self.connections.acquire().await?),
            answer_limit: self.answer_limit,
        })
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        let mut transaction = Transaction {
            connection: Some(self.connections.acquire().await?),
            answer_limit: self.answer_limit,
        };
        (&mut transaction).execute("begin").await?;
        Ok(transaction)
    }

    /// Closes all connections, or leaves them to the end of the process if that takes too long.
    pub async fn close(&self) {
        let _ = timeout(CLOSE_LIMIT, self.connections.close()).await;
    }
}

/// A connection that is in use.
#[derive(Debug)]
pub(in crate::ledger) struct InUse {
    /// `None`: it was let go.
    connection: Option<PoolConnection<Postgres>>,
    answer_limit: Duration,
}

impl InUse {
    /// Calls this over the connection.
    ///
    /// # Errors
    /// Those of the call, and when it does not end in time.
    pub async fn call<Answer, Error: From<sqlx::Error>>(
        mut self,
        call: impl AsyncFnOnce(&mut PgConnection) -> Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        let Some(connection) = &mut self.connection else {
            return Err(sqlx::Error::PoolClosed.into());
        };
        let ended = timeout(self.answer_limit, call(connection)).await;
        ended.unwrap_or_else(|_| Err(no_answer(self.answer_limit).into()))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let_go(connection, None, self.answer_limit);
        }
    }
}

/// A transaction. Postgres undoes one that is dropped.
#[derive(Debug)]
pub(in crate::ledger) struct Transaction {
    /// `None`: it was let go.
    connection: Option<PoolConnection<Postgres>>,
    answer_limit: Duration,
}

impl Transaction {
    /// Ends the transaction as what was done in it ended: commits, or waits until Postgres has undone it.
    ///
    /// # Errors
    /// That of what was done; or that of a commit, which may have been done all the same.
    pub async fn end<Answer, Error: From<sqlx::Error>>(
        mut self,
        done: Result<Answer, Error>,
    ) -> Result<Answer, Error> {
        let how = if done.is_ok() { "commit" } else { "rollback" };
        match ((&mut self).execute(how).await, done) {
            (Ok(_), done) => {
                if let Some(connection) = self.connection.take() {
                    let_go(connection, None, self.answer_limit);
                }
                done
            }
            (Err(error), Ok(_)) => Err(error.into()),
            (Err(error), done) => {
                tracing::debug!(%error, "a transaction that failed was not undone in time");
                done
            }
        }
    }

    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(no_answer(self.answer_limit)),
        }
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            let_go(connection, Some("rollback"), self.answer_limit);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.close();
    }
}

/// Gives a connection back to its pool as soon as it has answered what it was asked, and this last
/// statement; closes it if that takes too long. Nobody waits for it. sqlx gives connections back by itself,
/// but asks each once more whether it is open, and waits for that answer for ever.
fn let_go(mut connection: PoolConnection<Postgres>, last: Option<&'static str>, answer_limit: Duration) {
    let Ok(runtime) = Handle::try_current() else {
        drop(connection.detach());
        return;
    };
    let limit = answer_limit.saturating_mul(LINGER_TIMES).min(LINGER_LIMIT);
    runtime.spawn(async move {
        if let Some(last) = last
            && !matches!(timeout(limit, connection.execute(last)).await, Ok(Ok(_)))
        {
            drop(connection.detach());
            return;
        }
        // The future has the connection, and closes it when it is dropped.
        let _ = timeout(limit, connection.return_to_pool()).await;
    });
}

fn no_answer(limit: Duration) -> sqlx::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")).into()
}

type Rows = Vec<Either<PgQueryResult, PgRow>>;

/// All that a statement answers, as sqlx wants it.
fn stream<'e>(
    rows: impl Future<Output = Result<Rows, sqlx::Error>> + Send + 'e,
) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>> {
    stream::once(rows)
        .map_ok(|rows| stream::iter(rows.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
}

impl<'c> Executor<'c> for &'_ Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        stream(async move {
            let mut using = pool.acquire().await?;
            let Some(connection) = &mut using.connection else {
                return Err(sqlx::Error::PoolClosed);
            };
            let rows = (&mut **connection).fetch_many(query).try_collect::<Rows>();
            let ended = timeout(pool.answer_limit, rows).await;
            ended.unwrap_or_else(|_| Err(no_answer(pool.answer_limit)))
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let pool = self.clone();
        async move {
            let mut using = pool.acquire().await?;
            let Some(connection) = &mut using.connection else {
                return Err(sqlx::Error::PoolClosed);
            };
            let ended = timeout(pool.answer_limit, (&mut **connection).fetch_optional(query)).await;
            ended.unwrap_or_else(|_| Err(no_answer(pool.answer_limit)))
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
        self.connections.prepare_with(sql, parameters)
    }

    fn describe<'e, 'q: 'e>(self, sql: &'q str) -> BoxFuture<'e, Result<Describe<Postgres>, sqlx::Error>>
    where
        'c: 'e,
    {
        self.connections.describe(sql)
    }
}

impl<'c> Executor<'c> for &'c mut Transaction {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        stream(async move {
            let limit = self.answer_limit;
            let rows = self.connection()?.fetch_many(query).try_collect::<Rows>();
            match timeout(limit, rows).await {
                Ok(rows) => rows,
                Err(_) => {
                    self.close();
                    Err(no_answer(limit))
                }
            }
        })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        async move {
            let limit = self.answer_limit;
            match timeout(limit, self.connection()?.fetch_optional(query)).await {
                Ok(row) => row,
                Err(_) => {
                    self.close();
                    Err(no_answer(limit))
                }
            }
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
