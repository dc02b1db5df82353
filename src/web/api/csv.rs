//! Answers in CSV (RFC 4180): a header line, then a line for each entry.
//!
//! CSV is for spreadsheets; programs have JSON. So it begins with a byte-order mark, without which Excel reads
//! UTF-8 as another encoding, and no text in it is a formula (OWASP, CSV injection).

use std::fmt::Display;

use crate::web::problem::Problem;

/// The byte-order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// What makes a spreadsheet take a cell for a formula. The wide forms do so in East Asian editions of Excel.
const BEGINS_FORMULA: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// Writes a number or a boolean. `None` is an empty field.
pub fn field(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Writes a text that someone has chosen. A spreadsheet shows it, and never runs it: the `'` before it says
/// that it is a text.
pub fn text(text: &str) -> String {
    if text.starts_with(BEGINS_FORMULA) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

/// Writes these lines under these column names. Writing into memory never fails.
pub fn write<const N: usize>(
    columns: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Result<Vec<u8>, Problem> {
    let mut writer = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .from_writer(BYTE_ORDER_MARK.to_vec());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_a_spreadsheet_would_run_is_marked_as_a_text() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        for plain in ["", "a=1", "'=1", " =1", "é"] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(field(Some(-1)), "-1", "a number stays a number");
    }
}
