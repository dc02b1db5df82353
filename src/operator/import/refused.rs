//! Lines of a file that are refused: what is shown of them, and the list of all.

use std::fs::File;
use std::io::Write as _;

use indicatif::ProgressBar;

use crate::telemetry;

/// The most refused lines that are shown on standard error.
const SHOWN_LIMIT_LINES: usize = 20;

/// What a command says of lines that are refused.
pub struct RefusedLines {
    file: Option<csv::Writer<File>>,
    shown: usize,
    bar: ProgressBar,
}

impl RefusedLines {
    pub fn new(file: Option<csv::Writer<File>>, bar: ProgressBar) -> Self {
        Self { file, shown: 0, bar }
    }

    /// Shows a line's number and why it is refused, and adds both to the file, with the line itself.
    pub fn add(&mut self, line: i64, why: &str, text: &str) {
        if self.shown < SHOWN_LIMIT_LINES {
            self.bar
                .suspend(|| telemetry::complain(format_args!("line {line}: {why}")));
        }
        self.shown += 1;
        if let Some(file) = &mut self.file {
            // Before it counts as refused: this program may be killed. A full disk shows at the end.
            let _ = file.write_record([line.to_string().as_str(), why, text]);
            let _ = file.flush();
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(&mut self) -> std::io::Result<()> {
        match &mut self.file {
            Some(file) => {
                file.flush()?;
                file.get_ref().flush()
            }
            None => Ok(()),
        }
    }
}
