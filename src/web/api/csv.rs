//! Answers in CSV (RFC 4180): a header line, then a line for each entry.
//!
//! CSV is for spreadsheets; programs have JSON. So it begins with a byte-order mark, without which Excel reads
//! UTF-8 as another encoding, and no text in it is a formula (OWASP, CSV injection). That also holds for a
//! spreadsheet that splits lines at `;`, as Excel does in countries with a decimal comma, or at tabs.

use std::fmt::Display;

use crate::web::problem::Problem;

/// The byte-order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// What makes a spreadsheet take a cell for a formula. The wide forms do so in East Asian editions of Excel.
const BEGINS_FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
/// What some spreadsheet splits a line at, even within quotes that do not begin the cell.
const SEPARATES: [char; 4] = [';', '\t', '\r', '\n'];
/// What a spreadsheet may drop before a cell's text.
const BEFORE_FORMULA: [char; 2] = ['"', ' '];

/// Writes a number or a boolean. `None` is an empty field.
pub fn field(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Writes a text that someone has chosen. A spreadsheet shows it, and never runs it: the `'` before it says
/// that it is a text. A spreadsheet that takes `;` for the separator does not see that a text stands in quotes
/// unless the cell begins with them. So what follows a separator, and quotes or blanks behind it, is marked too.
pub fn text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 1);
    // Whether a cell may begin here.
    let mut begins = true;
    for (at, char) in text.char_indices() {
        // A tab or a line break before all else may be dropped, and what is behind it run.
        let is_dropped = at == 0 && char.is_control() && SEPARATES.contains(&char);
        if is_dropped || begins && BEGINS_FORMULA.contains(&char) {
            safe.push('\'');
            begins = false;
        }
        // Blanks and quotes at the beginning of the text itself keep it from being a formula.
        let goes_on = begins && at > 0 && BEFORE_FORMULA.contains(&char);
        begins = SEPARATES.contains(&char) || goes_on;
        safe.push(char);
    }
    safe
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
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "＝1"] {
            assert_eq!(text(formula), format!("'{formula}"));
        }
        for plain in [
            "", "a=1", "'=1", " =1", "é", "a; b", "a;b=1", ";", "a, -1", "a,=1", "a\tb", "x\ny", "\"=1\"",
        ] {
            assert_eq!(text(plain), plain);
        }
        assert_eq!(field(Some(-1)), "-1", "a number stays a number");
    }

    #[test]
    fn a_text_is_no_formula_in_a_spreadsheet_with_another_separator_either() {
        for (formula, written) in [
            ("a;=1+1", "a;'=1+1"),
            (";=1+1", ";'=1+1"),
            ("a;\"=1+1\"", "a;\"'=1+1\""),
            ("a; =1", "a; '=1"),
            ("a;;@x;+1", "a;;'@x;'+1"),
            ("a\t=1", "a\t'=1"),
            ("a\n=1", "a\n'=1"),
            ("a\r\n-1", "a\r\n'-1"),
            ("=1;=2", "'=1;'=2"),
            ("\t;=1", "'\t;'=1"),
        ] {
            assert_eq!(text(formula), written);
        }
    }

    /// The cells of a line as a spreadsheet splits it that knows only this separator. Quotes keep a separator only
    /// where they begin the cell.
    fn cells(line: &str, separator: char) -> Vec<String> {
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        for char in line.chars() {
            match char {
                '"' if cell.is_empty() && !quoted => quoted = true,
                '"' if quoted => quoted = false,
                char if char == separator && !quoted => cells.push(std::mem::take(&mut cell)),
                char => cell.push(char),
            }
        }
        cells.push(cell);
        cells
    }

    #[test]
    fn no_cell_of_a_written_line_begins_a_formula_whatever_separates_cells() {
        for name in [
            "a;=1+1",
            "b,c;=1+1",
            "x\";=1+1;\"",
            "\";\"=1",
            "a\t=1",
            ";@x",
            "=1;=1",
            "a; \"=1",
        ] {
            let rows = [[text("first"), text(name), text(name)]];
            let written = write(&["a", "b", "c"], rows.into_iter()).map_err(|problem| problem.kind());
            let written = String::from_utf8(written.expect("written")).expect("UTF-8");
            for line in written.lines().skip(1) {
                for separator in [',', ';', '\t'] {
                    for cell in cells(line, separator) {
                        let begins = cell.trim_start_matches([' ', '"']).starts_with(BEGINS_FORMULA);
                        assert!(!begins, "{name:?} by {separator:?}: {line:?} has {cell:?}");
                    }
                }
            }
        }
    }
}
