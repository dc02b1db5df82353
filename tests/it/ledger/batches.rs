//! Batches of votes: what is stored, reported, refused, and remembered.

use sqlx::PgPool;
use tally::domain::{ItemId, NewVote, Value, VoteOutcome, VoteRequest};
use tally::ledger::VoteWriter;

use super::{item, vote, words};
use crate::helpers::stores::{Stores, blocker, pass_next_vote_id};
use crate::helpers::tally::{ledger, server_ledger};

#[tokio::test]
async fn a_batch_is_decided_vote_by_vote_in_its_order() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let nowhere = ItemId::new(999).expect("positive");
    let mut writer = server.writer();
    let first = writer
        .insert(&[vote(x, Some("ada"))], &[])
        .await
        .expect("an insert");
    let batch = [
        vote(x, Some("bob")),
        vote(nowhere, Some("bob")),
        vote(x, Some("ada")),
        vote(x, None),
        vote(x, Some("bob")),
        vote(x, None),
    ];
    let second = writer.insert(&batch, &[]).await.expect("an insert");
    assert_eq!(
        words(&second.outcomes),
        [
            "accepted", "unknown", "repeated", "accepted", "repeated", "accepted"
        ]
    );
    let id = |outcome: VoteOutcome| match outcome {
        VoteOutcome::Accepted(vote) | VoteOutcome::Repeated(vote) => vote.id.get(),
        _ => 0,
    };
    assert_eq!(
        id(second.outcomes[2]),
        id(first.outcomes[0]),
        "a repeat names the first vote"
    );
    assert_eq!(
        id(second.outcomes[4]),
        id(second.outcomes[0]),
        "in the same batch as well"
    );
    assert!(second.transaction > first.transaction);
}

#[tokio::test]
async fn a_batch_is_reported_as_stored_even_if_a_repeat_cannot_be_resolved() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    // After an insert, no later statement on the same connection finds a table.
    sqlx::raw_sql(
        "create function hide() returns trigger language plpgsql as
         $$ begin perform set_config('search_path', 'nowhere', false); return null; end $$;
         create trigger hide after insert on vote for each statement execute function hide()",
    )
    .execute(&stores.pool())
    .await
    .expect("a trigger");
    let mut writer = server.writer();
    let batch = [vote(x, Some("ada")), vote(x, Some("ada")), vote(x, None)];
    let inserted = writer.insert(&batch, &[]).await.expect("it is committed");
    assert_eq!(words(&inserted.outcomes), ["accepted", "unresolved", "accepted"]);
    // The next batch gets a new connection.
    sqlx::raw_sql("drop trigger hide on vote")
        .execute(&stores.pool())
        .await
        .expect("no trigger");
    let again = writer
        .insert(&[vote(x, Some("ada"))], &[])
        .await
        .expect("an insert");
    assert_eq!(words(&again.outcomes), ["repeated"]);
}

#[tokio::test]
async fn two_batches_of_the_same_voters_at_once_store_each_vote_once() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let (x, y) = (item(&server).await, item(&server).await);
    for round in 0..30 {
        let batch = |reverse: bool| {
            let mut votes: Vec<NewVote> = (0..100)
                .map(|voter| {
                    vote(
                        if voter % 2 == 0 { x } else { y },
                        Some(&format!("{round}-{voter}")),
                    )
                })
                .collect();
            // In opposite orders, which would deadlock if the statement kept them.
            if reverse {
                votes.reverse();
            }
            votes
        };
        let (mut one, mut other) = (server.writer(), server.writer());
        let (forth, back) = (batch(false), batch(true));
        let (one, other) = tokio::join!(one.insert(&forth, &[]), other.insert(&back, &[]));
        let outcomes = [
            one.expect("an insert").outcomes,
            other.expect("an insert").outcomes,
        ]
        .concat();
        assert_eq!(
            words(&outcomes)
                .iter()
                .filter(|word| **word == "accepted")
                .count(),
            100
        );
        assert_eq!(
            words(&outcomes)
                .iter()
                .filter(|word| **word == "repeated")
                .count(),
            100
        );
    }
}

#[tokio::test]
async fn the_ledger_is_append_only_and_items_are_permanent() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    server
        .writer()
        .insert(&[vote(x, Some("ada"))], &[])
        .await
        .expect("an insert");
    let pool = stores.pool();
    for statement in [
        "update vote set value = 2",
        "delete from vote",
        "truncate vote",
        "delete from item",
        "truncate item",
        "update item set id = default",
        "insert into vote (item_id, value) values (1, 0)",
        "insert into item (name) values ('')",
        "insert into watermark (one) values (false)",
    ] {
        assert!(
            sqlx::query(statement).execute(&pool).await.is_err(),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn an_item_that_was_missing_takes_votes_over_the_same_connection_once_it_exists() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let y = ItemId::new(x.get() + 1).expect("positive");
    let mut writer = server.writer();
    for voter in [None, Some("ada")] {
        let batch = [vote(y, voter), vote(x, voter), vote(y, None)];
        let before = writer.insert(&batch, &[]).await.expect("an insert");
        assert_eq!(words(&before.outcomes), ["unknown", "accepted", "unknown"]);
    }
    assert_eq!(item(&server).await, y);
    let nowhere = ItemId::new(999).expect("positive");
    for voter in [None, Some("bob")] {
        // One item is in the cache, one is not yet, and one is not in the table.
        let batch = [vote(x, voter), vote(y, voter), vote(nowhere, voter)];
        let after = writer.insert(&batch, &[]).await.expect("an insert");
        assert_eq!(words(&after.outcomes), ["accepted", "accepted", "unknown"]);
    }
    let counts = ledger.exact_counts(&[x, y]).await.expect("counts");
    assert_eq!(counts.iter().map(|one| one.count.net).sum::<i64>(), 6);
}

/// For an item that the connection does not know, the statement reads the rules.
#[tokio::test]
async fn an_item_that_a_connection_has_not_met_takes_the_votes_that_it_may_take() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.database_url);
    sqlx::raw_sql(
        "insert into rule (opens_at) values (null);
         insert into item (name, rule_id, takes_down_votes) values
             ('known', null, true), ('plain', null, true), ('up only', null, false), ('ruled', 1, true),
             ('up only, ruled', 1, false)",
    )
    .execute(&pool)
    .await
    .expect("items");
    let id = |id| ItemId::new(id).expect("positive");
    let nowhere = 999;
    for voter in [None, Some("ada")] {
        for (value, of_up_only) in [(Value::DOWN, "refused"), (Value::UP, "accepted")] {
            let mut writer = server.writer();
            writer.insert(&[vote(id(1), None)], &[]).await.expect("an insert");
            // Each value has another voter: a second vote of one voter would be a repeat.
            let voter = voter.map(|voter| format!("{voter} {}", value.get()));
            let cast = |item| NewVote {
                value,
                ..vote(id(item), voter.as_deref())
            };
            let batch = [1, 2, 3, 4, 5, nowhere].map(cast);
            let inserted = writer.insert(&batch, &[]).await.expect("an insert");
            let decided = "needs a decision";
            assert_eq!(
                words(&inserted.outcomes),
                ["accepted", "accepted", of_up_only, decided, decided, "unknown"],
                "{value:?} {voter:?}"
            );
            // From here on, the connection knows all items, except the one that does not exist.
            let again = writer.insert(&batch[2..], &[]).await.expect("an insert");
            let of_up_only = match voter {
                Some(_) if of_up_only == "accepted" => "repeated",
                _ => of_up_only,
            };
            assert_eq!(words(&again.outcomes), [of_up_only, decided, decided, "unknown"]);
        }
    }
    let stored: Vec<(i64, i16, i64)> = sqlx::query_as(
        "select item_id, value, count(*) from vote where item_id > 1 group by 1, 2 order by 1, 2",
    )
    .fetch_all(&pool)
    .await
    .expect("votes");
    // An anonymous vote is never a repeat.
    assert_eq!(stored, [(2, -1, 2), (2, 1, 2), (3, 1, 3)]);
}

/// Someone set the sequence back: the watermark would miss votes up to it.
#[tokio::test]
async fn a_batch_with_one_id_not_beyond_the_watermark_is_not_stored() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    sqlx::raw_sql(
        "insert into rule (opens_at) values (null); insert into item (name, rule_id) values ('ruled', 1)",
    )
    .execute(&pool)
    .await
    .expect("an item");
    let ruled = ItemId::new(x.get() + 1).expect("positive");
    for voter in [None, Some("ada")] {
        let mut writer = server.writer();
        let batch = |item| [vote(item, voter), vote(item, voter.map(|_| "bob"))];
        pass_next_vote_id(&pool).await;
        assert!(writer.insert(&batch(x), &[]).await.is_err(), "{voter:?}");
        // Another statement decides first votes on items with a rule.
        for item in [x, ruled] {
            pass_next_vote_id(&pool).await;
            let requests = batch(item).map(VoteRequest::Cast);
            assert!(writer.decide(&requests, &[]).await.is_err(), "{voter:?} {item}");
        }
        let stored: i64 = sqlx::query_scalar("select count(*) from vote")
            .fetch_one(&pool)
            .await
            .expect("Postgres answers");
        assert_eq!(stored, 0, "{voter:?}");
    }
}

/// Removes all items by hand. Only who knows them from before still stores votes on them.
async fn remove_items(pool: &PgPool) {
    sqlx::raw_sql(
        "alter table item disable trigger item_is_permanent; delete from item;
         alter table item enable trigger item_is_permanent",
    )
    .execute(pool)
    .await
    .expect("no item");
}

#[tokio::test]
async fn an_item_that_one_writer_looked_up_is_known_to_the_servers_other_writers_and_to_no_other_server() {
    let stores = Stores::start().await;
    let server = server_ledger(&stores.database_url);
    let (x, y) = (item(&server).await, item(&server).await);
    let (mut first, mut second) = (server.writer(), server.writer());
    let mut elsewhere = server_ledger(&stores.database_url).writer();
    for writer in [&mut first, &mut second, &mut elsewhere] {
        writer.insert(&[vote(y, None)], &[]).await.expect("an insert");
    }
    first.insert(&[vote(x, None)], &[]).await.expect("an insert");
    remove_items(&stores.pool()).await;
    for (writer, expected) in [(&mut second, "accepted"), (&mut elsewhere, "unknown")] {
        let inserted = writer.insert(&[vote(x, None)], &[]).await.expect("an insert");
        assert_eq!(words(&inserted.outcomes), [expected]);
    }
}

/// Reading ahead is what keeps looks at single items few where votes come to a million of them.
#[tokio::test]
async fn items_are_read_ahead_once_enough_of_their_neighbours_were_looked_up() {
    const LOOKS: i64 = 32;
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(
        "insert into rule (closes_at) values (null);
         insert into item (name, takes_down_votes, rule_id)
         select n, n <> 100, case when n = 101 then 1 end from generate_series(1, 1100) as n",
    )
    .execute(&pool)
    .await
    .expect("items");
    let server = server_ledger(&stores.database_url);
    let mut writer = server.writer();
    let down = |id: i64| NewVote {
        value: Value::DOWN,
        ..vote(ItemId::new(id).expect("positive"), None)
    };
    let look = async |writer: &mut VoteWriter, items: std::ops::Range<i64>| {
        let votes: Vec<NewVote> = items.map(down).collect();
        writer.insert(&votes, &[]).await.expect("an insert");
        writer.read_ahead().await.expect("a read");
    };
    let asked = [down(99), down(100), down(101), down(1030)];
    look(&mut writer, 1..LOOKS).await;
    remove_items(&pool).await;
    let early = writer.insert(&asked, &[]).await.expect("an insert");
    assert_eq!(words(&early.outcomes), ["unknown"; 4]);
    // As they were.
    sqlx::raw_sql(
        "insert into item (id, name, takes_down_votes, rule_id) overriding system value
         select n, n, n <> 100, case when n = 101 then 1 end from generate_series(1, 1100) as n",
    )
    .execute(&pool)
    .await
    .expect("items");
    look(&mut writer, LOOKS..LOOKS + 1).await;
    remove_items(&pool).await;
    let late = writer.insert(&asked, &[]).await.expect("an insert");
    assert_eq!(
        words(&late.outcomes),
        ["accepted", "refused", "needs a decision", "unknown"],
        "the last one is of another block"
    );
}

#[tokio::test]
async fn a_block_that_cannot_be_read_costs_no_connection_and_no_other_one_is_read_for_a_while() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql("insert into item (name) select n from generate_series(1, 1100) as n")
        .execute(&pool)
        .await
        .expect("items");
    let server = server_ledger(&stores.database_url);
    let mut writer = server.writer();
    let up = |id: i64| vote(ItemId::new(id).expect("positive"), None);
    let first: Vec<NewVote> = (1..=32).map(up).collect();
    writer.insert(&first, &[]).await.expect("an insert");
    let writers = async || -> Vec<i32> {
        sqlx::query_scalar("select pid from pg_stat_activity where application_name like 'tally writer %'")
            .fetch_all(&pool)
            .await
            .expect("Postgres answers")
    };
    let before = writers().await;
    let blocker = blocker(&pool, "lock table item in access exclusive mode").await;
    assert!(writer.read_ahead().await.is_err());
    blocker.rollback().await.expect("a rollback");
    let other: Vec<NewVote> = (1030..1062).map(up).collect();
    writer.insert(&other, &[]).await.expect("an insert");
    writer.read_ahead().await.expect("it reads nothing");
    assert_eq!(writers().await, before);
    remove_items(&pool).await;
    let asked = [up(1), up(40), up(1030), up(1070)];
    let inserted = writer.insert(&asked, &[]).await.expect("an insert");
    assert_eq!(
        words(&inserted.outcomes),
        ["accepted", "unknown", "accepted", "unknown"]
    );
}

/// After a failover or a restore, an item may be missing in the database.
#[tokio::test]
async fn the_item_cache_ends_with_the_connection() {
    let stores = Stores::start().await;
    let ledger = ledger(&stores.database_url);
    let server = server_ledger(&stores.database_url);
    let x = item(&server).await;
    let mut writer = server.writer();
    writer.insert(&[vote(x, None)], &[]).await.expect("an insert");
    let pool = stores.pool();
    remove_items(&pool).await;
    sqlx::raw_sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'tally writer %'",
    )
    .execute(&pool)
    .await
    .expect("no connection");
    // The first try may fail: a connection that was used just now is not checked.
    let first = writer.insert(&[vote(x, None)], &[]).await;
    assert!(first.is_err() || words(&first.expect("it is well").outcomes) == ["unknown"]);
    for voter in [None, Some("ada")] {
        let inserted = writer.insert(&[vote(x, voter)], &[]).await.expect("an insert");
        assert_eq!(words(&inserted.outcomes), ["unknown"]);
    }
    assert_eq!(ledger.vote_total().await.expect("a total"), 1);
}
