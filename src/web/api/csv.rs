//! Answers in CSV (RFC 4180): a header line, then a line for each entry.

use std::fmt::Display;

use crate::web::problem::Problem;

/// Writes a field. `None` is an empty field.
pub fn field(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Writes these lines under these column names. Writing into memory never fails.
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
