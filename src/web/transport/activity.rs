//! What a connection is doing, as its requests note it.

use std::cell::Cell;
use std::rc::Rc;

use tokio::time::Instant;

use crate::web::transport::connection_limits::ClientLimits;
use crate::web::transport::drain::Drain;

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// For a request to begin, since this time.
    Idle(Instant),
    /// For the rest of a request's head, since this time.
    Head(Instant),
}

/// What a connection is doing. Requests note here when they begin and end. The connection alone cannot tell a
/// request that is being answered from one that is still being sent.
#[derive(Debug)]
pub struct Activity {
    requests: Cell<usize>,
    waiting: Cell<Waiting>,
    /// Whether the last request has its whole answer.
    is_answered: Cell<bool>,
    /// Whether the answer is a stream. A stream ends only with its connection.
    is_stream: Cell<bool>,
    /// Whether the client has not yet read everything that was written.
    is_unread: Cell<bool>,
    /// Whether the server is about to stop.
    drain: Drain,
}

/// A request that is being answered. Dropping it notes the end.
pub struct UnderWay(Rc<Activity>);

impl UnderWay {
    /// Returns whether the server is about to stop, so that the connection must end with this answer.
    pub fn is_last(&self) -> bool {
        self.0.drain.is_begun()
    }
}

/// A stream that is being sent. Dropping it notes the end.
pub struct StreamUnderWay(UnderWay);

impl StreamUnderWay {
    /// Returns whether the client has not yet read everything that was sent. The connection polls the stream
    /// again once it has.
    pub fn is_unread(&self) -> bool {
        self.0.0.is_unread.get()
    }
}

impl Activity {
    pub(super) fn new(drain: Drain) -> Self {
        Self {
            requests: Cell::new(0),
            waiting: Cell::new(Waiting::Idle(Instant::now())),
            is_answered: Cell::new(true),
            is_stream: Cell::new(false),
            is_unread: Cell::new(false),
            drain,
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

    /// Notes that a request begins, of which nothing has been handed on yet.
    pub(super) fn note_asked(&self) {
        self.is_answered.set(false);
    }

    /// Returns whether the last request has its whole answer. Some of it may still be to be written.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.get()
    }

    /// Notes that something was read.
    pub(super) fn heard(&self) {
        if self.requests.get() == 0
            && let Waiting::Idle(_) = self.waiting.get()
        {
            self.waiting.set(Waiting::Head(Instant::now()));
        }
    }

    /// Returns whether the connection waits for the rest of a request's head.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.waiting.get(), Waiting::Head(_))
    }

    /// Returns whether the answer is a stream.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream.get()
    }

    /// Notes whether the client has left written data unread. Returns what was noted before.
    pub(super) fn note_unread(&self, is_unread: bool) -> bool {
        self.is_unread.replace(is_unread)
    }

    /// Returns when the client must have sent what the connection waits for. `None` while a request is
    /// answered: bodies and stores have their own limits.
    pub(super) fn deadline(&self, limits: &ClientLimits) -> Option<Instant> {
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
            self.0.is_answered.set(true);
        }
    }
}
