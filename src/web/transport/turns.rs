//! Hands actix-http one request at a time, whatever a client sends ahead (HTTP/1.1 pipelining).
//!
//! actix-http reads on while a request is answered, and then frames the answer by the method, the version and
//! the Connection header of the request that it read last. So it must not see a request before the answer to
//! the one ahead is out. What has come too early is held here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::web::transport::activity::Activity;
use crate::web::transport::framing::Framing;

/// No more is read of a client of which so much is held. The last read may bring [`READ_LIMIT_BYTES`] more.
const HELD_LIMIT_BYTES: usize = 8 * 1024;
/// The most that one read brings. actix-http's buffer mostly takes less.
const READ_LIMIT_BYTES: usize = 16 * 1024;

/// The requests of one client, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    framing: Framing,
    /// Whether a request has been handed on, and the answer to it is not out.
    is_waiting: bool,
    /// What has come too early.
    held: Vec<u8>,
    /// How much of it has had its turn since.
    handed: usize,
    /// Whether the client has sent its last byte.
    is_over: bool,
    /// Whether the connection ends with the last answer. What still comes is thrown away.
    is_ending: bool,
}

impl Turns {
    /// Reads no further than to the end of one request. Reads nothing, as behind a client's last byte, when it
    /// is not certain where the request ends: actix-http refuses it.
    pub(super) fn poll_read(
        &mut self,
        mut stream: impl AsyncRead + Unpin,
        activity: &Activity,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.framing.is_unclear() {
                return Poll::Ready(Ok(()));
            }
            let is_free = !self.is_waiting && !self.is_ending;
            if is_free && self.is_holding() {
                self.hand_on(activity, buffer);
                return Poll::Ready(Ok(()));
            }
            if self.is_over {
                // A stream ends with its client, whatever is behind it.
                return match self.is_holding() && !activity.is_stream() {
                    true => Poll::Pending,
                    false => Poll::Ready(Ok(())),
                };
            }
            if self.held.len() - self.handed >= HELD_LIMIT_BYTES {
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            ready!(poll_read_some(&mut stream, context, buffer))?;
            if buffer.filled().len() == before {
                self.is_over = true;
                continue;
            }
            if is_free {
                let bytes = self.take(activity, &mut buffer.filled_mut()[before..]);
                self.hold(&buffer.filled()[before + bytes..]);
                buffer.set_filled(before + bytes);
                return Poll::Ready(Ok(()));
            }
            if !self.is_ending {
                self.hold(&buffer.filled()[before..]);
            }
            buffer.set_filled(before);
        }
    }

    /// Notes that all that was written is out. Returns whether something that was held may be read now.
    pub(super) fn note_flushed(&mut self, activity: &Activity) -> bool {
        if !activity.is_answered() {
            return false;
        }
        // The client did not send the body to the end: actix-http reads on, but answers nothing more.
        self.is_ending |= self.framing.is_in_sized_body();
        std::mem::take(&mut self.is_waiting) && self.is_holding()
    }

    fn is_holding(&self) -> bool {
        self.handed < self.held.len()
    }

    /// Takes the bytes of one request from the front. Returns how many.
    fn take(&mut self, activity: &Activity, bytes: &mut [u8]) -> usize {
        if self.framing.is_between() {
            activity.note_asked();
        }
        let taken = self.framing.take(bytes);
        self.is_waiting = taken.is_end;
        taken.bytes
    }

    fn hold(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.held.drain(..std::mem::take(&mut self.handed));
            self.held.extend_from_slice(bytes);
        }
    }

    /// Hands on what is held, as far as the request whose turn it is goes.
    fn hand_on(&mut self, activity: &Activity, buffer: &mut ReadBuf<'_>) {
        let mut held = std::mem::take(&mut self.held);
        let front = &mut held[self.handed..];
        let count = front.len().min(buffer.remaining());
        let bytes = self.take(activity, &mut front[..count]);
        buffer.put_slice(&front[..bytes]);
        self.handed += bytes;
        if self.handed == held.len() {
            // Few clients send ahead, and those seldom.
            self.handed = 0;
        } else {
            self.held = held;
        }
    }
}

/// Reads at most [`READ_LIMIT_BYTES`].
fn poll_read_some(
    stream: &mut (impl AsyncRead + Unpin),
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buffer.remaining() <= READ_LIMIT_BYTES {
        return Pin::new(stream).poll_read(context, buffer);
    }
    let mut some = ReadBuf::new(buffer.initialize_unfilled_to(READ_LIMIT_BYTES));
    ready!(Pin::new(stream).poll_read(context, &mut some))?;
    let count = some.filled().len();
    buffer.advance(count);
    Poll::Ready(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, repeat};

    use super::*;
    use crate::web::transport::drain::Drain;

    /// A connection whose client sends all at once.
    struct Connection<Client> {
        turns: Turns,
        activity: Rc<Activity>,
        client: Client,
    }

    impl<Client: AsyncRead + Unpin> Connection<Client> {
        fn of(client: Client) -> Self {
            Self {
                turns: Turns::default(),
                activity: Rc::new(Activity::new(Drain::default())),
                client,
            }
        }

        /// Reads once. `None`: there is nothing to read now.
        fn read(&mut self, limit: usize) -> Option<String> {
            let mut bytes = vec![0; limit];
            let mut buffer = ReadBuf::new(&mut bytes);
            let mut context = Context::from_waker(Waker::noop());
            let (turns, client) = (&mut self.turns, &mut self.client);
            match turns.poll_read(client, &self.activity, &mut context, &mut buffer) {
                Poll::Ready(read) => {
                    read.expect("it reads");
                    Some(String::from_utf8_lossy(buffer.filled()).into_owned())
                }
                Poll::Pending => None,
            }
        }

        /// Answers a request. Returns whether another one waits.
        fn answer(&mut self) -> bool {
            let under_way = self.activity.begin();
            assert!(!self.turns.note_flushed(&self.activity), "it is not answered");
            drop(under_way);
            self.turns.note_flushed(&self.activity)
        }
    }

    const GET: &str = "GET / HTTP/1.1\r\n\r\n";
    const POST: &str = "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";

    #[test]
    fn each_request_waits_for_the_answer_to_the_one_ahead() {
        let all = [POST, GET, POST].concat();
        for limit in [1, 7, 1000, 100_000] {
            let mut connection = Connection::of(all.as_bytes());
            for (request, waits) in [(POST, true), (GET, true), (POST, false)] {
                let mut got = String::new();
                while got.len() < request.len() {
                    got += &connection.read(limit).expect("more of the request");
                }
                assert_eq!(got, request, "reads of {limit}");
                // Behind the last request, the client's end is read at once.
                let ahead = connection.read(limit);
                assert_eq!(ahead.is_none(), waits, "reads of {limit}");
                assert_eq!(connection.answer(), waits, "reads of {limit}");
            }
            assert_eq!(connection.read(limit).as_deref(), Some(""));
        }
    }

    #[test]
    fn only_so_much_is_held_of_a_client_that_sends_on_and_on() {
        let mut connection = Connection::of(GET.as_bytes().chain(repeat(b'x')));
        assert_eq!(connection.read(100_000).as_deref(), Some(GET));
        assert_eq!(connection.read(100_000), None);
        let held = connection.turns.held.len();
        assert!(
            (HELD_LIMIT_BYTES..HELD_LIMIT_BYTES + READ_LIMIT_BYTES).contains(&held),
            "{held}"
        );
        assert!(connection.answer());
        assert_eq!(connection.read(100_000).map(|read| read.len()), Some(held));
        assert_eq!(connection.turns.held.capacity(), 0);
    }

    #[test]
    fn behind_a_body_that_was_not_read_to_its_end_everything_is_thrown_away() {
        let begun = POST.trim_end_matches('}');
        let all = format!("{POST}{GET}");
        let mut connection = Connection::of(all.as_bytes());
        assert_eq!(connection.read(begun.len()).as_deref(), Some(begun));
        assert!(!connection.answer());
        assert_eq!(connection.read(1000).as_deref(), Some(""));
    }

    #[test]
    fn behind_a_request_without_a_certain_end_is_the_end() {
        let bad = POST.replace("{}", "").replace(": 2", ": two");
        let all = format!("{bad}{GET}");
        let mut connection = Connection::of(all.as_bytes());
        assert_eq!(connection.read(1000), Some(bad));
        assert_eq!(connection.read(1000).as_deref(), Some(""));
    }
}
