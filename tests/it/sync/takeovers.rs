//! Takeovers: jobs of workers that stop, stall, die or have a clock that steps.
//! Who holds the jobs, and what becomes of a run.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::PgPool;
use tally::ledger::{Job, LedgerError, Overtaken, Pacing, RunOutcome, WorkerLedger};
use tally::sync::{Repair, SyncError};
use testkit::clock::Clock;
use testkit::stores::temporary_folder;

use super::jobs::{execute, make_work, number, run_out, watermark, worker};
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start, start_worker, stop, text};
use crate::helpers::stores::{Stores, blocker};
use crate::helpers::tally::Tally;

/// Who holds the roll-up, and the number of the lease.
async fn holder(pool: &PgPool) -> Option<(String, i64)> {
    sqlx::query_as("select holder, fencing_number from job where name = 'roll_up' and holder is not null")
        .fetch_optional(pool)
        .await
        .expect("Postgres answers")
}

async fn outcome(pool: &PgPool, number: i64) -> Option<String> {
    let statement = "select outcome from job_run where job = 'roll_up' and fencing_number = $1";
    let found: Option<Option<String>> = sqlx::query_scalar(statement)
        .bind(number)
        .fetch_optional(pool)
        .await
        .expect("Postgres answers");
    found.flatten()
}

/// Workers that only roll up, and whose audits come once a year.
const SELDOM: [(&str, &str); 1] = [("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];

/// A vote that is being stored.
/// A roll-up waits for its end, and keeps the lease meanwhile.
const VOTE: &str = "insert into vote (item_id) values (1)";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_stopped_past_its_lease_writes_nothing_when_it_goes_on() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    make_work(&pool).await;
    // Records who moves the watermark, under which lease.
    execute(
        &pool,
        "create table moved (fencing_number bigint, holder text);
         create function note_move() returns trigger security definer language plpgsql as $$
         begin
             insert into moved select fencing_number, holder from job where name = 'roll_up';
             return null;
         end $$;
         create trigger moved after update on watermark for each row execute function note_move()",
    )
    .await;
    let voting = blocker(&pool, VOTE).await;
    let first = start_worker(&stores, "one", &SELDOM);
    let (first_name, first_number) =
        eventually("the first has the lease", async || holder(&pool).await).await;
    first.freeze().await.expect("it runs");
    // Nobody does anything until the lease has expired. Then the second worker takes it.
    let second = start_worker(&stores, "two", &SELDOM);
    let (second_name, second_number) = eventually("the second takes over", async || {
        holder(&pool).await.filter(|(name, _)| *name != first_name)
    })
    .await;
    assert!(second_number > first_number, "{second_name}");
    // Without this stop, the second worker would roll up what the first one is about to.
    second.freeze().await.expect("it runs");
    voting.commit().await.expect("a commit");
    assert_eq!(watermark(&pool).await, 0);
    first.signal(Signal::SIGCONT).expect("it runs");
    eventually("the first has lost it", async || {
        (outcome(&pool, first_number).await? == "lost").then_some(())
    })
    .await;
    first.wait_for_line("another one took its job over").await;
    // The second worker stands still. So nobody may have written while its lease was the last.
    let late = format!("select count(*) from moved where fencing_number <= {second_number}");
    assert_eq!(number(&pool, &late).await, 0);
    second.signal(Signal::SIGCONT).expect("it runs");
    eventually("all votes are rolled up", async || {
        (watermark(&pool).await == 10).then_some(())
    })
    .await;
    let moved: Vec<(i64, Option<String>)> = sqlx::query_as("select fencing_number, holder from moved")
        .fetch_all(&pool)
        .await
        .expect("Postgres answers");
    // Each writer held the lease then: the second worker, or either one under a later lease.
    assert!(!moved.is_empty());
    for (number, holder) in &moved {
        let wrote = holder.as_deref();
        assert!(
            *number > second_number && wrote.is_some()
                || *number == second_number && wrote == Some(second_name.as_str()),
            "{moved:?}"
        );
    }
    let counted = number(&pool, "select vote_count from audited_count").await;
    assert_eq!(counted, 10, "each vote once");
    let recent = number(&pool, "select sum(ups)::bigint from recent_change").await;
    assert_eq!(recent, 10, "each vote once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_of_a_killed_worker_is_taken_over_and_one_that_stops_in_order_gives_it_back_at_once() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    make_work(&pool).await;
    let voting = blocker(&pool, VOTE).await;
    let mut killed = start_worker(&stores, "one", &SELDOM);
    let (_, number) = eventually("it has the lease", async || holder(&pool).await).await;
    killed.kill().await.expect("it runs");
    assert_eq!(
        holder(&pool).await.map(|(_, number)| number),
        Some(number),
        "nobody gave it back"
    );
    let second = start_worker(&stores, "two", &SELDOM);
    let (name, second_number) = eventually("the second takes over", async || {
        holder(&pool).await.filter(|(_, taken)| *taken > number)
    })
    .await;
    assert_eq!(outcome(&pool, number).await, None, "a killed run has no end");
    // The second worker still waits for the vote. It stops in order, and gives its lease back.
    stop(second, Signal::SIGTERM).await;
    assert_eq!(holder(&pool).await, None, "{name}");
    assert_eq!(outcome(&pool, second_number).await.as_deref(), Some("stopped"));
    voting.commit().await.expect("a commit");
    let third = start_worker(&stores, "three", &SELDOM);
    eventually("all votes are rolled up", async || {
        (watermark(&pool).await == 10).then_some(())
    })
    .await;
    stop(third, Signal::SIGTERM).await;
}

/// The audit waits for a vote, and holds two leases: its own and the roll-up's.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_renews_its_leases_while_it_waits_and_ends_an_audit_that_another_one_has_taken_over() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    worker.flush().await.expect("a flush");
    let voting = blocker(&tally.pool, "lock table vote in row exclusive mode").await;
    let auditing = tokio::spawn(async move { worker.audit(Repair::Yes).await });
    eventually("it has both leases", async || {
        let held = number(&tally.pool, "select count(*) from job where holder is not null").await;
        (held == 2).then_some(())
    })
    .await;
    run_out(&tally.pool).await;
    let taking = "update job set fencing_number = fencing_number + 1, holder = 'b' where name = 'audit'";
    execute(&tally.pool, taking).await;
    eventually("the lease that it still has is renewed", async || {
        let live = "select count(*) from job where name = 'roll_up' and lease_until > clock_timestamp()";
        (number(&tally.pool, live).await == 1).then_some(())
    })
    .await;
    voting.rollback().await.expect("an end");
    // It has nothing to repair, and still ends.
    let ended = auditing.await.expect("no panic");
    assert!(
        matches!(
            ended,
            Err(SyncError::Ledger(LedgerError::Overtaken(Overtaken::LeaseLost(
                "audit"
            ))))
        ),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_steps_moves_leases_and_lets_no_two_workers_write() {
    const HOUR: i64 = 3600;
    let folder = temporary_folder("stores-").expect("a folder");
    let clock = Clock::new(folder.path()).expect("a clock");
    let stores = Stores::start_in(folder, clock.variables()).await;
    let pool = stores.pool();
    make_work(&pool).await;
    let (first, second) = (worker(&stores, "a"), worker(&stores, "b"));
    let take = async |ledger: &WorkerLedger| {
        let taken = ledger.take_job(Job::RollUp).await.expect("Postgres answers");
        taken.lease
    };
    let safe = first.safe_vote_id().await.expect("a safe id");
    let mut held = take(&first).await.expect("it is free");
    assert!(take(&second).await.is_none());
    let (mut holder, mut other) = (&first, &second);
    for step in [HOUR, -2 * HOUR, HOUR / 2] {
        clock.step(step).expect("a file");
        // The lease looks expired, or has an end that no lease has: another worker takes it.
        let next = eventually("the job is taken over", async || take(other).await).await;
        let before = watermark(&pool).await;
        let late = holder.roll_up_votes(&held, &safe, 1, Pacing::Spread).await;
        assert!(
            matches!(late, Err(LedgerError::Overtaken(Overtaken::LeaseLost(_)))),
            "{late:?}"
        );
        assert_eq!(watermark(&pool).await, before);
        other
            .roll_up_votes(&next, &safe, 1, Pacing::Spread)
            .await
            .expect("it is held");
        assert_eq!(watermark(&pool).await, before + 1);
        assert!(
            take(holder).await.is_none(),
            "it is held, by the stepped clock too"
        );
        held = next;
        std::mem::swap(&mut holder, &mut other);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_wait_for_a_worker_that_is_at_its_job_unless_they_only_read() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.add(item, 1).await;
    let other = worker(&tally.stores, "a");
    let taken = other.take_job(Job::Audit).await.expect("Postgres answers");
    let lease = taken.lease.expect("it is free");
    let mut audit = command(TALLY, Some(&tally.stores));
    audit.arg("audit");
    let output = run(audit).await;
    assert!(output.status.success(), "{}", text(&output.stderr));

    let mut once = command(SYNC_WORKER, Some(&tally.stores));
    once.arg("--once");
    let once = start(once, &tally.stores, "once");
    let mut repair = command(TALLY, Some(&tally.stores));
    repair.args(["audit", "--repair"]);
    let repair = start(repair, &tally.stores, "repair");
    let runs = "select count(*) from job_run where job = 'audit'";
    eventually("both have asked for the job", async || {
        other.renew_job(&lease).await.expect("it is held");
        let asking: i64 = sqlx::query_scalar(
            "select count(distinct application_name) from pg_stat_activity
             where application_name in ('tally sync-worker', 'tally audit')
               and starts_with(query, '-- Takes the lease')",
        )
        .fetch_one(&tally.pool)
        .await
        .ok()?;
        (asking == 2).then_some(())
    })
    .await;
    assert_eq!(number(&tally.pool, runs).await, 1);
    other
        .end_job(&lease, RunOutcome::Done, Duration::ZERO, &json!(null))
        .await
        .expect("Postgres answers");
    for mut program in [once, repair] {
        assert_eq!(program.wait().await, Some(0), "{}", program.output());
    }
    assert_eq!(number(&tally.pool, runs).await, 3);
    let done = "select count(*) from job_run where job = 'audit' and outcome = 'done'";
    assert_eq!(number(&tally.pool, done).await, 3);
}
