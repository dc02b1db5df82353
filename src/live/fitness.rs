//! Whether Tally can work with a Redis. Each program asks at the start. Also why it cannot connect.

use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{ConnectionAddr, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::buckets::Bucket;
use super::error_replies::Refusal;
use super::scripts::text;
use super::{LiveError, Redis, permissions};
use crate::telemetry::{Program, trouble};
use crate::tls::TlsFault;

/// How long a Redis without TLS may take to answer in plain text.
const PLAIN_LIMIT: Duration = Duration::from_millis(500);
/// How much of that answer is read.
const PLAIN_LIMIT_BYTES: u64 = 256;

impl Redis {
    /// Checks that this Redis is fit for this program of Tally. In a Cluster, one fit primary is enough: with the
    /// certificate of another one, say, something may be wrong, and its buckets alone are without counts.
    ///
    /// # Errors
    /// When it is not ([`LiveError::is_unfit`]).
    pub async fn check(&self, program: Program) -> Result<(), LiveError> {
        let (mut is_fit, mut failure) = (false, None);
        for buckets in self.primaries().await? {
            match self.check_primary(buckets[0], program).await {
                Ok(()) => is_fit = true,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            Some(error) if is_fit => {
                trouble!(warn, %error; "a primary of the Redis Cluster cannot be used");
                Ok(())
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    async fn check_primary(&self, bucket: Bucket, program: Program) -> Result<(), LiveError> {
        let mut connection = self.get(bucket).await?;
        let checked = permissions::check(&mut connection, self.keys(), bucket, program).await;
        match checked {
            // To a Sentinel, nearly all commands are unknown.
            Err(LiveError::UnknownCommands { .. }) if is_sentinel(&mut connection).await => {
                Err(LiveError::IsASentinel)
            }
            checked => checked,
        }
    }
}

async fn is_sentinel(connection: &mut impl ConnectionLike) -> bool {
    let role: Result<Vec<Value>, _> = redis::cmd("ROLE").query_async(connection).await;
    role.is_ok_and(|role| role.first().and_then(text) == Some("sentinel"))
}

impl LiveError {
    /// The error of a connection that could not be made to this address, named better where Redis says more without
    /// a login.
    pub(super) async fn named(self, at: &ConnectionAddr) -> Self {
        match (&self, at) {
            // A Redis without TLS takes the handshake for a command, and waits for the rest of it.
            (Self::Redis(_) | Self::Pool(_), ConnectionAddr::TcpTls { host, port, .. }) => {
                if said_in_plain_text(host, *port).await.is_none() {
                    return self;
                }
                tracing::debug!(error = %self, "it answers without TLS");
                Self::Tls(TlsFault::NoTls)
            }
            // A Redis that takes no connection says so at once. redis takes that for the answer to
            // the login.
            (Self::Refused(_), ConnectionAddr::Tcp(host, port)) => {
                let said = said_in_plain_text(host, *port).await;
                let refusal = said.and_then(|said| Refusal::of_line(&said));
                refusal.map_or(self, Self::Refused)
            }
            _ => self,
        }
    }
}

/// The first line that is said here without a login; `None`: nothing, or no line of Redis. Sends no
/// more than the word AUTH.
async fn said_in_plain_text(host: &str, port: u16) -> Option<String> {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await.ok()?;
        // Redis may have said something, and hung up.
        let _ = stream.write_all(b"AUTH\r\n").await;
        let mut line = String::new();
        let limited = stream.take(PLAIN_LIMIT_BYTES);
        BufReader::new(limited).read_line(&mut line).await.ok()?;
        line.starts_with(['+', '-']).then(|| line.trim_end().to_owned())
    };
    timeout(PLAIN_LIMIT, asked).await.ok().flatten()
}
