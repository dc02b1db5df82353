//! Whether Tally can work with a Redis. Each program asks at the start.

use std::time::Duration;

use redis::ConnectionAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{LiveError, Redis, permissions};
use crate::telemetry::Program;
use crate::tls::TlsFault;

/// How long a Redis without TLS may take to answer in plain text.
const PLAIN_LIMIT: Duration = Duration::from_millis(500);

impl Redis {
    /// Checks that this Redis is fit for this program of Tally.
    ///
    /// # Errors
    /// When it is not ([`LiveError::is_unfit`]).
    pub async fn check(&self, program: Program) -> Result<(), LiveError> {
        match self.pool.get().await {
            Ok(mut connection) => permissions::check(&mut *connection, self.keys(), program).await,
            Err(error) => match LiveError::from(error) {
                // A Redis without TLS takes the handshake for a command, and waits for the rest of
                // it.
                error if !error.is_unfit() && self.answers_in_plain_text().await => {
                    tracing::debug!(%error, "it answers without TLS");
                    Err(LiveError::Tls(TlsFault::NoTls))
                }
                error => Err(error),
            },
        }
    }

    /// Whether the URL wants TLS and a Redis without TLS is there. Sends no more than a PING,
    /// without a login.
    async fn answers_in_plain_text(&self) -> bool {
        let ConnectionAddr::TcpTls { host, port, .. } = self.address() else {
            return false;
        };
        let asked = async {
            let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.write_all(b"PING\r\n").await?;
            stream.read_u8().await
        };
        // +PONG, or an error that it wants a login.
        matches!(timeout(PLAIN_LIMIT, asked).await, Ok(Ok(b'+' | b'-')))
    }
}
