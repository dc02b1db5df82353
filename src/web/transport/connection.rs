//! A client's connection: what a slow client may hold of the server, and for how long.
//!
//! actix-http limits the first request's head and the idle time between requests. This
//! module lies beneath actix-http and limits the rest: the head of every further request, a
//! client that does not read its answer, and the number of connections.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::telemetry::{name, trouble};
use crate::web::limits::{DISCONNECT_LIMIT, RETRY_AFTER_SECONDS, STREAM_UNREAD_LIMIT_BYTES};
use crate::web::problem::Problem;
use crate::web::transport::POLICY_OF_DATA;
use crate::web::transport::activity::Activity;
use crate::web::transport::connection_limits::ClientLimits;
use crate::web::transport::drain::Drain;
use crate::web::transport::turns::Turns;

/// How much is read of a request that is refused because no connection is free.
pub(crate) const REFUSAL_LIMIT_BYTES: usize = 64 * 1024;
/// The answer when no connection is free. actix-web is not involved, because no request has been read.
static NO_FREE_CONNECTION: LazyLock<String> = LazyLock::new(|| {
    let body = Problem::no_free_connection().body();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\n\
         content-type: application/problem+json\r\n\
         x-content-type-options: nosniff\r\n\
         referrer-policy: no-referrer\r\n\
         content-security-policy: {POLICY_OF_DATA}\r\n\
         cache-control: no-store\r\n\
         retry-after: {RETRY_AFTER_SECONDS}\r\n\
         connection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
});
/// The answer to a further request whose head does not arrive. Like actix-http's answer to a first request,
/// it has no body.
const TOO_SLOW: &str = "HTTP/1.1 408 Request Timeout\r\n\
    cache-control: no-store\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// The number of connections that are served now, and its limit.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
struct Place {
    taken: Arc<AtomicUsize>,
}

impl Places {
    pub fn new(limit: usize) -> Self {
        Self {
            taken: Arc::default(),
            limit,
        }
    }

    fn take(&self) -> Option<Place> {
        metrics::gauge!(name::CONNECTIONS).increment(1);
        let place = Place {
            taken: Arc::clone(&self.taken),
        };
        // Beyond the limit, the drop frees the place.
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!(name::CONNECTIONS).decrement(1);
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is served.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    activity: Rc<Activity>,
    limits: ClientLimits,
    turns: Turns,
    /// Wakes the connection at its deadline or earlier. It is set again only when it would wake too late, so a
    /// busy connection does not pay for a timer with each request.
    alarm: Pin<Box<Sleep>>,
    /// Whom the alarm wakes; `None`: it was not asked since it was set.
    alarmed: Option<Waker>,
    /// Since when the client has left written data unread.
    unread_since: Option<Instant>,
    unread_alarm: Option<Pin<Box<Sleep>>>,
    /// Whether nothing more is read from the client.
    is_given_up: bool,
    /// Whether the socket is set up for a stream.
    is_set_for_stream: bool,
    _place: Place,
}

impl Connection {
    /// Admits a new connection. `None`: there are too many, and the client has been answered. Once the
    /// drain begins, the connection ends with its next answer.
    pub async fn admit(
        stream: TcpStream,
        places: &Places,
        limits: ClientLimits,
        drain: Drain,
    ) -> Option<Self> {
        let Some(place) = places.take() else {
            metrics::counter!(name::CONNECTIONS_REFUSED).increment(1);
            trouble!(warn, %"TALLY_CONNECTIONS_LIMIT"; "too many connections: further ones get 503");
            // Nobody waits for the outcome, so it must end soon.
            let _ = timeout(DISCONNECT_LIMIT, refuse(stream)).await;
            return None;
        };
        Some(Self {
            stream,
            activity: Rc::new(Activity::new(drain)),
            limits,
            turns: Turns::default(),
            alarm: Box::pin(sleep_until(Instant::now() + limits.head)),
            alarmed: None,
            unread_since: None,
            unread_alarm: None,
            is_given_up: false,
            is_set_for_stream: false,
            _place: place,
        })
    }

    /// Returns the activity that the connection's requests note.
    pub fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    /// Ready when the client has not sent in time what the connection waits for.
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let deadline = self.activity.deadline(&self.limits);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(());
            }
            // Look again later while a request is answered.
            let next = deadline.unwrap_or_else(|| now + self.limits.head);
            if self.alarm.is_elapsed() || self.alarm.deadline() > next {
                self.alarm.as_mut().reset(next);
                self.alarmed = None;
            }
            let is_set = self.alarmed.as_ref();
            if is_set.is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
            // Without budget left, Tokio would note nobody to wake.
            self.alarmed = has_budget_remaining().then(|| context.waker().clone());
            ready!(self.alarm.as_mut().poll(context));
        }
    }

    /// Tells the client why, if that is possible at once.
    fn give_up(&mut self) {
        if self.activity.is_in_head() && self.unread_since.is_none() {
            let _ = self.stream.try_write(TOO_SLOW.as_bytes());
        }
        self.is_given_up = true;
    }

    /// Notes whether the client took all of a write. Fails when the client has not read its answer for too
    /// long.
    fn note_write(&mut self, context: &mut Context<'_>, is_all: bool) -> Result<(), io::Error> {
        if is_all {
            self.unread_since = None;
            self.unread_alarm = None;
            if self.activity.note_unread(false) && self.activity.is_stream() {
                // The stream held back what is new while the client did not read.
                context.waker().wake_by_ref();
            }
            return Ok(());
        }
        self.activity.note_unread(true);
        let since = *self.unread_since.get_or_insert_with(Instant::now);
        let deadline = since + self.limits.answer;
        let alarm = self
            .unread_alarm
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if alarm.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client did not read its answer",
            ));
        }
        Ok(())
    }
}

impl Connection {
    /// Sets up the socket for a stream. The system then buffers little unread data, and notices a client that
    /// has vanished, because it does not confirm the next heartbeat.
    fn set_for_stream(&mut self) {
        if !self.activity.is_stream() || std::mem::replace(&mut self.is_set_for_stream, true) {
            return;
        }
        let socket = socket2::SockRef::from(&self.stream);
        let limits = socket
            .set_send_buffer_size(STREAM_UNREAD_LIMIT_BYTES)
            .and_then(|()| socket.set_tcp_user_timeout(Some(self.limits.answer)));
        if let Err(error) = limits {
            tracing::debug!(%error, "a stream's socket keeps the limits of the system");
        }
    }
}

/// Tells a client that no connection is free, and reads what the client has sent before closing. Closing with
/// unread bytes would reset the connection, and the client would lose the answer.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NO_FREE_CONNECTION.as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(REFUSAL_LIMIT_BYTES as u64);
    tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    Ok(())
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_given_up {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let connection = &mut *self;
        let read = connection
            .turns
            .poll_read(&mut connection.stream, &connection.activity, context, buffer);
        if let Poll::Ready(read) = read {
            if buffer.filled().len() > before {
                self.activity.heard();
            } else if read.is_ok() && self.activity.is_stream() {
                // A closed tab. Without this its stream would continue until a write fails, after two
                // heartbeats, because the protocol lets a closing client still read. When a reset comes
                // with the last bytes, actix takes the client for a closing one, too.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            // Bytes that arrive slowly are read, but do not move the deadline.
            if read.is_err() || self.poll_overdue(context).is_pending() {
                return Poll::Ready(read);
            }
            buffer.set_filled(before);
        } else {
            ready!(self.poll_overdue(context));
        }
        self.give_up();
        // As if the client had closed: requests under way are still answered.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.set_for_stream();
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        let is_all = matches!(written, Poll::Ready(Ok(count)) if count == bytes.len());
        self.note_write(context, is_all)?;
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        // actix-http flushes behind all that it has written.
        let connection = &mut *self;
        if connection.turns.note_flushed(&connection.activity) {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
