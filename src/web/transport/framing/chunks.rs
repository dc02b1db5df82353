//! Where a body in chunks ends (RFC 9112, 7.1), as actix-http reads it.

/// Where in a body in chunks a connection is.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// The size of the chunk; within its data, how much of it is still to come.
    left: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    SizeStart,
    Size,
    BehindSize,
    Extension,
    /// Behind the return of a size's line.
    SizeEnd,
    Data,
    BehindData,
    /// Behind the return that follows data.
    DataEnd,
    /// Behind the last chunk, where a trailer or the end may begin.
    TrailerStart,
    Trailer,
    /// Behind the return of a trailer.
    TrailerEnd,
    /// Behind the return of the last, empty line.
    End,
}

/// How far a body has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Within,
    End,
    /// It is no body in chunks.
    Wrong,
}

impl Chunks {
    /// Takes the bytes of the body from the front. A wrong byte belongs to it, so that actix-http sees it.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (usize, Progress) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if let At::Data = self.at {
                let rest = bytes.len() - at;
                let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest);
                at += count;
                self.left -= count as u64;
                if self.left == 0 {
                    self.at = At::BehindData;
                }
                continue;
            }
            at += 1;
            match self.after(byte) {
                _ if matches!((self.at, byte), (At::End, b'\n')) => return (at, Progress::End),
                Some(next) => self.at = next,
                None => return (at, Progress::Wrong),
            }
        }
        (at, Progress::Within)
    }

    /// Returns the place after this byte. `None`: the byte is wrong.
    fn after(&mut self, byte: u8) -> Option<At> {
        match (self.at, byte) {
            (At::SizeStart, _) => {
                self.left = digit(byte)?;
                Some(At::Size)
            }
            (At::Size | At::BehindSize, b' ' | b'\t') => Some(At::BehindSize),
            (At::Size | At::BehindSize, b';') => Some(At::Extension),
            (At::Size | At::BehindSize | At::Extension, b'\r') => Some(At::SizeEnd),
            (At::Size, _) => {
                self.left = self.left.checked_mul(16)? + digit(byte)?;
                Some(At::Size)
            }
            (At::Extension, 0..=8 | 10..=31 | 127) => None,
            (At::Extension, _) => Some(At::Extension),
            (At::SizeEnd, b'\n') if self.left == 0 => Some(At::TrailerStart),
            (At::SizeEnd, b'\n') => Some(At::Data),
            (At::BehindData, b'\r') => Some(At::DataEnd),
            (At::DataEnd, b'\n') => Some(At::SizeStart),
            (At::TrailerStart, b'\r') => Some(At::End),
            (At::Trailer, b'\r') => Some(At::TrailerEnd),
            (At::TrailerStart | At::Trailer, _) => Some(At::Trailer),
            (At::TrailerEnd, b'\n') => Some(At::TrailerStart),
            _ => None,
        }
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}
