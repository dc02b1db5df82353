//! A request's head: where it ends, and what it says of the body. Offers to speak another protocol are ignored.
//!
//! Java's standard client offers HTTP/2 with its requests (`Upgrade: h2c`, RFC 9110, 7.8), and a proxy may pass
//! on what a browser offers. actix-http answers such a request with `connection: upgrade` and closes, and it
//! reads the body of one that offers WebSocket to the end of the connection. So it must not see an offer: this
//! module changes the last letter of the header's name, and of the word `upgrade` in the header Connection. The
//! answer is in HTTP/1.1 as before.

const OFFER: &[u8] = b"upgrade";
/// What stands in place of the last letter of an offer.
const INSTEAD: u8 = b'-';
const CHUNKED: &[u8] = b"chunked";

/// The headers that matter here.
#[derive(Clone, Copy, Debug)]
enum Name {
    Offer,
    Connection,
    Length,
    Coding,
}

/// Where in a head's lines a connection is.
#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    LineStart,
    /// Behind a return at the beginning of a line.
    Return,
    /// In a line that may begin with this name: so many letters are the same.
    Name(Name, usize),
    /// In the value of Connection, in a word that may be [`OFFER`].
    Word(usize),
    /// In the value of Connection, in another word.
    OtherWord,
    /// In the value of Content-Length.
    Length(Option<u64>),
    /// Behind the digits of Content-Length.
    BehindLength(u64),
    /// In the value of Transfer-Encoding, which may be [`CHUNKED`].
    Coding(usize),
    /// In another line.
    OtherLine,
}

/// How far the body behind a head goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Length(u64),
    Chunks,
    /// The head says two things, or what is no number and no coding of actix-http.
    Unclear,
}

/// A request's head, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Head {
    at: At,
    has_begun: bool,
    extent: Option<Extent>,
}

impl Name {
    fn text(self) -> &'static [u8] {
        match self {
            // Headers such as Upgrade-Insecure-Requests change too. Tally reads none of them.
            Self::Offer => OFFER,
            Self::Connection => b"connection:",
            Self::Length => b"content-length:",
            Self::Coding => b"transfer-encoding:",
        }
    }

    /// Returns the place behind this name.
    fn value(self) -> At {
        match self {
            Self::Offer => At::OtherLine,
            Self::Connection => At::Word(0),
            Self::Length => At::Length(None),
            Self::Coding => At::Coding(0),
        }
    }
}

impl Head {
    /// Returns whether more than empty lines has come. actix-http skips empty lines before a request.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes the bytes of the head from the front, and the offers out of them. At the end of the head, returns
    /// how far the body goes.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> (usize, Option<Extent>) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if let At::OtherLine = self.at {
                // Nearly all bytes are skipped here.
                let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else {
                    return (bytes.len(), None);
                };
                at += end + 1;
                self.at = At::LineStart;
                continue;
            }
            if let (At::LineStart, true) = (self.at, self.has_begun)
                && let Some(skipped) = self.skip(&bytes[at..])
            {
                at += skipped;
                continue;
            }
            if byte == b'\n' {
                at += 1;
                if self.end_line() {
                    return (at, Some(self.extent.unwrap_or(Extent::Length(0))));
                }
                continue;
            }
            let (next, is_offer) = self.after(byte);
            if is_offer {
                bytes[at] = INSTEAD;
            }
            self.at = next;
            at += 1;
        }
        (at, None)
    }

    /// Skips a name, or a line with another name, where its letters need not be looked at one by one. Returns how
    /// much was skipped.
    fn skip(&mut self, bytes: &[u8]) -> Option<usize> {
        let names: &[Name] = match bytes.first()? {
            b'c' | b'C' => &[Name::Length, Name::Connection],
            b't' | b'T' => &[Name::Coding],
            b'u' | b'U' | b'\r' | b'\n' => return None,
            _ => &[],
        };
        for name in names {
            let text = name.text();
            // Perhaps the rest of the name is still to come.
            if bytes.get(..text.len())?.eq_ignore_ascii_case(text) {
                self.at = name.value();
                return Some(text.len());
            }
        }
        self.at = At::OtherLine;
        Some(0)
    }

    /// Ends a line. Returns whether it ends the head.
    fn end_line(&mut self) -> bool {
        let extent = match std::mem::take(&mut self.at) {
            At::LineStart | At::Return => return self.has_begun,
            At::Length(Some(length)) | At::BehindLength(length) => Extent::Length(length),
            At::Coding(at) if at == CHUNKED.len() => Extent::Chunks,
            At::Length(None) | At::Coding(_) => Extent::Unclear,
            _ => return false,
        };
        self.say(extent);
        false
    }

    /// Notes how far the body goes. What is said twice is unclear.
    fn say(&mut self, extent: Extent) {
        self.extent = Some(match self.extent {
            None => extent,
            Some(_) => Extent::Unclear,
        });
    }

    /// Returns the place after this byte of a line, and whether the byte ends an offer.
    fn after(&mut self, byte: u8) -> (At, bool) {
        let next = match (self.at, byte) {
            (At::LineStart, b'\r') => At::Return,
            (At::LineStart | At::Return, _) if !self.has_begun => {
                self.has_begun = true;
                At::OtherLine
            }
            (At::LineStart, b'u' | b'U') => At::Name(Name::Offer, 1),
            (At::LineStart, b'c' | b'C') => At::Name(Name::Connection, 1),
            (At::LineStart, b't' | b'T') => At::Name(Name::Coding, 1),
            // The letter in which two names differ.
            (At::Name(Name::Connection, 3), b't' | b'T') => At::Name(Name::Length, 4),
            (At::Name(name, at), _) => match name.text().get(at) {
                Some(letter) if !byte.eq_ignore_ascii_case(letter) => At::OtherLine,
                _ if at + 1 < name.text().len() => At::Name(name, at + 1),
                _ => return (name.value(), matches!(name, Name::Offer)),
            },
            (At::Word(_) | At::OtherWord, b',' | b' ' | b'\t') => At::Word(0),
            (At::Word(at), _) => match OFFER.get(at) {
                Some(letter) if !byte.eq_ignore_ascii_case(letter) => At::OtherWord,
                _ if at + 1 < OFFER.len() => At::Word(at + 1),
                _ => return (At::OtherWord, true),
            },
            (At::OtherWord, _) => At::OtherWord,
            (At::Length(None), b' ' | b'\t') => At::Length(None),
            (At::Length(Some(length)) | At::BehindLength(length), b' ' | b'\t' | b'\r') => {
                At::BehindLength(length)
            }
            (At::Length(length), b'0'..=b'9') => {
                let length = length.unwrap_or(0).checked_mul(10);
                match length.and_then(|length| length.checked_add(u64::from(byte - b'0'))) {
                    Some(length) => At::Length(Some(length)),
                    None => self.unclear(),
                }
            }
            (At::Coding(at), b' ' | b'\t' | b'\r') if at == 0 || at == CHUNKED.len() => At::Coding(at),
            (At::Coding(at), _) => match CHUNKED.get(at) {
                Some(letter) if byte.eq_ignore_ascii_case(letter) => At::Coding(at + 1),
                _ => self.unclear(),
            },
            (At::Length(_) | At::BehindLength(_), _) => self.unclear(),
            (At::LineStart | At::Return | At::OtherLine, _) => At::OtherLine,
        };
        (next, false)
    }

    /// Notes a value that cannot be read. Returns the place of the rest of its line.
    fn unclear(&mut self) -> At {
        self.say(Extent::Unclear);
        self.say(Extent::Unclear);
        At::OtherLine
    }
}
