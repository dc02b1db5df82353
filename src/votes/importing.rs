//! Imports votes, chunk after chunk. Each chunk is stored and counted like a batch of votes.

use std::collections::HashSet;
use tokio::time::Instant;

use super::alone::{ChunkWriter, Stopped, alone, before_next_try};
use crate::domain::{Import, ImportedVote};
use crate::ledger::{ImportChunk, ImportOutcome, InsertError, LedgerError, OperatorLedger};
use crate::live::{LiveError, Redis};

/// The most votes of one chunk. Voters under the same rules wait for it.
pub const IMPORT_LIMIT_VOTES: usize = 4000;
/// Whether a line this near the end of a chunk can be stored may depend on lines after the chunk: a change or
/// a selection is several rows, side by side but for those of other voters.
const END_LIMIT_VOTES: usize = 64;

/// Why an import did not reach its end. What is done stays done, and the import can be resumed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("{0}")]
    Live(#[from] LiveError),
    #[error("{0}")]
    Chunk(#[from] InsertError),
    #[error("another program goes on with this import")]
    Elsewhere,
    #[error("the file cannot be read on: {0}")]
    File(#[source] anyhow::Error),
    #[error("stopped")]
    Stopped,
}

impl From<Stopped> for ImportError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// Where votes come from, and where it is said what became of their lines.
pub trait Source {
    /// The next votes of the file, up to this many, in the order of their lines, and whether the file has ended.
    /// There may be none before its end, where many lines are no votes.
    ///
    /// # Errors
    /// When the file cannot be read, or its items cannot be found.
    fn next(&mut self, limit: usize) -> impl Future<Output = anyhow::Result<(Vec<ImportedVote>, bool)>>;

    /// The last line that was read.
    fn last_line(&self) -> i64;

    /// A line is not stored, and why.
    fn refuse(&mut self, line: i64, why: &str);

    /// How many lines up to this one, and not done before, are refused or cannot be read.
    fn refused_up_to(&self, line: i64) -> i64;

    /// The import is done up to this line.
    fn done(&mut self, line: i64);
}

/// Imports what is left of a file. When `stop` resolves, the chunk under way is cut off: it is stored or not,
/// and recovery counts it. All of it is done in the run of Postgres that the ledger is of.
///
/// # Errors
/// When a store does not answer, the file cannot be read, or `stop` came first.
pub async fn run_import(
    ledger: &OperatorLedger,
    redis: &Redis,
    import: &Import,
    source: &mut impl Source,
    stop: impl Future<Output = ()>,
) -> Result<(), ImportError> {
    let (ledger, run) = &ledger.in_this_run().await?;
    alone(ledger, *run, redis, stop, async |writer| {
        chunks(ledger, writer, import, source).await?;
        ledger.end_import(import.id).await?;
        Ok(())
    })
    .await
}

/// Votes that are read and not stored yet.
struct Window {
    votes: Vec<ImportedVote>,
    /// The file has no more.
    is_last: bool,
}

impl Window {
    async fn fill(&mut self, source: &mut impl Source) -> Result<(), ImportError> {
        while !self.is_last && self.votes.len() < IMPORT_LIMIT_VOTES {
            let missing = IMPORT_LIMIT_VOTES - self.votes.len();
            let (more, is_last) = source.next(missing).await.map_err(ImportError::File)?;
            let is_none = more.is_empty();
            self.votes.extend(more);
            self.is_last = is_last;
            if is_none {
                break;
            }
        }
        Ok(())
    }

    /// Where the vote of this line is.
    fn place(&self, line: i64) -> usize {
        self.votes.partition_point(|vote| vote.line < line)
    }

    /// Takes out the votes of these lines, and says that they are refused.
    fn refuse(&mut self, lines: &[(i64, String)], source: &mut impl Source) {
        let refused: HashSet<i64> = lines.iter().map(|(line, _)| *line).collect();
        for (line, why) in lines {
            source.refuse(*line, why);
        }
        self.votes.retain(|vote| !refused.contains(&vote.line));
    }
}

async fn chunks(
    ledger: &OperatorLedger,
    writer: &mut ChunkWriter,
    import: &Import,
    source: &mut impl Source,
) -> Result<(), ImportError> {
    let mut window = Window {
        votes: Vec::new(),
        is_last: false,
    };
    let mut done = import.done_line;
    // How many votes of the window are tried without the next one, which was refused together with all of them.
    let mut before_bad: Option<(usize, (i64, String))> = None;
    loop {
        window.fill(source).await?;
        if window.is_last && window.votes.is_empty() && done >= source.last_line() {
            return Ok(());
        }
        let some = before_bad.as_ref().map_or(window.votes.len(), |(at, _)| *at);
        let up_to = match window.votes.get(some) {
            // What is between two votes is no vote.
            Some(next) => next.line - 1,
            None => source.last_line(),
        };
        let chunk = ImportChunk {
            import: import.id,
            after_line: done,
            up_to_line: up_to,
            refused: source.refused_up_to(up_to),
            votes: &window.votes[..some],
        };
        let bad = store(ledger, writer, &chunk).await?;
        if bad.is_empty() {
            source.done(up_to);
            done = up_to;
            window.votes.drain(..some);
            before_bad = None;
            continue;
        }
        // What comes before a line cannot be stored without it: it is refused, too.
        if let Some((_, first)) = before_bad.take() {
            window.refuse(&[first], source);
            continue;
        }
        let end = if window.is_last {
            window.votes.len()
        } else {
            window.votes.len().saturating_sub(END_LIMIT_VOTES)
        };
        let is_final = |line: i64| {
            let at = window.place(line);
            at < end || at == 0
        };
        let (refused, near_end): (Vec<_>, Vec<_>) = bad.into_iter().partition(|(line, _)| is_final(*line));
        if refused.is_empty() {
            let first = near_end.into_iter().next();
            before_bad = first.map(|first| (window.place(first.0), first));
        } else {
            window.refuse(&refused, source);
        }
    }
}

/// Stores and counts a chunk. Returns the lines that keep it from being stored, and why.
async fn store(
    ledger: &OperatorLedger,
    writer: &mut ChunkWriter,
    chunk: &ImportChunk<'_>,
) -> Result<Vec<(i64, String)>, ImportError> {
    let mut tries = 1;
    let mut may_be_stored = false;
    loop {
        let begun = Instant::now();
        let stored = writer.writer.import(chunk, writer.run).await;
        let to_count = match &stored {
            Ok(ImportOutcome::Stored { transaction, deltas }) => Some((*transaction, deltas.clone())),
            _ => None,
        };
        writer.end_chunk(begun, to_count).await;
        match stored {
            Ok(ImportOutcome::Stored { .. }) => return Ok(Vec::new()),
            Ok(ImportOutcome::Refused(lines)) => return Ok(lines),
            Err(error) if error.is_of_other_state() => {
                let import = ledger.import(chunk.import).await?;
                // Recovery counts it.
                if may_be_stored && import.done_line == chunk.up_to_line {
                    return Ok(Vec::new());
                }
                return Err(ImportError::Elsewhere);
            }
            Err(error) => {
                may_be_stored |= matches!(error, InsertError::Unknown(_));
                before_next_try::<ImportError>(&mut tries, error).await?;
            }
        }
    }
}
