//! The votes of a file, and which items they mean.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::json;

use super::records::{Record, Records};
use super::refused::RefusedLines;
use super::rows::{ItemOf, Row, row};
use crate::domain::{ImportId, ImportedVote, ItemId};
use crate::ledger::OperatorLedger;
use crate::votes::Source;

/// The most items that are remembered by key or name.
const KNOWN_LIMIT_ITEMS: usize = 1_000_000;
/// The most lines that are read before a chunk is stored, whatever is in them.
const SCAN_LIMIT_LINES: i64 = 100_000;

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
