//! Tests that the checks find what is wrong. Clients and an operator work on a cluster that fails over to a
//! standby that lagged; then this breaks the ledger, or what was recorded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sqlx::{Acquire, PgConnection, Postgres, Transaction};
use testkit::until;

use crate::ballots::{self, BallotClients, BallotRecords};
use crate::check::{self, Verdict};
use crate::clients::Clients;
use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::keyed::{self, KeyedClients, KeyedRecords};
use crate::records::Records;
use crate::schedule::{self, PAIR, Step};
use crate::stores::{self, AllLost};
use crate::throttled::{self, ThrottledClients, ThrottledRecords};
use crate::voiding::{self, Voiding, VoidingRecords};

/// The round of this seed gives the settings, and none of its faults.
const SEED: u64 = 0;
/// Clients that vote by id.
const CLIENTS: usize = 6;
/// What happens once there is something of each kind.
const FAILOVER: Step = Step {
    at: Duration::ZERO,
    fault: Fault::PostgresFailover,
    which: 0,
    lasting: Duration::from_millis(500),
    program: None,
};
/// How long it may take until there is something of every kind to break.
const LIMIT: Duration = Duration::from_secs(120);

/// Says whether there is something of every kind.
const IS_ENOUGH: &str = "
    select (select count(vote_id) from ballot) > 10
       and (select count(*) from vote join item on item.id = item_id where name = 'secret') > 3
       and exists (select from place join item on item.id = item_id
                   where name = 'limited ballots' and taken = max_votes)
       and exists (select from place join vote using (item_id) join item on item.id = vote.item_id
                   where name = 'voided limited' and change_number % 2 = 1)
       and exists (select from voided join vote on vote.id = vote_id join item on item.id = item_id
                   where name = 'voided numbered')
       and exists (select from voided join vote on vote.id = vote_id join item on item.id = item_id
                   where again_vote_id is not null and name = 'voided many')
       and (select count(*) from voided join vote on vote.id = vote_id where voter_id is not null) > 3
       and exists (select from recent_change)
       and (select count(*) from vote where starts_with(voter_id, 'keyed-')) > 20
       and (select count(*) from vote where starts_with(voter_id, 'voter-')) > 20";

/// Plays it in `folder`.
///
/// # Errors
/// When something that is right is found wrong, or something wrong is not found.
pub async fn play(folder: &Path) -> anyhow::Result<()> {
    let template = stores::template(folder).await?;
    let folder = folder.join("cluster");
    let settings = schedule::draw(SEED, None).settings;
    let cluster = Arc::new(Cluster::start(&folder, &template, &settings).await?);
    let owner = cluster.postgres.lock().await.owner();
    let ballots = BallotClients::start(SEED, &cluster.urls, &cluster.orderly, &owner).await?;
    let voiding = Voiding::start(SEED, &cluster, &owner, &folder).await?;
    let throttled = ThrottledClients::start(SEED, &cluster.urls, &cluster.pause, &owner).await?;
    let keyed = KeyedClients::start(SEED, &cluster.urls, &cluster.pause);
    let plain = Clients::start(SEED, CLIENTS, settings.items, &cluster.urls, &cluster.pause);
    let enough = until("there is something of each kind", LIMIT, async || {
        let is_enough = sqlx::query_scalar(IS_ENOUGH).fetch_one(&owner).await;
        is_enough.ok().filter(|is_enough: &bool| *is_enough)
    });
    enough.await?;
    cluster.inject(&FAILOVER).await?;
    let (mut ballots, voiding, keyed, plain, throttled) = tokio::try_join!(
        ballots.finish(),
        voiding.finish(),
        keyed.finish(),
        plain.finish(),
        throttled.finish()
    )?;
    let lost = cluster.lost.lock().await.clone();
    let checked = async {
        let mut owner = owner.acquire().await?;
        ballots::tampering::add_ballots(&mut ballots, &mut owner).await?;
        check(&mut owner, &ballots, &voiding).await?;
        check_votes(&mut owner, &plain, &keyed, &lost).await?;
        check_throttles(&throttled)
    };
    let checked = checked.await;
    cluster.stop().await;
    checked
}

async fn check(
    owner: &mut PgConnection,
    ballots: &BallotRecords,
    voiding: &VoidingRecords,
) -> anyhow::Result<()> {
    let right = [
        of_ballots(owner, ballots).await?,
        of_voidings(owner, voiding).await?,
    ]
    .concat();
    if !right.is_empty() {
        bail!("nothing is broken yet: {right:#?}");
    }
    let mut missed = Vec::new();
    for (statement, part) in ballots::tampering::STATEMENTS {
        let mut broken = broken(owner, statement).await?;
        missed.extend(not_found(
            &of_ballots(&mut broken, ballots).await?,
            part,
            statement,
        ));
        broken.rollback().await?;
    }
    for (statement, part) in voiding::tampering::STATEMENTS {
        let mut broken = broken(owner, statement).await?;
        missed.extend(not_found(
            &of_voidings(&mut broken, voiding).await?,
            part,
            statement,
        ));
        broken.rollback().await?;
    }
    for (at, (broken, part)) in ballots::tampering::records(ballots).into_iter().enumerate() {
        let found = of_ballots(owner, &broken).await?;
        missed.extend(not_found(&found, part, &format!("records of ballots, {at}")));
    }
    for (at, (broken, part)) in voiding::tampering::records(voiding).into_iter().enumerate() {
        let found = of_voidings(owner, &broken).await?;
        missed.extend(not_found(&found, part, &format!("records of voidings, {at}")));
    }
    if !missed.is_empty() {
        bail!(missed.join("\n"));
    }
    Ok(())
}

/// The same for the votes by id and by key.
async fn check_votes(
    owner: &mut PgConnection,
    plain: &Records,
    keyed: &KeyedRecords,
    lost: &AllLost,
) -> anyhow::Result<()> {
    let right = of_votes(owner, plain, keyed, lost).await?;
    if !right.findings.is_empty() {
        bail!("no vote is broken yet: {:#?}", right.findings);
    }
    if right.went_with_primary == 0 {
        bail!("the failover lost nothing");
    }
    let mut missed = Vec::new();
    for (statement, part) in keyed::tampering::STATEMENTS {
        let mut broken = broken(owner, statement).await?;
        let found = of_votes(&mut broken, plain, keyed, lost).await?.findings;
        missed.extend(not_found(&found, part, statement));
        broken.rollback().await?;
    }
    // What was lost without a failover is lost, and so is what was acknowledged after one.
    for (of, lost) in [
        ("no failover", AllLost::default()),
        ("an earlier one", lost.earlier()),
    ] {
        let found = of_votes(owner, plain, keyed, &lost).await?.findings;
        for part in ["acknowledged, and not there", "which is not its row"] {
            missed.extend(not_found(&found, part, of));
        }
    }
    if !missed.is_empty() {
        bail!(missed.join("\n"));
    }
    Ok(())
}

/// The same for the throttles. Each server may have counted alone on a busy machine.
fn check_throttles(records: &ThrottledRecords) -> anyhow::Result<()> {
    let right = records.judge(PAIR as u64);
    if !right.is_empty() || !throttled::tampering::is_enough(records) {
        bail!("no throttle is broken yet, and some have refused: {right:#?}");
    }
    let broken = throttled::tampering::records(records).into_iter();
    let missed: Vec<String> = broken
        .enumerate()
        .filter_map(|(at, (broken, part))| {
            let found = broken.judge(0);
            not_found(&found, part, &format!("records of throttles, {at}"))
        })
        .collect();
    if !missed.is_empty() {
        bail!(missed.join("\n"));
    }
    Ok(())
}

/// What the checks of votes find.
async fn of_votes(
    owner: &mut PgConnection,
    plain: &Records,
    keyed: &KeyedRecords,
    lost: &AllLost,
) -> anyhow::Result<Verdict> {
    let mut plain = plain.clone();
    let rows = check::rows(owner).await?;
    let taken_out = plain.take_out(lost, |row| rows.contains(row));
    let mut verdict = check::verdict(&plain, &[], owner).await?;
    verdict.went_with_primary += taken_out;
    verdict.finds_all();
    keyed.judge(lost, owner, &mut verdict).await?;
    Ok(verdict)
}

/// A transaction in which this statement has broken something. Triggers and constraints that would
/// refuse it are off.
async fn broken<'c>(
    owner: &'c mut PgConnection,
    statement: &str,
) -> anyhow::Result<Transaction<'c, Postgres>> {
    let mut transaction = owner.begin().await?;
    sqlx::raw_sql(
        "set local session_replication_role = replica; drop index vote_number; drop index voided_by;
         alter table place drop constraint place_is_not_overfull",
    )
    .execute(&mut *transaction)
    .await?;
    let changed = sqlx::query(statement)
        .execute(&mut *transaction)
        .await
        .with_context(|| statement.to_owned())?;
    if changed.rows_affected() == 0 {
        bail!("it changes nothing: {statement}");
    }
    Ok(transaction)
}

/// What the checks of ballots find.
async fn of_ballots(owner: &mut PgConnection, records: &BallotRecords) -> anyhow::Result<Vec<String>> {
    let mut found = testkit::rules::broken(&mut *owner).await?;
    found.extend(records.judge(owner).await?);
    Ok(found)
}

/// What the checks of voidings find.
async fn of_voidings(owner: &mut PgConnection, records: &VoidingRecords) -> anyhow::Result<Vec<String>> {
    let mut found = testkit::rules::broken(&mut *owner).await?;
    found.extend(records.clone().judge(owner).await?);
    Ok(found)
}

fn not_found(found: &[String], part: &str, broken: &str) -> Option<String> {
    let is_found = found.iter().any(|problem| problem.contains(part));
    (!is_found).then(|| format!("{part:?} is not found after: {broken}\nfound: {found:#?}"))
}
