//! `tally import`: votes, items and polls from files.

mod columns;
mod records;
mod refused;
mod rows;
mod votes;

use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use super::show;
use crate::config::data::{Import as Command, ImportFile, ImportVotes};
use crate::domain::{ActKind, Cell, Import, ImportId, ItemKey, ItemName, NewAct, OtherCell};
use crate::files;
use crate::ledger::{Created, ExportFormat, ImportSource, NewImport, OperatorLedger};
use crate::live::{Redis, SERVER_ANSWER_LIMIT};
use crate::shutdown;
use crate::telemetry;
use crate::votes::{self as voting, Source as _};
use columns::{Columns, Table};
use records::{Record, Records};
use refused::RefusedLines;
use votes::VotesOfFile;

/// The highest id of a file: what numbers in JSON hold. Ids that are given later are higher.
const ID_LIMIT: i64 = 1 << 53;
/// The most items or polls of one statement.
const CHUNK_LIMIT_ROWS: usize = 1000;

/// Runs `tally import`. Returns whether every line is stored.
///
/// # Errors
/// When a store is unavailable, or the file cannot be read. What is done stays done.
pub async fn import(command: Command) -> anyhow::Result<bool> {
    let database_url = match &command {
        Command::Votes(command) => command.stores.database_url.as_str(),
        Command::Items(file) | Command::Polls(file) => &file.database.database_url,
    };
    let ledger = OperatorLedger::new(database_url, "tally import")?;
    ledger.as_server().check().await?;
    let (what, is_dry_run) = match &command {
        Command::Votes(command) => (ActKind::VotesImport, command.dry_run),
        Command::Items(file) => (ActKind::ItemsImport, file.dry_run),
        Command::Polls(file) => (ActKind::PollsImport, file.dry_run),
    };
    let begun = match is_dry_run {
        true => None,
        false => Some(ledger.note_begun(what, None).await?),
    };
    let ended = match &command {
        Command::Votes(command) => import_votes(&ledger, command).await,
        Command::Items(file) => import_rows(&ledger, file, Table::Items).await,
        Command::Polls(file) => import_rows(&ledger, file, Table::Polls).await,
    };
    if let Some(begun) = begun {
        let describe = |act: NewAct, ended: &Ended| act.details(ended.details.clone());
        ledger.note_ended(what, begun, None, &ended, describe).await;
    }
    ledger.as_server().close().await;
    Ok(ended?.is_whole)
}

/// What became of an import.
struct Ended {
    /// No line was refused.
    is_whole: bool,
    /// What the trail says.
    details: Value,
}

fn progress(lines: u64) -> ProgressBar {
    ProgressBar::new(lines).with_style(
        ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} lines, {per_sec}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

/// Where refused lines are listed. `goes_on`: the import does, so the list does, too.
fn refused_lines(path: Option<&Path>, goes_on: bool, bar: &ProgressBar) -> anyhow::Result<RefusedLines> {
    let file = path.map(|path| {
        let opened = if goes_on {
            files::append(path)
        } else {
            files::create(path)
        };
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        let is_new = file.metadata()?.len() == 0;
        let mut writer = csv::Writer::from_writer(file);
        if is_new {
            writer.write_record(["line", "why", "row"])?;
        }
        anyhow::Ok(writer)
    });
    Ok(RefusedLines::new(file.transpose()?, bar.clone()))
}

async fn import_votes(ledger: &OperatorLedger, command: &ImportVotes) -> anyhow::Result<Ended> {
    let columns = Columns::of(Table::Votes, &command.columns)?;
    let path = &command.file;
    // The same bytes, read in another way, are other votes.
    let delimiter = (command.format == ExportFormat::Csv).then_some(command.delimiter);
    let how = format!(
        "{columns:?} {:?} {delimiter:?} {}",
        command.format, command.neutral
    );
    let (file_hash, line_total) = files::hash(path, &how)?;
    let bar = progress(line_total);
    let open = || Records::open(path, command.format, command.delimiter, columns.clone());
    // A file without Tally's columns is refused before anything is noted.
    let mut first = open()?;
    first.next()?;
    let head = first.head.take();
    if command.dry_run {
        let refused = refused_lines(command.refused.as_deref(), false, &bar)?;
        return dry_run(ledger, command, open()?, refused, bar).await;
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name: String = name.chars().filter(|one| !one.is_control()).take(200).collect();
    let file = NewImport {
        hash: &file_hash,
        name: &name,
        source: head.map(|head| ImportSource {
            tally: head.tally,
            after: head.after,
            until: head.until,
        }),
    };
    let import = ledger.import_of_file(&file).await?;
    let mut refused = refused_lines(command.refused.as_deref(), import.done_line > 0, &bar)?;
    let records = open()?;
    let ended = if import.ended_at.is_some() {
        say_again(&import);
        Ok(())
    } else {
        let redis = Redis::new(
            &command.stores.redis_url,
            &command.stores.keys.key_prefix,
            SERVER_ANSWER_LIMIT,
        )?;
        let mut source = VotesOfFile::new(
            ledger.clone(),
            records,
            import.id,
            import.done_line,
            refused,
            bar.clone(),
        );
        source.neutral = command.neutral;
        source.makes_items = command.make_items;
        let stop = shutdown::requested_or_deaf();
        let ended = voting::run_import(ledger, &redis, &import, &mut source, stop).await;
        refused = source.refused;
        ended
    };
    bar.finish_and_clear();
    refused
        .end()
        .context("the file of refused lines is not complete")?;
    ended.context("the import is not complete; to go on with it, run the same command again")?;
    let done = ledger.import(import.id).await?;
    let report = json!({
        "import_id": done.id.0,
        "file": name,
        "stored_votes": done.stored_votes,
        "repeated_votes": done.repeated_votes,
        "refused_lines": done.refused_lines,
    });
    show(&report, command.json);
    Ok(Ended {
        is_whole: done.refused_lines == 0,
        details: report,
    })
}

/// Says what can be read, and which items there are. Stores nothing.
async fn dry_run(
    ledger: &OperatorLedger,
    command: &ImportVotes,
    records: Records,
    refused: RefusedLines,
    bar: ProgressBar,
) -> anyhow::Result<Ended> {
    let mut source = VotesOfFile::new(ledger.clone(), records, ImportId(0), 0, refused, bar);
    source.neutral = command.neutral;
    source.finds_all = command.make_items;
    let mut bad = 0;
    loop {
        let (_, is_last) = source.next(voting::IMPORT_LIMIT_VOTES).await?;
        let line = source.last_line();
        bad += source.refused_up_to(line);
        source.done(line);
        if is_last {
            break;
        }
    }
    source.refused.end()?;
    let read = source.read;
    show(
        &json!({
            "dry_run": true,
            "readable_votes": read.of_voters + read.anonymous,
            "of_voters": read.of_voters,
            "anonymous": read.anonymous,
            "up": read.up,
            "down": read.down,
            "refused_lines": bad,
        }),
        command.json,
    );
    Ok(Ended {
        is_whole: bad == 0,
        details: Value::Null,
    })
}

fn say_again(import: &Import) {
    telemetry::complain(format_args!(
        "this file was imported before, as import {}: nothing is stored again",
        import.id.0
    ));
}

/// The rows of a chunk: the line, what Postgres reads, and what the file has.
type Chunk = Vec<(i64, Value, String)>;

async fn import_rows(ledger: &OperatorLedger, file: &ImportFile, table: Table) -> anyhow::Result<Ended> {
    let columns = || Columns::of(table, &file.columns);
    let open = || Records::open(&file.file, file.format, file.delimiter, columns()?);
    // The file is read twice.
    let (_, line_total) = files::hash(&file.file, "")?;
    let bar = progress(line_total);
    let mut refused = refused_lines(file.refused.as_deref(), false, &bar)?;
    let here = ledger.as_server().cell().await?;
    // Later items must not get the ids of these.
    let mut highest = (0, 0);
    let mut records = open()?;
    while let Some(record) = records.next()? {
        let Ok((id, rule)) = record.fields.and_then(|fields| checked(table, &fields, here)) else {
            continue;
        };
        let (item, rule) = if table == Table::Polls {
            (0, id)
        } else {
            (id, rule)
        };
        highest = (highest.0.max(item), highest.1.max(rule));
    }
    if !file.dry_run {
        ledger.reserve_ids(highest.0, highest.1).await?;
    }
    let (mut created, mut rows, mut bad) = (0, 0, 0);
    let mut records = open()?;
    loop {
        let mut chunk: Chunk = Vec::new();
        while chunk.len() < CHUNK_LIMIT_ROWS
            && let Some(Record { line, fields, text }) = records.next()?
        {
            let checked = fields.and_then(|fields| checked(table, &fields, here).map(|_| fields));
            match checked {
                Ok(fields) => chunk.push((line, object(table, fields), text)),
                Err(why) => {
                    refused.add(line, &why, &text);
                    bad += 1;
                }
            }
        }
        if chunk.is_empty() {
            break;
        }
        rows += i64::try_from(chunk.len())?;
        bar.set_position(u64::try_from(records.last_line()).unwrap_or_default());
        if file.dry_run {
            continue;
        }
        let outcome = create(ledger, table, &chunk).await?;
        created += outcome.created;
        for ((line, _, text), why) in chunk.iter().zip(outcome.whys) {
            if let Some(why) = why {
                refused.add(*line, &why, text);
                bad += 1;
                rows -= 1;
            }
        }
    }
    bar.finish_and_clear();
    refused
        .end()
        .context("the file of refused lines is not complete")?;
    if file.dry_run {
        show(
            &json!({ "dry_run": true, "readable_rows": rows, "refused_lines": bad }),
            file.database.json,
        );
        return Ok(Ended {
            is_whole: bad == 0,
            details: Value::Null,
        });
    }
    let report = json!({
        "created": created,
        "already_there": rows - created,
        "refused_lines": bad,
    });
    show(&report, file.database.json);
    Ok(Ended {
        is_whole: bad == 0,
        details: report,
    })
}

/// Checks the ids, the key and the name of a row for this cell. Returns its id and the id of its rule; 0: none.
fn checked(table: Table, fields: &records::Fields, here: Cell) -> Result<(i64, i64), String> {
    let of = |name: &str| {
        let at = table.columns().iter().position(|column| *column == name)?;
        fields.get(at)?.as_deref()
    };
    let id = |name: &str| match of(name).map(|text| (text, text.parse::<i64>())) {
        None => Ok(0),
        Some((_, Ok(id))) if (1..ID_LIMIT).contains(&id) => {
            OtherCell::check_id(here, id, name).map_err(|other| other.to_string())?;
            Ok(id)
        }
        Some((text, _)) => Err(format!(
            "{name} is {text:?}; it takes a number from 1 to {}",
            ID_LIMIT - 1
        )),
    };
    if let Some(key) = of("key") {
        ItemKey::parse(key.to_owned()).map_err(|error| format!("the key {error}"))?;
    }
    let name = if table == Table::Polls { "title" } else { "name" };
    let text = of(name).unwrap_or_default();
    ItemName::parse(text.to_owned()).map_err(|error| format!("the {name} {error}"))?;
    if table == Table::Polls && of("id").is_none() {
        return Err("it has no id".to_owned());
    }
    Ok((id("id")?, id("rule_id")?))
}

/// A row as Postgres reads it.
fn object(table: Table, fields: records::Fields) -> Value {
    let named = table.columns().iter().zip(fields);
    let fields = named.map(|(name, text)| ((*name).to_owned(), json!(text)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Creates a chunk. If Postgres cannot read one of its rows, row by row.
async fn create(ledger: &OperatorLedger, table: Table, chunk: &Chunk) -> anyhow::Result<Created> {
    let create = async |rows: &[Value]| match table {
        Table::Polls => ledger.import_polls(rows).await,
        _ => ledger.import_items(rows).await,
    };
    let rows: Vec<Value> = chunk.iter().map(|(_, row, _)| row.clone()).collect();
    match create(&rows).await {
        Err(error) if error.of_a_value().is_some() => {}
        created => return Ok(created?),
    }
    let mut all = Created::default();
    for row in rows {
        match create(&[row]).await {
            Ok(one) => {
                all.created += one.created;
                all.whys.extend(one.whys);
            }
            Err(error) => match error.of_a_value() {
                Some(why) => all.whys.push(Some(why)),
                None => return Err(error.into()),
            },
        }
    }
    Ok(all)
}
