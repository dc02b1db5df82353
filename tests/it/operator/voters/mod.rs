//! `tally voter`: voters are shown, renamed, merged and erased.

mod forgotten;
mod kills;
mod over_http;
mod races;
mod random;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tally::domain::ItemId;

use crate::helpers::programs::operator;
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::rules::assert_rules_hold;
use crate::rules::voiding::void;

/// Runs `tally voter` with these arguments. Returns whether it succeeded, its last answer, and what it complains of.
pub async fn voter(stores: &Stores, arguments: &[&str]) -> (bool, Value, String) {
    let (done, mut answers, said) = operator(stores, &[&["voter"], arguments].concat()).await;
    (done, answers.pop().unwrap_or_default(), said)
}

/// What each voter holds on each item, in the order of items and voters.
pub async fn held(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "select format('%s: %s %s', item_id, voter_id, sum(value)) from vote where voter_id is not null
         group by item_id, voter_id having count(*) % 2 = 1 order by item_id, voter_id",
    )
    .fetch_all(pool)
    .await
    .expect("Postgres answers")
}

async fn change(tally: &Tally, item: ItemId, voter: &str, value: i64) {
    let path = format!("/v1/items/{item}/votes/{voter}");
    let (status, said) = tally
        .send(Method::PUT, &path, Some(&json!({ "value": value })))
        .await;
    assert!(status.is_success(), "{said}");
}

async fn take_back(tally: &Tally, item: ItemId, voter: &str) {
    let path = format!("/v1/items/{item}/votes/{voter}");
    let (status, said) = tally.send(Method::DELETE, &path, None).await;
    assert!(status.is_success(), "{said}");
}

/// A poll with three choices of which a voter may hold so many.
async fn poll(tally: &Tally, max_choices: i64) -> (Value, Vec<ItemId>) {
    let poll = json!({ "title": "x", "choices": ["a", "b", "c"], "max_choices": max_choices });
    let (_, made) = tally.post("/v1/polls", &poll).await;
    let choices = made["choices"].as_array().expect("choices").iter();
    let id = |choice: &Value| choice["item_id"].as_i64().and_then(ItemId::new).expect("an id");
    (made["id"].clone(), choices.map(id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_voters_become_one_who_holds_what_one_voter_can_hold() {
    let tally = Tally::start().await;
    let [same, opposite, first, other, closed, reopened, left] =
        ["same", "opposite", "first", "other", "closed", "reopened", "left"];
    let mut items = Vec::new();
    for name in [same, opposite, first, other, closed, reopened, left] {
        items.push(tally.item(name).await);
    }
    let [same, opposite, first, other, closed, reopened, left] = items[..] else {
        unreachable!("seven items")
    };
    let limited = tally.item_with(json!({ "max_votes": 2, "numbered": true })).await;
    for item in [same, limited] {
        tally.vote(item, "ada").await;
        tally.vote(item, "ada2").await;
    }
    tally.vote(opposite, "ada").await;
    change(&tally, opposite, "ada2", -1).await;
    change(&tally, first, "ada", -1).await;
    tally.vote(other, "ada2").await;
    // Both took theirs back.
    for voter in ["ada", "ada2"] {
        tally.vote(closed, voter).await;
        take_back(&tally, closed, voter).await;
    }
    // Ada holds one, after changes; the other took hers back.
    for value in [1, -1, 1] {
        change(&tally, reopened, "ada", value).await;
    }
    tally.vote(reopened, "ada2").await;
    take_back(&tally, reopened, "ada2").await;
    // The other way round, and the one who stays changed hers three times.
    tally.vote(left, "ada").await;
    take_back(&tally, left, "ada").await;
    for value in [1, -1, 1, -1] {
        change(&tally, left, "ada2", value).await;
    }
    let (one, of_one) = poll(&tally, 1).await;
    let (two, of_two) = poll(&tally, 2).await;
    let select = async |poll: &Value, voter: &str, items: &[ItemId]| {
        let path = format!("/v1/polls/{poll}/votes/{voter}");
        let items: Vec<i64> = items.iter().map(|item| item.get()).collect();
        let (status, said) = tally
            .send(Method::PUT, &path, Some(&json!({ "items": items })))
            .await;
        assert_eq!(status, StatusCode::OK, "{said}");
    };
    select(&one, "ada", &of_one[..1]).await;
    select(&one, "ada2", &of_one[1..2]).await;
    select(&two, "ada", &[of_two[2], of_two[1]]).await;
    select(&two, "ada2", &[of_two[2]]).await;
    select(&two, "bob", &[of_two[0]]).await;

    let (done, dry, said) = voter(&tally.stores, &["merge", "ada", "ada2"]).await;
    assert!(done, "{said}");
    assert_eq!(
        (&dry["dry_run"], &dry["items_of_both"]),
        (&json!(true), &json!(4)),
        "{dry}"
    );
    let before = held(&tally.pool).await;
    assert!(before.iter().any(|line| line.contains("ada ")), "{before:?}");
    let (done, merged, said) = voter(&tally.stores, &["merge", "ada", "ada2", "--apply"]).await;
    assert!(done, "{said}");
    // On the same items, and the choice of the poll of one.
    assert_eq!(
        (&merged["state"], &merged["taken_back"]),
        (&json!("done"), &json!(5)),
        "{merged}"
    );
    let value = |item: ItemId, value: i64| format!("{item}: ada2 {value}");
    let mut expected = vec![
        value(same, 1),
        value(opposite, -1),
        value(first, -1),
        value(other, 1),
        value(reopened, 1),
        value(left, -1),
        value(limited, 1),
        value(of_one[1], 1),
        value(of_two[1], 1),
        value(of_two[2], 1),
        format!("{}: bob 1", of_two[0]),
    ];
    let mut found = held(&tally.pool).await;
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert_rules_hold(&tally.pool).await;
    for (poll, voters) in [(&one, 1), (&two, 2)] {
        let shown = tally.get(&format!("/v1/polls/{poll}")).await.1;
        assert_eq!(shown["voter_count"], voters, "{shown}");
    }
    for item in items.iter().chain([&limited]).chain(&of_one).chain(&of_two) {
        tally.assert_exact_when_quiescent(*item).await;
    }
    // The place that was taken twice is free, and votes go on where they were.
    let (status, bob) = tally.vote(limited, "bob").await;
    assert_eq!((status, &bob["number"]), (StatusCode::CREATED, &json!(3)));
    for value in [1, -1] {
        change(&tally, left, "ada2", value).await;
    }
    assert_rules_hold(&tally.pool).await;
    // Ada is nobody now, and may begin anew.
    let (_, shown, _) = voter(&tally.stores, &["show", "ada"]).await;
    assert_eq!(shown["rows"], 0, "{shown}");
    assert_eq!(tally.vote(same, "ada").await.0, StatusCode::CREATED);
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_voter_keeps_votes_numbers_and_times_and_nobodys_id_is_taken_over() {
    let tally = Tally::start().await;
    let limited = tally.item_with(json!({ "max_votes": 3, "numbered": true })).await;
    let plain = tally.item("x").await;
    let (_, choices) = poll(&tally, 1).await;
    for item in [limited, plain, choices[0]] {
        tally.vote(item, "ada").await;
    }
    change(&tally, plain, "ada", -1).await;
    tally.vote(plain, "bob").await;
    let rows = async |voter: &str| -> Vec<String> {
        sqlx::query_scalar(
            "select format('%s %s %s %s %s %s', id, item_id, created_at, value, change_number, number)
             from vote where voter_id = $1 order by id",
        )
        .bind(voter)
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers")
    };
    let before = rows("ada").await;
    assert_eq!(before.len(), 5);
    // Somebody else is bob.
    for arguments in [
        &["rename", "ada", "bob"][..],
        &["rename", "ada", "bob", "--apply"],
    ] {
        let (done, _, said) = voter(&tally.stores, arguments).await;
        assert!(!done && said.contains("tally voter merge"), "{said}");
    }
    assert_eq!(rows("ada").await, before);
    let (done, renamed, said) = voter(&tally.stores, &["rename", "ada", "Ada L.", "--apply"]).await;
    assert!(done, "{said}");
    assert_eq!((&renamed["rows"], &renamed["taken_back"]), (&json!(5), &json!(0)));
    assert_eq!(rows("Ada L.").await, before);
    assert_eq!(rows("ada").await, Vec::<String>::new());
    assert_rules_hold(&tally.pool).await;
    for item in [limited, plain] {
        tally.assert_exact_when_quiescent(item).await;
    }
    // Twice does nothing more: nobody has that id now.
    let (done, again, said) = voter(&tally.stores, &["rename", "ada", "Ada M.", "--apply"]).await;
    assert!(done, "{said}");
    assert_eq!(again["rows"], 0, "{again}");
    let (done, _, _) = voter(&tally.stores, &["list"]).await;
    assert!(done);
    // The trail says who did what, and of no voter.
    let acts: Vec<String> =
        sqlx::query_scalar("select act::text from act where what like 'voter_edit%' order by id")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(acts.len(), 9, "{acts:#?}");
    assert!(
        !acts.iter().any(|act| act.contains("ada") || act.contains("Ada")),
        "{acts:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_of_a_voter_is_undone_after_the_voter_got_another_id() {
    let tally = Tally::start().await;
    let [item, other] = [tally.item("x").await, tally.item("y").await];
    for voter in ["ada", "bob"] {
        tally.vote(item, voter).await;
    }
    tally.vote(other, "ada").await;
    let (done, said) = void(&tally, &["--voter", "ada", "--reason", "x", "--apply"]).await;
    assert!(done, "{said}");
    let (done, _, said) = voter(&tally.stores, &["merge", "ada", "bob", "--apply"]).await;
    assert!(done, "{said}");
    assert_rules_hold(&tally.pool).await;
    let (done, undone) = void(&tally, &["--undo", "1"]).await;
    assert!(done, "{undone}");
    // Bob holds a vote on the first item.
    assert_eq!(
        (&undone["restored_votes"], &undone["left_void"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        held(&tally.pool).await,
        [format!("{item}: bob 1"), format!("{other}: bob 1")]
    );
    assert_rules_hold(&tally.pool).await;
    for item in [item, other] {
        tally.assert_exact_when_quiescent(item).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_possible_is_refused_and_changes_nothing() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    let erased = format!("erased-{:032x}", 7);
    for (arguments, why) in [
        (&["merge", "ada", "ada"][..], "own id"),
        (&["erase", ""], "empty"),
        (&["erase", &erased], "erased voter"),
        (&["rename", "ada", &erased], "erased voter"),
        (&["rename", "ada", "a\u{7}"], "control character"),
    ] {
        let (done, _, said) = voter(&tally.stores, arguments).await;
        assert!(!done && said.contains(why), "{arguments:?}: {said}");
    }
    let (status, said) = tally.vote(item, &erased).await;
    assert_eq!(
        (status, &said["type"]),
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            &json!("/problems/invalid-value")
        )
    );
    // A voiding of hers is not done.
    sqlx::raw_sql("insert into voiding (voter_id, reason, until_vote_id) values ('ada', 'x', 1000)")
        .execute(&tally.pool)
        .await
        .expect("a voiding");
    let (done, _, said) = voter(&tally.stores, &["erase", "ada", "--apply"]).await;
    assert!(!done && said.contains("tally void --resume 1"), "{said}");
    void(&tally, &["--resume", "1"]).await;
    // Another edit of hers is not done.
    sqlx::raw_sql("insert into voter_edit (kind, from_voter_id, to_voter_id, until_vote_id) values ('merge', 'cy', 'ada', 1)")
        .execute(&tally.pool)
        .await
        .expect("an edit");
    let (done, _, said) = voter(&tally.stores, &["erase", "ada", "--apply"]).await;
    assert!(!done && said.contains("edit 1 of one of these voters"), "{said}");
    // The owner changes no vote by hand, but for what an edit under way says.
    for statement in [
        "update vote set value = -value",
        "update vote set voter_id = 'bob'",
        "update vote set voter_id = null",
        "update vote set change_number = 1",
        "update vote set item_id = item_id + 1",
        "delete from vote",
        "truncate vote",
    ] {
        let refused = sqlx::raw_sql(statement).execute(&tally.pool).await;
        assert!(refused.is_err(), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_gets_an_earlier_id_back_and_an_erasure_forgets_all_of_them() {
    let tally = Tally::start().await;
    let [item, other] = [tally.item("x").await, tally.item("y").await];
    tally.vote(item, "name-1").await;
    tally.vote(other, "name-9").await;
    for arguments in [
        &["rename", "name-1", "name-2"][..],
        &["rename", "name-2", "name-1"],
        // Somebody has that id.
        &["rename", "name-1", "name-9"],
        &["rename", "name-1", "name-3"],
        &["merge", "name-3", "name-4"],
        &["merge", "name-4", "name-3"],
    ] {
        let (done, _, said) = voter(&tally.stores, &[arguments, &["--apply"]].concat()).await;
        assert_eq!(done, arguments[2] != "name-9", "{arguments:?}: {said}");
    }
    assert_eq!(
        held(&tally.pool).await,
        [format!("{item}: name-3 1"), format!("{other}: name-9 1")]
    );
    let (done, _, said) = voter(&tally.stores, &["erase", "name-3", "--apply"]).await;
    assert!(done, "{said}");
    let left: Vec<String> =
        sqlx::query_scalar("select voter_edit::text from voter_edit where voter_edit::text like '%name-%'")
            .fetch_all(&tally.pool)
            .await
            .expect("Postgres answers");
    assert_eq!(left, Vec::<String>::new());
    assert_rules_hold(&tally.pool).await;
}

/// One chunk has all rows of a voter on an item.
#[tokio::test(flavor = "multi_thread")]
async fn a_voter_with_very_many_rows_on_one_item_is_erased() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    sqlx::query(
        "insert into vote (item_id, voter_id, value, change_number)
         select $1, 'ada', 1 - 2 * (n % 2), n from generate_series(0, 29999) as n",
    )
    .bind(item.get())
    .execute(&tally.pool)
    .await
    .expect("votes");
    let (done, erased, said) = voter(&tally.stores, &["erase", "ada", "--apply"]).await;
    assert!(done, "{said}");
    assert_eq!(erased["rows"], 30_000, "{erased}");
    assert_rules_hold(&tally.pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_voiding_of_a_voter_begins_while_an_edit_of_that_voter_is_not_done() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "ada").await;
    sqlx::raw_sql("insert into voter_edit (kind, from_voter_id, to_voter_id, until_vote_id) values ('rename', 'ada', 'bob', 1)")
        .execute(&tally.pool)
        .await
        .expect("an edit");
    for who in ["ada", "bob"] {
        let (done, said) = void(&tally, &["--voter", who, "--reason", "x", "--apply"]).await;
        assert!(
            !done && said.to_string().contains("edit 1 of this voter is not done"),
            "{said}"
        );
        let body = json!({ "voter_id": who, "reason": "x", "dry_run": false });
        let (status, said) = tally.post("/v1/voidings", &body).await;
        assert_eq!(
            (status, &said["type"]),
            (StatusCode::CONFLICT, &json!("/problems/voter-edit-under-way"))
        );
    }
    // Another voter's may.
    let (done, said) = void(&tally, &["--voter", "cy", "--reason", "x", "--apply"]).await;
    assert!(done, "{said}");
}
