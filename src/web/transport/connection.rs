//! One client's connection: what a slow client may hold of the server, and for how long.
//!
//! actix-http limits the first request's head and the idle time between requests. This
//! module lies beneath actix-http and limits the rest: the head of every further request, a
//! client that does not read its answer, and the number of connections.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::telemetry::name;
use crate::web::access::POLICY_OF_DATA;
use crate::web::limits::{
    ANSWER_LIMIT, DISCONNECT_LIMIT, HEAD_LIMIT, KEEP_ALIVE_LIMIT, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD,
    RETRY_AFTER_SECONDS, STREAM_UNREAD_LIMIT_BYTES, STREAMS_LIMIT, STREAMS_LIMIT_BY_ADDRESS,
    STREAMS_LIMIT_QUARTERS,
};
use crate::web::problem::Problem;

/// How much is read of a request that is refused for lack of a free connection.
pub(crate) const REFUSAL_LIMIT_BYTES: usize = 64 * 1024;
/// Open files that are not connections of clients: logs, the stores, the runtime's own.
const FILES_RESERVED: u64 = 128;

/// The answer for lack of a free connection. actix-web has no part in it: no request has
/// been read.
static NO_FREE_CONNECTION: LazyLock<String> = LazyLock::new(|| {
    let body = Problem::no_free_connection().body();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\n\
         content-type: application/problem+json\r\n\
         x-content-type-options: nosniff\r\n\
         referrer-policy: no-referrer\r\n\
         content-security-policy: {POLICY_OF_DATA}\r\n\
         retry-after: {RETRY_AFTER_SECONDS}\r\n\
         connection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
});
/// The answer to a further request whose head does not arrive. It has no body, like
/// actix-http's answer to a first request.
const TOO_SLOW: &str = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What clients may take of the server. `web::limits` explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    pub head: Duration,
    pub keep_alive: Duration,
    pub answer: Duration,
    /// Connections that are served at once.
    pub connections: usize,
    /// Live streams at once.
    pub streams: usize,
    /// Those of one client address.
    pub streams_by_address: usize,
}

impl ClientLimits {
    /// The limits of `web::limits`, and this many connections.
    pub fn with_connections(connections: usize) -> Self {
        Self {
            head: HEAD_LIMIT,
            keep_alive: KEEP_ALIVE_LIMIT,
            answer: ANSWER_LIMIT,
            connections,
            streams: STREAMS_LIMIT,
            streams_by_address: STREAMS_LIMIT_BY_ADDRESS,
        }
    }

    /// How many live streams there may be: never so many that nobody could vote.
    pub fn streams_beside_votes(&self) -> usize {
        let share = (self.connections / 4).saturating_mul(STREAMS_LIMIT_QUARTERS);
        self.streams.min(share.max(1))
    }

    /// Raises the process' limit on open files as far as the system lets it, then lowers the
    /// number of connections to what that allows. A server without a free file could not
    /// even tell a client that there is no free connection.
    pub fn within_open_files(mut self, threads: usize) -> Self {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
            return self;
        };
        let refusals = REFUSAL_LIMIT_CONNECTIONS_PER_THREAD.saturating_mul(threads);
        let reserved = FILES_RESERVED.saturating_add(refusals as u64);
        let wanted = (self.connections as u64).saturating_add(reserved);
        let mut files = soft;
        if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_ok() {
            files = wanted.min(hard);
        }
        let free = usize::try_from(files.saturating_sub(reserved)).unwrap_or(usize::MAX);
        if free < self.connections {
            self.connections = free.max(1);
            tracing::warn!(
                connections = self.connections,
                files,
                "fewer connections than TALLY_CONNECTIONS_LIMIT: the system allows too few open files (ulimit -n)"
            );
        }
        self
    }
}

/// How many connections are served now, and how many may be.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// The place of one connection. It is free again when this is dropped.
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
        // Beyond the limit, the drop gives the place back.
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!(name::CONNECTIONS).decrement(1);
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// For a request to begin, since this time.
    Idle(Instant),
    /// For the rest of a request's head, since this time.
    Head(Instant),
}

/// What a connection is doing. Requests note here when they begin and end: to the
/// connection alone, a request that is being answered looks like one still being sent.
#[derive(Debug)]
pub struct Activity {
    requests: Cell<usize>,
    waiting: Cell<Waiting>,
    /// Whether the answer is a stream, which ends only with the connection.
    is_stream: Cell<bool>,
    /// Whether the client has not read all that was written.
    is_unread: Cell<bool>,
}

/// A request that is being answered, until it is dropped.
pub struct UnderWay(Rc<Activity>);

/// A stream that is being sent, until it is dropped.
pub struct StreamUnderWay(UnderWay);

impl StreamUnderWay {
    /// Whether the client has not read all that was sent to it. The connection polls the stream
    /// again when it has.
    pub fn is_unread(&self) -> bool {
        self.0.0.is_unread.get()
    }
}

impl Activity {
    fn new() -> Self {
        Self {
            requests: Cell::new(0),
            waiting: Cell::new(Waiting::Idle(Instant::now())),
            is_stream: Cell::new(false),
            is_unread: Cell::new(false),
        }
    }

    /// Notes that the answer is a stream.
    pub fn begin_stream(self: &Rc<Self>) -> StreamUnderWay {
        self.is_stream.set(true);
        StreamUnderWay(self.begin())
    }

    /// Notes that a request's head has arrived.
    pub fn begin(self: &Rc<Self>) -> UnderWay {
        self.requests.set(self.requests.get() + 1);
        UnderWay(Rc::clone(self))
    }

    /// Notes that something was read.
    fn heard(&self) {
        if self.requests.get() == 0
            && let Waiting::Idle(_) = self.waiting.get()
        {
            self.waiting.set(Waiting::Head(Instant::now()));
        }
    }

    /// Until when the client must send what the connection waits for. `None` while a request
    /// is answered: bodies and stores have limits of their own.
    fn deadline(&self, limits: &ClientLimits) -> Option<Instant> {
        if self.requests.get() > 0 {
            return None;
        }
        Some(match self.waiting.get() {
            Waiting::Idle(since) => since + limits.keep_alive,
            Waiting::Head(since) => since + limits.head,
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let left = self.0.requests.get() - 1;
        self.0.requests.set(left);
        if left == 0 {
            self.0.waiting.set(Waiting::Idle(Instant::now()));
        }
    }
}

/// A connection that is served.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    activity: Rc<Activity>,
    limits: ClientLimits,
    /// Wakes the connection at its deadline or earlier. It is set anew only when it would
    /// ring too late, so a busy connection does not pay for a timer with each request.
    alarm: Pin<Box<Sleep>>,
    /// Since when the client has not read what was written.
    unread_since: Option<Instant>,
    unread_alarm: Option<Pin<Box<Sleep>>>,
    /// Nothing more is read from the client.
    is_given_up: bool,
    /// Whether the socket is set for a stream.
    is_set_for_stream: bool,
    _place: Place,
}

impl Connection {
    /// Takes a new connection in. `None` if there are too many: the client has been answered.
    pub async fn admit(stream: TcpStream, places: &Places, limits: ClientLimits) -> Option<Self> {
        let Some(place) = places.take() else {
            metrics::counter!(name::CONNECTIONS_REFUSED).increment(1);
            // Nobody waits for the outcome, and it must end soon.
            let _ = timeout(DISCONNECT_LIMIT, refuse(stream)).await;
            return None;
        };
        Some(Self {
            stream,
            activity: Rc::new(Activity::new()),
            limits,
            alarm: Box::pin(sleep_until(Instant::now() + limits.head)),
            unread_since: None,
            unread_alarm: None,
            is_given_up: false,
            is_set_for_stream: false,
            _place: place,
        })
    }

    /// What the connection's requests note in.
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
            // While a request is answered, look again later.
            let next = deadline.unwrap_or_else(|| now + self.limits.head);
            if self.alarm.is_elapsed() || self.alarm.deadline() > next {
                self.alarm.as_mut().reset(next);
            }
            ready!(self.alarm.as_mut().poll(context));
        }
    }

    /// Tells the client why, if that can be done at once.
    fn give_up(&mut self) {
        let is_head = matches!(self.activity.waiting.get(), Waiting::Head(_));
        if is_head && self.unread_since.is_none() {
            let _ = self.stream.try_write(TOO_SLOW.as_bytes());
        }
        self.is_given_up = true;
    }

    /// Notes whether the client took all of a write.
    ///
    /// # Errors
    /// When the client has not read its answer for too long.
    fn note_write(&mut self, context: &mut Context<'_>, is_all: bool) -> Result<(), io::Error> {
        if is_all {
            self.unread_since = None;
            self.unread_alarm = None;
            if self.activity.is_unread.replace(false) && self.activity.is_stream.get() {
                // It has held back what is new.
                context.waker().wake_by_ref();
            }
            return Ok(());
        }
        self.activity.is_unread.set(true);
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
    /// Sets the socket for a stream: the system holds little that is unread, and notices a client
    /// that is gone without a word, who does not confirm the next heartbeat.
    fn set_for_stream(&mut self) {
        if !self.activity.is_stream.get() || std::mem::replace(&mut self.is_set_for_stream, true) {
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

/// Tells a client that there is no free connection, and reads what it has sent before the
/// connection is closed. Closing with unread bytes would reset the connection, and the client
/// would lose the answer.
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
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            if buffer.filled().len() > before {
                self.activity.heard();
            } else if read.is_ok() && self.activity.is_stream.get() {
                // A tab that is closed. Otherwise its stream would go on until a write fails, after
                // two heartbeats: to the protocol, a client that closes may still read.
                // actix takes a reset that comes with the last bytes for such a client, too.
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
            // Bytes that drip in are read, but do not move the deadline.
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
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
