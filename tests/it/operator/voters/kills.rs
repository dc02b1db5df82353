//! Edits of voters that are killed again and again, while the voters vote.

use std::time::Duration;

use rand::Rng;
use reqwest::Method;
use serde_json::json;
use tally::ledger::Role;
use tokio::time::sleep;

use crate::helpers::programs::{TALLY, command_as, run, start_worker, text};
use crate::helpers::tally::Tally;
use crate::operator::imports::assert_exact;
use crate::rules::assert_rules_hold;

/// Items with a vote of each of the two voters who become one.
const BOTH: usize = 1200;
/// Items with a vote of the first alone.
const ONE: usize = 800;
/// How often a program is killed at least.
const KILLS: usize = 20;

/// Runs an edit until it is done, and kills it at random moments. Returns how often.
async fn run_killed(tally: &Tally, arguments: &[&str]) -> usize {
    let mut kills = 0;
    loop {
        let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
        command
            .arg("voter")
            .args(arguments)
            .arg("--apply")
            .kill_on_drop(true);
        let ended = tokio::select! {
            output = run(command) => Some(output),
            // Two at once, at times.
            () = sleep(Duration::from_millis(rand::rng().random_range(30..500))) => None,
        };
        match ended {
            Some(output) if output.status.success() => return kills,
            Some(output) => assert!(
                text(&output.stderr).contains("the same command continues it"),
                "{}",
                text(&output.stderr)
            ),
            None => kills += 1,
        }
        assert!(kills < 500, "it never ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_that_are_killed_again_and_again_are_done_once_and_counts_come_right() {
    let tally = Tally::start().await;
    let _worker = start_worker(&tally.stores, "worker", &[]);
    let mut lines = "item_key,voter_id\n".to_owned();
    for item in 0..BOTH + ONE {
        lines += &format!("k{item},a\n");
        if item < BOTH {
            lines += &format!("k{item},b\n");
        }
        lines += &format!("k{item},other\nk{item},z\n");
    }
    let path = tally.stores.folder().join("votes.csv");
    std::fs::write(&path, lines).expect("written");
    let mut import = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    import.args(["import", "votes", "--make-items"]).arg(&path);
    let imported = run(import).await;
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    // Votes are changed all the time, also those of a voter whom another one becomes.
    let changing = async {
        let mut value = 1;
        for round in 0.. {
            let path = format!(
                "/v1/items/key:k{}/votes/{}",
                round % 50,
                ["other", "b"][round % 2]
            );
            let (status, said) = tally
                .send(Method::PUT, &path, Some(&json!({ "value": value })))
                .await;
            assert!(status.is_success(), "{said}");
            value = -value;
        }
    };
    let editing = async {
        let mut kills = run_killed(&tally, &["merge", "a", "b"]).await;
        let mut name = "z".to_owned();
        for round in 0.. {
            if kills >= KILLS {
                break;
            }
            let next = format!("c{round}");
            kills += run_killed(&tally, &["rename", &name, &next]).await;
            name = next;
        }
        (kills + run_killed(&tally, &["erase", &name]).await, name)
    };
    let (kills, name) = tokio::select! {
        ended = editing => ended,
        () = changing => unreachable!("it goes on for ever"),
    };
    assert!(kills >= KILLS);
    assert_rules_hold(&tally.pool).await;
    assert_exact(&tally).await;
    // Everybody but the one who went on has one vote on each item.
    let voters: Vec<(String, i64)> = sqlx::query_as(
        "select case when is_erased then 'erased' else voter_id end, sum(held)::bigint
         from (
             select voter_id, voter_id like 'erased-%' as is_erased, item_id, count(*) % 2 as held from vote
             group by voter_id, item_id
         ) as one
         where voter_id <> 'b' group by 1 order by 1",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    let all = i64::try_from(BOTH + ONE).expect("a few");
    assert_eq!(
        voters,
        [("erased".to_owned(), all), ("other".to_owned(), all)],
        "{name}, {kills} kills"
    );
    // A run that was killed after its end is an edit of its own, of nothing.
    let taken_back: i64 =
        sqlx::query_scalar("select sum(taken_back_votes)::bigint from voter_edit where kind = 'merge'")
            .fetch_one(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(taken_back, i64::try_from(BOTH).expect("a few"));
}
