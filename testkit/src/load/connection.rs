//! A connection of the load, and where an answer on it ends.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

pub(super) struct Connection {
    pub address: SocketAddr,
    pub stream: TcpStream,
    /// The part of an answer that has arrived so far.
    pub partial: Vec<u8>,
    /// The tag of the last answer that had one.
    pub tag: Vec<u8>,
    /// When the request under way was due.
    pub due: Instant,
    /// How many votes the request under way casts, and how many rows that is.
    pub votes: u64,
    pub rows: u64,
    pub is_busy: bool,
}

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            address,
            stream,
            partial: Vec::new(),
            tag: Vec::new(),
            due: Instant::now(),
            votes: 0,
            rows: 0,
            is_busy: false,
        })
    }
}

/// The tag of an answer, with its quotation marks.
pub(super) fn tag(answer: &[u8]) -> Option<&[u8]> {
    const TAG: &[u8] = b"\r\netag: ";
    let at = answer.windows(TAG.len()).position(|text| text == TAG)? + TAG.len();
    let length = answer[at..].iter().position(|byte| *byte == b'\r')?;
    Some(&answer[at..at + length])
}

/// The status of an answer, once all of it has arrived.
pub(super) fn whole(answer: &[u8]) -> Option<[u8; 3]> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    // A 304 has no body, and names no length.
    if &answer[9..12] == b"304" {
        return Some(*b"304");
    }
    // nginx writes it with capitals.
    let at = answer[..head]
        .windows(LENGTH.len())
        .position(|text| text.eq_ignore_ascii_case(LENGTH))
        .expect("a content-length");
    let length = answer[at + LENGTH.len()..head]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    if answer.len() < head + length {
        return None;
    }
    answer[9..12].try_into().ok()
}
