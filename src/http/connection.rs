//! One client's connection: what a slow client may hold of the server, and for how
//! long.
//!
//! actix-http limits the first request's head and the idle time in between. What it
//! does not limit is limited here, beneath it: the head of every further request, a
//! client that does not read its answer, and how many connections there are.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::limits::{
    ANSWER_LIMIT, DISCONNECT_LIMIT, HEAD_LIMIT, KEEP_ALIVE_LIMIT, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD,
};
use crate::telemetry::name;

/// How much is read of a request that is refused for lack of a free connection.
const REFUSAL_LIMIT_BYTES: usize = 64 * 1024;
/// Files that are not connections of clients: logs, the stores, the runtime's own.
const FILES_RESERVED: u64 = 128;

/// The answer for lack of a free connection. Written by hand, since no request has been read.
const NO_ROOM: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\n",
    "content-type: application/problem+json\r\n",
    "retry-after: 1\r\n",
    "connection: close\r\n",
    "content-length: 138\r\n\r\n",
    r#"{"type":"about:blank","title":"Unavailable","status":503,"#,
    r#""detail":"Too many connections are open; nothing was read or stored, try again."}"#,
);
/// The answer to a further request whose head does not arrive; like actix-http's to a
/// first one, without a body.
const TOO_SLOW: &str = "HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// What a client may take of the server. The constants say what is what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    pub head: Duration,
    pub keep_alive: Duration,
    pub answer: Duration,
    /// Connections that are served at once.
    pub connections: usize,
}

impl ClientLimits {
    /// The constants, and this many connections.
    pub fn with_connections(connections: usize) -> Self {
        Self {
            head: HEAD_LIMIT,
            keep_alive: KEEP_ALIVE_LIMIT,
            answer: ANSWER_LIMIT,
            connections,
        }
    }

    /// Raises the process' limit on open files as far as it may, and lowers the
    /// number of connections to what that allows: out of files, the server could not
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

/// How many connections are served now, of how many.
#[derive(Clone, Debug)]
pub struct Places {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// One of them; given back when it is dropped.
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
        // Dropping the place of one too many gives it back.
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.limit).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!(name::CONNECTIONS).decrement(1);
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// For a request to begin, since then.
    Idle(Instant),
    /// For the rest of its head, since then.
    Head(Instant),
}

/// What a connection is doing. Its requests note in it when they begin and end: on
/// the wire alone, a request that is being answered looks like one still being sent.
#[derive(Debug)]
pub struct Activity {
    requests: Cell<usize>,
    waiting: Cell<Waiting>,
}

/// A request that is being answered, until it is dropped.
pub struct UnderWay(Rc<Activity>);

impl Activity {
    fn new() -> Self {
        Self {
            requests: Cell::new(0),
            waiting: Cell::new(Waiting::Idle(Instant::now())),
        }
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

    /// Until when what is waited for must come; `None` while a request is answered:
    /// bodies and stores have limits of their own.
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
    /// Wakes the connection at its deadline, or earlier: it is moved only when it
    /// would ring too late, so that a busy connection costs no timer a request.
    alarm: Pin<Box<Sleep>>,
    /// Since when the client has not read what was written.
    unresolved_since: Option<Instant>,
    unresolved_alarm: Option<Pin<Box<Sleep>>>,
    /// Nothing more is read of it.
    is_given_up: bool,
    _place: Place,
}

impl Connection {
    /// Takes a new connection in; `None` if there is no free connection, which the client is
    /// told.
    pub async fn admit(stream: TcpStream, places: &Places, limits: ClientLimits) -> Option<Self> {
        let Some(place) = places.take() else {
            metrics::counter!(name::CONNECTIONS_REFUSED).increment(1);
            // Nobody waits for its outcome, and it must end soon.
            let _ = timeout(DISCONNECT_LIMIT, refuse(stream)).await;
            return None;
        };
        Some(Self {
            stream,
            activity: Rc::new(Activity::new()),
            limits,
            alarm: Box::pin(sleep_until(Instant::now() + limits.head)),
            unresolved_since: None,
            unresolved_alarm: None,
            is_given_up: false,
            _place: place,
        })
    }

    /// For the connection's requests.
    pub fn activity(&self) -> Rc<Activity> {
        Rc::clone(&self.activity)
    }

    /// Resolves when what is waited for has not come in time.
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
        if is_head && self.unresolved_since.is_none() {
            let _ = self.stream.try_write(TOO_SLOW.as_bytes());
        }
        self.is_given_up = true;
    }

    /// What a write says of the client's reading.
    fn note_write(&mut self, context: &mut Context<'_>, is_all: bool) -> Result<(), io::Error> {
        if is_all {
            self.unresolved_since = None;
            self.unresolved_alarm = None;
            return Ok(());
        }
        let since = *self.unresolved_since.get_or_insert_with(Instant::now);
        let deadline = since + self.limits.answer;
        let alarm = self
            .unresolved_alarm
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

/// Tells a client that there is no free connection. What it has sent is read first: closing on
/// unread bytes would reset the connection, and the answer would be lost with it.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NO_ROOM.as_bytes()).await?;
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
            }
            // Bytes that drip in are read, but do not put the deadline off.
            if read.is_err() || self.poll_overdue(context).is_pending() {
                return Poll::Ready(read);
            }
            buffer.set_filled(before);
        } else {
            ready!(self.poll_overdue(context));
        }
        self.give_up();
        // As if the client had closed: what is under way is still answered.
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_for_want_of_room_is_as_long_as_it_says() {
        let (head, body) = NO_ROOM.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
    }
}
