//! A connection of the pool that does not outlive a refusal.
//!
//! A failover moves the address of Redis, and old connections stay with the old primary: it goes on
//! answering, as a replica. So a connection over which such a Redis answered is closed, and the next
//! call connects to where the address leads by then. Other refusals, such as OOM, would be the same
//! over another connection.

use deadpool_redis::Connection;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, ServerError, Value};

/// The codes of error replies by which a Redis says that another one may be meant.
const ELSEWHERE: [&str; 7] = [
    "READONLY",
    "MASTERDOWN",
    "LOADING",
    "MOVED",
    "ASK",
    "CLUSTERDOWN",
    "TRYAGAIN",
];

/// A connection of the pool. It goes back when it is dropped, unless another Redis may be meant.
pub(super) struct Pooled {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    is_misled: bool,
}

impl Pooled {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection: Some(connection),
            is_misled: false,
        }
    }

    fn connection(&mut self) -> RedisResult<&mut Connection> {
        let gone = || RedisError::from((redis::ErrorKind::Client, "the connection was given back"));
        self.connection.as_mut().ok_or_else(gone)
    }
}

fn is_elsewhere(code: Option<&str>) -> bool {
    code.is_some_and(|code| ELSEWHERE.contains(&code))
}

fn misleads(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if is_elsewhere(Some(ServerError::code(error))))
}

impl ConnectionLike for Pooled {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let reply = self.connection()?.req_packed_command(cmd).await;
            self.is_misled |= match &reply {
                Ok(reply) => misleads(reply),
                Err(error) => is_elsewhere(error.code()),
            };
            reply
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let replies = self
                .connection()?
                .req_packed_commands(pipeline, offset, count)
                .await;
            self.is_misled |= match &replies {
                Ok(replies) => replies.iter().any(misleads),
                Err(error) => is_elsewhere(error.code()),
            };
            replies
        })
    }

    fn get_db(&self) -> i64 {
        self.connection.as_ref().map_or(0, ConnectionLike::get_db)
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if self.is_misled
            && let Some(connection) = self.connection.take()
        {
            drop(Connection::take(connection));
        }
    }
}
