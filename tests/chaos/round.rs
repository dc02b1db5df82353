//! One round: load and faults, repair, quiescence, and the check.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tally::dev::PrivatePostgres;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::answers::{self, Answered};
use crate::ballots::BallotClients;
use crate::check::{self, Verdict};
use crate::clients::Clients;
use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::keyed::{KeyedClients, KeyedRecords};
use crate::persons::Persons;
use crate::quiescence;
use crate::records::Records;
use crate::ruled::RuledClients;
use crate::schedule::{AUDIT_OFTEN, LOAD, PAIR, Schedule};
use crate::stores::AllLost;
use crate::throttled::ThrottledClients;
use crate::voiding::Voiding;
use crate::watchers::Watchers;
use crate::windows::Windows;

/// One fault of a round, as it went.
#[derive(Clone, Copy, Debug)]
pub struct Injected {
    pub fault: Fault,
    /// Votes that were acknowledged while it lasted.
    pub acknowledged: u64,
}

/// What the clients with ballots, the operator and the throttles did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Drawn {
    /// Requests with a ballot, and the ballots that bought a vote, as far as clients know.
    pub ballots_sent: u64,
    pub ballots_bought: u64,
    pub voidings: u64,
    pub voided: u64,
    pub restored: u64,
    /// Edits of voters that were done.
    pub edits: u64,
    /// Times that `tally voter` or `tally import` was killed.
    pub edits_killed: u64,
    /// Times that `tally void` was killed.
    pub killed: u64,
    /// Votes that a throttle refused.
    pub throttled: u64,
    /// Votes whose tokens had run out, by the clock of a server that was ahead.
    pub ran_out: u64,
}

/// The result of a round.
#[derive(Debug)]
pub struct Round {
    pub seed: u64,
    pub injected: Vec<Injected>,
    pub verdict: Verdict,
    pub answered: Answered,
    /// Requests of the ruled clients that were answered.
    pub decided: u64,
    /// What the clients with ballots and the operator came to.
    pub drawn: Drawn,
    /// The time from the end of the last fault until every count was exact. In between, the
    /// clients sent all unacknowledged votes again. `None`: the counts never were exact.
    pub exact_after: Option<Duration>,
    /// Events of live streams that the watchers were sent, and streams that they opened.
    pub watched: (u64, u64),
    /// The time from exact counts until each watcher was shown them.
    pub shown_after: Option<Duration>,
    /// Attempts that windows of a day admitted and refused.
    pub attempts: (u64, u64),
    /// Hostile settings of sessions that there were from the beginning on.
    pub sessions: u64,
    /// Ids of votes, and of items, that went with a primary of Postgres and are others' now.
    pub given_again: (u64, u64),
    /// Requests that named an item by its key: votes that were acknowledged, answers that there is no such key,
    /// and reads.
    pub keyed: (u64, u64, u64),
    /// Events that the webhook was sent.
    pub sent_events: u64,
    /// What must not happen, in words. Empty for a round that is right.
    pub problems: Vec<String>,
}

impl Round {
    pub fn is_exact(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Plays a schedule with this many watchers of each server. Leaves `folder` behind, with the logs.
///
/// # Errors
/// When the stores cannot be set up. A later failure is a problem of the round.
pub async fn play(
    schedule: &Schedule,
    watchers: i64,
    folder: &Path,
    template: &PrivatePostgres,
) -> anyhow::Result<Round> {
    let cluster = Arc::new(Cluster::start(folder, template, &schedule.settings).await?);
    std::fs::write(folder.join("schedule.txt"), format!("{schedule:#?}\n"))?;
    let mut round = Round {
        seed: schedule.seed,
        injected: Vec::new(),
        verdict: Verdict::default(),
        answered: Answered::default(),
        decided: 0,
        drawn: Drawn::default(),
        exact_after: None,
        watched: (0, 0),
        shown_after: None,
        sessions: schedule.settings.sessions.len() as u64,
        attempts: (0, 0),
        given_again: (0, 0),
        keyed: (0, 0, 0),
        sent_events: 0,
        problems: Vec::new(),
    };
    let played = load_and_repair(schedule, watchers, &cluster, folder, &mut round).await;
    if let Err(error) = played {
        round.problems.push(format!("{error:#}"));
    }
    if !round.is_exact() {
        cluster.postgres.lock().await.keep_log(folder);
    }
    cluster.stop().await;
    Ok(round)
}

async fn load_and_repair(
    schedule: &Schedule,
    watchers: i64,
    cluster: &Arc<Cluster>,
    folder: &Path,
    round: &mut Round,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let settings = &schedule.settings;
    let windows = Windows::default();
    let mut closing = JoinSet::new();
    closing.spawn(windows.clone().close_when_repaired(Arc::clone(cluster)));
    let watchers = Watchers::start(&cluster.urls, watchers, settings.items);
    let clients = Clients::start(
        schedule.seed,
        settings.clients,
        settings.items,
        &cluster.urls,
        &cluster.pause,
    );
    let owner = cluster.postgres.lock().await.owner();
    let ruled = RuledClients::start(schedule.seed, &cluster.urls, &cluster.orderly, &owner).await?;
    let ballots = BallotClients::start(schedule.seed, &cluster.urls, &cluster.orderly, &owner).await?;
    let voiding = Voiding::start(schedule.seed, cluster, &owner, folder).await?;
    let persons = Persons::start(schedule.seed, cluster, &owner, folder).await?;
    let keyed = KeyedClients::start(schedule.seed, &cluster.urls, &cluster.pause);
    let throttled = ThrottledClients::start(schedule.seed, &cluster.urls, &cluster.pause, &owner).await?;
    let acknowledged = clients.acknowledged();
    let mut faults = JoinSet::new();
    for step in &schedule.steps {
        let (step, cluster, acknowledged) = (step.clone(), Arc::clone(cluster), Arc::clone(&acknowledged));
        let windows = step.fault.begins_epoch().then(|| windows.clone());
        faults.spawn(async move {
            sleep_until(began + step.at).await;
            let before = acknowledged.load(Ordering::Relaxed);
            if let Some(windows) = &windows {
                windows.begin();
            }
            let injected = cluster.inject(&step).await;
            if let Some(windows) = &windows {
                windows.end();
            }
            let during = acknowledged.load(Ordering::Relaxed) - before;
            (step.fault, injected, during)
        });
    }
    while let Some(ended) = faults.join_next().await {
        match ended? {
            (fault, Ok(true), acknowledged) => round.injected.push(Injected { fault, acknowledged }),
            (_, Ok(false), _) => {}
            (fault, Err(error), _) => round.problems.push(format!("{}: {error:#}", fault.name())),
        }
    }
    sleep_until(began + LOAD).await;
    // Every fault has ended by now.
    let repaired = Instant::now();
    let (mut records, keyed, throttled, ruled, ballots, voiding, persons) = tokio::try_join!(
        clients.finish(),
        keyed.finish(),
        throttled.finish(),
        ruled.finish(),
        ballots.finish(),
        voiding.finish(),
        persons.finish()
    )?;
    round.exact_after = until_exact(cluster, repaired).await;
    if round.exact_after.is_none() {
        round.problems.push("it never was exact again".to_owned());
    } else {
        let owner = cluster.postgres.lock().await.owner();
        let mut redis = cluster.redis.lock().await.connection().await?;
        let counts = check::counts(&owner, &mut redis).await?;
        match watchers.until_right(&counts).await {
            Ok(after) => round.shown_after = Some(after),
            Err(error) => round.problems.push(format!("{error:#}")),
        }
    }
    round.watched = watchers.events();
    if let Err(error) = quiescence::wait(cluster, settings.audit_cron == AUDIT_OFTEN).await {
        round.problems.push(format!("{error:#}"));
    }
    let lost = cluster.lost.lock().await.clone();
    let owner = cluster.postgres.lock().await.owner();
    let rows = check::rows(&mut *owner.acquire().await?).await?;
    round.verdict.went_with_primary = records.take_out(&lost, |row| rows.contains(row));
    round.answered = answers::judge(&records, &windows);
    round.problems.extend(round.answered.findings.iter().cloned());
    judge(cluster, &records, &keyed, &lost, round).await?;
    round.decided = ruled.answered;
    round
        .problems
        .extend(throttled.judge(counted_anew(&round.injected)));
    round.attempts = throttled.attempts();
    round.keyed = (keyed.acknowledged(), keyed.not_found, keyed.reads);
    round.problems.extend(ruled.judge(&owner).await?);
    round.problems.extend(cluster.webhook.judge(&owner).await?);
    round.sent_events = cluster.webhook.deliveries();
    let (voided, restored) = voiding.votes();
    round.drawn = Drawn {
        ballots_sent: ballots.sent(),
        ballots_bought: ballots.bought(),
        voidings: voiding.voidings(),
        voided,
        restored,
        killed: voiding.killed,
        edits: persons.edits,
        edits_killed: persons.killed,
        throttled: records.throttled,
        ran_out: records.ran_out,
    };
    let is_ahead = |one: &Injected| one.fault == Fault::ServerClockForward;
    if records.ran_out > 0 && !round.injected.iter().any(is_ahead) {
        let why = "tokens had run out, and no server's clock was ahead";
        round.problems.push(why.to_owned());
    }
    round.problems.extend(persons.judge(&owner).await?);
    let mut owner = owner.acquire().await?;
    round.problems.extend(ballots.judge(&mut owner).await?);
    round.problems.extend(voiding.judge(&mut owner).await?);
    Ok(())
}

/// How often the windows of throttles may have begun anew: each server counts alone while Redis does not answer
/// it, also on a busy machine, and forgets that when it is started again; and Redis may lose what it counted.
fn counted_anew(injected: &[Injected]) -> u64 {
    let begins_anew = |one: &&Injected| {
        matches!(
            one.fault,
            Fault::ServerKilled
                | Fault::ServerRestarted
                | Fault::RedisKilled
                | Fault::RedisEmpty
                | Fault::RedisOlder
                | Fault::RedisFailover
                | Fault::RedisWiped
        )
    };
    PAIR as u64 + injected.iter().filter(begins_anew).count() as u64
}

/// Waits until all counts are exact. Returns how long after `repaired` that was.
async fn until_exact(cluster: &Cluster, repaired: Instant) -> Option<Duration> {
    let owner = cluster.postgres.lock().await.owner();
    let mut redis = cluster.redis.lock().await.connection().await.ok()?;
    while repaired.elapsed() < quiescence::QUIESCENCE_LIMIT {
        let counts = check::counts(&owner, &mut redis).await;
        if counts.is_ok_and(|counts| check::are_exact(&counts)) {
            return Some(repaired.elapsed());
        }
        sleep(quiescence::LOOK_EVERY).await;
    }
    None
}

/// Judges once the programs report that they are quiescent: all must be right, and stay right.
async fn judge(
    cluster: &Cluster,
    records: &Records,
    keyed: &KeyedRecords,
    lost: &AllLost,
    round: &mut Round,
) -> anyhow::Result<()> {
    let owner = cluster.postgres.lock().await.owner();
    let mut redis = cluster.redis.lock().await.connection().await?;
    let counts = check::counts(&owner, &mut redis).await?;
    let went_with_primary = round.verdict.went_with_primary;
    let mut session = owner.acquire().await?;
    round.verdict = check::verdict(records, &counts, &mut session).await?;
    round.verdict.went_with_primary += went_with_primary;
    keyed.judge(lost, &mut session, &mut round.verdict).await?;
    round.given_again = lost.given_again(&mut session).await?;
    round.problems.extend(round.verdict.findings.iter().cloned());
    round
        .problems
        .extend(records.wrong_answers.iter().take(10).cloned());
    for checked in [cluster.expect_all_running().await, cluster.audit().await] {
        if let Err(error) = checked {
            round.problems.push(format!("{error:#}"));
        }
    }
    Ok(())
}
