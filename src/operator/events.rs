//! Reads server-sent events (HTML standard) from bytes that come in pieces.

use std::time::Duration;

/// The longest event that is read. Tally's events are far shorter.
pub const EVENT_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// An event with data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `message` if the event has no kind.
    pub kind: String,
    pub data: String,
    /// The last id that was sent, in this event or an earlier one.
    pub id: String,
}

/// An event is longer than [`EVENT_LIMIT_BYTES`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {EVENT_LIMIT_BYTES} bytes")]
pub struct EventTooLong;

/// Reads a stream from its beginning.
#[derive(Default)]
pub struct EventReader {
    /// The bytes of an unfinished line.
    rest: Vec<u8>,
    kind: String,
    data: Option<String>,
    id: String,
    /// How long to wait before reconnecting, if the server says so.
    pub retry: Option<Duration>,
}

impl EventReader {
    /// Returns the events that end in this piece. Fails when an event is too long.
    pub fn read(&mut self, piece: &[u8]) -> Result<Vec<Event>, EventTooLong> {
        let mut events = Vec::new();
        self.rest.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.rest);
        let mut start = 0;
        while let Some(length) = bytes[start..]
            .iter()
            .position(|byte| matches!(byte, b'\r' | b'\n'))
        {
            let end = start + length;
            // A CR at the end may be the first half of a line break.
            if bytes[end] == b'\r' && end + 1 == bytes.len() {
                break;
            }
            events.extend(self.take(&String::from_utf8_lossy(&bytes[start..end])));
            let is_pair = bytes[end] == b'\r' && bytes.get(end + 1) == Some(&b'\n');
            start = end + if is_pair { 2 } else { 1 };
        }
        self.rest = bytes[start..].to_vec();
        if self.rest.len() + self.data.as_ref().map_or(0, String::len) > EVENT_LIMIT_BYTES {
            return Err(EventTooLong);
        }
        Ok(events)
    }

    fn take(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = self.data.take()?;
            return Some(Event {
                kind: if kind.is_empty() {
                    "message".to_owned()
                } else {
                    kind
                },
                data,
                id: self.id.clone(),
            });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = value.parse().ok().map(Duration::from_millis).or(self.retry);
            }
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let text = ":\nretry: 3127\r\n\r\nevent: counts\ndata: {\"a\":\ndata: \"ü\"}\nid: 7\n\ndata:x\r\rid: no\0\ndata\n\nretry: soon\nevent: left out\n\ndata: cut off";
        let event = |kind: &str, data: &str| Event {
            kind: kind.to_owned(),
            data: data.to_owned(),
            id: "7".to_owned(),
        };
        let expected = [
            event("counts", "{\"a\":\n\"ü\"}"),
            event("message", "x"),
            event("message", ""),
        ];
        for size in 1..=text.len() {
            let mut reader = EventReader::default();
            let read: Vec<Event> = text
                .as_bytes()
                .chunks(size)
                .flat_map(|piece| reader.read(piece).expect("short events"))
                .collect();
            assert_eq!(read, expected, "in pieces of {size}");
            assert_eq!(reader.retry, Some(Duration::from_millis(3127)));
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_for_ever() {
        for piece in [
            vec![b'x'; 1 << 20],
            [&b"data: "[..], &vec![b'x'; 1 << 20], b"\n"].concat(),
        ] {
            let mut reader = EventReader::default();
            let pieces = 2 * EVENT_LIMIT_BYTES / piece.len();
            assert!((0..pieces).any(|_| reader.read(&piece) == Err(EventTooLong)));
        }
    }
}
