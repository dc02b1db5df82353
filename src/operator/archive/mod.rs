//! `tally archive`: votes of what has closed to files.
//!
//! - `file`: how a file is written, and what it says.
//! - `verify`: whether files are as they were written.
//!
//! An archive begins, and from then on nothing changes its votes. They are written to a file. The file is read back
//! and compared with the ledger, byte by byte through its hash. Only then are the votes dropped, chunk after chunk.
//! Killed anywhere, it goes on from what Postgres has noted.

mod file;
mod verify;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::show;
use super::trail::{CommandRefusal, note_refusal};
use crate::config::archive::{Archive as Command, ArchiveCancel, ArchiveRun};
use crate::domain::{ActKind, ActOutcome, Archive, ArchiveId, ArchiveState, CheckedFile, NewAct};
use crate::ledger::ArchiveLedger;
use crate::{shutdown, telemetry};
use file::{Place, hexadecimal};

/// The most items of their own and polls of one archive.
const ARCHIVE_LIMIT_RULES: i64 = 10_000;
/// The most archives that are listed.
const LIST_LIMIT_ARCHIVES: i64 = 1000;
/// How long it waits until the votes are rolled up. A worker does that every few seconds.
const ROLL_UP_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// The time between two looks.
const ROLL_UP_LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long it tries to drop ranges of the ledger that are empty, while others use the ledger.
const DROP_RANGES_LIMIT: Duration = Duration::from_secs(60);
/// The time between two tries.
const DROP_RANGES_EVERY: Duration = Duration::from_millis(250);

/// Runs `tally archive`. Returns whether all was well.
///
/// # Errors
/// When Postgres is unavailable, a file cannot be written, or what is asked is not possible. What is done stays done,
/// and no vote is dropped that is not in a checked file.
pub async fn archive(command: Command) -> anyhow::Result<bool> {
    let database = command.database().clone();
    let ledger = ArchiveLedger::new(&database.database_url, "tally archive")?;
    ledger.operator.as_server().check().await?;
    let as_json = database.json;
    let ended = match &command {
        Command::Run(run) => start(&ledger, run).await,
        Command::Resume(resume) => {
            let found = find(&ledger, resume.id).await;
            let went_on = async { go_on(&ledger, found?, &resume.out, None, as_json).await };
            went_on.await.map(|()| true)
        }
        Command::Cancel(command) => cancel(&ledger, command).await,
        Command::List(_) => list(&ledger, as_json).await,
        Command::Verify(command) => verify::verify(&ledger, &command.files, as_json).await,
    };
    // What has begun has its own outcome.
    if let Err(error) = &ended
        && error.is::<CommandRefusal>()
    {
        match &command {
            Command::Run(run) if run.apply => {
                note_refusal(&ledger.operator, ActKind::ArchiveRun, None, error).await;
            }
            Command::Cancel(command) => {
                let target = target(command.id);
                note_refusal(&ledger.operator, ActKind::ArchiveCancel, Some(&target), error).await;
            }
            _ => {}
        }
    }
    ledger.close().await;
    ended
}

fn target(id: ArchiveId) -> String {
    format!("archive:{}", id.0)
}

async fn find(ledger: &ArchiveLedger, id: ArchiveId) -> anyhow::Result<Archive> {
    let found = ledger.archive(id).await?;
    found.ok_or_else(|| CommandRefusal::because("invalid-value", format!("there is no archive {}", id.0)))
}

/// The rules of what is to be archived, each once.
async fn rules(ledger: &ArchiveLedger, command: &ArchiveRun) -> anyhow::Result<Vec<i64>> {
    let refuse = |problem, why: String| Err(CommandRefusal::because(problem, why));
    let mut rules = Vec::new();
    if let Some(before) = command.closed_before {
        rules = ledger.rules_to_archive(before, ARCHIVE_LIMIT_RULES).await?;
    }
    for item in &command.item {
        let Some(id) = ledger.operator.find_item(item).await? else {
            return refuse("unknown-item", format!("--item: there is no item {item}"));
        };
        match ledger.rule_of(id).await? {
            Some((rule, false)) => rules.push(rule),
            Some((poll, true)) => {
                let why =
                    format!("--item: item {id} is a choice of poll {poll}; archive the poll: --poll {poll}");
                return refuse("invalid-value", why);
            }
            None => {
                let why = format!("--item: item {id} has no closing time, so it takes votes for ever");
                return refuse("invalid-value", why);
            }
        }
    }
    for poll in &command.poll {
        match ledger.rule_of_poll(poll).await? {
            Some(rule) => rules.push(rule),
            None => return refuse("unknown-poll", format!("--poll: there is no poll {poll}")),
        }
    }
    rules.sort_unstable();
    rules.dedup();
    Ok(rules)
}

/// Says what would be archived, or does it.
async fn start(ledger: &ArchiveLedger, command: &ArchiveRun) -> anyhow::Result<bool> {
    let as_json = command.database.json;
    let rules = rules(ledger, command).await?;
    if i64::try_from(rules.len())? >= ARCHIVE_LIMIT_RULES {
        telemetry::complain(format_args!(
            "this archive has the first {ARCHIVE_LIMIT_RULES} items and polls; run the command again for the next ones"
        ));
    }
    let refuse = |faults: Vec<String>| CommandRefusal::because("invalid-value", faults.join("; "));
    if !command.apply || rules.is_empty() {
        let faults = ledger.archive_faults(&rules).await?;
        if !faults.is_empty() {
            return Err(refuse(faults));
        }
        let found = ledger.votes_to_archive(&rules).await?;
        show(
            &json!({
                "dry_run": !command.apply,
                "items": found.items,
                "polls": found.polls,
                "votes": found.votes.total,
                "sum": found.votes.net,
                "first_vote_id": found.votes.first,
                "last_vote_id": found.votes.last,
            }),
            as_json,
        );
        return Ok(true);
    }
    let Some(folder) = &command.out else {
        bail!("--out FOLDER says where the file goes");
    };
    // Before anything is marked. The file itself is written later.
    if !folder.is_dir() {
        let why = format!("--out: {} is no folder", folder.display());
        return Err(CommandRefusal::because("invalid-value", why));
    }
    let act = ledger.operator.act(ActKind::ArchiveRun);
    let begun = ledger
        .begin_archive(&rules, &act.outcome(ActOutcome::Begun, None))
        .await?
        .map_err(refuse)?;
    let archive = find(ledger, begun.id).await?;
    go_on(ledger, archive, folder, Some(begun.act), as_json).await?;
    Ok(true)
}

/// Does what is left of an archive. `begun`: the trail's row of its beginning.
async fn go_on(
    ledger: &ArchiveLedger,
    archive: Archive,
    folder: &Path,
    begun: Option<i64>,
    as_json: bool,
) -> anyhow::Result<()> {
    let id = archive.id;
    let stop = shutdown::requested_or_deaf();
    let ended = tokio::select! {
        biased;
        // A chunk that is cut off is stored or not. Postgres knows.
        () = stop => Err(anyhow!("stopped")),
        ended = finish(ledger, archive, folder, begun) => ended,
    };
    ended.with_context(|| {
        format!(
            "archive {0} is not finished; to go on: tally archive resume {0} --out {1}",
            id.0,
            folder.display()
        )
    })?;
    let stop = shutdown::requested_or_deaf();
    let ranges = tokio::select! {
        biased;
        () = stop => Vec::new(),
        ranges = drop_empty_ranges(ledger) => ranges,
    };
    let mut line = described(&find(ledger, id).await?);
    if !ranges.is_empty() {
        line["dropped_ranges"] = json!(ranges);
    }
    show(&line, as_json);
    Ok(())
}

/// Drops the ranges of the ledger of which all votes are archived; returns their numbers. If that fails, the archive
/// is done nevertheless: it says so, and the next archive tries again.
async fn drop_empty_ranges(ledger: &ArchiveLedger) -> Vec<i32> {
    let deadline = Instant::now() + DROP_RANGES_LIMIT;
    let act = ledger.operator.act(ActKind::ArchiveDrop);
    let mut dropped = Vec::new();
    loop {
        match ledger.drop_empty_range(&act).await {
            Ok(Some(range)) => dropped.push(range),
            Ok(None) => return dropped,
            Err(error) if error.is_lock_timeout() && Instant::now() < deadline => {
                sleep(DROP_RANGES_EVERY).await
            }
            Err(error) => {
                telemetry::complain(format_args!(
                    "the archive is done, but an empty range of the ledger is still there: {error}; the next archive, \
                     or resume of this one, drops it"
                ));
                return dropped;
            }
        }
    }
}

async fn finish(
    ledger: &ArchiveLedger,
    archive: Archive,
    folder: &Path,
    begun: Option<i64>,
) -> anyhow::Result<()> {
    let place = Place::of(&archive, folder);
    let head = file::head(&archive, &ledger.identity().await?);
    let file = match archive.state {
        ArchiveState::Cancelled => bail!("archive {} was cancelled", archive.id.0),
        ArchiveState::Dropped => return Ok(()),
        ArchiveState::Writing => {
            noted(ledger, ActKind::ArchiveRun, archive.id, begun, async {
                let file = write(ledger, &archive, &place, &head).await?;
                ledger.check_archive(archive.id, &file).await?;
                Ok((file.clone(), details(&archive, &file)))
            })
            .await?
        }
        ArchiveState::Checked | ArchiveState::Dropping => read_again(&archive, &place, &head)?,
    };
    place.write_checksum(&archive, &file.hash)?;
    noted(ledger, ActKind::ArchiveDrop, archive.id, None, async {
        drop_votes(ledger, &archive, &file).await?;
        Ok(((), json!({ "votes": file.votes.total })))
    })
    .await
}

fn details(archive: &Archive, file: &CheckedFile) -> Value {
    json!({
        "items": archive.items,
        "polls": archive.polls,
        "votes": file.votes.total,
        "sum": file.votes.net,
        "sha256": hexadecimal(&file.hash),
    })
}

/// Notes the beginning and the outcome of a part of an archive, which takes many transactions.
async fn noted<Done>(
    ledger: &ArchiveLedger,
    what: ActKind,
    id: ArchiveId,
    begun: Option<i64>,
    part: impl Future<Output = anyhow::Result<(Done, Value)>>,
) -> anyhow::Result<Done> {
    let target = target(id);
    let begun = match begun {
        Some(begun) => begun,
        None => ledger.operator.note_begun(what, Some(&target)).await?,
    };
    let ended = part.await;
    let describe = |act: NewAct, (_, details): &(Done, Value)| act.details(details.clone());
    let operator = &ledger.operator;
    operator
        .note_ended(what, begun, Some(&target), &ended, describe)
        .await;
    ended.map(|(done, _)| done)
}

/// Writes the file, reads it back, and compares it with the ledger.
async fn write(
    ledger: &ArchiveLedger,
    archive: &Archive,
    place: &Place,
    head: &str,
) -> anyhow::Result<CheckedFile> {
    until_rolled_up(ledger, archive).await?;
    let bar = counting("votes written");
    place.write(ledger, archive, head, &bar).await?;
    bar.finish_and_clear();
    let (_, found) = file::read(&place.whole)?;
    let bar = counting("votes compared");
    let mut snapshot = ledger.snapshot().await?;
    let expected = file::hash_of_ledger(&mut snapshot, archive, head, &bar).await?;
    bar.finish_and_clear();
    if found.hash != expected {
        bail!(
            "{} is not what the ledger has; nothing is dropped. Move the file away, look at its disk, and go on",
            place.whole.display()
        );
    }
    Ok(found)
}

/// Waits until a worker has rolled up every vote of the archive.
async fn until_rolled_up(ledger: &ArchiveLedger, archive: &Archive) -> anyhow::Result<()> {
    let deadline = Instant::now() + ROLL_UP_WAIT_LIMIT;
    while !ledger.is_rolled_up(archive.until_vote_id).await? {
        if Instant::now() >= deadline {
            bail!(
                "the votes up to {} are not rolled up and counted after {} s: is a sync-worker running?",
                archive.until_vote_id,
                ROLL_UP_WAIT_LIMIT.as_secs()
            );
        }
        sleep(ROLL_UP_LOOK_EVERY).await;
    }
    Ok(())
}

/// Reads the file of a checked archive, which must be the one that was checked.
fn read_again(archive: &Archive, place: &Place, head: &str) -> anyhow::Result<CheckedFile> {
    let checked = archive.file.as_ref().context("the archive is not checked")?;
    let (found_head, found) = file::read(&place.whole)?;
    if found != *checked || found_head != head {
        bail!(
            "{} is not the file that was checked; no further vote is dropped. Bring back that file, with the SHA-256 {}",
            place.whole.display(),
            hexadecimal(&checked.hash)
        );
    }
    Ok(found)
}

async fn drop_votes(ledger: &ArchiveLedger, archive: &Archive, file: &CheckedFile) -> anyhow::Result<()> {
    let bar = ProgressBar::new(u64::try_from(file.votes.total)?).with_style(
        ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} votes dropped, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_position(u64::try_from(archive.dropped_total)?);
    loop {
        let chunk = ledger.drop_archived(archive.id, &file.hash).await?;
        bar.inc(u64::try_from(chunk.dropped)?);
        if chunk.is_end {
            bar.finish_and_clear();
            return Ok(());
        }
    }
}

fn counting(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(&format!("{{human_pos}} {what}, {{elapsed}}")) {
        bar.set_style(style);
    }
    bar
}

async fn cancel(ledger: &ArchiveLedger, command: &ArchiveCancel) -> anyhow::Result<bool> {
    let archive = find(ledger, command.id).await?;
    let act = ledger.operator.act(ActKind::ArchiveCancel);
    if !ledger.cancel_archive(command.id, &act).await? {
        let why = match archive.state {
            ArchiveState::Cancelled => format!("archive {} is cancelled already", command.id.0),
            _ => format!(
                "votes of archive {} are dropped: its file alone has them",
                command.id.0
            ),
        };
        return Err(CommandRefusal::because("invalid-value", why));
    }
    report(&find(ledger, command.id).await?, command.database.json);
    Ok(true)
}

async fn list(ledger: &ArchiveLedger, as_json: bool) -> anyhow::Result<bool> {
    for archive in ledger.archives(LIST_LIMIT_ARCHIVES).await? {
        report(&archive, as_json);
    }
    Ok(true)
}

fn report(archive: &Archive, as_json: bool) {
    show(&described(archive), as_json);
}

fn described(archive: &Archive) -> Value {
    let file = archive.file.as_ref();
    json!({
        "archive": archive.id.0,
        "state": archive.state.name(),
        "created_at": archive.created_at,
        "file": archive.file_name(),
        "sha256": file.map(|file| hexadecimal(&file.hash)),
        "items": archive.items,
        "polls": archive.polls,
        "votes": file.map(|file| file.votes.total),
        "sum": file.map(|file| file.votes.net),
        "first_vote_id": file.and_then(|file| file.votes.first),
        "last_vote_id": file.and_then(|file| file.votes.last),
        "dropped_votes": archive.dropped_total,
    })
}
