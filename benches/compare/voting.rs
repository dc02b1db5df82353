//! One run of one system under one workload.

use std::sync::Arc;
use std::time::Duration;

use testkit::benchmark::{Latency, OpenLatency, Row, Topology};
use testkit::load::{Load, Mix, Outcome, Pace, Requests, Spread, choice_of};
use tokio::time::sleep;

use crate::servers::Servers;
use crate::settings::Settings;
use crate::stores::{Database, Rules, Stores, Template, voter_of_poll};
use crate::systems::{System, locking, recipe_key};
use crate::workloads::Case;

/// The part of its own maximum that a system gets while its latency is measured.
const OPEN_LOOP_PART: f64 = 0.5;
/// How many loads a run may have. Each has voter ids of its own.
pub const LOADS_LIMIT: u32 = 5;
/// How many counts of the recipe are read at once.
const PAGE_COUNTS: i64 = 1000;

/// Runs a case. Each run has another `number`.
pub async fn measure(
    stores: &Stores,
    case: &Case,
    workload: &'static str,
    round: usize,
    number: u32,
    settings: &Settings,
) -> Row {
    stores.set_up(case.topology).await;
    let database = stores.database(&case.template).await;
    stores.delay_syncs(&database, case.sync_delay).await;
    let servers = Servers::start(stores, &database, case.system, case.servers, &[]).await;
    let processes = servers.processes(stores);
    let items = usize::try_from(case.template.items).expect("items");
    let start = |mix, pace, part| {
        let requests = Requests::render(items, case.spread, mix, case.voter_ids);
        Load::start(
            &servers.addresses,
            case.connections,
            Arc::new(requests),
            pace,
            LOADS_LIMIT * number + part,
        )
    };
    // With many items it takes longer until most have had a vote and Tally's counters are
    // seeded. Every system gets the same time.
    let warm_up = if case.spread == Spread::Hot { 1 } else { 2 } * settings.warm_up;
    // Only items that have had a vote have live counts.
    let voted = if matches!(case.mix, Mix::Reads | Mix::ReadsAgain) {
        let load = start(Mix::Votes, Pace::Closed, 0);
        sleep(warm_up).await;
        Some(load.stop().await)
    } else {
        None
    };
    let beside = (case.votes_beside > 0.0).then(|| {
        let per_second = case.votes_beside;
        start(Mix::Votes, Pace::Open { per_second }, 3)
    });
    let load = start(case.mix, Pace::Closed, 1);
    load.until_connected().await;
    sleep(warm_up).await;
    let (wal_before, before) = (stores.wal_bytes().await, processes.cpu());
    load.measure();
    sleep(settings.run).await;
    let cpu = processes.cpu().since(before);
    let wal_bytes = stores.wal_bytes().await - wal_before;
    let closed = load.stop().await;
    let beside = match beside {
        Some(load) => Some(load.stop().await),
        None => None,
    };
    let requests_per_second = closed.requests as f64 / closed.measured.as_secs_f64();

    let open = if case.open_loop && requests_per_second > 0.0 {
        let per_second = requests_per_second * OPEN_LOOP_PART;
        let load = start(case.mix, Pace::Open { per_second }, 2);
        sleep(settings.warm_up.min(Duration::from_millis(500))).await;
        load.measure();
        sleep(settings.run).await;
        Some((per_second, load.stop().await))
    } else {
        None
    };

    let loads: Vec<&Outcome> = [&closed]
        .into_iter()
        .chain(open.as_ref().map(|(_, open)| open))
        .chain(&voted)
        .chain(&beside)
        .collect();
    let answered: Result<(), String> = loads.iter().try_for_each(|load| match case.may_refuse {
        true => load.expect_no_failure(),
        false => load.expect_all_answered(),
    });
    let checked = match answered.and(servers.stop(stores, &database).await) {
        Ok(()) => check_case(stores, &database, case, &loads).await,
        Err(fault) => Err(fault),
    };
    stores.drop(database).await;
    stores.set_up(Topology::Single).await;

    let votes = closed.votes;
    Row {
        workload: workload.to_owned(),
        system: case.system,
        topology: case.topology,
        round,
        connections: case.connections,
        servers: case.servers,
        ledger_rows: case.template.votes(),
        in_ranges: case.template.in_ranges,
        votes_per_request: case.votes_per_request(),
        sync_delay_ms: case.sync_delay.as_secs_f64() * 1000.0,
        votes,
        votes_per_second: votes as f64 / closed.measured.as_secs_f64(),
        requests_per_second,
        closed_loop_ms: Latency::of(&closed.latency_us),
        open_loop_ms: open.as_ref().map(|(per_second, open)| OpenLatency {
            requests_per_second: *per_second,
            latency: Latency::of(&open.latency_us),
        }),
        unchanged_part: closed.unchanged as f64 / closed.requests.max(1) as f64,
        cpu_us_per_vote: (votes > 0).then(|| cpu.each(closed.cpu, votes)),
        cpu_us_per_request: cpu.each(closed.cpu, closed.requests),
        generator_busy: closed.cpu.as_secs_f64() / closed.measured.as_secs_f64(),
        wal_bytes_per_vote: (votes > 0).then(|| wal_bytes as f64 / votes as f64),
        verified: checked.is_ok(),
        fault: checked.err(),
    }
}

/// Compares the answers to a case's loads with what is stored and counted.
///
/// # Errors
/// What differs.
async fn check_case(
    stores: &Stores,
    database: &Database,
    case: &Case,
    loads: &[&Outcome],
) -> Result<(), String> {
    let votes: u64 = loads.iter().map(|load| load.acknowledged_votes).sum();
    let rows: u64 = loads.iter().map(|load| load.acknowledged_rows).sum();
    let full: u64 = loads.iter().map(|load| load.full).sum();
    if (full > 0) != (case.template.rules == Rules::OnePlace) {
        return Err(format!("{full} votes were refused because their items are full"));
    }
    if let Mix::PollMoves { voters } = case.mix {
        check_choices(database, case.system, &case.template, voters, votes).await?;
    }
    match (case.system, case.mix) {
        // It has no other rows than those just checked, and its counts are in Tally's tables.
        (System::LockingTransaction, Mix::PollMoves { .. }) => Ok(()),
        // A change counts as two rows, a new vote as one.
        (System::LockingTransaction, _) => {
            locking::check(&database.pool, 2 * votes - rows, rows - votes).await
        }
        (system, mix) => {
            check(stores, database, system, &case.template, rows).await?;
            if system == System::Tally && matches!(mix, Mix::PollMoves { .. } | Mix::Changes) {
                let broken = testkit::rules::broken(&database.pool).await.expect("an answer");
                if let Some(first) = broken.first() {
                    return Err(format!("{} rules are broken, the first: {first}", broken.len()));
                }
            }
            Ok(())
        }
    }
}

/// Compares what every voter of the poll holds, and each choice's count, with the result of this
/// many moves, one voter after the other.
async fn check_choices(
    database: &Database,
    system: System,
    template: &Template,
    voters: u64,
    moves: u64,
) -> Result<(), String> {
    let held = if system == System::Tally {
        "select voter_id, item_id from vote where poll_id = 1 group by voter_id, item_id having sum(value) <> 0"
    } else {
        "select voter_id, item_id from plain_choice where poll_id = 1"
    };
    let (mut names, mut items) = (Vec::new(), Vec::new());
    for voter in 0..voters {
        let moved = moves / voters + u64::from(voter < moves % voters);
        let choice = choice_of(voter, moved, template.items as u64);
        names.push(voter as i64);
        items.push(choice as i64 + 1);
    }
    let (differ, counts): (i64, i64) = sqlx::query_as(&format!(
        "with held as ({held}),
         wanted as (
             select {voter} as voter_id, item_id from unnest($1::bigint[], $2::bigint[]) as given (n, item_id)
         )
         select (select count(*) from held full join wanted using (voter_id, item_id)
                 where held.voter_id is null or wanted.voter_id is null),
                (select count(*) from item
                 where vote_count <> (select count(*) from wanted where item_id = item.id))",
        voter = voter_of_poll("n"),
    ))
    .bind(&names)
    .bind(&items)
    .fetch_one(&database.pool)
    .await
    .expect("a count");
    if differ > 0 || counts > 0 {
        return Err(format!(
            "after {moves} moves, choices of voters differ {differ} times, counts of choices {counts} times"
        ));
    }
    Ok(())
}

/// Compares what was acknowledged, in rows of the ledger, with what is stored and counted.
///
/// # Errors
/// What differs.
pub async fn check(
    stores: &Stores,
    database: &Database,
    system: System,
    template: &Template,
    acknowledged: u64,
) -> Result<(), String> {
    if matches!(system, System::NoOp | System::Nginx) {
        return Ok(());
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from vote where id > $1")
        .bind(database.first_votes)
        .fetch_one(&database.pool)
        .await
        .expect("a count");
    if u64::try_from(rows) != Ok(acknowledged) {
        return Err(format!("{acknowledged} rows acknowledged, {rows} stored"));
    }
    let wrong = if system == System::Recipe {
        wrong_counts_of_recipe(stores, database, template.items).await
    } else {
        // Each item's count must be its count at the start plus the rows since.
        sqlx::query_scalar(
            "select count(*) from item
             left join (select item_id, sum(value) as sum,
                               count(*) filter (where value < 0 and change_number % 2 = 0)
                               - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
                        from vote where id > $1 group by item_id) as new
                    on new.item_id = item.id
             where item.vote_count <> $2 + coalesce(new.sum, 0) or item.down_count <> coalesce(new.downs, 0)",
        )
        .bind(database.first_votes)
        .bind(template.saved_count())
        .fetch_one(&database.pool)
        .await
        .expect("a count")
    };
    if wrong > 0 {
        return Err(format!("{wrong} items have a wrong count"));
    }
    Ok(())
}

async fn wrong_counts_of_recipe(stores: &Stores, database: &Database, items: i64) -> i64 {
    let sums: std::collections::HashMap<i64, i64> =
        sqlx::query_as("select item_id, sum(value)::bigint from vote where id > $1 group by item_id")
            .bind(database.first_votes)
            .fetch_all(&database.pool)
            .await
            .expect("sums")
            .into_iter()
            .collect();
    let mut connection = stores.redis_connection().await;
    let mut wrong = 0;
    let mut first = 1;
    while first <= items {
        let page: Vec<i64> = (first..=items.min(first + PAGE_COUNTS - 1)).collect();
        first += PAGE_COUNTS;
        let keys: Vec<String> = page.iter().map(|item| recipe_key(*item)).collect();
        let counts: Vec<Option<i64>> = redis::cmd("MGET")
            .arg(keys)
            .query_async(&mut connection)
            .await
            .expect("counts");
        wrong += page
            .iter()
            .zip(counts)
            .filter(|(item, count)| count.unwrap_or(0) != sums.get(item).copied().unwrap_or(0))
            .count() as i64;
    }
    wrong
}
