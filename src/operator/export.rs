//! `tally export`: writes a table to a file or to standard output.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;

use anyhow::{Context, anyhow, bail};
use futures_util::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::data::Export;
use crate::domain::VoteId;
use crate::files::{self, LINE_LIMIT_BYTES};
use crate::ledger::{ExportFormat, ExportTable, Snapshot, SnapshotFacts};
use crate::telemetry;

/// How much is written at once.
const WRITE_BYTES: usize = 1 << 20;
/// The longest end of an interrupted file in which its last row is looked for: a row and the beginning of
/// the next one.
const TAIL_LIMIT_BYTES: u64 = 2 * LINE_LIMIT_BYTES as u64;

/// Runs `tally export`. Returns whether all was well.
///
/// # Errors
/// When Postgres is unavailable, or the file cannot be written. What is written of it stays.
pub async fn export(command: Export) -> anyhow::Result<bool> {
    let table = command.table;
    if table != ExportTable::Votes && (command.after.is_some() || command.resume) {
        bail!("--after and --resume are for votes: the rows of other tables change, so export them whole");
    }
    let part = command.out.as_deref().map(Part::of).transpose()?;
    let begun = match &part {
        Some(part) if command.resume => part.read(command.format)?,
        _ => None,
    };
    let mut snapshot = Snapshot::take(&command.database_url, "tally export").await?;
    let (after, until) = match &begun {
        Some(begun) => begun.rest_in(&snapshot.facts)?,
        None => (command.after.unwrap_or(VoteId::new(0)), snapshot.facts.until),
    };
    let mut out = match &part {
        Some(part) => {
            let file = part.open(begun.as_ref(), command.resume)?;
            Out::File(BufWriter::with_capacity(WRITE_BYTES, file))
        }
        None => Out::standard(),
    };
    let head = json!({
        "export": table,
        "tally": snapshot.facts.identity,
        "snapshot": snapshot.facts.snapshot,
        "taken_at": snapshot.facts.taken_at,
        "after": (table == ExportTable::Votes).then(|| after.get()),
        "until": (table == ExportTable::Votes).then(|| until.get()),
        // They are not among these: their files have them.
        "archived_votes": (table == ExportTable::Votes).then_some(snapshot.facts.archived_votes),
        "until_stored_at": snapshot.facts.until_stored_at.filter(|_| table == ExportTable::Votes),
    });
    let written = async {
        if begun.is_none() && !command.no_head {
            let mark = match command.format {
                ExportFormat::Csv => "# ",
                ExportFormat::Jsonl => "",
            };
            out.write(format!("{mark}{head}\n").as_bytes())?;
        }
        let has_names = begun.is_some() && command.format == ExportFormat::Csv;
        let rows = snapshot
            .rows(table, command.format, after, until)
            .await
            .map_err(|error| match table {
                ExportTable::Trail => {
                    anyhow!(error).context("the trail takes a login in the role tally_operator")
                }
                _ => anyhow!(error),
            })?;
        let mut rows = pin!(rows.skip(usize::from(has_names)));
        let bar = match out {
            // Rows and progress would mix.
            Out::Terminal => ProgressBar::hidden(),
            Out::File(_) | Out::Pipe(_) => progress(table),
        };
        while let Some(row) = rows.next().await {
            out.write(row?.as_ref())?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        out.end()
    };
    match written.await {
        Err(error) if is_gone(&error) && part.is_none() => Ok(true),
        Err(error) => Err(match &part {
            Some(part) if table == ExportTable::Votes => error.context(format!(
                "{} is not complete; to go on with it: --resume",
                part.path.display()
            )),
            _ => error,
        }),
        Ok(()) => match part {
            Some(part) => part.complete().map(|()| true),
            None => Ok(true),
        },
    }
}

/// Whether the reader of standard output has gone (`| head`).
fn is_gone(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn progress(table: ExportTable) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    let name = if table == ExportTable::Votes {
        "votes"
    } else {
        "rows"
    };
    if let Ok(style) = ProgressStyle::with_template(&format!("{{human_pos}} {name}, {{elapsed}}")) {
        bar.set_style(style);
    }
    bar
}

/// Where rows go.
enum Out {
    File(BufWriter<File>),
    Pipe(BufWriter<io::Stdout>),
    /// A name may have characters that move a cursor.
    Terminal,
}

impl Out {
    fn standard() -> Self {
        if io::stdout().is_terminal() {
            Self::Terminal
        } else {
            Self::Pipe(BufWriter::with_capacity(WRITE_BYTES, io::stdout()))
        }
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::File(out) => out.write_all(bytes)?,
            Self::Pipe(out) => out.write_all(bytes)?,
            Self::Terminal => telemetry::print(String::from_utf8_lossy(bytes)),
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Self::File(out) => {
                out.flush()?;
                out.get_ref().sync_all()?;
            }
            Self::Pipe(out) => out.flush()?,
            Self::Terminal => {}
        }
        Ok(())
    }
}

/// A file that is being written.
struct Part {
    path: PathBuf,
    whole: PathBuf,
}

/// What an interrupted export has written.
#[derive(Debug, PartialEq, Eq)]
struct Begun {
    tally: String,
    until: VoteId,
    archived_votes: i64,
    /// The last row that is whole.
    last: VoteId,
    /// Where that row ends.
    length: u64,
}

/// The first line of an export of votes.
#[derive(Deserialize)]
struct Head {
    export: String,
    tally: String,
    after: i64,
    until: i64,
    #[serde(default)]
    archived_votes: i64,
}

impl Begun {
    /// The votes that are missing.
    fn rest_in(&self, facts: &SnapshotFacts) -> anyhow::Result<(VoteId, VoteId)> {
        if self.tally != facts.identity {
            bail!(
                "the interrupted export is of another Tally, {}, and this is {}",
                self.tally,
                facts.identity
            );
        }
        if self.until > facts.until {
            bail!(
                "the interrupted export goes up to vote {}, and this Postgres has only those up to {} decided: it was \
                 restored, or it is a standby that lags",
                self.until,
                facts.until
            );
        }
        if self.archived_votes != facts.archived_votes {
            bail!(
                "votes were archived since the export was interrupted, so the rest may lack some; delete it, and begin \
                 anew"
            );
        }
        Ok((self.last, self.until))
    }
}

impl Part {
    fn of(whole: &Path) -> anyhow::Result<Self> {
        if whole.exists() {
            bail!("{} exists; name a new file, or delete this one", whole.display());
        }
        let mut path = whole.as_os_str().to_owned();
        path.push(".part");
        Ok(Self {
            path: path.into(),
            whole: whole.to_owned(),
        })
    }

    /// Reads what an interrupted export has left. `None`: it has no row yet, and begins anew.
    fn read(&self, format: ExportFormat) -> anyhow::Result<Option<Begun>> {
        let shown = self.path.display();
        let mut file = match files::reopen(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("there is no {shown}: nothing to continue; leave --resume out")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
        };
        let mut first = Vec::new();
        BufReader::new((&mut file).take(LINE_LIMIT_BYTES as u64)).read_until(b'\n', &mut first)?;
        if first.last() != Some(&b'\n') {
            return Ok(None);
        }
        let head = first.strip_prefix(b"# ").unwrap_or(&first);
        let head: Option<Head> = serde_json::from_slice(head).ok();
        let Some(head) = head.filter(|head| head.export == "votes") else {
            bail!("{shown} does not begin as an export of votes does; delete it, and begin anew");
        };
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_LIMIT_BYTES)))?;
        let mut tail = Vec::new();
        file.take(TAIL_LIMIT_BYTES).read_to_end(&mut tail)?;
        let Some((last, cut)) = last_row(&tail, format) else {
            return Ok(None);
        };
        if last < head.after || last > head.until {
            bail!("{shown} ends with vote {last}, which is not of this export; delete it, and begin anew");
        }
        Ok(Some(Begun {
            tally: head.tally,
            until: VoteId::new(head.until),
            archived_votes: head.archived_votes,
            last: VoteId::new(last),
            length: length - cut as u64,
        }))
    }

    fn open(&self, begun: Option<&Begun>, is_resumed: bool) -> anyhow::Result<File> {
        let shown = self.path.display();
        let opened = match begun {
            // Who voted is nobody else's business: only this user may read the file.
            None if !is_resumed => match files::create(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    bail!(
                        "{shown} exists: an export was interrupted; continue it with --resume, or delete it"
                    );
                }
                created => created,
            },
            // It was read. Without a row, it begins anew.
            begun => files::reopen(&self.path).and_then(|mut file| {
                file.set_len(begun.map_or(0, |begun| begun.length))?;
                file.seek(SeekFrom::End(0))?;
                Ok(file)
            }),
        };
        opened.with_context(|| format!("cannot write {shown}"))
    }

    /// Gives the file its name.
    fn complete(self) -> anyhow::Result<()> {
        if self.whole.exists() {
            bail!(
                "{} exists by now; the export is in {}",
                self.whole.display(),
                self.path.display()
            );
        }
        std::fs::rename(&self.path, &self.whole)
            .with_context(|| format!("cannot write {}", self.whole.display()))
    }
}

/// Pure: the id in the last whole row of the end of a file, and how many bytes come after that row. Voters'
/// ids have no line ends. `None`: there is no row.
fn last_row(tail: &[u8], format: ExportFormat) -> Option<(i64, usize)> {
    let end = tail.iter().rposition(|byte| *byte == b'\n')?;
    let row = tail[..end].rsplit(|byte| *byte == b'\n').next()?;
    let id = match format {
        ExportFormat::Csv => std::str::from_utf8(row.split(|byte| *byte == b',').next()?)
            .ok()?
            .parse()
            .ok()?,
        ExportFormat::Jsonl => serde_json::from_slice::<Value>(row).ok()?.get("id")?.as_i64()?,
    };
    Some((id, tail.len() - end - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_goes_on_after_its_last_whole_row() {
        let csv = b"id,item_id\n1,5\n22,6\n33,";
        assert_eq!(last_row(csv, ExportFormat::Csv), Some((22, 3)));
        assert_eq!(last_row(b"id,item_id\n1,5\n", ExportFormat::Csv), Some((1, 0)));
        // Only the names of the columns are there, or not even these.
        assert_eq!(last_row(b"# {}\nid,item_id\n1", ExportFormat::Csv), None);
        assert_eq!(last_row(b"# {}\nid,it", ExportFormat::Csv), None);
        assert_eq!(last_row(b"# {", ExportFormat::Csv), None);
        let json = b"{\"export\":\"votes\"}\n{\"id\":7,\"item_id\":1}\n{\"id\":8";
        assert_eq!(last_row(json, ExportFormat::Jsonl), Some((7, 7)));
        assert_eq!(
            last_row(b"{\"export\":\"votes\"}\n{\"id\":8", ExportFormat::Jsonl),
            None
        );
    }
}
