//! A pool of connections whose statements end in time, also when Postgres is lost without a word.
//!
//! Postgres ends a statement that takes too long, and says so. A machine that loses its power, or a
//! firewall that forgets a connection, says nothing: whoever waits for an answer only reads, and would
//! wait for ever. sqlx asks the system for no probes of its connections (its `net/socket/mod.rs`, 0.8.6).
//! So each statement has a limit here, longer than Postgres' own, and a connection without an answer is
//! closed.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Connection, Describe, Either, Execute, Executor, Postgres};
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

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

    /// Closes all connections.
    pub async fn close(&self) {
        self.connections.close().await;
    }
}

/// A connection that is in use.
#[derive(Debug)]
pub(in crate::ledger) struct InUse {
    /// `None`: it was given back, or closed.
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
        self.end(ended)
    }

    /// Gives the connection back; closes it if it gave no answer.
    fn end<Answer, Error: From<sqlx::Error>>(
        mut self,
        ended: Result<Result<Answer, Error>, Elapsed>,
    ) -> Result<Answer, Error> {
        let connection = self.connection.take();
        ended.unwrap_or_else(|_| {
            // To give it back would be to wait for its answer once more.
            drop(connection.map(PoolConnection::detach));
            Err(no_answer(self.answer_limit).into())
        })
    }
}

impl Drop for InUse {
    /// Whoever asked has gone. The connection is in use until it has answered, as Postgres is busy
    /// with it, and no longer than it may take.
    fn drop(&mut self) {
        let (Some(mut connection), Ok(runtime)) = (self.connection.take(), Handle::try_current()) else {
            return;
        };
        let limit = self.answer_limit;
        runtime.spawn(async move {
            if timeout(limit, connection.ping()).await.is_err() {
                drop(connection.detach());
            }
        });
    }
}

/// A transaction. One that is dropped is closed with its connection: Postgres undoes it.
#[derive(Debug)]
pub(in crate::ledger) struct Transaction {
    /// `None`: it gave no answer, and is closed.
    connection: Option<PoolConnection<Postgres>>,
    answer_limit: Duration,
}

impl Transaction {
    /// # Errors
    /// When Postgres is unavailable, which may have done it.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        (&mut self).execute("commit").await?;
        self.give_back();
        Ok(())
    }

    /// Waits until the transaction has ended.
    ///
    /// # Errors
    /// When Postgres is unavailable, which undoes it.
    pub async fn rollback(mut self) -> Result<(), sqlx::Error> {
        (&mut self).execute("rollback").await?;
        self.give_back();
        Ok(())
    }

    fn give_back(mut self) {
        drop(self.connection.take());
    }

    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(no_answer(self.answer_limit)),
        }
    }

    fn close(&mut self) {
        drop(self.connection.take().map(PoolConnection::detach));
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.close();
    }
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
            using.end(ended)
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
            using.end(ended)
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
