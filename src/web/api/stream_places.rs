//! Live streams: their limits, and how they are written (server-sent events).
//!
//! A stream writes only after its client has read what was written before. So nothing queues up for a slow
//! client: it gets the newest state. A client that reads nothing at all is closed like every client that does
//! not read an answer (`connection`).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;

use crate::telemetry::name;
use crate::watching::{Changed, Event, Stream};
use crate::web::api::places::{NoPlace, Place, Places};
use crate::web::limits::RECONNECT_MS;
use crate::web::problem::{Kind, Problem};
use crate::web::transport::activity::StreamUnderWay;

/// The name of an event that contains counts.
const EVENT: &str = "counts";
/// A comment, which clients ignore.
const HEARTBEAT: &[u8] = b":\n\n";

/// Counts the streams of a server against their limits. Cheap to clone.
#[derive(Clone)]
pub struct StreamPlaces(Places);

/// The place of one stream. Dropping it frees the place.
pub struct StreamPlace(#[expect(dead_code, reason = "it is dropped with the stream")] Place);

impl StreamPlaces {
    pub fn new(limit: usize, limit_by_address: usize) -> Self {
        Self(Places::new(limit, limit_by_address))
    }

    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// Fails when the server, or this address, has too many streams.
    pub fn take(&self, address: Option<IpAddr>) -> Result<StreamPlace, Problem> {
        let place = self.0.take(address).map_err(|full| {
            metrics::counter!(name::STREAMS_REFUSED, "by" => full.name()).increment(1);
            match full {
                NoPlace::Server => Problem::too_many_streams(),
                NoPlace::Address => Problem::too_many_streams_of_address(self.0.limit_by_address()),
            }
        })?;
        metrics::gauge!(name::STREAMS).increment(1);
        Ok(StreamPlace(place))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        metrics::gauge!(name::STREAMS).decrement(1);
    }
}

impl Problem {
    /// The server has as many streams as it may have.
    pub fn too_many_streams() -> Self {
        let detail = "This server has as many live streams as it takes; open another one later, or read the counts \
                      with GET.";
        Self::new(Kind::TooManyStreams, detail)
    }

    /// One address has as many streams as it may have.
    fn too_many_streams_of_address(limit: usize) -> Self {
        let detail = format!(
            "One client address may have {limit} live streams; one stream can watch many items: items=1,2,3."
        );
        Self::new(Kind::TooManyStreamsOfAddress, detail)
    }
}

/// The body of a stream's answer.
pub struct StreamBody {
    stream: Stream,
    /// `None` once nobody listens any more.
    under_way: Option<StreamUnderWay>,
    has_begun: bool,
    _place: StreamPlace,
}

impl StreamBody {
    pub fn new(stream: Stream, under_way: Option<StreamUnderWay>, place: StreamPlace) -> Self {
        Self {
            stream,
            under_way,
            has_begun: false,
            _place: place,
        }
    }
}

impl MessageBody for StreamBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        if !self.has_begun {
            self.has_begun = true;
            // Written at once, so that the client knows that the stream is open. The delay is random, so that
            // clients do not all reconnect at the same moment.
            let retry = rand::random_range(RECONNECT_MS);
            return Poll::Ready(Some(Ok(format!("retry: {retry}\n\n").into())));
        }
        if self.under_way.as_ref().is_some_and(StreamUnderWay::is_unread) {
            // The connection polls again once the client has read everything.
            return self.stream.poll_end(context).map(|()| None);
        }
        let event = self.stream.poll_event(context);
        event.map(|event| {
            Some(Ok(match event? {
                Event::Heartbeat => Bytes::from_static(HEARTBEAT),
                Event::Changed(changed) => frame(&changed).into(),
            }))
        })
    }
}

/// Writes an event: its fingerprints as `id`, and one JSON object.
///
/// A client that reconnects sends the `id` back as Last-Event-ID.
fn frame(changed: &Changed) -> String {
    let Changed {
        items,
        polls,
        fingerprints,
    } = changed;
    let texts = items.iter().chain(polls).map(|text| text.len() + 1);
    let ids = fingerprints.len() * crate::watching::Fingerprint::CHARACTERS;
    let mut frame = String::with_capacity(64 + ids + texts.sum::<usize>());
    frame.push_str("id: ");
    fingerprints.iter().for_each(|one| one.write(&mut frame));
    // Writing into a String never fails.
    let _ = write!(frame, "\nevent: {EVENT}\ndata: {{\"items\":[");
    push_all(&mut frame, items);
    frame.push_str("],\"polls\":[");
    push_all(&mut frame, polls);
    // serde_json writes JSON without line breaks.
    frame.push_str("]}\n\n");
    frame
}

fn push_all(frame: &mut String, texts: &[Arc<str>]) {
    for (at, text) in texts.iter().enumerate() {
        if at > 0 {
            frame.push(',');
        }
        frame.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_frame_of_lines() {
        let fingerprints = vec![Default::default(), Default::default()];
        let event = Changed {
            items: vec!["{\"id\":1}".into(), "{\"id\":2}".into()],
            polls: Vec::new(),
            fingerprints,
        };
        assert_eq!(
            frame(&event),
            "id: AAAAAAAAAAAAAAAA\nevent: counts\ndata: {\"items\":[{\"id\":1},{\"id\":2}],\"polls\":[]}\n\n"
        );
    }
}
