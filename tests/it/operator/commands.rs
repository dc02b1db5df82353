//! An operator's commands.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::helpers::programs::{TALLY, command, run, text};
use crate::helpers::tally::Tally;

/// Runs `tally` with these arguments. Returns whether it succeeded, and its output.
async fn tally_does(tally: &Tally, arguments: &[&str]) -> (bool, String) {
    let mut command = command(TALLY, None);
    command.args(arguments).env("TALLY_URL", &tally.base);
    let output = run(command).await;
    (
        output.status.success(),
        format!("{}{}", text(&output.stdout), text(&output.stderr)),
    )
}

async fn json_of(tally: &Tally, arguments: &[&str]) -> Value {
    let (done, said) = tally_does(tally, &[arguments, &["--json"]].concat()).await;
    assert!(done, "{arguments:?}: {said}");
    serde_json::from_str(said.trim()).expect("a line of JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn items_are_made_shown_edited_and_imported() {
    let tally = Tally::start().await;
    let made = json_of(
        &tally,
        &[
            "item",
            "make",
            "Tea",
            "--key",
            "post/1",
            "--max-votes",
            "3",
            "--no-down-votes",
            "--numbered",
        ],
    )
    .await;
    assert_eq!(
        (
            &made["name"],
            &made["max_votes"],
            &made["down_votes"],
            &made["numbered"]
        ),
        (&json!("Tea"), &json!(3), &json!(false), &json!(true))
    );
    let (done, said) = tally_does(&tally, &["item", "show", "key:post/1"]).await;
    assert!(
        done && said.contains("Tea") && said.contains("vote_count"),
        "{said}"
    );
    let edited = json_of(
        &tally,
        &["item", "edit", "key:post/1", "--name", "Green tea", "--hide"],
    )
    .await;
    assert_eq!(
        (&edited["name"], &edited["hidden"]),
        (&json!("Green tea"), &json!(true))
    );

    let file = tally.stores.folder().join("items");
    std::fs::write(&file, "post/2\tCoffee\nCocoa\n\npost/2\tCoffee\npost/2\tMilk\n").expect("a file");
    let file = file.to_str().expect("a path");
    let (done, said) = tally_does(&tally, &["item", "import", file]).await;
    assert!(!done, "a key was used twice: {said}");
    assert!(
        said.contains("2 items created, 1 exist already, 1 lines refused"),
        "{said}"
    );
    assert!(said.contains("line 5: 409"), "{said}");

    for (arguments, part) in [
        (vec!["item", "show", "999"], "404 There is no item 999."),
        (vec!["item", "make", ""], "422 name is empty"),
        (
            vec!["item", "edit", "key:post/1", "--closes-at", "soon"],
            "RFC 3339",
        ),
        (
            vec!["item", "import", "/no/such/file"],
            "cannot read /no/such/file",
        ),
        (
            vec!["item", "show", "1", "--url", "http://127.0.0.1:1"],
            "is Tally running there?",
        ),
    ] {
        let (done, said) = tally_does(&tally, &arguments).await;
        assert!(!done && said.contains(part), "{arguments:?}: {said}");
        assert!(said.contains("RFC 3339") || said.lines().count() == 1, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_are_made_and_edited_and_ballots_go_to_a_new_file_that_others_cannot_read() {
    let tally = Tally::start().await;
    let poll = json_of(
        &tally,
        &[
            "poll",
            "make",
            "Lunch",
            "--choice",
            "Soup",
            "--choice",
            "Salad",
            "--by-ballot",
            "--secret",
        ],
    )
    .await;
    let id = poll["id"].to_string();
    assert_eq!(
        (&poll["by_ballot"], &poll["secret"]),
        (&json!(true), &json!(true))
    );
    let edited = json_of(&tally, &["poll", "edit", &id, "--title", "Dinner"]).await;
    assert_eq!(edited["title"], "Dinner");
    let time = "2100-01-01T00:00:00Z";
    for (closes_at, shown) in [(time, json!(time)), ("none", Value::Null)] {
        let edited = json_of(&tally, &["poll", "edit", &id, "--closes-at", closes_at]).await;
        assert_eq!(edited["closes_at"], shown);
        let edited = json_of(&tally, &["poll", "edit", &id, "--opens-at", "none"]).await;
        assert_eq!(edited["opens_at"], Value::Null);
    }

    let added = json_of(&tally, &["poll", "add-choice", &id, "Stew"]).await;
    assert_eq!(
        (
            added["choices"].as_array().map(Vec::len),
            &added["choices"][2]["name"]
        ),
        (Some(3), &json!("Stew"))
    );
    let copied = json_of(
        &tally,
        &[
            "poll",
            "copy",
            &id,
            "--key",
            "again",
            "--title",
            "Supper",
            "--opens-at",
            time,
        ],
    )
    .await;
    assert_eq!(
        [
            &copied["title"],
            &copied["key"],
            &copied["opens_at"],
            &copied["closes_at"],
            &copied["choices"][2]["name"]
        ],
        [
            &json!("Supper"),
            &json!("again"),
            &json!(time),
            &Value::Null,
            &json!("Stew")
        ],
        "{copied}"
    );
    // A refusal has the words for voters and those for whoever writes the program.
    let (done, said) = tally_does(&tally, &["poll", "show", "999"]).await;
    assert!(
        !done && said.contains("404 There is no poll 999. GET /v1/polls lists the polls."),
        "{said}"
    );

    let file = tally.stores.folder().join("ballots");
    let path = file.to_str().expect("a path");
    let arguments = ["ballots", "--poll", &id, "--count", "1500", "--out", path];
    let made = json_of(&tally, &arguments).await;
    assert_eq!(made["ballots"], 1500);
    let lines = std::fs::read_to_string(&file).expect("the file");
    let ballots: std::collections::HashSet<&str> = lines.lines().collect();
    assert_eq!(ballots.len(), 1500);
    let mode = std::fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let choice = &poll["choices"][1]["item_id"];
    let ballot = ballots.iter().next().expect("a ballot");
    let (status, _) = tally
        .post(&format!("/v1/items/{choice}/votes"), &json!({ "ballot": ballot }))
        .await;
    assert_eq!(status, 201);
    let (_, said) = tally_does(&tally, &["poll", "show", &id]).await;
    assert!(
        said.contains("name Salad") && said.contains("vote_count 1"),
        "{said}"
    );

    // An existing file is never overwritten.
    let (done, said) = tally_does(&tally, &arguments).await;
    assert!(!done && said.contains("cannot create the file"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), lines);
    let other = tally.stores.folder().join("other");
    let path = other.to_str().expect("a path");
    let (done, said) = tally_does(
        &tally,
        &["ballots", "--poll", "999", "--count", "1", "--out", path],
    )
    .await;
    assert!(!done && said.contains("404"), "{said}");
    assert!(!other.exists(), "no ballot, no file");
}
