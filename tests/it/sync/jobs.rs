//! Jobs: one worker at a time, under a job lease.
//! Each write checks the lease's number.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::PgPool;
use tally::domain::{EventId, Moment};
use tally::ledger::{FailedDelivery, Job, LedgerError, Overtaken, Pacing, Role, RunOutcome, WorkerLedger};

use crate::helpers::eventually;
use crate::helpers::programs::{start_worker, stop};
use crate::helpers::stores::{Stores, blocker};
use crate::helpers::tally::Tally;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

const JOBS: [Job; 5] = [
    Job::RollUp,
    Job::Audit,
    Job::DeleteKeys,
    Job::DeleteAddresses,
    Job::DeliverEvents,
];

/// Another worker, with a worker's login.
pub(super) fn worker(stores: &Stores, name: &str) -> WorkerLedger {
    WorkerLedger::new(stores.login_url(Role::Worker), name).expect("a URL")
}

pub(super) async fn number(pool: &PgPool, statement: &str) -> i64 {
    sqlx::query_scalar(statement)
        .fetch_one(pool)
        .await
        .expect(statement)
}

pub(super) async fn watermark(pool: &PgPool) -> i64 {
    number(pool, "select vote_id from watermark").await
}

pub(super) async fn execute(pool: &PgPool, statement: &str) {
    sqlx::raw_sql(statement).execute(pool).await.expect(statement);
}

/// Makes the lease of each job look expired to Postgres.
pub(super) async fn run_out(pool: &PgPool) {
    execute(
        pool,
        "update job set lease_until = clock_timestamp() - interval '1 second' where holder is not null",
    )
    .await;
}

/// Creates an item, votes that nobody has rolled up, an old idempotency key, an old hash of an address,
/// an event to deliver and an old dead letter, and a recent change that is to be merged.
pub(super) async fn make_work(pool: &PgPool) {
    execute(
        pool,
        "insert into item (name) values ('x');
         insert into vote (item_id) select 1 from generate_series(1, 9);
         insert into idempotency_key (key_hash, body_hash, created_at)
         values (sha256('x'), sha256('x'), now() - interval '2 days');
         insert into vote_address (vote_id, address_hash, noted_at)
         values (1, substr(sha256('x'), 1, 16), now() - interval '2 days');
         insert into event (kind, once_key, subject, data, dead_at)
         values ('x', 'x', 'x', '{}', null), ('x', 'y', 'x', '{}', now() - interval '31 days');
         insert into recent_change (item_id, starts_at, minutes, ups, downs)
         values (1, date_bin('5 minutes', now() - interval '3 hours', timestamptz 'epoch'), 5, 0, 0)",
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
        // Not even the holder gets a second lease.
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
        // To end a run that has ended changes nothing.
        let outcome = first
            .end_job(&lease, RunOutcome::Done, Duration::ZERO, &json!(null))
            .await;
        assert_eq!(outcome.expect("Postgres answers"), RunOutcome::Lost);
        second.renew_job(&next).await.expect("it is held");
        // A worker that stops gives back all its jobs.
        second.give_back_jobs().await.expect("Postgres answers");
        let lost = second.renew_job(&next).await.expect_err("it was given back");
        assert!(
            matches!(lost, LedgerError::Overtaken(Overtaken::LeaseLost(_))),
            "{lost}"
        );
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

/// A worker takes its own jobs again when their leases have expired.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_holder_writes_after_a_worker_of_its_name_took_its_job_changes_nothing() {
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
    let [roll_up, audit, delete_keys, delete_addresses, deliver_events] = leases.try_into().expect("five");
    let safe = first.safe_vote_id().await.expect("a safe id");
    // A lease that has expired is still the last one, until another worker takes the job.
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
    let is_lost = |ended: Result<(), LedgerError>| {
        matches!(ended, Err(LedgerError::Overtaken(Overtaken::LeaseLost(_))))
    };
    assert!(is_lost(
        first
            .roll_up_votes(&roll_up, &safe, 2, Pacing::Spread)
            .await
            .map(|_| ())
    ));
    assert!(is_lost(
        first
            .delete_old_keys(Moment::now(), &delete_keys)
            .await
            .map(|_| ())
    ));
    let deleted = first.delete_old_addresses(DAY, &delete_addresses).await;
    assert!(is_lost(deleted.map(|_| ())));
    assert!(is_lost(first.note_delivered(&deliver_events, EventId(1)).await));
    assert!(is_lost(
        first.delete_old_events(&deliver_events).await.map(|_| ())
    ));
    assert!(is_lost(first.make_poll_events(&deliver_events).await.map(|_| ())));
    let failed = FailedDelivery {
        is_refusal: true,
        wait: Duration::ZERO,
        problem: "x".to_owned(),
    };
    let noted = first
        .note_failed_delivery(&deliver_events, EventId(1), &failed)
        .await;
    assert!(is_lost(noted.map(|_| ())));
    let untouched = "select count(*) from event where delivered_at is null and tries = 0";
    assert_eq!(number(&pool, untouched).await, 2);
    assert!(is_lost(first.merge_changes(&roll_up).await.map(|_| ())));
    // Ten times the merged rows, and the votes of the others.
    let recent = async || {
        let merged = "select 10 * count(*) filter (where minutes = 60) + sum(ups)::bigint from recent_change";
        number(&pool, merged).await
    };
    assert_eq!(recent().await, 2);
    assert!(is_lost(first.check_job(&audit).await));
    assert!(is_lost(first.renew_job(&audit).await));
    assert!(is_lost(audit.check()));
    assert_eq!(
        (watermark(&pool).await, keys().await, addresses().await),
        (2, 1, 1)
    );
    for lease in [&roll_up, &audit, &delete_keys, &delete_addresses, &deliver_events] {
        let ended = first
            .end_job(lease, RunOutcome::Done, Duration::ZERO, &json!(null))
            .await;
        assert_eq!(ended.expect("Postgres answers"), RunOutcome::Lost);
    }
    // The new holder continues undisturbed.
    let [roll_up, audit, delete_keys, delete_addresses, deliver_events] =
        taken_over.try_into().expect("five");
    second
        .roll_up_votes(&roll_up, &safe, 2, Pacing::Spread)
        .await
        .expect("it is held");
    second.check_job(&audit).await.expect("it is held");
    let deleted = second
        .delete_old_keys(Moment::now(), &delete_keys)
        .await
        .expect("it is held");
    assert_eq!(deleted, (1, false));
    let deleted = second.delete_old_addresses(DAY, &delete_addresses).await;
    assert_eq!(deleted.expect("it is held"), (1, false));
    let due = second.due_events(&deliver_events, 9).await.expect("it is held");
    assert_eq!(due.len(), 1);
    second
        .note_delivered(&deliver_events, due[0].id)
        .await
        .expect("it is held");
    let deleted = second.delete_old_events(&deliver_events).await;
    assert_eq!(deleted.expect("it is held"), (1, false));
    second.merge_changes(&roll_up).await.expect("it is held");
    assert_eq!(recent().await, 10 + 4);
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
    // These two runs are under way.
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
            json!(["deliver_events", false, null]),
            json!(["roll_up", false, { "run": 3, "of": "roll_up" }]),
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
    // A roll-up's transaction locks the row in this way.
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
    // The other way round: a write waits for the takeover, and then sees it.
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
    assert!(
        matches!(ended, Err(LedgerError::Overtaken(Overtaken::LeaseLost(_)))),
        "{ended:?}"
    );
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
    let overlaps: Vec<String> = sqlx::query_scalar(
        "select one::text || ' before ' || other::text from job_run as one join job_run as other
         on other.job = one.job and other.fencing_number > one.fencing_number
         where one.ended_at is null or other.started_at < one.ended_at",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(overlaps, [""; 0]);
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
