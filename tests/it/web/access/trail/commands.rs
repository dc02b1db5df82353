//! The trail and the command line: what commands leave in it, and `tally trail`.

use serde_json::{Value, json};
use tally::domain::ActKind;
use tally::ledger::Role;

use super::{Row, since};
use crate::helpers::programs::{TALLY, command, command_as, run, start_worker, text};
use crate::helpers::tally::Tally;

/// Runs a command of `tally` as an operator.
/// Returns whether it succeeded, and its output.
async fn operator_does(tally: &Tally, arguments: &[&str]) -> (bool, String) {
    let mut command = command_as(TALLY, Some((&tally.stores, Role::Operator)));
    command.args(arguments);
    let output = run(command).await;
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.success(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_of_an_operator_leaves_its_rows_and_what_only_looks_leaves_none() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    tally.vote(item, "very-private-voter").await;
    let mut seen = 0;
    let first = since(&tally.pool, &mut seen).await;
    assert_eq!(
        first
            .iter()
            .map(|row| (row.4.as_str(), row.6.as_str()))
            .collect::<Vec<_>>(),
        [("migrate", "done")],
        "the migrations"
    );
    let of = |tool: &str, what: &str, target: Option<&str>, outcome: &str, problem: Option<&str>| {
        let login = if tool == "tally audit" {
            "worker"
        } else {
            "operator"
        };
        (
            format!("login:{login}"),
            login.to_owned(),
            tool.to_owned(),
            Some("127.0.0.1".to_owned()),
            what.to_owned(),
            target.map(str::to_owned),
            outcome.to_owned(),
            problem.map(str::to_owned),
        )
    };
    let key = |what: &str, target: Option<&str>, outcome: &str, problem: Option<&str>| {
        of("tally key", what, target, outcome, problem)
    };
    let void = |what: &str, target: Option<&str>, outcome: &str, problem: Option<&str>| {
        of("tally void", what, target, outcome, problem)
    };
    let voter = |what: &str, target: Option<&str>, outcome: &str, problem: Option<&str>| {
        of("tally voter", what, target, outcome, problem)
    };
    let edit = Some("voter_edit:1");
    let reason = ["--reason", "x"];
    let by_voter = [
        "void",
        "--voter",
        "very-private-voter",
        "--reason",
        "very-private-voter is a bot",
    ];
    let one = Some("voiding:1");
    let file = |name: &str, content: &str| {
        let path = tally.stores.folder().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_str().expect("a plain path").to_owned()
    };
    let votes = file("votes.csv", "item_id,voter_id\n1,very-private-voter-2\n");
    let items = file("items.csv", "id,name\n7,x\n");
    let polls = file("polls.csv", "id,title\n7,x\n");
    let import = |what: &str, outcome: &str| of("tally import", what, None, outcome, None);
    let archive =
        |what: &str, target: &str, outcome: &str| of("tally archive", what, Some(target), outcome, None);
    sqlx::raw_sql(
        "with made as (insert into rule (closes_at) values (now() - interval '1 day') returning id)
         insert into item (name, key, rule_id) select 'x', 'closed', id from made",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    let closed = ["archive", "run", "--item", "key:closed"];
    let folder = tally.stores.folder().to_str().expect("a plain path");
    // It rolls up what is archived.
    let _worker = start_worker(&tally.stores, "worker", &[]);
    let cases: Vec<(Vec<&str>, bool, Vec<Row>)> = vec![
        (
            vec!["key", "create", "a", "--scope", "admin"],
            true,
            vec![key("api_key.create", Some("api_key:1"), "done", None)],
        ),
        (
            vec!["key", "create", "\u{1}", "--scope", "admin"],
            false,
            vec![key("api_key.create", None, "refused", Some("invalid-value"))],
        ),
        (
            vec!["key", "rotate", "1"],
            true,
            vec![key("api_key.rotate", Some("api_key:1"), "done", None)],
        ),
        (
            vec!["key", "rotate", "99"],
            false,
            vec![key(
                "api_key.rotate",
                Some("api_key:99"),
                "refused",
                Some("unknown-api-key"),
            )],
        ),
        (
            vec!["key", "revoke", "1"],
            true,
            vec![key("api_key.revoke", Some("api_key:1"), "done", None)],
        ),
        (
            vec!["key", "revoke", "99"],
            false,
            vec![key(
                "api_key.revoke",
                Some("api_key:99"),
                "refused",
                Some("unknown-api-key"),
            )],
        ),
        (vec!["key", "list"], true, vec![]),
        (vec!["trail"], true, vec![]),
        // Without --apply the command only looks.
        (by_voter.to_vec(), true, vec![]),
        (
            [&by_voter[..], &["--apply"]].concat(),
            true,
            vec![
                void("voiding.create", one, "done", None),
                void("voiding.run", one, "begun", None),
                void("voiding.run", one, "done", None),
            ],
        ),
        (vec!["void", "--list"], true, vec![]),
        (
            vec!["void", "--undo", "1"],
            true,
            vec![
                void("voiding.undo", one, "begun", None),
                void("voiding.undo", one, "done", None),
            ],
        ),
        (
            vec!["void", "--resume", "1"],
            true,
            vec![
                void("voiding.undo", one, "begun", None),
                void("voiding.undo", one, "done", None),
            ],
        ),
        (
            vec!["void", "--undo", "99"],
            false,
            vec![void(
                "voiding.undo",
                Some("voiding:99"),
                "refused",
                Some("unknown-voiding"),
            )],
        ),
        (vec!["voter", "erase", "very-private-voter"], true, vec![]),
        (
            vec!["voter", "erase", "very-private-voter", "--apply"],
            true,
            vec![
                voter("voter_edit.create", edit, "done", None),
                voter("voter_edit.run", edit, "begun", None),
                voter("voter_edit.run", edit, "done", None),
            ],
        ),
        (vec!["voter", "show", "very-private-voter"], true, vec![]),
        (vec!["voter", "list"], true, vec![]),
        (
            vec![
                "voter",
                "merge",
                "very-private-voter",
                "very-private-voter",
                "--apply",
            ],
            false,
            vec![voter("voter_edit.create", None, "refused", Some("invalid-value"))],
        ),
        (vec!["event", "list"], true, vec![]),
        // There are no dead letters.
        (vec!["event", "resend", "--dead"], true, vec![]),
        (
            vec!["event", "resend", "99"],
            false,
            vec![of(
                "tally event",
                "event.resend",
                Some("event:99"),
                "refused",
                Some("unknown-event"),
            )],
        ),
        (vec!["import", "votes", &votes, "--dry-run"], true, vec![]),
        (
            vec!["import", "votes", &votes],
            true,
            vec![import("votes.import", "begun"), import("votes.import", "done")],
        ),
        (
            vec!["import", "votes", &votes, "--columns", "voter_id"],
            false,
            vec![import("votes.import", "begun"), import("votes.import", "failed")],
        ),
        (
            vec!["import", "items", &items],
            true,
            vec![import("items.import", "begun"), import("items.import", "done")],
        ),
        (
            vec!["import", "polls", &polls],
            true,
            vec![import("polls.import", "begun"), import("polls.import", "done")],
        ),
        (
            [&["void", "--item", "99", "--apply"][..], &reason].concat(),
            false,
            vec![void("voiding.create", None, "refused", Some("unknown-item"))],
        ),
        ([&closed[..], &["--dry-run"]].concat(), true, vec![]),
        (
            [&closed[..], &["--out", folder, "--apply"]].concat(),
            true,
            vec![
                archive("archive.run", "archive:1", "begun"),
                archive("archive.run", "archive:1", "done"),
                archive("archive.drop", "archive:1", "begun"),
                archive("archive.drop", "archive:1", "done"),
            ],
        ),
        (
            [&closed[..], &["--out", folder, "--apply"]].concat(),
            false,
            vec![of(
                "tally archive",
                "archive.run",
                None,
                "refused",
                Some("invalid-value"),
            )],
        ),
        (
            vec!["archive", "cancel", "1"],
            false,
            vec![of(
                "tally archive",
                "archive.cancel",
                Some("archive:1"),
                "refused",
                Some("invalid-value"),
            )],
        ),
        (vec!["archive", "list"], true, vec![]),
    ];
    for (arguments, done, expected) in cases {
        let (did, said) = operator_does(&tally, &arguments).await;
        assert_eq!(did, done, "{arguments:?}: {said}");
        assert_eq!(since(&tally.pool, &mut seen).await, expected, "{arguments:?}");
    }
    for (arguments, expected) in [
        (vec!["audit"], vec![]),
        (
            vec!["audit", "--repair"],
            vec![
                of("tally audit", "audit.repair", None, "begun", None),
                of("tally audit", "audit.repair", None, "done", None),
            ],
        ),
    ] {
        let mut audit = command(TALLY, Some(&tally.stores));
        audit.args(&arguments);
        let output = run(audit).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(since(&tally.pool, &mut seen).await, expected, "{arguments:?}");
    }
    // Each outcome names the row of its beginning.
    let unpaired: i64 = sqlx::query_scalar(
        "select count(*) from act as begun where outcome = 'begun' and 1 <>
             (select count(*) from act where begun_id = begun.id and what = begun.what and outcome in ('done', 'failed'))",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("Postgres answers");
    assert_eq!(unpaired, 0);
    let all: Vec<String> = sqlx::query_scalar("select act::text from act")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    assert!(all.iter().all(|row| !row.contains("very-private")), "{all:?}");
    // Each kind of act belongs to a command here, or to a request in the parent module.
    let kinds: Vec<String> = sqlx::query_scalar("select distinct what from act")
        .fetch_all(&tally.pool)
        .await
        .expect("Postgres answers");
    for kind in ActKind::ALL {
        let is_http = matches!(
            kind,
            ActKind::ItemCreate
                | ActKind::ItemEdit
                | ActKind::ItemAccess
                | ActKind::PollAccess
                | ActKind::PollCreate
                | ActKind::PollEdit
                | ActKind::ChoiceCreate
                | ActKind::BallotsCreate
                | ActKind::AuditAsk
        );
        assert!(
            is_http || kinds.iter().any(|name| name == kind.name()),
            "{kind:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_is_shown_newest_first_in_pages_and_by_who_what_and_when() {
    let tally = Tally::start().await;
    for name in ["a", "b", "c"] {
        tally.post("/v1/items", &json!({ "name": name })).await;
    }
    let (done, said) = operator_does(&tally, &["key", "create", "x", "--scope", "vote"]).await;
    assert!(done, "{said}");
    let shown = async |arguments: &[&str]| {
        let (done, said) = operator_does(&tally, &[&["trail", "--json"], arguments].concat()).await;
        assert!(done, "{said}");
        let lines = said
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON"));
        lines.collect::<Vec<Value>>()
    };
    let all = shown(&[]).await;
    let whats = |acts: &[Value]| acts.iter().map(|act| act["what"].clone()).collect::<Vec<_>>();
    assert_eq!(
        whats(&all),
        [
            "api_key.create",
            "item.create",
            "item.create",
            "item.create",
            "migrate"
        ]
    );
    let ids: Vec<i64> = all.iter().map(|act| act["id"].as_i64().expect("an id")).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
    let page = shown(&["--limit", "2"]).await;
    assert_eq!(page, all[..2]);
    let last = page[1]["id"].to_string();
    assert_eq!(shown(&["--limit", "2", "--before", &last]).await, all[2..4]);
    assert_eq!(
        whats(&shown(&["--who", "login:operator"]).await),
        ["api_key.create"]
    );
    assert_eq!(shown(&["--what", "item.create"]).await, all[1..4]);
    let time = all[2]["acted_at"].as_str().expect("a time");
    assert_eq!(shown(&["--since", time]).await, all[..3]);
    assert_eq!(shown(&["--until", time]).await, all[3..]);
    let (_, said) = operator_does(&tally, &["trail", "--limit", "1"]).await;
    for part in [
        "login:operator",
        "api_key.create",
        "api_key:1",
        "done",
        "from tally key 127.0.0.1",
        "name x",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for wrong in [
        ["--limit", "0"],
        ["--what", "item.delete"],
        ["--since", "yesterday"],
    ] {
        let (done, said) = operator_does(&tally, &[&["trail"][..], &wrong].concat()).await;
        assert!(
            !done && said.contains("it takes") || said.contains("is not in 1..=10000"),
            "{said}"
        );
    }
}
