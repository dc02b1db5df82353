//! The file of an archive: how it is written, and what it says.

use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;

use anyhow::{Context as _, bail, ensure};
use futures_util::StreamExt as _;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::domain::{Archive, ArchivedVotes, CheckedFile};
use crate::files::{self, LINE_LIMIT_BYTES};
use crate::ledger::{ArchiveLedger, Snapshot};

/// How much is written and read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// What the second line of a file begins with: the names of its first columns.
const COLUMNS: &[u8] = b"id,item_id,created_at,value,";

/// The first line of a file. It says nothing of when it was written: a file of the same votes has the same bytes.
pub fn head(archive: &Archive, tally: &str) -> String {
    let head = json!({
        "export": "votes",
        "tally": tally,
        "archive": archive.id.0,
        "until": archive.until_vote_id,
    });
    format!("# {head}\n")
}

/// What the first line of a file says.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Head {
    pub tally: String,
    pub archive: i64,
}

/// Where the file of an archive is.
pub struct Place {
    pub whole: PathBuf,
    part: PathBuf,
    /// Its checksum, for `sha256sum -c`.
    checksum: PathBuf,
    folder: PathBuf,
}

impl Place {
    pub fn of(archive: &Archive, folder: &Path) -> Self {
        let named = |end: &str| folder.join(format!("{}{end}", archive.file_name()));
        Self {
            whole: named(""),
            part: named(".part"),
            checksum: named(".sha256"),
            folder: folder.to_owned(),
        }
    }

    /// Writes the file from the ledger, unless there is one. Until it is whole its name ends in .part.
    pub async fn write(
        &self,
        ledger: &ArchiveLedger,
        archive: &Archive,
        head: &str,
        bar: &ProgressBar,
    ) -> anyhow::Result<()> {
        if self.whole.exists() {
            return Ok(());
        }
        let shown = self.part.display();
        let file = match files::create(&self.part) {
            // Whoever wrote it was interrupted, or is still at it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => files::reopen(&self.part),
            created => created,
        };
        let file = file.with_context(|| format!("cannot write {shown}"))?;
        if file.try_lock().is_err() {
            bail!("{shown} is being written by another tally archive; wait for it");
        }
        let written = async {
            file.set_len(0)?;
            let mut out = BufWriter::with_capacity(BUFFER_BYTES, &file);
            out.write_all(head.as_bytes())?;
            let mut snapshot = ledger.snapshot().await?;
            let mut rows = pin!(snapshot.archived_votes(archive).await?);
            while let Some(row) = rows.next().await {
                out.write_all(row?.as_ref())?;
                bar.inc(1);
            }
            out.flush()?;
            file.sync_all()?;
            anyhow::Ok(())
        };
        written
            .await
            .with_context(|| format!("{shown} is not complete"))?;
        std::fs::rename(&self.part, &self.whole)
            .and_then(|()| files::sync_folder(&self.folder))
            .with_context(|| format!("cannot write {}", self.whole.display()))
    }

    /// Writes the checksum beside the file.
    pub fn write_checksum(&self, archive: &Archive, hash: &[u8]) -> anyhow::Result<()> {
        let line = format!("{}  {}\n", hexadecimal(hash), archive.file_name());
        files::write_secret(&self.checksum, &line)
            .and_then(|()| files::sync_folder(&self.folder))
            .with_context(|| format!("cannot write {}", self.checksum.display()))
    }
}

/// SHA-256 as people and `sha256sum` write it.
pub fn hexadecimal(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a file in one pass. Returns its first line, and what is in it.
///
/// # Errors
/// When it cannot be read, or a line of it is no vote.
pub fn read(path: &Path) -> anyhow::Result<(String, CheckedFile)> {
    let shown = path.display();
    let mut input = BufReader::with_capacity(BUFFER_BYTES, files::open(path)?);
    let mut sha = Sha256::new();
    let (mut bytes, mut number) = (0, 0_u64);
    let mut votes = ArchivedVotes::default();
    let mut head = String::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_LIMIT_BYTES as u64;
        let read = (&mut input).take(limit).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {shown}"))? == 0 {
            break;
        }
        number += 1;
        sha.update(&line);
        bytes += i64::try_from(line.len())?;
        ensure!(line.ends_with(b"\n"), "{shown}: line {number} has no end");
        match number {
            1 => head = String::from_utf8_lossy(&line).into_owned(),
            2 => ensure!(
                line.starts_with(COLUMNS),
                "{shown}: line 2 does not name the columns of votes"
            ),
            _ => {
                let Some((id, value)) = vote(&line) else {
                    bail!("{shown}: line {number} is no vote");
                };
                ensure!(
                    votes.last.is_none_or(|last| last < id),
                    "{shown}: line {number} has the vote {id}, which comes before those above it"
                );
                votes.total += 1;
                votes.net += value;
                votes.first = votes.first.or(Some(id));
                votes.last = Some(id);
            }
        }
    }
    ensure!(
        number >= 2,
        "{shown} has no line that names its columns: it is not whole"
    );
    let hash = sha.finalize().to_vec();
    Ok((head, CheckedFile { hash, bytes, votes }))
}

/// Pure: the id and the value of a row. No field before them is quoted.
fn vote(line: &[u8]) -> Option<(i64, i64)> {
    let mut fields = std::str::from_utf8(line).ok()?.splitn(5, ',');
    let id = fields.next()?.parse().ok()?;
    let value = fields.nth(2)?.parse().ok()?;
    fields.next()?;
    Some((id, value))
}

/// Reads what the first line of a file says; `None`: it is no file of an archive.
pub fn read_head(head: &str) -> Option<Head> {
    serde_json::from_str(head.strip_prefix("# ")?).ok()
}

/// SHA-256 of the file that the ledger's votes would make.
pub async fn hash_of_ledger(
    snapshot: &mut Snapshot,
    archive: &Archive,
    head: &str,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<u8>> {
    let mut sha = Sha256::new();
    sha.update(head);
    let mut rows = pin!(snapshot.archived_votes(archive).await?);
    while let Some(row) = rows.next().await {
        sha.update(row?.as_ref());
        bar.inc(1);
    }
    Ok(sha.finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("archive-1.csv");
        std::fs::write(&path, content).expect("written");
        (folder, path)
    }

    const NAMES: &str = "id,item_id,created_at,value,change_number,voter_id,poll_id,number,voided_vote_id\n";

    #[test]
    fn a_file_says_how_many_votes_it_has_and_what_they_add_up_to() {
        let rows =
            "3,1,2030-01-01 00:00:00+00,1,0,\"a, \"\"b\"\"\",,,\n7,1,2030-01-01 00:00:00+00,-1,1,,,,\n";
        let content = format!("# {{\"tally\":\"x\",\"archive\":1}}\n{NAMES}{rows}");
        let (_folder, path) = file(&content);
        let (head, found) = read(&path).expect("a file");
        let expected = Head {
            tally: "x".to_owned(),
            archive: 1,
        };
        assert_eq!(read_head(&head), Some(expected));
        assert_eq!(
            found.votes,
            ArchivedVotes {
                total: 2,
                net: 0,
                first: Some(3),
                last: Some(7)
            }
        );
        assert_eq!(found.hash, Sha256::digest(&content).to_vec());
        assert_eq!(found.bytes, content.len() as i64);
        assert_eq!(hexadecimal(&[0, 171]), "00ab");
    }

    #[test]
    fn a_file_that_is_cut_off_or_is_of_something_else_says_where() {
        let head = "# {}\n";
        let row = "3,1,2030-01-01,1,0,,,,\n";
        for (content, words) in [
            (String::new(), "it is not whole"),
            (head.to_owned(), "it is not whole"),
            (format!("{head}id,name\n"), "does not name the columns of votes"),
            (format!("{head}{NAMES}3,1,2030-01-01,1,0,,,"), "line 3 has no end"),
            (
                format!("{head}{NAMES}{row}{row}"),
                "line 4 has the vote 3, which comes before",
            ),
            (format!("{head}{NAMES}3,1\n"), "line 3 is no vote"),
            (format!("{head}{NAMES}x,1,t,1,0\n"), "line 3 is no vote"),
        ] {
            let (_folder, path) = file(&content);
            let said = read(&path).expect_err("it is refused").to_string();
            assert!(said.contains(words), "{content}: {said}");
        }
        assert_eq!(read_head("id,item_id\n"), None);
    }
}
