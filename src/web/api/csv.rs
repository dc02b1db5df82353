//! Answers in CSV (RFC 4180): a line of names, then a line for each.

use std::fmt::Display;

use crate::web::problem::Problem;

/// A field that may be empty.
pub fn field(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// These lines under these names.
///
/// # Errors
/// When they cannot be written: never, into memory.
pub fn write<const N: usize>(
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Result<Vec<u8>, Problem> {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(Vec::new());
    let written = writer
        .write_record(columns)
        .and_then(|()| rows.into_iter().try_for_each(|row| writer.write_record(row)));
    let failed = |error: String| {
        tracing::error!(error, "an answer could not be written");
        Problem::internal()
    };
    written.map_err(|error| failed(error.to_string()))?;
    writer.into_inner().map_err(|error| failed(error.to_string()))
}
