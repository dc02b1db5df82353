//! Reads a file as rows of named fields: CSV, or a JSON object on each line.

use std::fmt;
use std::io::BufRead;
use std::path::Path;

use anyhow::{bail, ensure};
use csv_core::ReadRecordResult;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::columns::Columns;
use crate::config::data::Delimiter;
use crate::files::{self, Lines};
use crate::ledger::ExportFormat;

/// The most lines of a file.
const LIMIT_LINES: usize = 2_000_000_000;
/// The most columns of a file.
const LIMIT_COLUMNS: usize = 256;
/// A row: for each column of the table, in its order, the field's text. `None`: null, or there is no such field.
pub type Fields = Vec<Option<String>>;

/// A row, or why it cannot be read.
pub struct Record {
    /// Counted from 1.
    pub line: i64,
    pub fields: Result<Fields, String>,
    /// As the file has it, with � for what is not UTF-8.
    pub text: String,
}

/// What the first line of an export of votes says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Head {
    pub tally: String,
    pub after: i64,
    pub until: i64,
}

/// A file's rows.
pub struct Records {
    lines: Lines<Box<dyn BufRead>>,
    format: ExportFormat,
    columns: Columns,
    /// For each column of the table, where a row of CSV has it, and how many fields a row has. `None`: the line of
    /// names has not come yet.
    places: Option<(Vec<Option<usize>>, usize)>,
    /// The first line of an export of votes.
    pub head: Option<Head>,
    /// Whether there was a row. Before it, lines that begin with # are comments.
    has_begun: bool,
    line: i64,
    splitter: Splitter,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    /// Opens a file.
    pub fn open(
        path: &Path,
        format: ExportFormat,
        delimiter: Delimiter,
        columns: Columns,
    ) -> anyhow::Result<Self> {
        let lines = files::lines(path, LIMIT_LINES)?;
        let places = columns.places();
        Ok(Self {
            lines,
            format,
            columns,
            places,
            head: None,
            has_begun: false,
            line: 0,
            splitter: Splitter::of(delimiter),
            text: vec![0; 2 * files::LINE_LIMIT_BYTES],
            ends: vec![0; LIMIT_COLUMNS + 1],
        })
    }

    /// The last line that was read.
    pub fn last_line(&self) -> i64 {
        self.line
    }

    /// The next row. Blank lines are none, nor are comments at the beginning. `None`: there are no more.
    ///
    /// # Errors
    /// When the file cannot be read on, or its names of columns are not those of the table.
    pub fn next(&mut self) -> anyhow::Result<Option<Record>> {
        while let Some((number, line)) = self.lines.next()? {
            self.line = i64::try_from(number)?;
            let line = match line {
                Ok(line) => line,
                Err(why) => {
                    return Ok(Some(Record {
                        line: self.line,
                        fields: Err(why.to_owned()),
                        text: self.lines.text(),
                    }));
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            if number == 1
                && let Some(head) = head(line)
            {
                self.head = serde_json::from_value(Value::Object(head)).ok();
                continue;
            }
            let fields = match self.format {
                ExportFormat::Jsonl => of_json(line, &self.columns),
                ExportFormat::Csv if line.starts_with('#') && !self.has_begun => continue,
                ExportFormat::Csv => {
                    let split = self.splitter.split(line, &mut self.text, &mut self.ends);
                    match (&self.places, split) {
                        (Some((places, total)), Ok(found)) if found == *total => {
                            Ok(pick(&self.text, &self.ends[..found], places, &self.columns))
                        }
                        (Some((_, total)), Ok(found)) => {
                            Err(format!("it has {found} fields, and not {total}"))
                        }
                        (Some(_), Err(why)) => Err(why),
                        (None, Err(why)) => bail!("line {number}: {why}; it must name the columns"),
                        (None, Ok(_)) if line.starts_with('{') => {
                            bail!("line {number} is no CSV; is it JSON Lines, for --format jsonl?")
                        }
                        (None, Ok(found)) => {
                            let names: Vec<Option<String>> = pick(
                                &self.text,
                                &self.ends[..found],
                                &(0..found).map(Some).collect::<Vec<_>>(),
                                &self.columns,
                            );
                            self.places = Some((self.columns.find(&names)?, found));
                            self.has_begun = true;
                            continue;
                        }
                    }
                }
            };
            self.has_begun = true;
            return Ok(Some(Record {
                line: self.line,
                fields,
                text: line.to_owned(),
            }));
        }
        ensure!(self.line > 0, "the file is empty");
        ensure!(
            self.places.is_some() || self.format == ExportFormat::Jsonl,
            "the file has no line that names its columns"
        );
        Ok(None)
    }
}

/// The first line of an export.
fn head(line: &str) -> Option<Map<String, Value>> {
    let head = line.strip_prefix("# ").unwrap_or(line);
    let Ok(Value::Object(head)) = serde_json::from_str(head) else {
        return None;
    };
    head.contains_key("export").then_some(head)
}

/// Splits lines into fields.
enum Splitter {
    Csv(Box<csv_core::Reader>),
    Blanks,
}

impl Splitter {
    fn of(delimiter: Delimiter) -> Self {
        match delimiter {
            Delimiter::Character(byte) => {
                let reader = csv_core::ReaderBuilder::new().delimiter(byte).build();
                Self::Csv(Box::new(reader))
            }
            Delimiter::Blanks => Self::Blanks,
        }
    }

    /// Splits a line. Returns how many fields it has. The field `n` ends at `ends[n]` of `text`, which holds
    /// the longest line.
    fn split(&mut self, line: &str, text: &mut [u8], ends: &mut [usize]) -> Result<usize, String> {
        let too_many = || Err(format!("it has more than {LIMIT_COLUMNS} fields, or is too long"));
        let Self::Csv(reader) = self else {
            let (mut written, mut found) = (0, 0);
            for field in line.split_ascii_whitespace() {
                let end = written + field.len();
                let (Some(place), Some(ends_at)) = (text.get_mut(written..end), ends.get_mut(found)) else {
                    return too_many();
                };
                place.copy_from_slice(field.as_bytes());
                *ends_at = end;
                (written, found) = (end, found + 1);
            }
            return Ok(found);
        };
        if line.bytes().filter(|byte| *byte == b'"').count() % 2 != 0 {
            return Err("a quoted field does not end in its line".to_owned());
        }
        reader.reset();
        let (first, _, written, found) = reader.read_record(line.as_bytes(), text, ends);
        let (last, .., more) = match first {
            // The line's end is the record's.
            ReadRecordResult::InputEmpty => reader.read_record(&[], &mut text[written..], &mut ends[found..]),
            other => (other, 0, 0, 0),
        };
        match last {
            ReadRecordResult::Record => Ok(found + more),
            _ => too_many(),
        }
    }
}

/// The fields at these places.
fn pick(text: &[u8], ends: &[usize], places: &[Option<usize>], columns: &Columns) -> Fields {
    let field = |column: usize, at: usize| {
        let end = *ends.get(at)?;
        let start = if at == 0 { 0 } else { ends[at - 1] };
        // Parts of a line that is UTF-8, split at ASCII.
        let field = String::from_utf8_lossy(text.get(start..end)?);
        (!field.is_empty() || columns.must_be_filled(column)).then(|| field.into_owned())
    };
    let places = places.iter().enumerate();
    places.map(|(column, place)| field(column, (*place)?)).collect()
}

/// The members of a JSON object, in their order, also those of one name.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// The fields of a JSON object.
fn of_json(line: &str, columns: &Columns) -> Result<Fields, String> {
    let Ok(Members(members)) = serde_json::from_str(line) else {
        return Err("it is no JSON object".to_owned());
    };
    let mut object = Map::new();
    for (name, value) in members {
        columns.check_name(&name).map_err(|error| error.to_string())?;
        if let Some(first) = object.insert(name.clone(), value) {
            return Err(format!("{name} comes twice, first as {first}"));
        }
    }
    let empty = |column: usize| columns.must_be_filled(column).then(String::new);
    let fields =
        columns
            .names()
            .enumerate()
            .map(|(column, name)| match name.and_then(|name| object.remove(name)) {
                None => Ok(None),
                Some(Value::Null) => Ok(empty(column)),
                Some(Value::String(text)) if text.is_empty() => Ok(empty(column)),
                Some(Value::String(text)) => Ok(Some(text)),
                Some(Value::Number(number)) => Ok(Some(number.to_string())),
                // For columns of yes and no.
                Some(Value::Bool(is_so)) if columns.are_of_rules() => Ok(Some(is_so.to_string())),
                Some(other) => Err(format!(
                    "{} is {other}; it takes a text or a number",
                    name.unwrap_or_default()
                )),
            });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use super::super::columns::Table;
    use super::*;

    fn rows(content: &str, format: ExportFormat, columns: &[&str]) -> Vec<(i64, Result<Fields, String>)> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, content).expect("written");
        let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
        let columns = Columns::of(Table::Polls, &columns).expect("columns");
        let mut records = Records::open(&path, format, Delimiter::Character(b','), columns).expect("a file");
        let mut rows = Vec::new();
        while let Some(record) = records.next().expect("it is read") {
            rows.push((record.line, record.fields.map(|fields| fields[..3].to_vec())));
        }
        rows
    }

    fn fields(texts: [&str; 3]) -> Result<Fields, String> {
        Ok(texts
            .map(|text| (!text.is_empty()).then(|| text.to_owned()))
            .to_vec())
    }

    #[test]
    fn rows_come_by_the_names_of_their_columns_in_any_order_with_the_numbers_of_their_lines() {
        let csv = "# {\"export\":\"polls\",\"after\":null}\n# a comment\nkey,voter_count,title,id\r\n\"a, \"\"b\"\"\",x,T,1\n\n#1,,\"\",2\nö,\n";
        let expected = vec![
            (4, fields(["1", "a, \"b\"", "T"])),
            (6, fields(["2", "#1", ""])),
            (7, Err("it has 2 fields, and not 4".to_owned())),
        ];
        assert_eq!(rows(csv, ExportFormat::Csv, &[]), expected);
        let json = "{\"export\":\"polls\"}\n\n{\"title\":\"T\",\"id\":1,\"key\":\"a, \\\"b\\\"\"}\n[1]\n{\"id\":null}\n{\"id\":[1]}\n";
        let expected = vec![
            (3, fields(["1", "a, \"b\"", "T"])),
            (4, Err("it is no JSON object".to_owned())),
            (5, fields(["", "", ""])),
            (6, Err("id is [1]; it takes a text or a number".to_owned())),
        ];
        assert_eq!(rows(json, ExportFormat::Jsonl, &[]), expected);
        let bad = rows("id,title,key\n1,\"a\n2,b,c\n", ExportFormat::Csv, &[]);
        assert_eq!(
            bad[0],
            (2, Err("a quoted field does not end in its line".to_owned()))
        );
        assert_eq!(bad[1], (3, fields(["2", "c", "b"])));
    }

    #[test]
    fn a_file_without_names_or_with_other_ones_is_read_by_those_that_are_given() {
        let positions = rows("1,x,T\n", ExportFormat::Csv, &["id", "_", "title"]);
        assert_eq!(positions, [(1, fields(["1", "", "T"]))]);
        let other = rows("no,what\n1,T\n", ExportFormat::Csv, &["id=no", "title=what"]);
        assert_eq!(other, [(2, fields(["1", "", "T"]))]);
        let json = rows(
            "{\"no\":1,\"what\":\"T\"}\n",
            ExportFormat::Jsonl,
            &["id=no", "title=what"],
        );
        assert_eq!(json, [(1, fields(["1", "", "T"]))]);
    }
}
