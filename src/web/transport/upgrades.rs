//! Ignores offers to speak another protocol (RFC 9110, 7.8), and answers in HTTP/1.1 as before.
//!
//! Java's standard client offers HTTP/2 with its requests (`Upgrade: h2c`), and a proxy may pass on what a
//! browser offers. actix-http answers such a request with `connection: upgrade` and closes, and it reads the
//! body of one that offers WebSocket to the end of the connection. So it must not see an offer: this module
//! changes the last letter of the header's name, and of the word `upgrade` in the header Connection.
//!
//! It looks at the beginning of every line, also of bodies, since it does not know where a head ends. Bodies
//! are JSON, in which no line begins with one of these words. A body in chunks is cut anywhere: the line behind
//! the size of a chunk is left as it is.

const OFFER: &[u8] = b"upgrade";
const CONNECTION: &[u8] = b"connection:";
/// What stands in place of the last letter.
const INSTEAD: u8 = b'-';

/// Where in a request's lines a connection is.
#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    LineStart,
    /// In a line that has only hexadecimal digits so far: perhaps the size of a chunk of a body.
    Size,
    /// Behind such digits.
    AfterSize,
    /// In a line that may begin with [`OFFER`]: so many letters are the same.
    Offer(usize),
    /// In a line that may begin with [`CONNECTION`].
    Connection(usize),
    /// In the value of Connection, in a word that may be [`OFFER`].
    Word(usize),
    /// In the value of Connection, in another word.
    OtherWord,
    /// In another line.
    OtherLine,
}

/// Takes offers out of what one client sends. Remembers the place, since a line may come in pieces.
#[derive(Debug, Default)]
pub(super) struct Upgrades(At);

impl Upgrades {
    /// Takes the offers out of the next bytes.
    pub(super) fn ignore(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if let At::OtherLine = self.0 {
                // Nearly all bytes are skipped here.
                let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else {
                    return;
                };
                at += end + 1;
                self.0 = At::LineStart;
                continue;
            }
            let (next, is_offer) = self.0.after(byte);
            if is_offer {
                bytes[at] = INSTEAD;
            }
            self.0 = next;
            at += 1;
        }
    }
}

impl At {
    /// Returns the place after this byte, and whether the byte ends an offer.
    fn after(self, byte: u8) -> (Self, bool) {
        if byte == b'\n' {
            let next = match self {
                // Whatever the chunk begins with, it is the sender's.
                Self::AfterSize => Self::OtherLine,
                _ => Self::LineStart,
            };
            return (next, false);
        }
        let is = |word: &[u8], at: usize| {
            word.get(at)
                .is_some_and(|letter| byte.eq_ignore_ascii_case(letter))
        };
        let is_last = |at: usize| at + 1 == OFFER.len();
        match self {
            Self::LineStart if is(OFFER, 0) => (Self::Offer(1), false),
            Self::LineStart if is(CONNECTION, 0) => (Self::Connection(1), false),
            Self::Offer(at) if is(OFFER, at) && is_last(at) => (Self::OtherLine, true),
            Self::Offer(at) if is(OFFER, at) => (Self::Offer(at + 1), false),
            Self::Connection(at) if is(CONNECTION, at) && at + 1 == CONNECTION.len() => {
                (Self::Word(0), false)
            }
            Self::Connection(at) if is(CONNECTION, at) => (Self::Connection(at + 1), false),
            // A "c" begins both a size and [`CONNECTION`].
            Self::LineStart | Self::Size | Self::Connection(1) if byte.is_ascii_hexdigit() => {
                (Self::Size, false)
            }
            Self::Size | Self::Connection(1) if matches!(byte, b'\r' | b';' | b' ' | b'\t') => {
                (Self::AfterSize, false)
            }
            Self::AfterSize => (Self::AfterSize, false),
            Self::LineStart | Self::Size | Self::Offer(_) | Self::Connection(_) | Self::OtherLine => {
                (Self::OtherLine, false)
            }
            Self::Word(_) | Self::OtherWord if matches!(byte, b',' | b' ' | b'\t') => (Self::Word(0), false),
            Self::Word(at) if is(OFFER, at) && is_last(at) => (Self::OtherWord, true),
            Self::Word(at) if is(OFFER, at) => (Self::Word(at + 1), false),
            Self::Word(_) | Self::OtherWord => (Self::OtherWord, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a request that comes in pieces of this length.
    fn without_offers(request: &str, length: usize) -> String {
        let mut upgrades = Upgrades::default();
        let mut bytes = request.as_bytes().to_vec();
        for piece in bytes.chunks_mut(length) {
            upgrades.ignore(piece);
        }
        String::from_utf8(bytes).expect("UTF-8")
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
             content-length: 40\r\n\r\n{\n  \"upgrade\": 1,\n  \"connection\": \"upgrade\"\r\n}";
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
