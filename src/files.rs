//! Files that settings and commands name. Each is read whole or refused in one clear line.
//!
//! Whatever else may stand in a file's place, nobody waits for it, and nobody reads it without an end: a FIFO,
//! a device, a folder, a disk full of one line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// The longest line of a file of items or votes.
pub const LINE_LIMIT_BYTES: usize = 64 * 1024;
/// The largest file of a secret: many keys, each of 64 digits.
pub const SECRET_LIMIT_BYTES: u64 = 64 * 1024;
/// The mark that some editors put at the beginning of UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("cannot read {}: it is {what}, not a file", path.display())]
    NoFile { path: PathBuf, what: &'static str },
    #[error("cannot read {}: it is larger than {limit_bytes} bytes", path.display())]
    TooLarge { path: PathBuf, limit_bytes: u64 },
    #[error("cannot read {}: it is in UTF-16, or no text; save it in UTF-8", path.display())]
    Utf16 { path: PathBuf },
    #[error("cannot read {}: it is compressed; unpack it first", path.display())]
    Compressed { path: PathBuf },
    #[error("cannot read {}: line {number} has more than {LINE_LIMIT_BYTES} bytes", path.display())]
    LongLine { path: PathBuf, number: usize },
    #[error("cannot read {}: it has more than {limit_lines} lines; split it", path.display())]
    TooManyLines { path: PathBuf, limit_lines: usize },
}

/// What stands in a file's place; `None`: a file.
fn other_than_file(kind: std::fs::FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a FIFO")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// Whether a text begins as UTF-16 does: with its byte-order mark, or with a letter of ASCII in two bytes.
fn is_utf16(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 1..=255, ..] | [1..=255, 0, ..]
    )
}

/// Reads a small file of text whole, without a byte-order mark.
///
/// # Errors
/// When it is no regular file, is larger than this, is in UTF-16, or cannot be read.
pub fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, FileError> {
    let file = open(path)?;
    let path = || path.to_owned();
    let unreadable = |cause| FileError::Unreadable { path: path(), cause };
    let mut bytes = Vec::new();
    file.take(limit_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(FileError::TooLarge {
            path: path(),
            limit_bytes,
        });
    }
    if is_utf16(&bytes) {
        return Err(FileError::Utf16 { path: path() });
    }
    if bytes.starts_with(BYTE_ORDER_MARK.as_bytes()) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Reads a file that holds a secret alone, without the line end that editors and `echo` add.
///
/// # Errors
/// As [`read`], and when it is empty or not in UTF-8: one line.
pub fn secret(path: &Path) -> Result<String, String> {
    let bytes = read(path, SECRET_LIMIT_BYTES).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not in UTF-8", path.display()))?;
    let value = text.trim_end_matches(['\n', '\r']);
    if value.is_empty() {
        return Err(format!("{} is empty; it takes the secret alone", path.display()));
    }
    Ok(value.to_owned())
}

/// Writes a new file that only this user can read, in place of the one that is there.
///
/// # Errors
/// When the old file cannot be removed, or the new one written.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    made.write_all(text.as_bytes())
}

/// Creates a new file that only this user can read.
///
/// # Errors
/// When there is one already, or it cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file to write on behind its end. Creates it, only for this user, if there is none.
///
/// # Errors
/// When it cannot be opened.
pub fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Opens a file to read it, and to write on where it ends.
///
/// # Errors
/// When there is none, or it cannot be opened.
pub fn reopen(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Opens a regular file to read it.
///
/// # Errors
/// When it is no regular file, or cannot be read.
pub fn open(path: &Path) -> Result<File, FileError> {
    let unreadable = |cause| FileError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    // Otherwise a FIFO would wait here for its writer.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)
        .map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    match other_than_file(kind) {
        None => Ok(file),
        Some(what) => Err(FileError::NoFile {
            path: path.to_owned(),
            what,
        }),
    }
}

/// Makes sure that what was created, renamed or removed in a folder stays so if the machine loses its power.
///
/// # Errors
/// When the folder cannot be opened, or its disk fails.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// How a file in gzip begins (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// How much of a file is read at once to hash it.
const HASH_READ_BYTES: usize = 1 << 20;

/// A file's SHA-256, begun with `how`, and how many lines it has. Reads all of it.
///
/// # Errors
/// When it is no regular file, or cannot be read.
pub fn hash(path: &Path, how: &str) -> Result<(Vec<u8>, u64), FileError> {
    let unreadable = |cause| FileError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let mut file = open(path)?;
    let mut sha = Sha256::new();
    sha.update(how.as_bytes());
    let (mut buffer, mut lines) = (vec![0; HASH_READ_BYTES], 0);
    loop {
        let read = file.read(&mut buffer).map_err(unreadable)?;
        if read == 0 {
            return Ok((sha.finalize().to_vec(), lines));
        }
        if lines == 0 && buffer.starts_with(&GZIP) {
            return Err(FileError::Compressed {
                path: path.to_owned(),
            });
        }
        sha.update(&buffer[..read]);
        lines += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
    }
}

/// A line that cannot be used, in words.
pub const NOT_UTF8: &str = "it is not UTF-8";

/// A line with its number, counted from 1. The line is [`NOT_UTF8`] if it is no UTF-8.
pub type Line<T> = (usize, Result<T, &'static str>);

/// The lines of a file, one after the other, in bounded memory.
pub struct Lines<R> {
    path: PathBuf,
    input: R,
    limit_lines: usize,
    number: usize,
    line: Vec<u8>,
}

/// Opens a file of lines, up to this many; `-` is standard input. A pipe is one too, since a shell makes one of
/// `<(…)`.
///
/// # Errors
/// When it is a folder, or cannot be opened.
pub fn lines(path: &Path, limit_lines: usize) -> Result<Lines<Box<dyn BufRead>>, FileError> {
    if path.as_os_str() == "-" {
        return Ok(Lines::new(path, Box::new(io::stdin().lock()), limit_lines));
    }
    let unreadable = |cause| FileError::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let file = File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    match other_than_file(kind) {
        Some(what) if !kind.is_fifo() && !kind.is_char_device() => Err(FileError::NoFile {
            path: path.to_owned(),
            what,
        }),
        _ => Ok(Lines::new(path, Box::new(BufReader::new(file)), limit_lines)),
    }
}

impl<R: BufRead> Lines<R> {
    /// The lines of this input, up to this many. Errors call it by this path.
    pub fn new(path: &Path, input: R, limit_lines: usize) -> Self {
        Self {
            path: path.to_owned(),
            input,
            limit_lines,
            number: 0,
            line: Vec::new(),
        }
    }

    /// The line that was read last, with its characters that are not UTF-8 replaced.
    pub fn text(&self) -> String {
        let line = String::from_utf8_lossy(&self.line);
        line.trim_end_matches(['\n', '\r']).to_owned()
    }

    /// The next line, without its end and without a byte-order mark. `None`: there are no more.
    ///
    /// # Errors
    /// When the input cannot be read, is in UTF-16, or is too long.
    #[allow(clippy::should_implement_trait, reason = "a line is borrowed")]
    pub fn next(&mut self) -> Result<Option<Line<&str>>, FileError> {
        let path = || self.path.clone();
        self.line.clear();
        let limit = LINE_LIMIT_BYTES as u64 + 1;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.line);
        if read.map_err(|cause| FileError::Unreadable { path: path(), cause })? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let number = self.number;
        if number == 1 && is_utf16(&self.line) {
            return Err(FileError::Utf16 { path: path() });
        }
        if self.line.len() > LINE_LIMIT_BYTES {
            return Err(FileError::LongLine { path: path(), number });
        }
        if number > self.limit_lines {
            return Err(FileError::TooManyLines {
                path: path(),
                limit_lines: self.limit_lines,
            });
        }
        let line = std::str::from_utf8(&self.line).map_err(|_| NOT_UTF8).map(|line| {
            let line = line.strip_suffix('\n').unwrap_or(line);
            let line = line.strip_suffix('\r').unwrap_or(line);
            // Also in the middle of files that were put together.
            line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
        });
        Ok(Some((number, line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of the test, and a file in it with this content.
    fn file(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, content).expect("written");
        (folder, path)
    }

    fn refusal(path: &Path) -> String {
        read(path, 100).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_no_small_file_of_text_is_refused_in_one_line_at_once() {
        let (folder, path) = file(&[b'x'; 101]);
        assert!(refusal(&path).ends_with("larger than 100 bytes"));
        assert!(refusal(folder.path()).ends_with("it is a folder, not a file"));
        assert!(refusal(Path::new("/dev/zero")).ends_with("it is a device, not a file"));
        assert!(refusal(&folder.path().join("none")).contains("No such file"));
        // Nobody writes to it.
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.expect("mkfifo runs").success());
        assert!(refusal(&fifo).ends_with("it is a FIFO, not a file"));
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(refusal(&socket).contains("socket"));
        for utf16 in [&b"\xff\xfe{\0}\0"[..], b"\xfe\xff\0{\0}", b"{\0}\0", b"\0{\0}"] {
            let (_folder, path) = file(utf16);
            assert!(refusal(&path).ends_with("it is in UTF-16, or no text; save it in UTF-8"));
        }
    }

    #[test]
    fn a_file_is_read_whole_without_a_byte_order_mark_also_through_a_link() {
        let (folder, path) = file(b"\xef\xbb\xbftext\r\n");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert_eq!(read(&link, 100).expect("read"), b"text\r\n");
        let (_folder, full) = file(&[b'x'; 100]);
        assert_eq!(read(&full, 100).expect("read").len(), 100);
        let (_folder, empty) = file(b"");
        assert_eq!(read(&empty, 100).expect("read"), b"");
    }

    #[test]
    fn a_hash_is_of_the_bytes_and_of_how_they_are_read() {
        let (_folder, path) = file(b"a\nb");
        let of = |how: &str| hash(&path, how).expect("a file");
        assert_eq!(of("x"), (Sha256::digest(b"xa\nb").to_vec(), 1));
        assert_ne!(of("x"), of("y"));
        assert!(
            hash(Path::new("/"), "")
                .expect_err("a folder")
                .to_string()
                .ends_with("it is a folder, not a file")
        );
    }

    fn lines_of(bytes: &[u8]) -> Result<Vec<String>, FileError> {
        let mut lines = Lines::new(Path::new("votes"), bytes, 4);
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next()? {
            all.push(format!("{number} {}", line.unwrap_or_else(|why| why)));
        }
        Ok(all)
    }

    #[test]
    fn lines_come_without_their_ends_and_without_byte_order_marks() {
        let expected = ["1 a", "2 b ", "3 ", "4 c"];
        for text in [
            "a\nb \n\nc\n",
            "a\nb \n\nc",
            "a\r\nb \r\n\r\nc\r\n",
            "\u{feff}a\r\nb \n\u{feff}\n\u{feff}c",
        ] {
            assert_eq!(lines_of(text.as_bytes()).expect("lines"), expected, "{text:?}");
        }
        assert_eq!(lines_of(b"a\n\xff\nb").expect("lines")[1], "2 it is not UTF-8");
        assert_eq!(lines_of(b"").expect("lines"), [""; 0]);
    }

    #[test]
    fn what_has_no_end_or_is_no_utf_8_is_refused_in_one_line() {
        let refusal = |bytes: &[u8]| lines_of(bytes).expect_err("it is refused").to_string();
        for (bytes, words) in [
            (&b"a\n\n\n\n\n"[..], "more than 4 lines"),
            (b"\xff\xfea\0\n\0", "in UTF-16"),
            (b"a\0\n\0", "in UTF-16"),
        ] {
            let said = refusal(bytes);
            assert!(said.contains("votes") && said.contains(words), "{said}");
        }
        let longest = vec![b'x'; LINE_LIMIT_BYTES];
        assert_eq!(lines_of(&longest).expect("a line").len(), 1);
        let said = refusal(&[&b"a\n"[..], &longest, b"x"].concat());
        assert!(said.contains("line 2 has more than"), "{said}");
        // Zeros without an end are one line.
        let mut zeros = Lines::new(Path::new("zeros"), BufReader::new(io::repeat(0)), 4);
        assert!(matches!(zeros.next(), Err(FileError::LongLine { number: 1, .. })));
        assert!(matches!(
            lines(Path::new("/"), 4).err(),
            Some(FileError::NoFile { what: "a folder", .. })
        ));
    }
}
