//! `tally void`.

use std::time::Duration;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::show;
use super::trail::{Refused, note_end};
use crate::config::operator::Void;
use crate::domain::{
    ActKind, ActOutcome, AddressHash, REASON_LIMIT_CHARACTERS, Voiding, VoidingId, VoteFilter, VoteId,
    VoterId,
};
use crate::ledger::{InsertError, OperatorLedger};
use crate::live::{LiveCounts, Redis, SERVER_ANSWER_LIMIT};
use crate::shutdown;
use crate::telemetry::Program;
use crate::votes::{Direction, ProgressNotes, Voider};

/// How many voidings `--list` shows.
const LIST_LIMIT_VOIDINGS: i64 = 100;
/// How long it waits for Redis before it begins. Without Redis it goes on, and a sync worker rebuilds
/// the counts.
const REDIS_LIMIT: Duration = Duration::from_secs(5);
/// How often it looks whether Redis answers.
const REDIS_EVERY: Duration = Duration::from_millis(20);
/// How often a chunk is tried again that Postgres did not store or confirm.
const CHUNK_LIMIT_TRIES: u32 = 10;
/// The wait before another try.
const CHUNK_RETRY: Duration = Duration::from_millis(500);
/// How long the end waits until what is counted is noted. What is not noted, a sync worker rebuilds.
const LAST_NOTE_LIMIT: Duration = Duration::from_secs(5);
/// How often it tries to note it.
const NOTE_EVERY: Duration = Duration::from_millis(50);

/// Runs `tally void`. Returns whether all was done.
///
/// # Errors
/// When a store is unavailable, or what is asked for is not allowed.
pub async fn void(command: Void) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(&command.stores.database_url, "tally void")?;
    ledger.as_server().check().await?;
    let mut begun = Begun::default();
    let ended = run(&command, &ledger, &mut begun).await;
    note(&command, &ledger, begun, &ended).await;
    ledger.as_server().close().await;
    ended
}

/// The act that is under way, once its beginning is noted.
#[derive(Default)]
struct Begun(Option<(ActKind, VoidingId, i64)>);

/// Notes what became of a command that voids or undoes something. The making of a voiding is noted by
/// the statement that makes it.
async fn note(command: &Void, ledger: &OperatorLedger, begun: Begun, ended: &anyhow::Result<bool>) {
    let (what, voiding, begun_id) = match begun.0 {
        Some((what, id, begun_id)) => (what, Some(id.0), Some(begun_id)),
        None if command.list || ended.is_ok() => return,
        None if command.undo.is_some() => (ActKind::VoidingUndo, command.undo, None),
        None if command.resume.is_some() => (ActKind::VoidingRun, command.resume, None),
        None if command.apply => (ActKind::VoidingCreate, None, None),
        // It was only asked what would be done.
        None => return,
    };
    let target = voiding.map(|id| format!("voiding:{id}"));
    let details = match (voiding, ended) {
        (Some(id), Ok(_)) => find(ledger, VoidingId(id)).await.ok(),
        _ => None,
    };
    let details = details.map(|voiding| {
        json!({
            "voided_votes": voiding.voided_votes,
            "restored_votes": voiding.restored_votes,
            "left_votes": voiding.left_votes,
        })
    });
    let ended = ended.as_ref().map(|_| details.unwrap_or_else(|| json!({})));
    note_end(ledger, what, target.as_deref(), begun_id, ended).await;
}

async fn run(command: &Void, ledger: &OperatorLedger, begun: &mut Begun) -> anyhow::Result<bool> {
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
        return work_off(command, ledger, voiding, direction, begun).await;
    }
    if let Some(id) = command.undo {
        let voiding = find(ledger, VoidingId(id)).await?;
        if !voiding.is_done() {
            let why = format!("voiding {id} is not done; finish it first with --resume {id}");
            return Err(Refused::because("voiding-not-done", why));
        }
        return work_off(command, ledger, voiding, Direction::Undo, begun).await;
    }
    let (filter, reason) = wanted(command, ledger).await?;
    let until = ledger.last_vote().await?;
    if !command.apply {
        return dry_run(command, ledger, &filter, until).await;
    }
    let id = ledger.create_voiding(&filter, &reason, until).await?;
    let voiding = find(ledger, id).await?;
    work_off(command, ledger, voiding, Direction::Void, begun).await
}

/// What is to be voided, and why.
async fn wanted(command: &Void, ledger: &OperatorLedger) -> anyhow::Result<(VoteFilter, String)> {
    let voter_id = command.voter.clone().map(VoterId::parse).transpose();
    let voter_id = voter_id.map_err(|error| Refused::because("invalid-value", error.to_string()))?;
    let item_id = match &command.item {
        Some(item) => {
            let found = ledger.find_item(item).await?;
            let found = found
                .ok_or_else(|| Refused::because("unknown-item", format!("--item: there is no item {item}")));
            Some(found?)
        }
        None => None,
    };
    if let (Some(from), Some(until)) = (command.from, command.until)
        && from >= until
    {
        let why = "--until is not after --from, so no vote is between them";
        return Err(Refused::because("invalid-value", why));
    }
    let reason = command.reason.clone().unwrap_or_default();
    let characters = reason.chars().count();
    if !(1..=REASON_LIMIT_CHARACTERS).contains(&characters) {
        let why = format!("--reason has {characters} characters; it takes 1 to {REASON_LIMIT_CHARACTERS}");
        return Err(Refused::because("invalid-value", why));
    }
    let filter = VoteFilter {
        voter_id,
        item_id,
        cast_from: command.from,
        cast_until: command.until,
        addresses: addresses(command, ledger).await?,
    };
    Ok((filter, reason))
}

/// What may have been kept of the client whose votes are to be voided; `None`: it does not matter.
async fn addresses(command: &Void, ledger: &OperatorLedger) -> anyhow::Result<Option<Vec<AddressHash>>> {
    if let Some(vote) = command.address_of {
        let found = ledger.address_of(vote).await?;
        let found = found.ok_or_else(|| {
            let why = format!(
                "--address-of: of vote {vote} no address is kept: there is no such vote, it is older than \
                 TALLY_ADDRESS_RETENTION, a backend or a secret poll took it, or its server had no TALLY_ADDRESS_KEYS"
            );
            Refused::because("invalid-value", why)
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
    let found = ledger.voidings(Some(id), 1).await?;
    found
        .into_iter()
        .next()
        .ok_or_else(|| Refused::because("unknown-voiding", format!("there is no voiding {}", id.0)))
}

/// Says what would be done.
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
            "{votes} votes would be voided, whose values add up to {net}; --apply does it\n"
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

/// Stores and counts chunk after chunk, until all is done or the program is asked to stop.
async fn work_off(
    command: &Void,
    ledger: &OperatorLedger,
    voiding: Voiding,
    direction: Direction,
    begun: &mut Begun,
) -> anyhow::Result<bool> {
    // It takes many transactions, so its beginning is noted before the first of them.
    let what = match direction {
        Direction::Void => ActKind::VoidingRun,
        Direction::Undo => ActKind::VoidingUndo,
    };
    let act = ledger.act(what).outcome(ActOutcome::Begun, None);
    let target = format!("voiding:{}", voiding.id.0);
    let begun_id = ledger.note_act(&act, Some(&target)).await?;
    begun.0 = Some((what, voiding.id, begun_id));
    let server = ledger.as_server();
    let owner = server.owner().await?;
    let redis = Redis::new(
        &command.stores.redis_url,
        &command.stores.keys.key_prefix,
        SERVER_ANSWER_LIMIT,
    )?;
    if let Err(error) = redis.check(Program::Server).await
        && error.is_unfit()
    {
        return Err(error.into());
    }
    let (_tell, owner) = watch::channel(Some(owner));
    let live_counts = LiveCounts::open_as(owner, redis);
    let answers = async {
        while !live_counts.answers() {
            sleep(REDIS_EVERY).await;
        }
    };
    if timeout(REDIS_LIMIT, answers).await.is_err() {
        tracing::warn!("Redis does not answer: a sync worker will rebuild the counts");
    }
    let mut progress = ProgressNotes::new(server.clone(), live_counts.clone());
    let mut voider = Voider::new(server.writer(), live_counts.clone());
    let id = voiding.id;
    let bar = progress_bar(voiding.until_vote_id, "done");
    let is_whole = {
        let stop = shutdown::requested_or_deaf();
        tokio::pin!(stop);
        let noting = progress.run();
        tokio::pin!(noting);
        let chunks = async {
            while chunk(ledger, &mut voider, id, direction, &bar).await? {}
            anyhow::Ok(())
        };
        tokio::pin!(chunks);
        // A chunk that is cut off is stored or not, and recovery counts it.
        tokio::select! {
            ended = &mut chunks => ended.map(|()| true),
            () = &mut stop => Ok(false),
            () = &mut noting => Ok(false),
        }
    };
    bar.finish_and_clear();
    drop(voider);
    let noted = async {
        live_counts.repaired().await;
        while progress.note().await.is_err() {
            sleep(NOTE_EVERY).await;
        }
    };
    if timeout(LAST_NOTE_LIMIT, noted).await.is_err() {
        tracing::warn!("some counts are left for a sync worker to rebuild");
    }
    let is_whole = is_whole?;
    report(&find(ledger, id).await?, command.json);
    if !is_whole {
        bail!("stopped; tally void --resume {} goes on", id.0);
    }
    Ok(true)
}

/// Stores and counts the next chunk. Returns whether there is more.
async fn chunk(
    ledger: &OperatorLedger,
    voider: &mut Voider,
    id: VoidingId,
    direction: Direction,
    bar: &ProgressBar,
) -> anyhow::Result<bool> {
    let mut tries = 1;
    loop {
        let voiding = find(ledger, id).await?;
        let is_left = match direction {
            Direction::Void => !voiding.is_done(),
            Direction::Undo => !voiding.is_undone(),
        };
        if !is_left {
            return Ok(false);
        }
        match voider.chunk(id, direction).await {
            Ok(chunk) => {
                bar.set_position(position(chunk.up_to));
                return Ok(true);
            }
            // Whether or not it is stored, the next try goes on behind it.
            Err(error) if tries < CHUNK_LIMIT_TRIES => {
                tries += 1;
                tracing::warn!(%error, "a chunk was not stored, or not for certain; trying again");
                sleep(CHUNK_RETRY).await;
            }
            Err(InsertError::NotStored(error) | InsertError::Unknown(error)) => {
                return Err(anyhow::Error::from(error).context(format!(
                    "voiding {} is not done; tally void --resume {} goes on",
                    id.0, id.0
                )));
            }
        }
    }
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
