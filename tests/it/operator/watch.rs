//! `tally watch`: what it shows, to whom, and when it ends.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::helpers::eventually;
use crate::helpers::programs::{
    Program, TALLY, command, run, start, start_server, start_server_with, stop, text,
};
use crate::helpers::stores::Stores;

fn watch(base: &str, arguments: &[&str]) -> Command {
    let mut watch = command(TALLY, None);
    watch.arg("watch").args(arguments).env("TALLY_URL", base);
    watch
}

async fn send(path: &str, base: &str, body: &Value) -> Value {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = http.post(format!("{base}{path}")).json(body).send().await;
    let answer = answer.expect("an answer");
    assert!(answer.status().is_success(), "{path}");
    answer.json().await.expect("JSON")
}

async fn until_shown(program: &Program, part: &str) {
    eventually(&format!("{part:?} is shown"), async || {
        program.output().contains(part).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_through_another_server_are_lines_also_after_a_restart() {
    let stores = Stores::start().await;
    let (server, base) = start_server(&stores, "server").await;
    let (other, other_base) = start_server(&stores, "other").await;
    let item = send("/v1/items", &base, &json!({ "name": "Tea", "key": "tea" })).await;
    let votes = format!("/v1/items/{}/votes", item["id"]);
    let poll = json!({ "title": "Lunch?", "choices": ["soup", "salad"] });
    let poll = send("/v1/polls", &base, &poll).await;
    let poll_id = poll["id"].to_string();

    let watched = ["key:tea", "--poll", &poll_id];
    let lines = start(watch(&base, &watched), &stores, "lines");
    let events = start(
        watch(&base, &[&watched[..], &["--json"]].concat()),
        &stores,
        "events",
    );
    until_shown(&lines, "Tea  0  up 0  down 0  current").await;
    until_shown(&lines, "Lunch?  soup 0, salad 0  voters 0  current").await;
    send(&votes, &other_base, &json!({ "value": 1 })).await;
    until_shown(&lines, "Tea  1  up 1  down 0  current").await;
    until_shown(&events, "\"vote_count\":1").await;

    let port = base.rsplit(':').next().expect("a port");
    let listen = format!("127.0.0.1:{port}");
    stop(server, Signal::SIGTERM).await;
    until_shown(&lines, "the stream is lost (").await;
    until_shown(&lines, "opening it again in").await;
    send(&votes, &other_base, &json!({ "value": -1, "voter_id": "ada" })).await;
    let (server, _) = start_server_with(&stores, "again", &[("TALLY_LISTEN", &listen)]).await;
    until_shown(&lines, "Tea  0  up 1  down 1  current").await;
    // What has not changed is not shown again.
    let said = lines.output();
    assert_eq!(said.matches("Lunch?").count(), 1, "{said}");

    until_shown(&events, "\"down_count\":1").await;
    let said = events.output();
    let shown: Vec<Value> = said
        .lines()
        .filter(|line| !line.starts_with("the stream is lost"))
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    let first = &shown[0];
    assert_eq!(
        (&first["items"][0]["name"], &first["polls"][0]["id"]),
        (&json!("Tea"), &poll["id"])
    );
    stop(lines, Signal::SIGINT).await;
    stop(events, Signal::SIGTERM).await;
    stop(server, Signal::SIGTERM).await;
    stop(other, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_watched_is_refused_in_one_line() {
    let stores = Stores::start().await;
    let (_server, base) = start_server(&stores, "server").await;
    for (base, arguments, part) in [
        (&*base, &["999"][..], "there is no item 999"),
        (&base, &["--poll", "999"], "there is no poll 999"),
        (&base, &["998", "--poll", "999"], "there is no item 998"),
        (&base, &["key:none"], "there is no item key:none"),
        (&base, &["tea"], "items"),
        (&base, &["key:a,b"], "has a comma"),
        ("http://127.0.0.1:1", &["1"], "is Tally running there?"),
    ] {
        let output = run(watch(base, arguments)).await;
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(
            !output.status.success() && said.contains(part),
            "{arguments:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
