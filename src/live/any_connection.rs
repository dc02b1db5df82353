//! A way to Redis: a connection, or, in a Redis Cluster, the calls of one bucket.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};

use super::cluster::BucketConnection;
use super::pooled::Pooled;

/// A way to the Redis that has a bucket.
pub(super) enum AnyConnection {
    /// A connection that its holder made.
    Own(MultiplexedConnection),
    /// One of the pool.
    Pooled(Pooled),
    /// To the node of a Redis Cluster that has the bucket.
    Bucket(Box<BucketConnection>),
}

impl AnyConnection {
    fn connection(&mut self) -> &mut (dyn ConnectionLike + Send) {
        match self {
            Self::Own(connection) => connection,
            Self::Pooled(connection) => connection,
            Self::Bucket(connection) => &mut **connection,
        }
    }
}

impl ConnectionLike for AnyConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection().req_packed_command(cmd)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection().req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Own(connection) => connection.get_db(),
            Self::Pooled(connection) => connection.get_db(),
            Self::Bucket(connection) => connection.get_db(),
        }
    }
}
