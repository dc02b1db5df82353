//! Jobs: one worker at a time, under a lease whose number each write looks at.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::PgPool;
use tally::ledger::{Job, LedgerError, Pacing, Role, RunOutcome, WorkerLedger};
use tally::sync::{Repair, SyncError};
use testkit::clock::Clock;
use testkit::stores::temporary_folder;

use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start, start_worker, stop, text};
use crate::helpers::stores::{Stores, blocker};
use crate::helpers::tally::Tally;

const DAY: Duration = Duration::from_secs(86_400);
const JOBS: [Job; 5] = [
    Job::RollUp,
    Job::Audit,
    Job::DeleteKeys,
    Job::DeleteAddresses,
    Job::SumRecent,
];

/// Another worker, with the login of one.
fn worker(stores: &Stores, name: &str) -> WorkerLedger {
    WorkerLedger::new(&stores.login_url(Role::Worker), name).expect("a URL")
}

async fn number(pool: &PgPool, statement: &str) -> i64 {
    sqlx::query_scalar(statement)
        .fetch_one(pool)
        .await
        .expect(statement)
}

async fn watermark(pool: &PgPool) -> i64 {
    number(pool, "select vote_id from watermark").await
}

async fn execute(pool: &PgPool, statement: &str) {
    sqlx::raw_sql(statement).execute(pool).await.expect(statement);
}

/// The lease of a job has run out, as far as Postgres can tell.
async fn run_out(pool: &PgPool) {
    execute(
        pool,
        "update job set lease_until = clock_timestamp() - interval '1 second' where holder is not null",
    )
    .await;
}

/// An item, votes on it that nobody has rolled up, and an old idempotency key.
async fn make_work(pool: &PgPool) {
    execute(
        pool,
        "insert into item (name) values ('x');
         insert into vote (item_id) select 1 from generate_series(1, 9);
         insert into idempotency_key (key_hash, body_hash, created_at)
         values (sha256('x'), sha256('x'), now() - interval '2 days');
         insert into vote_address (vote_id, address_hash, noted_at)
         values (1, substr(sha256('x'), 1, 16), now() - interval '2 days')",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_one_holder_and_each_lease_a_greater_number() {
    let stores = Stores::start().await;
    let (first, second) = (worker(&stores, "a"), worker(&stores, "b"));
    for job in JOBS {
        let taken = first.take_job(job).await.expect("Postgres answers");
        let lease = taken.lease.expect("it is free");
        let refused = second.take_job(job).await.expect("Postgres answers");
        assert!(refused.lease.is_none(), "{job}");
        assert!(refused.holder.expect("a holder").starts_with("a "), "{job}");
        // Not even its holder has it twice.
        assert!(
            first
                .take_job(job)
                .await
                .expect("Postgres answers")
                .lease
                .is_none()
        );
        let outcome = first
            .end_job(
                &lease,
                RunOutcome::Done,
                Duration::from_secs(1),
                &json!({ "items": 7 }),
            )
            .await;
        assert_eq!(outcome.expect("Postgres answers"), RunOutcome::Done);
        let taken = second.take_job(job).await.expect("Postgres answers");
        let next = taken.lease.expect("it was given back");
        assert!(next.number() > lease.number(), "{job}");
        assert!(taken.succeeded_at.is_some(), "{job}");
        // The end of one that has ended changes nothing.
        let outcome = first
            .end_job(&lease, RunOutcome::Done, Duration::ZERO, &json!(null))
            .await;
        assert_eq!(outcome.expect("Postgres answers"), RunOutcome::Lost);
        second.renew_job(&next).await.expect("it is held");
        // A worker that stops gives back all that it has.
        second.give_back_jobs().await.expect("Postgres answers");
        let lost = second.renew_job(&next).await.expect_err("it was given back");
        assert!(matches!(lost, LedgerError::LeaseLost(_)), "{lost}");
    }
    let runs: Vec<(i64, String, Option<i64>, Option<String>)> = sqlx::query_as(
        "select fencing_number, outcome, took_micros, details::text from job_run where job = 'audit' order by 1",
    )
    .fetch_all(&stores.pool())
    .await
    .expect("Postgres answers");
    assert_eq!(
        runs,
        [
            (
                1,
                "done".to_owned(),
                Some(1_000_000),
                Some("{\"items\": 7}".to_owned())
            ),
            (2, "stopped".to_owned(), None, None),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_while_it_writes_for_a_job_gives_back_all_others() {
    let stores = Stores::start().await;
    let (first, second) = (worker(&stores, "a"), worker(&stores, "b"));
    for job in JOBS {
        let taken = first.take_job(job).await.expect("Postgres answers");
        assert!(taken.lease.is_some(), "{job}");
    }
    let writing = blocker(&stores.pool(), "select from job where name = 'roll_up' for share").await;
    first.give_back_jobs().await.expect("Postgres answers");
    writing.commit().await.expect("a commit");
    for job in JOBS {
        let taken = second.take_job(job).await.expect("Postgres answers");
        assert_eq!(taken.lease.is_some(), job != Job::RollUp, "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_holder_writes_after_its_job_was_taken_over_changes_nothing() {
    after_a_takeover_by(|stores, _| worker(stores, "b")).await;
}

/// A worker takes its own jobs again when their leases have run out.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_holder_writes_after_its_job_was_taken_by_one_of_its_name_changes_nothing() {
    after_a_takeover_by(|_, first| first.clone()).await;
}

async fn after_a_takeover_by(taker: impl FnOnce(&Stores, &WorkerLedger) -> WorkerLedger) {
    let stores = Stores::start().await;
    let pool = stores.pool();
    make_work(&pool).await;
    let keys = async || number(&pool, "select count(*) from idempotency_key").await;
    let addresses = async || number(&pool, "select count(*) from vote_address").await;
    let first = worker(&stores, "a");
    let second = taker(&stores, &first);
    let mut leases = Vec::new();
    for job in JOBS {
        let taken = first.take_job(job).await.expect("Postgres answers");
        leases.push(taken.lease.expect("it is free"));
    }
    let [roll_up, audit, delete_keys, delete_addresses, sum_recent] = leases.try_into().expect("five");
    let safe = first.safe_vote_id().await.expect("a safe id");
    // While the lease has only run out, it is still the last one.
    run_out(&pool).await;
    let chunk = first
        .roll_up_votes(&roll_up, &safe, 2, Pacing::Spread)
        .await
        .expect("it is held");
    assert_eq!(chunk.expect("votes").watermark.get(), 2);
    let mut taken_over = Vec::new();
    for job in JOBS {
        let taken = second.take_job(job).await.expect("Postgres answers");
        taken_over.push(taken.lease.expect("it has run out"));
    }
    let is_lost = |ended: Result<(), LedgerError>| matches!(ended, Err(LedgerError::LeaseLost(_)));
    assert!(is_lost(
        first
            .roll_up_votes(&roll_up, &safe, 2, Pacing::Spread)
            .await
            .map(|_| ())
    ));
    assert!(is_lost(first.delete_old_keys(&delete_keys).await.map(|_| ())));
    let deleted = first.delete_old_addresses(DAY, &delete_addresses).await;
    assert!(is_lost(deleted.map(|_| ())));
    assert!(is_lost(first.sum_recent(&sum_recent).await.map(|_| ())));
    assert!(is_lost(first.shrink_recent(&sum_recent).await.map(|_| ())));
    let summed = async || number(&pool, "select coalesce(sum(ups)::bigint, 0) from recent_change").await;
    assert_eq!(summed().await, 0);
    assert!(is_lost(first.check_job(&audit).await));
    assert!(is_lost(first.renew_job(&audit).await));
    assert!(is_lost(audit.check()));
    assert_eq!(
        (watermark(&pool).await, keys().await, addresses().await),
        (2, 1, 1)
    );
    for lease in [&roll_up, &audit, &delete_keys, &delete_addresses, &sum_recent] {
        let ended = first
            .end_job(lease, RunOutcome::Done, Duration::ZERO, &json!(null))
            .await;
        assert_eq!(ended.expect("Postgres answers"), RunOutcome::Lost);
    }
    // The other one goes on, undisturbed.
    let [roll_up, audit, delete_keys, delete_addresses, sum_recent] = taken_over.try_into().expect("five");
    second
        .roll_up_votes(&roll_up, &safe, 2, Pacing::Spread)
        .await
        .expect("it is held");
    second.check_job(&audit).await.expect("it is held");
    let deleted = second.delete_old_keys(&delete_keys).await.expect("it is held");
    assert_eq!(deleted, (1, false));
    let deleted = second.delete_old_addresses(DAY, &delete_addresses).await;
    assert_eq!(deleted.expect("it is held"), (1, false));
    second.sum_recent(&sum_recent).await.expect("it is held");
    assert_eq!(summed().await, watermark(&pool).await);
    assert_eq!(
        (watermark(&pool).await, keys().await, addresses().await),
        (4, 0, 0)
    );
    let lost = number(&pool, "select count(*) from job_run where outcome = 'lost'").await;
    assert_eq!(lost, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_job_is_shown_with_the_last_of_its_own_runs_that_has_ended() {
    let tally = Tally::start().await;
    let first = worker(&tally.stores, "a");
    let take = async |job| first.take_job(job).await.expect("Postgres answers").lease;
    for (job, runs) in [(Job::Audit, 1), (Job::RollUp, 3)] {
        for run in 1..=runs {
            let lease = take(job).await.expect("it is free");
            let (outcome, details) = (RunOutcome::Done, json!({ "run": run, "of": job.name() }));
            let ended = first.end_job(&lease, outcome, Duration::ZERO, &details).await;
            assert_eq!(ended.expect("Postgres answers"), RunOutcome::Done);
        }
    }
    // Under way.
    take(Job::Audit).await.expect("it is free");
    take(Job::DeleteKeys).await.expect("it is free");
    let (_, shown) = tally.get("/v1/status").await;
    let jobs = shown["jobs"].as_array().expect("jobs").iter();
    let last_runs: Vec<_> = jobs
        .map(|job| json!([job["name"], !job["holder"].is_null(), job["last_run"]["details"]]))
        .collect();
    assert_eq!(
        last_runs,
        [
            json!(["audit", true, { "run": 1, "of": "audit" }]),
            json!(["delete_addresses", false, null]),
            json!(["delete_keys", true, null]),
            json!(["roll_up", false, { "run": 3, "of": "roll_up" }]),
            json!(["sum_recent", false, null]),
        ],
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_a_job_over_between_the_look_at_the_number_and_the_commit_of_what_is_written() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let (first, second) = (worker(&stores, "a"), worker(&stores, "b"));
    let taken = first.take_job(Job::RollUp).await.expect("Postgres answers");
    let lease = taken.lease.expect("it is free");
    run_out(&pool).await;
    // As the transaction of a roll-up does.
    let writing = blocker(
        &pool,
        "select from job where name = 'roll_up' and fencing_number = 1 for share",
    )
    .await;
    assert!(
        second
            .take_job(Job::RollUp)
            .await
            .expect("Postgres answers")
            .lease
            .is_none()
    );
    writing.commit().await.expect("a commit");
    let taken = second.take_job(Job::RollUp).await.expect("Postgres answers");
    let held = taken.lease.expect("it has run out");
    assert!(held.number() > lease.number());
    // And the other way round: a write waits for a job that is being taken over, and then knows.
    run_out(&pool).await;
    let taking = blocker(
        &pool,
        "update job set fencing_number = fencing_number + 1, holder = 'c' where name = 'roll_up'",
    )
    .await;
    let waited = second
        .check_job(&held)
        .await
        .expect_err("the job is being taken over");
    assert!(waited.is_lock_timeout(), "{waited}");
    taking.commit().await.expect("a commit");
    let ended = second.check_job(&held).await;
    assert!(matches!(ended, Err(LedgerError::LeaseLost(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_do_each_job_one_at_a_time_and_the_last_runs_are_kept() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let settings = [("TALLY_FLUSH_EVERY", "50ms"), ("TALLY_AUDIT_CRON", "* * * * * *")];
    let workers = ["one", "two"].map(|name| start_worker(&tally.stores, name, &settings));
    eventually("both have done the roll-up and the audit", async || {
        tally.add(item, 1).await;
        let done = number(
            &tally.pool,
            "select count(*) from (
                 select job, worker from job_run where outcome = 'done' and job in ('roll_up', 'audit')
                 group by job, worker having count(*) >= 2) as done",
        )
        .await;
        (done == 4).then_some(())
    })
    .await;
    let keys = number(
        &tally.pool,
        "select count(distinct job) from job_run where job in ('delete_keys', 'delete_addresses')",
    )
    .await;
    assert_eq!(keys, 2);
    for worker in workers {
        stop(worker, Signal::SIGTERM).await;
    }
    let overlaps = "select count(*) from job_run as one join job_run as other
                    on other.job = one.job and other.fencing_number > one.fencing_number
                    where one.ended_at is null or other.started_at < one.ended_at";
    assert_eq!(number(&tally.pool, overlaps).await, 0);
    assert_eq!(
        number(&tally.pool, "select count(*) from job where holder is not null").await,
        0
    );
    tally.assert_exact_when_quiescent(item).await;

    let ledger = worker(&tally.stores, "a");
    for _ in 0..110 {
        let taken = ledger.take_job(Job::Audit).await.expect("Postgres answers");
        let lease = taken.lease.expect("it is free");
        ledger
            .end_job(&lease, RunOutcome::Failed, Duration::ZERO, &json!(null))
            .await
            .expect("Postgres answers");
    }
    assert_eq!(
        number(&tally.pool, "select count(*) from job_run where job = 'audit'").await,
        100
    );
}

/// Who holds the roll-up, and under which number.
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

/// Workers that only roll up, and audit when nobody looks.
const SELDOM: [(&str, &str); 1] = [("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];
/// A vote that is being stored: a roll-up waits for its end, with its lease.
const VOTE: &str = "insert into vote (item_id) values (1)";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_stopped_past_its_lease_writes_nothing_when_it_goes_on() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    make_work(&pool).await;
    // Who moves the watermark under which lease.
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
    // Nobody does anything before the lease has run out; then another one has it.
    let second = start_worker(&stores, "two", &SELDOM);
    let (second_name, second_number) = eventually("the second takes over", async || {
        holder(&pool).await.filter(|(name, _)| *name != first_name)
    })
    .await;
    assert!(second_number > first_number, "{second_name}");
    // Were the second one not stopped too, it would roll up what the first one is about to.
    second.freeze().await.expect("it runs");
    voting.commit().await.expect("a commit");
    assert_eq!(watermark(&pool).await, 0);
    first.signal(Signal::SIGCONT).expect("it runs");
    eventually("the first has lost it", async || {
        (outcome(&pool, first_number).await? == "lost").then_some(())
    })
    .await;
    first.wait_for_line("another one took its job over").await;
    // The second one is stopped, so nobody may have written while its lease was the last.
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
    // Whoever moved it held the lease then: the second, or one of both under a later lease.
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
    // It still waits for the vote. It stops in order, and its lease is free.
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

/// Its audit waits for a vote that is being stored, with two leases: its own, and that of the roll-up.
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
    // It has nothing to repair, and ends all the same.
    let ended = auditing.await.expect("no panic");
    assert!(
        matches!(ended, Err(SyncError::Ledger(LedgerError::LeaseLost("audit")))),
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
        // The lease seems to have run out, or to end in a time that no lease has: it is taken over.
        let next = eventually("the job is taken over", async || take(other).await).await;
        let before = watermark(&pool).await;
        let late = holder.roll_up_votes(&held, &safe, 1, Pacing::Spread).await;
        assert!(matches!(late, Err(LedgerError::LeaseLost(_))), "{late:?}");
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
