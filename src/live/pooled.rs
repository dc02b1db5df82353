//! A connection of the pool that does not outlive a refusal.
//!
//! A failover moves the address of Redis, and old connections stay with the old primary: it goes on
//! answering, as a replica. So a connection that got an error reply is closed, and the next call
//! connects to where the address leads by then.

use deadpool_redis::Connection;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, ServerError, Value};

/// A connection of the pool. It goes back when it is dropped, unless Redis has refused something
/// over it.
pub(super) struct Pooled {
    /// `None` only while it is dropped.
    connection: Option<Connection>,
    is_refused: bool,
}

impl Pooled {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection: Some(connection),
            is_refused: false,
        }
    }

    fn connection(&mut self) -> RedisResult<&mut Connection> {
        let gone = || RedisError::from((redis::ErrorKind::Client, "the connection was given back"));
        self.connection.as_mut().ok_or_else(gone)
    }
}

/// A script that Redis does not know is loaded, over the same connection.
fn is_refusal(code: Option<&str>) -> bool {
    code.is_some_and(|code| code != "NOSCRIPT")
}

fn refuses(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if is_refusal(Some(ServerError::code(error))))
}

impl ConnectionLike for Pooled {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let reply = self.connection()?.req_packed_command(cmd).await;
            self.is_refused |= match &reply {
                Ok(reply) => refuses(reply),
                Err(error) => is_refusal(error.code()),
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
            self.is_refused |= match &replies {
                Ok(replies) => replies.iter().any(refuses),
                Err(error) => is_refusal(error.code()),
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
        if self.is_refused
            && let Some(connection) = self.connection.take()
        {
            drop(Connection::take(connection));
        }
    }
}
