//! Where each request of a connection ends.
//!
//! A head ends with an empty line (`head`). The body behind it has a length, comes in chunks (`chunks`), or
//! there is none. This module reads only what it needs for that, and agrees with actix-http on all that
//! actix-http accepts. actix-http reads everything itself, and refuses what is wrong.

mod chunks;
mod head;

use chunks::{Chunks, Progress};
use head::{Extent, Head};

/// Where in a request a connection is. Remembers it, since a request may come in pieces.
#[derive(Debug)]
pub struct Framing(At);

#[derive(Debug)]
enum At {
    Head(Head),
    /// In a body that has so many bytes more.
    Body(u64),
    Chunks(Chunks),
    /// Behind something that has no certain end. actix-http refuses it.
    Unclear,
}

/// What the front of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// How many bytes belong to the request.
    pub bytes: usize,
    /// Whether the request ends with them.
    pub is_end: bool,
}

impl Default for Framing {
    fn default() -> Self {
        Self(At::Head(Head::default()))
    }
}

impl Framing {
    /// Takes the bytes of one request from the front, and the offers of other protocols out of them.
    pub fn take(&mut self, bytes: &mut [u8]) -> Taken {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &mut bytes[taken..];
            match &mut self.0 {
                At::Head(head) => {
                    let (count, extent) = head.take(rest);
                    taken += count;
                    match extent {
                        None => {}
                        Some(Extent::Length(0)) => return self.end(taken),
                        Some(Extent::Length(length)) => self.0 = At::Body(length),
                        Some(Extent::Chunks) => self.0 = At::Chunks(Chunks::default()),
                        Some(Extent::Unclear) => self.0 = At::Unclear,
                    }
                }
                At::Body(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    taken += count;
                    *left -= count as u64;
                    if *left == 0 {
                        return self.end(taken);
                    }
                }
                At::Chunks(chunks) => {
                    let (count, progress) = chunks.take(rest);
                    taken += count;
                    match progress {
                        Progress::Within => {}
                        Progress::End => return self.end(taken),
                        Progress::Wrong => self.0 = At::Unclear,
                    }
                }
                At::Unclear => break,
            }
        }
        Taken {
            bytes: taken,
            is_end: false,
        }
    }

    /// Returns whether no request has begun since the last one ended.
    pub fn is_between(&self) -> bool {
        matches!(&self.0, At::Head(head) if !head.has_begun())
    }

    /// Returns whether a body of known length has not all come.
    pub fn is_in_sized_body(&self) -> bool {
        matches!(self.0, At::Body(_))
    }

    /// Returns whether it is not certain where the request ends.
    pub fn is_unclear(&self) -> bool {
        matches!(self.0, At::Unclear)
    }

    fn end(&mut self, bytes: usize) -> Taken {
        *self = Self::default();
        Taken { bytes, is_end: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a client's bytes that come in pieces of this length.
    fn without_offers(bytes: &str, length: usize) -> String {
        let mut framing = Framing::default();
        let mut bytes = bytes.as_bytes().to_vec();
        for piece in bytes.chunks_mut(length) {
            let mut taken = 0;
            while taken < piece.len() {
                taken += framing.take(&mut piece[taken..]).bytes;
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    }

    /// Asserts that exactly the first of these two is one request, wherever it is cut.
    fn ends_behind(request: &str, behind: &str) {
        let bytes = format!("{request}{behind}");
        for cut in 0..=request.len() {
            let (mut framing, mut all) = (Framing::default(), bytes.as_bytes().to_vec());
            let (first, second) = all.split_at_mut(cut);
            let taken = framing.take(first);
            assert_eq!(
                (taken.bytes, taken.is_end),
                (cut, cut == request.len()),
                "cut at {cut}"
            );
            if cut < request.len() {
                let taken = framing.take(second);
                assert!(taken.is_end, "cut at {cut}");
                assert_eq!(cut + taken.bytes, request.len(), "cut at {cut}");
            }
            assert!(framing.is_between() && !framing.is_unclear());
        }
    }

    #[test]
    fn a_request_ends_behind_its_body_wherever_it_is_cut() {
        let line = "POST / HTTP/1.1\r\nHost: x\r\nX: content-length: 9\r\n";
        let next = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for rest in [
            "\r\n".to_owned(),
            "Content-Type: a\r\nTE: trailers\r\nContent-Lengthy: 9\r\n\r\n".to_owned(),
            "content-length:0\r\n\r\n".to_owned(),
            "CONTENT-LENGTH: \t 03 \r\n\r\n\r\n\r".to_owned(),
            format!("Content-Length: {}\nUpgrad: x\n\n{next}", next.len()),
            "Transfer-Encoding: Chunked \r\n\r\n0\r\n\r\n".to_owned(),
            format!(
                "transfer-encoding:chunked\r\n\r\n3 ;a=\"\t\"\r\n\r\n0\r\n00{:X}\r\n{next}\r\n0\r\nA: b\r\n c\r\n\r\n",
                next.len()
            ),
        ] {
            ends_behind(&format!("{line}{rest}"), next);
            ends_behind(&format!("\r\n\n{line}{rest}"), "\r\n");
        }
    }

    #[test]
    fn a_request_that_could_end_in_two_places_has_no_certain_end() {
        let line = "POST / HTTP/1.1\r\n";
        let head = |lines: &str| format!("{line}{lines}\r\n");
        for bad in [
            head("content-length: 2\r\ncontent-length: 2\r\n"),
            head("content-length: 2\r\ntransfer-encoding: chunked\r\n"),
            head("transfer-encoding: chunked\r\ncontent-length: 2\r\n"),
            head("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
            head("transfer-encoding: gzip, chunked\r\n"),
            head("transfer-encoding: chunked, gzip\r\n"),
            head("transfer-encoding: chunke\r\n"),
            head("transfer-encoding:\r\n"),
            head("content-length:\r\n"),
            head("content-length: +2\r\n"),
            head("content-length: 2, 2\r\n"),
            head("content-length: 2 2\r\n"),
            head("content-length: 0x2\r\n"),
            head("content-length: 18446744073709551616\r\n"),
            head("transfer-encoding: chunked\r\n") + "x",
            head("transfer-encoding: chunked\r\n") + "0\n",
            head("transfer-encoding: chunked\r\n") + "1\r\nab",
            head("transfer-encoding: chunked\r\n") + "10000000000000000",
        ] {
            for cut in 0..bad.len() {
                let mut framing = Framing::default();
                let mut all = format!("{bad}GET / HTTP/1.1\r\n\r\n").into_bytes();
                let (first, second) = all.split_at_mut(cut);
                assert_eq!(framing.take(first).bytes, cut);
                assert!(!framing.is_unclear(), "{bad:?} cut at {cut}");
                let taken = framing.take(second);
                assert!(framing.is_unclear() && !taken.is_end, "{bad:?} cut at {cut}");
                assert_eq!(cut + taken.bytes, bad.len(), "{bad:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn an_offered_upgrade_is_taken_out_in_any_spelling_and_in_any_pieces() {
        let request = "POST /v1/items/1/votes HTTP/1.1\r\n\
             Connection: Upgrade, HTTP2-Settings\r\nUPGRADE: h2c\r\nHTTP2-Settings: AA\r\n\
             connection:keep-alive,upgrade\r\nupgrade: websocket\n\
             Host: upgrade\r\nUser-Agent: connection: upgrade\r\n\r\n{}\
             GET /upgrade HTTP/1.1\r\nConnection: close , upgrade\r\n\r\n";
        let left = "POST /v1/items/1/votes HTTP/1.1\r\n\
             Connection: Upgrad-, HTTP2-Settings\r\nUPGRAD-: h2c\r\nHTTP2-Settings: AA\r\n\
             connection:keep-alive,upgrad-\r\nupgrad-: websocket\n\
             Host: upgrade\r\nUser-Agent: connection: upgrade\r\n\r\n{}\
             GET /upgrade HTTP/1.1\r\nConnection: close , upgrad-\r\n\r\n";
        for length in 1..=request.len() {
            assert_eq!(without_offers(request, length), left, "pieces of {length}");
        }
    }

    #[test]
    fn a_request_without_an_offer_stays_as_it_is() {
        let request = "PUT /v1/items/key:upgrade/votes/connection HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\
             Connection: not-upgrade, upgrad\r\nConnectionless: upgrade\r\n up: upgrade\r\n\
             content-length: 46\r\n\r\n{\n  \"upgrade\": 1,\n  \"connection\": \"upgrade\"\r\n}";
        for length in [1, 2, 3, 7, request.len()] {
            assert_eq!(without_offers(request, length), request);
        }
    }

    #[test]
    fn a_body_in_chunks_stays_as_it_is_wherever_it_is_cut() {
        let head = "POST /v1/items/1/votes HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let offer = "Accept: */*\r\nUpgrade: h2c\r\n";
        let body = "{\"voter_id\":\"upgrade-connection: upgrade\",\n  \"value\":1}";
        for cut in 1..body.len() {
            let (first, second) = body.split_at(cut);
            let chunks = format!(
                "{:x}\r\n{first}\r\n{:X};a=b\r\n{second}\r\n0\r\n\r\n",
                first.len(),
                second.len()
            );
            // The next request on the connection still has its offer taken out.
            let request = format!("{head}{chunks}GET / HTTP/1.1\r\n{offer}\r\n");
            let left = format!("{head}{chunks}GET / HTTP/1.1\r\nAccept: */*\r\nUpgrad-: h2c\r\n\r\n");
            for length in [1, 2, 3, 5, request.len()] {
                assert_eq!(
                    without_offers(&request, length),
                    left,
                    "cut at {cut}, pieces of {length}"
                );
            }
        }
    }
}
