//! Live streams: their limits, and how they are written (server-sent events).
//!
//! A stream writes only after its client has read what was written before. So nothing queues up for a slow
//! client: it gets the newest state. A client that reads nothing at all is closed like every client that does
//! not read an answer (`connection`).

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;

use crate::domain::client_network;
use crate::telemetry::name;
use crate::watching::{Changed, Event, Stream};
use crate::web::api::unknown::UnknownBody;
use crate::web::limits::RECONNECT_MS;
use crate::web::problem::{Kind, Problem};
use crate::web::transport::activity::StreamUnderWay;

/// The name of an event that contains counts.
const EVENT: &str = "counts";
/// The name of an event that says what does not exist.
const UNKNOWN_EVENT: &str = "unknown";
/// A comment, which clients ignore.
const HEARTBEAT: &[u8] = b":\n\n";

/// Counts the streams of a server against their limits. Cheap to clone.
#[derive(Clone)]
pub struct StreamPlaces(Arc<Places>);

struct Places {
    limit: usize,
    limit_by_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_address: HashMap<Ipv6Addr, usize>,
}

/// The place of one stream. Dropping it frees the place.
pub struct StreamPlace {
    places: StreamPlaces,
    /// `None`: the connection closed before its address was known.
    network: Option<Ipv6Addr>,
}

impl StreamPlaces {
    pub fn new(limit: usize, limit_by_address: usize) -> Self {
        Self(Arc::new(Places {
            limit,
            limit_by_address,
            taken: Mutex::default(),
        }))
    }

    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// Fails when the server, or this address, has too many streams.
    pub fn take(&self, address: Option<IpAddr>) -> Result<StreamPlace, Problem> {
        let Places {
            limit,
            limit_by_address,
            taken,
        } = &*self.0;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.total >= *limit {
            metrics::counter!(name::STREAMS_REFUSED, "by" => "server").increment(1);
            return Err(Problem::too_many_streams());
        }
        let network = address.map(client_network);
        if let Some(network) = network {
            let of_address = taken.by_address.entry(network).or_default();
            if *of_address >= *limit_by_address {
                metrics::counter!(name::STREAMS_REFUSED, "by" => "address").increment(1);
                return Err(Problem::too_many_streams_of_address(*limit_by_address));
            }
            *of_address += 1;
        }
        taken.total += 1;
        metrics::gauge!(name::STREAMS).increment(1);
        Ok(StreamPlace {
            places: self.clone(),
            network,
        })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        metrics::gauge!(name::STREAMS).decrement(1);
        let taken = &self.places.0.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        if let Some(network) = self.network
            && let Some(of_address) = taken.by_address.get_mut(&network)
        {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&network);
            }
        }
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
    unknown: UnknownBody,
    /// `None` once nobody listens any more.
    under_way: Option<StreamUnderWay>,
    has_begun: bool,
    _place: StreamPlace,
}

impl StreamBody {
    pub fn new(
        stream: Stream,
        unknown: UnknownBody,
        under_way: Option<StreamUnderWay>,
        place: StreamPlace,
    ) -> Self {
        Self {
            stream,
            unknown,
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
            let unknown = unknown_frame(&self.unknown);
            return Poll::Ready(Some(Ok(format!("retry: {retry}\n\n{unknown}").into())));
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

/// Writes the event that says what does not exist, if anything does not. It has no `id`: a client keeps that of the
/// last counts.
fn unknown_frame(unknown: &UnknownBody) -> String {
    if unknown.is_empty() {
        return String::new();
    }
    let data = serde_json::to_string(unknown).unwrap_or_default();
    format!("event: {UNKNOWN_EVENT}\ndata: {data}\n\n")
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
    fn a_place_is_free_again_when_its_stream_ends() {
        let places = StreamPlaces::new(3, 2);
        let here: Option<IpAddr> = Some("192.0.2.1".parse().expect("an address"));
        let there: Option<IpAddr> = Some("2001:db8::1".parse().expect("an address"));
        let kind = |place: Result<StreamPlace, Problem>| place.err().map(|problem| problem.kind());
        let first = places.take(here).expect("a place");
        let _second = places.take(here).expect("a place");
        assert_eq!(kind(places.take(here)), Some(Kind::TooManyStreamsOfAddress));
        let _third = places.take(there).expect("a place");
        assert_eq!(kind(places.take(there)), Some(Kind::TooManyStreams));
        drop(first);
        let _again = places.take(here).expect("a place");
        drop((_second, _third, _again));
        let taken = places.0.taken.lock().expect("no panic");
        assert_eq!((taken.total, taken.by_address.len()), (0, 0));
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let places = StreamPlaces::new(3, 1);
        let of = |text: &str| places.take(Some(text.parse().expect("an address")));
        let _one = of("2001:db8::1").expect("a place");
        assert!(of("2001:db8::ffff:2").is_err());
        assert!(of("2001:db8:0:1::1").is_ok());
    }

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
