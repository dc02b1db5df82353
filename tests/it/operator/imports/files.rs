//! What is in files: lines that cannot be stored, files of others, and what is no file of votes.

use reqwest::StatusCode;
use serde_json::json;
use tally::domain::ItemId;
use tally::ledger::Role;

use super::{assert_exact, file, import, number, shown, start};
use crate::helpers::tally::Tally;
use crate::operator::exports::export;

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_cannot_be_votes_are_listed_with_their_reasons_and_the_others_are_stored() {
    let (tally, _worker) = start().await;
    let full = tally
        .item_with(json!({ "name": "full", "key": "full", "max_votes": 2 }))
        .await;
    tally
        .item_with(json!({ "name": "up", "key": "up", "down_votes": false }))
        .await;
    tally.item_with(json!({ "name": "twin" })).await;
    tally.item_with(json!({ "name": "twin" })).await;
    let (_, poll) = tally
        .post(
            "/v1/polls",
            &json!({ "title": "x", "choices": ["a", "b"], "max_choices": 1 }),
        )
        .await;
    let choices: Vec<i64> = (0..2)
        .filter_map(|at| poll["choices"][at]["item_id"].as_i64())
        .collect();
    tally.vote(full, "early").await;
    let content = format!(
        "item_id,item_key,item_name,voter_id,value,created_at,change_number\n\
         ,full,,a,1,2020-01-01T00:00:00Z,\n\
         ,full,,b,1,,\n\
         ,up,,a,-1,,\n\
         ,,x,a,1,,\n\
         99,,,a,1,,\n\
         {0},,,a,1,,0\n\
         {1},,,a,1,,0\n\
         {0},,,a,-1,,1\n\
         {0},,,b,1,,0\n\
         {1},,,b,1,,0\n\
         ,up,,b,1,2100-01-01T00:00:00Z,\n\
         ,up,,c,1,yesterday,\n\
         ,up,,d,-1,,1\n\
         ,up,,\"e,1,,\n\
         ,up,,f,1,1600000000.5,\n",
        choices[0], choices[1]
    );
    let path = file(&tally.stores, "votes.csv", &content);
    let refused = tally.stores.folder().join("refused.csv");
    let arguments = ["votes", shown(&path), "--refused", shown(&refused)];
    let (done, result, said) = import(&tally.stores, &arguments).await;
    assert!(!done, "{result}");
    let list = std::fs::read_to_string(&refused).expect("a list");
    for (line, why) in [
        (3, "the item is full: it takes 2 votes"),
        (4, "the item takes no down-votes"),
        (5, "several items have the name"),
        (6, "there is no item 99"),
        (11, "the voter would hold more choices than 1"),
        (12, "it was cast in the future"),
        (13, "it takes one like 2030-01-31T18:00:00Z"),
        (14, "the vote that it takes back or casts again is not there"),
        (15, "a quoted field does not end in its line"),
    ] {
        let found = list.lines().find(|row| row.starts_with(&format!("{line},")));
        assert!(found.is_some_and(|row| row.contains(why)), "line {line}: {list}");
        assert!(said.contains(&format!("line {line}: ")), "{said}");
    }
    assert_eq!(list.lines().count(), 10, "{list}");
    assert_eq!(
        (&result["stored_votes"], &result["refused_lines"]),
        (&json!(6), &json!(9))
    );
    // A move between choices is two lines in either order.
    let sum = |item: i64| format!("select sum(value)::bigint from vote where item_id = {item}");
    assert_eq!(number(&tally.pool, &sum(choices[0])).await, 1);
    assert_eq!(number(&tally.pool, &sum(choices[1])).await, 1);
    let old =
        "select count(*) from vote where created_at in ('2020-01-01T00:00:00Z', '2020-09-13T12:26:40.5Z')";
    assert_eq!(number(&tally.pool, old).await, 2);
    assert_exact(&tally).await;
    // A dry run says the same of what it can read, and stores nothing.
    let other = file(&tally.stores, "other.csv", &content.replace("f,1", "g,1"));
    let (done, result, _) = import(&tally.stores, &["votes", shown(&other), "--dry-run"]).await;
    assert!(
        !done && result["dry_run"] == true && result["refused_lines"] == 4,
        "{result}"
    );
    assert_eq!(number(&tally.pool, "select count(*) from import").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_others_are_read_by_the_names_or_places_of_their_columns() {
    let (tally, _worker) = start().await;
    for (name, content, options) in [
        // As SNAP has it: who, whom, rating, Unix time.
        (
            "snap",
            "6,2,4,1289241911.72836\n6,5,-2,1289241941.53378\n1,15,0,1289243140.39049\n",
            vec!["--columns", "voter_id,item_key,rating,created_at"],
        ),
        (
            "movies",
            "userId,movieId,rating,timestamp\n1,2,3.5,964982703\n1,31,2.5,964981247\n",
            vec![
                "--columns",
                "voter_id=userId,item_key=movieId,rating=rating,created_at=timestamp",
                "--neutral",
                "3",
            ],
        ),
        (
            "blanks",
            "# voter item\n 8  9 \n8\t10\n",
            vec!["--columns", "voter_id,item_key", "--delimiter", "blanks"],
        ),
        (
            "tabs",
            "who\twhat\nö\t茶\n",
            vec!["--columns", "voter_id=who,item_name=what", "--delimiter", "tab"],
        ),
        (
            "lines",
            "{\"user\":\"x\",\"post\":{\"a\":1}}\n{\"user\":7,\"post\":\"p\"}\n",
            vec!["--format", "jsonl", "--columns", "voter_id=user,item_key=post"],
        ),
    ] {
        let path = file(&tally.stores, name, content);
        let arguments = [vec!["votes", shown(&path), "--make-items"], options].concat();
        let (_, result, said) = import(&tally.stores, &arguments).await;
        assert_eq!(
            result["stored_votes"],
            2 - i64::from(["tabs", "lines"].contains(&name)),
            "{name}: {result} {said}"
        );
    }
    let sum = |key: &str| {
        let query = format!(
            "select coalesce(sum(value), 0)::bigint from vote join item on item.id = item_id where key = '{key}'"
        );
        let pool = tally.pool.clone();
        async move { number(&pool, &query).await }
    };
    for (key, net) in [("2", 2), ("5", -1), ("31", -1), ("p", 1)] {
        assert_eq!(sum(key).await, net, "{key}");
    }
    assert_exact(&tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_gave_no_rating_has_not_voted_and_a_line_that_says_two_things_says_none() {
    let (tally, _worker) = start().await;
    let csv = b"item_key,voter_id,rating\na,ada,5\na,bob,\na,cy\xff,5\n";
    let csv_file = tally.stores.folder().join("ratings.csv");
    std::fs::write(&csv_file, csv).expect("written");
    let lines = file(
        &tally.stores,
        "ratings.jsonl",
        r#"{"item_key":"a","voter_id":"dora","rating":null}
{"item_key":"a","voter_id":"eve","rating":""}
{"item_key":"a","voter_id":"fay"}
{"item_key":"a","voter_id":"gus","voter_id":"hal"}
"#,
    );
    let refused = tally.stores.folder().join("refused.csv");
    let unrated = r#"the rating is """"; it takes a number"#;
    for (path, format, expected) in [
        (
            &csv_file,
            "csv",
            vec![unrated, "\"a,bob,\"", "it is not UTF-8,\"a,cy\u{fffd},5\""],
        ),
        (
            &lines,
            "jsonl",
            vec![unrated, "dora", "eve", "voter_id comes twice"],
        ),
    ] {
        let arguments = [
            "votes",
            shown(path),
            "--format",
            format,
            "--neutral",
            "3",
            "--make-items",
        ];
        let arguments = [&arguments[..], &["--refused", shown(&refused)]].concat();
        let (_, result, said) = import(&tally.stores, &arguments).await;
        let list = std::fs::read_to_string(&refused).expect("a list");
        assert_eq!(result["stored_votes"], 1, "{result} {said}");
        for words in expected {
            assert!(list.contains(words), "{words}: {list}");
        }
        std::fs::remove_file(&refused).expect("removed");
    }
    let voters = "select count(*) from vote where voter_id in ('ada', 'fay')";
    assert_eq!(number(&tally.pool, voters).await, 2);
    assert_exact(&tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_file_of_votes_is_refused_in_one_line() {
    let tally = Tally::start().await;
    let stores = &tally.stores;
    let nothing = file(stores, "nothing", "\n\n");
    let other = file(stores, "other", "name,count\nx,1\n");
    let user = file(stores, "user", "item_id,user,Value\n1,dora,-1\n");
    let lines = file(stores, "lines", "{\"item_id\":1}\n");
    let empty = file(stores, "empty", "");
    let twice = file(stores, "twice", "item_id,voter_id,voter_id\n1,dora,ada\n");
    let gzip = stores.folder().join("gzip");
    std::fs::write(&gzip, b"\x1f\x8b\x08").expect("written");
    let utf16 = stores.folder().join("utf16");
    std::fs::write(&utf16, b"\xff\xfei\0t\0").expect("written");
    for (arguments, words) in [
        (
            vec!["votes", shown(stores.folder())],
            "it is a folder, not a file",
        ),
        (vec!["votes", "/dev/zero"], "it is a device, not a file"),
        (vec!["votes", "-"], "cannot read -"),
        (
            vec!["votes", shown(&nothing)],
            "has no line that names its columns",
        ),
        (vec!["votes", shown(&empty)], "the file is empty"),
        (
            vec!["votes", shown(&empty), "--columns", "item_id"],
            "the file is empty",
        ),
        (vec!["votes", shown(&twice)], "the column voter_id comes twice"),
        (
            vec!["votes", shown(&other)],
            "the file needs the columns item_id, or item_key, or item_name",
        ),
        (
            vec!["votes", shown(&other), "--columns", "item,count"],
            "there is no column item",
        ),
        (vec!["votes", shown(&utf16)], "UTF-16"),
        (
            vec!["items", shown(&other)],
            "the file needs the columns id and name, or key and name",
        ),
        (vec!["votes", shown(&user)], "there is no column \"user\""),
        (vec!["votes", shown(&lines)], "is it JSON Lines"),
        (vec!["votes", shown(&gzip)], "it is compressed"),
        (
            vec!["votes", shown(&other), "--delimiter", "ab"],
            "one character of ASCII",
        ),
        (
            vec!["votes", shown(&other), "--neutral", "x"],
            "it takes a number",
        ),
    ] {
        let (done, _, said) = import(stores, &arguments).await;
        assert!(!done && said.contains(words), "{arguments:?}: {said}");
    }
    assert_eq!(number(&tally.pool, "select count(*) from vote").await, 0);
    assert_eq!(number(&tally.pool, "select count(*) from import").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_item_and_the_first_poll_of_a_file_leave_their_ids_to_nobody_else() {
    let tally = Tally::start().await;
    let items = file(&tally.stores, "items.csv", "id,name\n1,a\n");
    let polls = file(&tally.stores, "polls.csv", "id,title\n1,a\n");
    for (table, path) in [("polls", &polls), ("items", &items)] {
        let (done, _, said) = import(&tally.stores, &[table, shown(path)]).await;
        assert!(done, "{said}");
    }
    assert_eq!(tally.item("next").await.get(), 2);
    let (status, said) = tally
        .post("/v1/polls", &json!({ "title": "x", "choices": ["a", "b"] }))
        .await;
    assert_eq!((status, &said["id"]), (StatusCode::CREATED, &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_lines_too_many_for_an_item_are_refused_and_listed_with_their_rows() {
    const LINES: usize = 20_000;
    let (tally, _worker) = start().await;
    tally.item_with(json!({ "key": "k", "max_votes": 100 })).await;
    let mut content = "item_key,voter_id\n".to_owned();
    for voter in 0..LINES {
        content += &format!("k,v{voter}\n");
    }
    // Lines that say nothing, many of them.
    content += &"y\n".repeat(150_000);
    let path = file(&tally.stores, "votes.csv", &content);
    let refused = tally.stores.folder().join("refused.csv");
    let (done, result, said) = import(
        &tally.stores,
        &["votes", shown(&path), "--refused", shown(&refused)],
    )
    .await;
    assert!(!done);
    let all = i64::try_from(LINES).expect("a few");
    assert_eq!(
        (&result["stored_votes"], &result["refused_lines"]),
        (&json!(100), &json!(all - 100 + 150_000)),
        "{said}"
    );
    let list = std::fs::read_to_string(&refused).expect("a list");
    assert_eq!(list.lines().count(), LINES - 100 + 150_000 + 1);
    assert!(
        list.contains("\n102,the item is full: it takes 100 votes,\"k,v100\"\n"),
        "{}",
        &list[..200]
    );
    assert_exact(&tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_and_polls_that_are_there_stay_and_those_that_clash_are_listed() {
    let tally = Tally::start().await;
    let there = tally.item_with(json!({ "key": "a" })).await;
    let id = ItemId::get(there);
    let content = format!(
        "id,key,name,rule_id,is_choice,max_votes\n{id},a,x,,,\n{id},b,other,,,\n50,a,x,,,\n51,c,new,,,\n52,,x,9,t,\n53,,x,,,5\nx,,y,,,\n54,d,places,70,f,5\n55,,y,70,f,5\n56,,z,,,many\n0,,z,,,\n9223372036854775807,,z,,,\n57,,\u{200b},,,\n"
    );
    let path = file(&tally.stores, "items.csv", &content);
    let (done, result, said) = import(&tally.stores, &["items", shown(&path)]).await;
    assert!(!done);
    assert_eq!(
        (
            &result["created"],
            &result["already_there"],
            &result["refused_lines"]
        ),
        (&json!(2), &json!(1), &json!(10)),
        "{said}"
    );
    for words in [
        "another item has the id",
        "another item has the key a",
        "there is no poll 9",
        "an item with places has a rule_id",
        "id is \"x\"; it takes a number from 1",
        "id is \"9223372036854775807\"",
        "the name has only characters that nobody can see",
        "invalid input syntax for type bigint",
        "belongs to another item or poll",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let path = file(
        &tally.stores,
        "polls.csv",
        "id,key,title,max_choices\n80,p,Poll,1\n80,p,Other,1\n81,p,x,1\n70,,x,1\n82,,x,0\n",
    );
    let (_, result, said) = import(&tally.stores, &["polls", shown(&path)]).await;
    assert_eq!(
        (&result["created"], &result["refused_lines"]),
        (&json!(1), &json!(4)),
        "{said}"
    );
    assert!(tally.item("next").await.get() > 54);
    let (_, trail, _) = export(&tally.stores, Role::Operator, &["trail"]).await;
    assert!(
        trail.contains("items.import") && trail.contains("polls.import"),
        "{trail}"
    );
}
