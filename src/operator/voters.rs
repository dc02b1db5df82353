//! `tally voter`: shows, renames, merges and erases voters.

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::show;
use super::trail::{CommandRefusal, note_refusal};
use crate::config::voters::{Edit, Voter, VoterShow};
use crate::domain::{ActKind, NewVoterEdit, VoterEdit, VoterEditKind, VoterId, VoterSummary};
use crate::ledger::{EditInTheWay, OperatorLedger};
use crate::live::{Redis, SERVER_ANSWER_LIMIT};
use crate::shutdown;
use crate::telemetry;
use crate::votes::{self, VoterEditError};

/// The most edits that `tally voter list` shows.
const LIST_LIMIT_EDITS: i64 = 100;

/// Runs `tally voter`. Returns whether all was done.
///
/// # Errors
/// When a store is unavailable, or the edit is not possible. What is done stays done.
pub async fn voter(command: Voter) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(command.database_url(), "tally voter")?;
    ledger.as_server().check().await?;
    let ended = run(&command, &ledger).await;
    if let (Err(error), Some((_, _, _, edit))) = (&ended, command.edit())
        && edit.apply
        && !error.is::<VoterEditError>()
    {
        note_refusal(&ledger, ActKind::VoterEditCreate, None, error).await;
    }
    ledger.as_server().close().await;
    ended
}

async fn run(command: &Voter, ledger: &OperatorLedger) -> anyhow::Result<bool> {
    if let Some((kind, from, to, options)) = command.edit() {
        let new = NewVoterEdit::new(kind, from.clone(), to.cloned());
        let new = new.map_err(|error| CommandRefusal::because("invalid-value", error.to_string()))?;
        warn_of_archived(ledger).await?;
        return match options.apply {
            true => edit(ledger, &new, options).await,
            false => dry_run(ledger, &new, options).await,
        };
    }
    match command {
        Voter::Show(command) => {
            warn_of_archived(ledger).await?;
            show_voter(ledger, command).await
        }
        Voter::List(database) => {
            for edit in ledger.voter_edits(None, LIST_LIMIT_EDITS).await? {
                report(&edit, database.json);
            }
            Ok(true)
        }
        Voter::Rename(_) | Voter::Merge(_) | Voter::Erase(_) => Ok(true),
    }
}

/// Says that files may have votes of the voter.
async fn warn_of_archived(ledger: &OperatorLedger) -> anyhow::Result<()> {
    let archived = ledger.archived_total().await?;
    if archived > 0 {
        telemetry::complain(format_args!(
            "{archived} votes are archived: what files have of this voter is neither shown nor changed"
        ));
    }
    Ok(())
}

async fn show_voter(ledger: &OperatorLedger, command: &VoterShow) -> anyhow::Result<bool> {
    let summary = look(ledger, &command.voter, None, command.rows).await?;
    show(&summary_of(&summary), command.database.json);
    Ok(true)
}

fn summary_of(summary: &VoterSummary) -> Value {
    json!({
        "rows": summary.rows,
        "held_votes": summary.held_votes,
        "items": summary.items,
        "first_at": summary.first_at,
        "last_at": summary.last_at,
    })
}

/// Looks through the ledger for a voter's rows, and prints each if asked.
async fn look(
    ledger: &OperatorLedger,
    voter: &VoterId,
    other: Option<&VoterId>,
    prints_rows: bool,
) -> anyhow::Result<VoterSummary> {
    let ledger = ledger.only_in_this_run().await?;
    let until = ledger.last_vote().await?;
    let bar = progress_bar("looked at");
    bar.set_length(position(until.get()));
    let (mut after, mut summary) = (0, VoterSummary::default());
    while after < until.get() {
        let next = ledger.rows_of_voter(voter, other, after, until).await?;
        if prints_rows {
            for row in &next.rows {
                let line = serde_json::to_string(row)?;
                bar.suspend(|| telemetry::print(format_args!("{line}\n")));
            }
        }
        summary.add(&next.summary);
        after = next.up_to;
        bar.set_position(position(after));
    }
    bar.finish_and_clear();
    Ok(summary)
}

/// Says what an edit would do.
async fn dry_run(ledger: &OperatorLedger, new: &NewVoterEdit, options: &Edit) -> anyhow::Result<bool> {
    let other = (new.kind != VoterEditKind::Erase).then_some(&new.to);
    let summary = look(ledger, &new.from, other, false).await?;
    let others = match (new.kind, other) {
        (VoterEditKind::Rename, Some(other)) => look(ledger, other, None, false).await?.rows,
        _ => 0,
    };
    if others > 0 && summary.rows > 0 {
        let why = format!(
            "{:?} has {others} rows in the ledger, so nobody can get that voter id; tally voter merge makes two \
             voters one",
            new.to.as_str()
        );
        return Err(CommandRefusal::because("voter-taken", why));
    }
    if options.json {
        let mut said = summary_of(&summary);
        said["dry_run"] = true.into();
        said["items_of_both"] = summary.items_of_both.into();
        show(&said, true);
        return Ok(true);
    }
    let what = match new.kind {
        VoterEditKind::Rename => format!("would become those of {:?}", new.to.as_str()),
        VoterEditKind::Merge => format!(
            "would become those of {:?}; on {} items both hold a vote, and one of the two would be taken back",
            new.to.as_str(),
            summary.items_of_both
        ),
        VoterEditKind::Erase => "would become those of a random id".to_owned(),
    };
    telemetry::print(format_args!(
        "{} rows on {} items, {} votes held: {what}; --apply does it\n",
        summary.rows, summary.items, summary.held_votes
    ));
    Ok(true)
}

/// Creates an edit, or finds the one that was interrupted, and runs it to its end.
async fn edit(ledger: &OperatorLedger, new: &NewVoterEdit, options: &Edit) -> anyhow::Result<bool> {
    // What is found here must not be used after a failover, which gives some ids out again.
    let ledger = ledger.only_in_this_run().await?;
    let until = ledger.last_vote().await?;
    let made = ledger.create_voter_edit(new, until).await?;
    let id = made.map_err(|why| CommandRefusal::because("voter-edit-under-way", in_the_way(why)))?;
    let redis = Redis::new(
        &options.stores.redis_url,
        &options.stores.keys.key_prefix,
        SERVER_ANSWER_LIMIT,
    )?;
    let bar = progress_bar("done");
    let stop = shutdown::requested_or_deaf();
    let on_chunk = |edit: &VoterEdit| {
        let (done, of) = edit.progress();
        bar.set_length(position(of));
        bar.set_position(position(done));
    };
    let ended = votes::run_voter_edit(&ledger, &redis, id, stop, on_chunk).await;
    bar.finish_and_clear();
    let edit = ended.with_context(|| format!("edit {} is not done; the same command continues it", id.0))?;
    report(&edit, options.json);
    if edit.is_refused {
        let why =
            "the new voter id has votes, so nothing was changed; tally voter merge makes two voters one";
        // The run has noted it.
        return Err(anyhow::Error::new(VoterEditError::Taken).context(why));
    }
    Ok(true)
}

fn in_the_way(why: EditInTheWay) -> String {
    match why {
        EditInTheWay::Edit(id) => format!(
            "edit {} of one of these voters is not done; tally voter list shows it, and its own command continues it",
            id.0
        ),
        EditInTheWay::Voiding(id) => format!(
            "voiding {} of one of these voters is not done; finish it first with tally void --resume {}",
            id.0, id.0
        ),
        EditInTheWay::Archive(id) => {
            format!("archive {id} is not finished; finish it first with tally archive resume {id}")
        }
    }
}

fn report(edit: &VoterEdit, as_json: bool) {
    show(
        &json!({
            "edit": edit.id.0,
            "kind": edit.kind.name(),
            "state": edit.state(),
            "from": edit.from_voter_id,
            "to": edit.to_voter_id,
            "rows": edit.moved_rows,
            "taken_back": edit.taken_back_votes,
        }),
        as_json,
    );
}

fn position(ids: i64) -> u64 {
    u64::try_from(ids).unwrap_or_default()
}

fn progress_bar(what: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} vote ids {what}, {{eta}} left");
    ProgressBar::new(0)
        .with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
