//! Archives that are killed again and again.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use tally::ledger::Role;
use tokio::time::sleep;

use super::{archive, audit, close, execute, faults, lines, number, operator, shown, until_rolled_up};
use crate::helpers::programs::{TALLY, command, command_as, run, start_worker};
use crate::helpers::tally::Tally;

/// How often an archive is killed at least. Each is another one, or at another place.
const KILLS: u32 = 20;
/// Rows of an archive: some chunks.
const VOTES: i64 = 60_000;

/// Polls and items with votes of voters and anonymous ones, among votes on what stays open. Returns the condition
/// for their rules.
async fn fill(tally: &Tally, round: u32) -> String {
    execute(
        &tally.pool,
        &format!(
            "insert into item (name) select 'open' where not exists (select from item where name = 'open');
             with made as (insert into rule (created_at) select now() from generate_series(1, 3) returning id)
             insert into item (name, rule_id) select 'closed {round}', id from made;
             insert into place (item_id, is_numbered) select id, true from item where name = 'closed {round}';
             insert into vote (item_id, voter_id, value, number)
             select case n % 4 when 3 then open.id else closed.ids[n % 4 + 1] end,
                    case when n % 5 <> 0 then 'v' || n || '-{round}' end, case when n % 7 = 0 then -1 else 1 end,
                    case when n % 4 < 3 then n / 4 + 1 end
             from (select array_agg(id order by id) as ids from item where name = 'closed {round}') as closed,
                  (select id from item where name = 'open') as open, generate_series(0, {VOTES} * 4 / 3 - 1) as n;
             insert into vote_address (vote_id, address_hash)
             select id, decode(repeat('00', 16), 'hex') from vote where id % 10 = 0
             on conflict do nothing;
             update place set taken = given.taken, last_number = given.taken
             from (select item_id, count(*) as taken from vote group by item_id) as given
             where given.item_id = place.item_id and place.taken = 0"
        ),
    )
    .await;
    format!("id in (select rule_id from item where name = 'closed {round}')")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_killed_again_and_again_loses_no_vote_and_ends_with_a_whole_file() {
    let tally = Tally::start().await;
    let stores = &tally.stores;
    let _worker = start_worker(stores, "worker", &[]);
    let (mut kills, mut round) = (0, 0);
    let mut while_dropping = 0;
    while kills < KILLS || while_dropping == 0 {
        round += 1;
        let rules = fill(&tally, round).await;
        until_rolled_up(&tally).await;
        // No server has counted these votes.
        let mut repair = command(TALLY, Some(stores));
        repair.args(["audit", "--repair"]);
        run(repair).await;
        close(&tally.pool, &rules).await;
        let of_closed =
            format!("from vote join item on item.id = vote.item_id where item.name = 'closed {round}'");
        let total = number(&tally.pool, &format!("select count(*) {of_closed}")).await;
        let net = number(&tally.pool, &format!("select sum(value)::bigint {of_closed}")).await;
        assert_eq!(total, VOTES);
        let counts = lines(
            &tally.pool,
            "select audited_count::text from audited_count order by item_id",
        )
        .await;
        let archived = number(&tally.pool, "select coalesce(max(id), 0) from archive").await;
        let folder = stores.folder().join(format!("round-{round}"));
        std::fs::create_dir(&folder).expect("a folder");
        let out = shown(&folder).to_owned();
        loop {
            let begun = number(
                &tally.pool,
                "select coalesce(max(id), 0) from archive where ended_at is null",
            )
            .await
            .to_string();
            let arguments = match begun.as_str() {
                "0" => vec![
                    "archive",
                    "run",
                    "--closed-before",
                    "2999-01-01T00:00:00Z",
                    "--out",
                    &out,
                    "--apply",
                ],
                id => vec!["archive", "resume", id, "--out", &out],
            };
            let mut command = command_as(TALLY, Some((stores, Role::Operator)));
            command.args(&arguments).kill_on_drop(true);
            let log = std::fs::File::create(stores.folder().join("archive.log")).expect("a file");
            command.stdout(std::process::Stdio::null()).stderr(log);
            let mut program = command.spawn().expect("it starts");
            let ended = tokio::select! {
                ended = program.wait() => Some(ended.expect("it ends")),
                // Later each time: a busy machine needs longer until the first vote is dropped.
                () = sleep(Duration::from_millis(rand::random_range(30..700 + 50 * u64::from(kills)))) => None,
            };
            match ended {
                Some(status) if status.success() => break,
                // The one that was killed may have begun after all.
                Some(_) => {
                    let said = std::fs::read_to_string(stores.folder().join("archive.log")).expect("a log");
                    assert!(
                        begun == "0" && said.contains("is not finished"),
                        "{arguments:?}: {said}"
                    );
                }
                None => {
                    let id = i32::try_from(program.id().expect("it runs")).expect("an id");
                    let id = nix::unistd::Pid::from_raw(id);
                    let _ = nix::sys::signal::kill(id, Signal::SIGKILL);
                    program.wait().await.expect("it ends");
                    kills += 1;
                }
            }
            assert!(kills < 500, "it never ends");
            // Each vote is in the ledger, or in a checked file. Postgres may still be at a chunk, and that may be the
            // last one: one statement sees both, whether the archive has ended or not.
            let both = format!(
                "select (select count(*) {of_closed}) + coalesce((select sum(dropped_total) from archive
                        where id > {archived} and checked_at is not null), 0)::bigint"
            );
            assert_eq!(number(&tally.pool, &both).await, total, "kill {kills}");
            let partly = "select count(*) from archive where ended_at is null and dropped_total > 0";
            while_dropping += number(&tally.pool, partly).await;
            assert_eq!(faults(&tally.pool).await, [""; 0], "kill {kills}");
        }
        assert_eq!(
            number(&tally.pool, &format!("select count(*) {of_closed}")).await,
            0
        );
        let after = lines(
            &tally.pool,
            "select audited_count::text from audited_count order by item_id",
        )
        .await;
        assert_eq!(after, counts);
        let id = number(&tally.pool, "select max(id) from archive").await;
        let listed = operator(stores, &["archive", "list"]).await.1.remove(0);
        assert_eq!(
            (
                &listed["state"],
                &listed["votes"],
                &listed["sum"],
                &listed["dropped_votes"]
            ),
            (&json!("dropped"), &json!(total), &json!(net), &json!(total))
        );
        let file = folder.join(format!("archive-{id}.csv"));
        let verified = archive(stores, &["verify", shown(&file)]).await;
        assert_eq!(verified["ok"], json!(true), "{verified}");
        // What is left beside it is the checksum alone.
        assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 2);
        assert_eq!(
            number(
                &tally.pool,
                "select count(*) from vote_address where not exists (select from vote where id = vote_id)"
            )
            .await,
            0
        );
    }
    println!("{kills} kills in {round} archives, {while_dropping} of them while votes were dropped");
    assert!(while_dropping > 0, "none was killed while it dropped votes");
    until_rolled_up(&tally).await;
    audit(&tally).await;
}
