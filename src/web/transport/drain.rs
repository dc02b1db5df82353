//! The drain: how a server ends without losing a request.
//!
//! 1. `/health/ready` says no, so load balancers send no more, and each connection ends with its next answer. For
//!    `TALLY_DRAIN` the server serves all the same.
//! 2. New connections are turned away before they are made. Closing the listener would reset those that are
//!    made and not served yet, and their clients could not know whether their requests were.
//! 3. The listener closes. Whoever was turned away gets "connection refused": another server may be asked.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// How long connections that were being made get for that, and for the head of their first request.
const TURN_AWAY_FOR: Duration = Duration::from_secs(1);
/// The same for a server that does not drain: it should end soon.
const TURN_AWAY_SHORTLY: Duration = Duration::from_millis(100);

/// Whether a server is about to stop. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// From now on, each connection ends with its next answer.
    pub(in crate::web) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has begun.
    pub fn is_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Turns new connections away, and waits until those that were being made are served. The listener must be
/// closed next, through its other handles.
pub(in crate::web) async fn turn_away(listener: TcpListener, drains: bool) {
    if let Err(error) = drop_requests_to_connect(&listener) {
        tracing::debug!(%error, "connections that are being made now may be reset");
    }
    sleep(if drains { TURN_AWAY_FOR } else { TURN_AWAY_SHORTLY }).await;
}

/// Has the system drop packets that ask for a connection (SYN without ACK), as if the network had lost them.
/// Their senders ask again a second later.
#[cfg(target_os = "linux")]
fn drop_requests_to_connect(listener: &TcpListener) -> std::io::Result<()> {
    use socket2::SockFilter;

    // In the language of the Linux socket filter (its documentation, networking/filter): codes, jumps, operand.
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    // RFC 9293: the byte of a TCP header that has the flags, and two of them.
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS_AT),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        // Of such a packet no byte is kept, of others all.
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    socket2::SockRef::from(listener).attach_filter(&filter)
}

#[cfg(not(target_os = "linux"))]
fn drop_requests_to_connect(_: &TcpListener) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_is_made_before_it_is_turned_away_and_refused_or_never_made_after() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let _early = TcpStream::connect(address).await.expect("a connection");
        let listener = listener.into_std().expect("a listener");
        let turning_away = turn_away(listener.try_clone().expect("a handle"), false);
        let connecting = TcpStream::connect(address);
        tokio::select! {
            biased;
            made = async {
                tokio::task::yield_now().await;
                connecting.await
            } => panic!("{made:?}"),
            () = turning_away => {}
        }
        listener.set_nonblocking(true).expect("a listener");
        assert!(listener.accept().is_ok(), "the early one");
        let nobody = listener.accept().map_err(|error| error.kind());
        assert!(matches!(nobody, Err(ErrorKind::WouldBlock)), "{nobody:?}");
        let late = tokio::spawn(TcpStream::connect(address));
        tokio::task::yield_now().await;
        drop(listener);
        let late = late.await.expect("no panic").map_err(|error| error.kind());
        assert!(matches!(late, Err(ErrorKind::ConnectionRefused)), "{late:?}");
    }
}
