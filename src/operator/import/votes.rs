//! The votes of a file: what each row says, and which item it means.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::str::FromStr;

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use super::records::{Fields, Record, Records};
use crate::domain::{ImportId, ImportedVote, ItemId, ItemKey, ItemName, Moment, VoterId};
use crate::ledger::OperatorLedger;
use crate::telemetry;
use crate::votes::Source;

/// The most refused lines that are shown on standard error.
pub const SHOWN_LIMIT_LINES: usize = 20;
/// The most items that are remembered by key or name.
const KNOWN_LIMIT_ITEMS: usize = 1_000_000;
/// The earliest Unix time in seconds: 1973. Smaller numbers are years or dates.
const UNIX_LEAST_SECONDS: f64 = 100_000_000.0;
/// The latest one: the year 2200. Larger numbers are milliseconds, which nobody asked for.
const UNIX_LIMIT_SECONDS: f64 = 7_258_118_400.0;
/// The first µs of the year 1. Postgres writes earlier times in a way of its own.
const YEAR_ONE_MICROS: i64 = -62_135_596_800_000_000;
/// The most lines that are read before a chunk is stored, whatever is in them.
const SCAN_LIMIT_LINES: i64 = 100_000;

/// How a row names its item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ItemOf {
    Id(ItemId),
    Key(String),
    Name(String),
}

/// A row that can be read. Its item may not be there.
#[derive(Debug, PartialEq)]
struct Row {
    item: ItemOf,
    voter_id: Option<VoterId>,
    value: i16,
    change_number: i16,
    cast_at: Option<Moment>,
    number: Option<i64>,
}

/// Reads what a row says. `import` is the file's: a vote without a voter that was taken back gets a voter, so that it
/// stays known what took it back.
fn row(fields: &Fields, neutral: f64, goes_on: bool, import: ImportId) -> Result<Row, String> {
    // In the order of `columns::VOTE`.
    let [
        id,
        item_id,
        item_key,
        item_name,
        voter_id,
        value,
        rating,
        created_at,
        change_number,
        number,
        voided,
    ] = std::array::from_fn(|at| fields.get(at).and_then(Option::as_deref));
    let item = match (item_id, item_key, item_name) {
        (Some(id), ..) => ItemOf::Id(
            id.parse()
                .map_err(|()| format!("the item {id:?} is no id: a positive number"))?,
        ),
        (None, Some(key), _) => {
            ItemKey::parse(key.to_owned()).map_err(|error| format!("the item's key {error}"))?;
            ItemOf::Key(key.to_owned())
        }
        (None, None, Some(name)) => {
            ItemName::parse(name.to_owned()).map_err(|error| format!("the item's name {error}"))?;
            ItemOf::Name(name.to_owned())
        }
        (None, None, None) => return Err("it names no item".to_owned()),
    };
    let value = match (value, rating) {
        (Some("1" | "+1"), _) | (None, None) => 1,
        (Some("-1" | "−1"), _) => -1,
        (Some(other), _) => return Err(format!("the value is {other:?}; it takes 1 or -1")),
        (None, Some(text)) => match text.parse::<f64>() {
            Ok(rating) if rating > neutral => 1,
            Ok(rating) if rating < neutral => -1,
            Ok(rating) if rating == neutral => {
                return Err(format!(
                    "the rating is {neutral}, neither an up-vote nor a down-vote"
                ));
            }
            _ => return Err(format!("the rating is {text:?}; it takes a number")),
        },
    };
    let change_number = match change_number {
        None => 0,
        Some(text) => match text.parse() {
            Ok(number) if number >= 0 => number,
            _ => {
                return Err(format!(
                    "the change number is {text:?}; it takes 0, 1, 2 and so on"
                ));
            }
        },
    };
    let number = match number.map(|text| (text, i64::from_str(text))) {
        None => None,
        Some((_, Ok(number))) if number > 0 => Some(number),
        Some((text, _)) => return Err(format!("the number is {text:?}; it takes 1, 2, 3 and so on")),
    };
    let voter_id = match (voter_id, voided) {
        (Some(text), _) => {
            let parsed = VoterId::parse(text.to_owned());
            Some(parsed.map_err(|error| error.to_string())?)
        }
        (None, None) => None,
        (None, Some(_)) if goes_on => {
            return Err("it takes back, or casts again, a vote of an earlier file that nobody cast; void that one here (tally void)".to_owned());
        }
        (None, Some(vote)) => {
            if id.is_none() || vote.parse::<i64>().is_err() {
                return Err("voided_vote_id takes the id of a vote of this file".to_owned());
            }
            VoterId::parse(format!("import {}, voided vote {vote}", import.0)).ok()
        }
    };
    let cast_at = created_at.map(moment).transpose()?;
    Ok(Row {
        item,
        voter_id,
        value,
        change_number,
        cast_at,
        number,
    })
}

/// Reads a time: RFC 3339; as Postgres writes it (UTC, if it names no zone); or seconds since 1970.
fn moment(text: &str) -> Result<Moment, String> {
    let unreadable = || {
        format!(
            "the time is {text:?}; it takes one like 2030-01-31T18:00:00Z, 2030-01-31 18:00:00+00, or seconds since 1970"
        )
    };
    if let Ok(seconds) = text.parse::<f64>() {
        if !(UNIX_LEAST_SECONDS..=UNIX_LIMIT_SECONDS).contains(&seconds) {
            return Err(unreadable());
        }
        return Ok(Moment::from_micros((seconds * 1e6).round() as i64));
    }
    let (date, time) = text.split_once(['T', 't', ' ']).ok_or_else(unreadable)?;
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone = match zone.len() {
        0 => "Z".to_owned(),
        // +00
        3 => format!("{zone}:00"),
        // +0000
        5 => format!("{}:{}", &zone[..3], &zone[3..]),
        _ => zone.to_owned(),
    };
    let moment: Moment = format!("{date}T{time}{zone}").parse().map_err(|_| unreadable())?;
    if moment.micros() < YEAR_ONE_MICROS {
        return Err(unreadable());
    }
    Ok(moment)
}

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

/// How many votes were read.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ReadVotes {
    pub of_voters: u64,
    pub anonymous: u64,
    pub up: u64,
    pub down: u64,
}

/// The votes of a file.
pub struct VotesOfFile {
    pub ledger: OperatorLedger,
    pub records: Records,
    pub import: ImportId,
    /// The import is done up to this line.
    pub done: i64,
    pub neutral: f64,
    /// Items that there are not are created.
    pub makes_items: bool,
    /// Items that there are not would be created: nothing is stored.
    pub finds_all: bool,
    pub refused: RefusedLines,
    /// Lines that are not stored, and not noted yet.
    bad: BTreeSet<i64>,
    /// The rows that are not stored yet, as the file has them.
    texts: BTreeMap<i64, String>,
    /// What was read: votes of voters and anonymous ones, up and down.
    pub read: ReadVotes,
    known: HashMap<ItemOf, ItemId>,
    bar: ProgressBar,
}

impl VotesOfFile {
    pub fn new(
        ledger: OperatorLedger,
        records: Records,
        import: ImportId,
        done: i64,
        refused: RefusedLines,
        bar: ProgressBar,
    ) -> Self {
        Self {
            ledger,
            records,
            import,
            done,
            neutral: 0.0,
            makes_items: false,
            finds_all: false,
            refused,
            bad: BTreeSet::new(),
            texts: BTreeMap::new(),
            read: ReadVotes::default(),
            known: HashMap::new(),
            bar,
        }
    }

    /// The next rows that can be read, up to this many, and whether the file has ended.
    fn read(&mut self, limit: usize) -> anyhow::Result<(Vec<(i64, Row)>, bool)> {
        let mut rows = Vec::new();
        let begun_at = self.records.last_line();
        while rows.len() < limit && self.records.last_line() - begun_at < SCAN_LIMIT_LINES {
            let Some(Record { line, fields, text }) = self.records.next()? else {
                return Ok((rows, true));
            };
            // Done before, or said to be refused before.
            if line <= self.done {
                continue;
            }
            let goes_on = self.records.head.as_ref().is_some_and(|head| head.after > 0);
            self.texts.insert(line, text);
            match fields.and_then(|fields| row(&fields, self.neutral, goes_on, self.import)) {
                Ok(row) => {
                    let counts = &mut self.read;
                    *(if row.voter_id.is_some() {
                        &mut counts.of_voters
                    } else {
                        &mut counts.anonymous
                    }) += 1;
                    *(if row.value > 0 {
                        &mut counts.up
                    } else {
                        &mut counts.down
                    }) += 1;
                    rows.push((line, row));
                }
                Err(why) => self.refuse(line, &why),
            }
        }
        Ok((rows, false))
    }

    /// Looks up the items of these rows.
    async fn find_items(&mut self, rows: &[(i64, Row)]) -> anyhow::Result<HashMap<ItemOf, String>> {
        let mut unknown = HashMap::new();
        if self.known.len() > KNOWN_LIMIT_ITEMS {
            self.known.clear();
        }
        let wanted: HashSet<&ItemOf> = rows.iter().map(|(_, row)| &row.item).collect();
        let wanted: Vec<&ItemOf> = wanted
            .into_iter()
            .filter(|item| !self.known.contains_key(item))
            .collect();
        let (mut ids, mut keys, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for item in wanted {
            match item {
                ItemOf::Id(id) => ids.push(id.get()),
                ItemOf::Key(key) => keys.push(key.as_str()),
                ItemOf::Name(name) => names.push(name.as_str()),
            }
        }
        if !ids.is_empty() {
            let found = self.ledger.items_that_exist(&ids).await?;
            self.known.extend(
                found
                    .into_iter()
                    .filter_map(ItemId::new)
                    .map(|id| (ItemOf::Id(id), id)),
            );
        }
        if !keys.is_empty() {
            let mut found = self.ledger.items_with_keys(&keys).await?;
            let missing: Vec<&str> = keys
                .iter()
                .copied()
                .filter(|key| !found.contains_key(*key))
                .collect();
            if self.makes_items && !missing.is_empty() {
                let new: Vec<_> = missing
                    .iter()
                    .map(|key| json!({ "key": key, "name": key }))
                    .collect();
                self.ledger.import_items(&new).await?;
                found.extend(self.ledger.items_with_keys(&missing).await?);
            }
            self.known
                .extend(found.into_iter().map(|(key, id)| (ItemOf::Key(key), id)));
        }
        if !names.is_empty() {
            let mut found = self.ledger.items_with_names(&names).await?;
            let missing: Vec<&str> = names
                .iter()
                .copied()
                .filter(|name| !found.contains_key(*name))
                .collect();
            if self.makes_items && !missing.is_empty() {
                let new: Vec<_> = missing.iter().map(|name| json!({ "name": name })).collect();
                self.ledger.import_items(&new).await?;
                found.extend(self.ledger.items_with_names(&missing).await?);
            }
            for (name, id) in found {
                match id {
                    Some(id) => {
                        self.known.insert(ItemOf::Name(name), id);
                    }
                    None => {
                        let why = format!("several items have the name {name:?}; name them by id or key");
                        unknown.insert(ItemOf::Name(name), why);
                    }
                }
            }
        }
        Ok(unknown)
    }
}

impl Source for VotesOfFile {
    async fn next(&mut self, limit: usize) -> anyhow::Result<(Vec<ImportedVote>, bool)> {
        let mut votes = Vec::new();
        let (rows, is_last) = self.read(limit)?;
        {
            let unknown = self.find_items(&rows).await?;
            for (line, row) in rows {
                let found = self.known.get(&row.item).copied();
                let is_new =
                    self.finds_all && !matches!(row.item, ItemOf::Id(_)) && !unknown.contains_key(&row.item);
                let Some(item_id) = found.or(is_new.then_some(ItemId::FIRST)) else {
                    let why = match (unknown.get(&row.item), &row.item) {
                        (Some(why), _) => why.clone(),
                        (None, ItemOf::Id(id)) => format!("there is no item {id}"),
                        (None, ItemOf::Key(key)) => format!("there is no item with the key {key:?}"),
                        (None, ItemOf::Name(name)) => format!("there is no item with the name {name:?}"),
                    };
                    self.refuse(line, &why);
                    continue;
                };
                votes.push(ImportedVote {
                    line,
                    item_id,
                    voter_id: row.voter_id,
                    value: row.value,
                    change_number: row.change_number,
                    cast_at: row.cast_at,
                    number: row.number,
                });
            }
        }
        Ok((votes, is_last))
    }

    fn last_line(&self) -> i64 {
        self.records.last_line()
    }

    fn refuse(&mut self, line: i64, why: &str) {
        let text = self.texts.remove(&line).unwrap_or_default();
        self.refused.add(line, why, &text);
        self.bad.insert(line);
    }

    fn refused_up_to(&self, line: i64) -> i64 {
        i64::try_from(self.bad.range(..=line).count()).unwrap_or(i64::MAX)
    }

    fn done(&mut self, line: i64) {
        self.done = line;
        self.bad = self.bad.split_off(&(line + 1));
        self.texts = self.texts.split_off(&(line + 1));
        self.bar.set_position(u64::try_from(line).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(given: &[(usize, &str)]) -> Fields {
        let mut fields = vec![None; super::super::columns::VOTE.len()];
        for (at, text) in given {
            fields[*at] = Some((*text).to_owned());
        }
        fields
    }

    const IMPORT: ImportId = ImportId(3);

    fn refusal(given: &[(usize, &str)]) -> String {
        row(&fields(given), 0.0, false, IMPORT).expect_err("it is refused")
    }

    #[test]
    fn times_are_read_as_people_and_databases_write_them() {
        let noon = Ok(Moment::from_micros(1_893_456_000_500_000));
        for text in [
            "2030-01-01T00:00:00.5Z",
            "2030-01-01 00:00:00.5",
            "2030-01-01 00:00:00.5+00",
            "2030-01-01 05:30:00.5+0530",
            "2029-12-31T23:00:00.500-01:00",
            "1893456000.5",
        ] {
            assert_eq!(moment(text), noon, "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2030-01-01",
            "1893456000500",
            "-1",
            "NaN",
            "2030-13-01T00:00:00Z",
        ] {
            let said = moment(text).expect_err("it is refused");
            assert!(said.contains("it takes one like"), "{text}: {said}");
        }
    }

    #[test]
    fn a_row_that_cannot_be_a_vote_says_what_would_be_right() {
        for (given, words) in [
            (&[(5, "1")][..], "it names no item"),
            (&[(1, "0")], "no id: a positive number"),
            (&[(2, "a\u{7}")], "the item's key"),
            (&[(1, "1"), (5, "2")], "it takes 1 or -1"),
            (&[(1, "1"), (6, "good")], "it takes a number"),
            (&[(1, "1"), (6, "0")], "neither an up-vote nor a down-vote"),
            (&[(1, "1"), (8, "-1")], "it takes 0, 1, 2"),
            (&[(1, "1"), (8, "99999")], "it takes 0, 1, 2"),
            (&[(1, "1"), (9, "0")], "it takes 1, 2, 3"),
            (&[(1, "1"), (4, "\n")], "voter_id has a control character"),
            (&[(1, "1"), (10, "7")], "voided_vote_id takes the id"),
        ] {
            let said = refusal(given);
            assert!(said.contains(words), "{given:?}: {said}");
        }
        let voided = fields(&[(0, "7"), (1, "1"), (10, "7")]);
        let said = row(&voided, 0.0, true, IMPORT).expect_err("it is refused");
        assert!(said.contains("earlier file"), "{said}");
        let read = row(&voided, 0.0, false, IMPORT).expect("a vote");
        assert_eq!(
            read.voter_id.expect("a voter").as_str(),
            "import 3, voided vote 7"
        );
        let rated = row(&fields(&[(1, "1"), (6, "-3.5")]), -4.0, false, IMPORT).expect("a vote");
        assert_eq!(rated.value, 1);
    }
}
