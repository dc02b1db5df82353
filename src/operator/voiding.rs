//! `tally void`.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::show;
use super::trail::{CommandRefusal, note_refusal};
use crate::config::voiding::Void;
use crate::domain::{ActKind, AddressHash, Voiding, VoidingId, VoteFilter, VoteId, VoterId, check_reason};
use crate::ledger::OperatorLedger;
use crate::live::{Redis, SERVER_ANSWER_LIMIT};
use crate::shutdown;
use crate::votes::{self, Direction, VoidingError};

/// The most voidings that `--list` shows.
const LIST_LIMIT_VOIDINGS: i64 = 100;

/// Runs `tally void`. Returns whether all was done. Fails when Redis is unavailable, or the request is not
/// allowed.
pub async fn void(command: Void) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(&command.stores.database_url, "tally void")?;
    ledger.as_server().check().await?;
    let ended = run(&command, &ledger).await;
    if let Err(error) = &ended {
        note(&command, &ledger, error).await;
    }
    ledger.as_server().close().await;
    ended
}

/// Notes a command that was refused, or failed before it voided or undid anything. Anything else is noted
/// where it is done.
async fn note(command: &Void, ledger: &OperatorLedger, error: &anyhow::Error) {
    let (what, voiding) = match (command.undo, command.resume) {
        // What has begun has its own outcome.
        _ if command.list || error.is::<VoidingError>() => return,
        (Some(id), _) => (ActKind::VoidingUndo, Some(id)),
        (None, Some(id)) => (ActKind::VoidingRun, Some(id)),
        (None, None) if command.apply => (ActKind::VoidingCreate, None),
        // The command only asked what would be done.
        (None, None) => return,
    };
    let target = voiding.map(|id| format!("voiding:{id}"));
    note_refusal(ledger, what, target.as_deref(), error).await;
}

async fn run(command: &Void, ledger: &OperatorLedger) -> anyhow::Result<bool> {
    if command.list {
        for voiding in ledger.voidings(None, LIST_LIMIT_VOIDINGS).await? {
            report(&voiding, command.json);
        }
        return Ok(true);
    }
    if let Some(id) = command.resume {
        let voiding = find(ledger, VoidingId(id)).await?;
        let direction = match voiding.undone_vote_id {
            None => Direction::Void,
            Some(_) => Direction::Undo,
        };
        return run_to_end(command, ledger, voiding, direction).await;
    }
    if let Some(id) = command.undo {
        let voiding = find(ledger, VoidingId(id)).await?;
        if !voiding.is_done() {
            let why = format!("voiding {id} is not done; finish it first with --resume {id}");
            return Err(CommandRefusal::because("voiding-not-done", why));
        }
        return run_to_end(command, ledger, voiding, Direction::Undo).await;
    }
    // What is found here must not be used after a failover, which gives some ids out again.
    let ledger_of_run = ledger.only_in_this_run().await?;
    let (filter, reason) = wanted(command, &ledger_of_run).await?;
    let archived = ledger_of_run.archived_total().await?;
    if archived > 0 && filter.item_id.is_none() {
        crate::telemetry::complain(format_args!(
            "{archived} votes are archived; those that match stay counted, since archived votes cannot be voided"
        ));
    }
    let until = ledger_of_run.last_vote().await?;
    if !command.apply {
        return dry_run(command, &ledger_of_run, &filter, until).await;
    }
    let id = ledger_of_run.create_voiding(&filter, &reason, until).await?;
    let voiding = find(&ledger_of_run, id).await?;
    run_to_end(command, &ledger_of_run, voiding, Direction::Void).await
}

/// Returns which votes to void, and why.
async fn wanted(command: &Void, ledger: &OperatorLedger) -> anyhow::Result<(VoteFilter, String)> {
    let voter_id = command.voter.clone().map(VoterId::parse_stored).transpose();
    let voter_id = voter_id.map_err(|error| CommandRefusal::because("invalid-value", error.to_string()))?;
    let item_id = match &command.item {
        Some(item) => {
            let found = ledger.find_item(item).await?;
            let found = found.ok_or_else(|| {
                CommandRefusal::because("unknown-item", format!("--item: there is no item {item}"))
            });
            Some(found?)
        }
        None => None,
    };
    if let Some(item) = item_id
        && let Some(archive) = ledger.archive_of(item).await?
    {
        let why = format!(
            "--item: the votes on item {item} are in archive {}, and archived votes cannot be voided",
            archive.0
        );
        return Err(CommandRefusal::because("invalid-value", why));
    }
    if let (Some(from), Some(until)) = (command.from, command.until)
        && from >= until
    {
        let why = "--until is not after --from, so no vote matches";
        return Err(CommandRefusal::because("invalid-value", why));
    }
    let reason = command.reason.clone().unwrap_or_default();
    check_reason(&reason)
        .map_err(|error| CommandRefusal::because("invalid-value", format!("--reason {error}")))?;
    let filter = VoteFilter {
        voter_id,
        item_id,
        cast_from: command.from,
        cast_until: command.until,
        addresses: addresses(command, ledger).await?,
        api_key: command.api_key,
    };
    if let Some(id) = filter.api_key
        && !ledger.has_api_key(id).await?
    {
        let why = format!(
            "--api-key: there is no API key {}; tally key list has their ids",
            id.0
        );
        return Err(CommandRefusal::because("unknown-api-key", why));
    }
    Ok((filter, reason))
}

/// Returns the address hashes of the client whose votes are voided. `None`: any client.
async fn addresses(command: &Void, ledger: &OperatorLedger) -> anyhow::Result<Option<Vec<AddressHash>>> {
    if let Some(vote) = command.address_of {
        let found = ledger.address_of(vote).await?;
        let found = found.ok_or_else(|| {
            let why = format!(
                "--address-of: of vote {vote} no address is kept: there is no such vote, it is older than \
                 TALLY_ADDRESS_RETENTION, a backend or a secret poll took it, or its server had no TALLY_ADDRESS_KEYS"
            );
            CommandRefusal::because("invalid-value", why)
        })?;
        return Ok(Some(vec![found]));
    }
    let keys = command.address_settings.keys.as_ref();
    Ok(command
        .address
        .zip(keys)
        .map(|(address, keys)| keys.hashes(address).collect()))
}

async fn find(ledger: &OperatorLedger, id: VoidingId) -> anyhow::Result<Voiding> {
    let found = ledger.voiding(id).await?;
    found.ok_or_else(|| CommandRefusal::because("unknown-voiding", format!("there is no voiding {}", id.0)))
}

/// Says which votes would be voided.
async fn dry_run(
    command: &Void,
    ledger: &OperatorLedger,
    filter: &VoteFilter,
    until: VoteId,
) -> anyhow::Result<bool> {
    let bar = progress_bar(until.get(), "looked at");
    let (mut after, mut votes, mut net) = (0, 0, 0);
    while after < until.get() {
        let next = ledger.votes_to_void(filter, after, until).await?;
        (after, votes, net) = (next.up_to, votes + next.votes, net + next.net);
        bar.set_position(position(after));
    }
    bar.finish_and_clear();
    if command.json {
        show(&json!({ "dry_run": true, "votes": votes, "sum": net }), true);
    } else {
        crate::telemetry::print(format_args!(
            "{votes} votes would be voided; their values add up to {net}; --apply voids them\n"
        ));
    }
    Ok(true)
}

fn position(vote: i64) -> u64 {
    u64::try_from(vote).unwrap_or_default()
}

fn progress_bar(until: i64, what: &str) -> ProgressBar {
    let template = format!("{{bar:30}} {{pos}}/{{len}} vote ids {what}, {{eta}} left");
    ProgressBar::new(position(until))
        .with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Voids chunk after chunk, until all is done or the program is asked to stop.
async fn run_to_end(
    command: &Void,
    ledger: &OperatorLedger,
    voiding: Voiding,
    direction: Direction,
) -> anyhow::Result<bool> {
    let redis = Redis::new(
        &command.stores.redis_url,
        &command.stores.keys.key_prefix,
        SERVER_ANSWER_LIMIT,
    )?;
    let id = voiding.id;
    let bar = progress_bar(voiding.until_vote_id, "done");
    let stop = shutdown::requested_or_deaf();
    let on_chunk = |up_to| bar.set_position(position(up_to));
    let ended = votes::run_voiding(ledger, &redis, id, direction, stop, on_chunk).await;
    bar.finish_and_clear();
    match ended {
        Ok(voiding) => report(&voiding, command.json),
        Err(error) => {
            if let (VoidingError::Stopped, Ok(voiding)) = (&error, find(ledger, id).await) {
                report(&voiding, command.json);
            }
            let what = match &error {
                VoidingError::Stopped => "stopped".to_owned(),
                _ => format!("voiding {} is not done", id.0),
            };
            let said = format!("{what}; tally void --resume {} continues", id.0);
            return Err(anyhow::Error::from(error).context(said));
        }
    }
    Ok(true)
}

fn report(voiding: &Voiding, as_json: bool) {
    show(
        &json!({
            "voiding": voiding.id.0,
            "reason": voiding.reason,
            "done": voiding.is_done(),
            "voided_votes": voiding.voided_votes,
            "restored_votes": voiding.undone_vote_id.map(|_| voiding.restored_votes),
            "left_void": voiding.undone_vote_id.map(|_| voiding.left_votes),
        }),
        as_json,
    );
}
