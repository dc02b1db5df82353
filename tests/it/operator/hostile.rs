//! Answers and rows that would command an operator's terminal, and answers without an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tally::ledger::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::helpers::programs::{TALLY, command, command_as, run, text};
use crate::helpers::stores::Stores;

/// Clears the screen, sets the title and a colour, begins a line of its own, and turns its order around.
const HOSTILE: &str =
    "x\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\nforged  1\u{2028}forged\u{85}forged \u{202e}\u{2066}\u{feff}";

/// What a hostile server sends, to the request with this number and this first line.
type Answer = Arc<dyn Fn(usize, &str) -> Vec<u8> + Send + Sync>;

/// What is sent again and again until nobody reads any more.
const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn of_json(status: &str, body: &Value) -> Vec<u8> {
    answer(status, "application/json", &body.to_string())
}

/// A server that is none of Tally's. Returns its URL.
async fn server(answers: impl Fn(usize, &str) -> Vec<u8> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answers: Answer = Arc::new(answers);
    let number = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (answers, number) = (Arc::clone(&answers), Arc::clone(&number));
            tokio::spawn(async move { serve(stream, &answers, &number).await });
        }
    });
    url
}

async fn serve(mut stream: TcpStream, answers: &Answer, number: &AtomicUsize) {
    let mut request = Vec::new();
    let head = loop {
        let mut piece = [0; 4096];
        let Ok(length @ 1..) = stream.read(&mut piece).await else {
            return;
        };
        request.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            break head.lines().next().unwrap_or_default().to_owned();
        }
    };
    let bytes = answers(number.fetch_add(1, Ordering::Relaxed), &head);
    let is_endless = bytes == ENDLESS;
    if stream.write_all(&bytes).await.is_ok() && is_endless {
        while stream.write_all(&[b' '; 64 * 1024]).await.is_ok() {}
    }
    let _ = stream.shutdown().await;
}

/// Runs `tally` against a server. Returns whether it succeeded, and all that it said.
async fn tally_at(url: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = command(TALLY, None);
    command.args(arguments).env("TALLY_URL", url);
    let output = run(command).await;
    (
        output.status.success(),
        text(&output.stdout) + &text(&output.stderr),
    )
}

/// Each line is one that the command made, and does nothing.
fn assert_harmless(said: &str, what: &str) {
    assert!(
        said.contains("\\u001b[2J"),
        "{what}: the text is there, escaped: {said:?}"
    );
    let acts = |one: char| {
        one.is_control() && one != '\n' || matches!(one, '\u{2028}' | '\u{202e}' | '\u{2066}' | '\u{feff}')
    };
    assert!(!said.contains(acts), "{what}: {said:?}");
    assert!(
        said.lines().all(|line| !line.starts_with("forged")),
        "{what}: {said:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_answers_does_nothing_to_a_terminal() {
    let item =
        json!({ "id": 1, "name": HOSTILE, HOSTILE: HOSTILE, "parts": [{ HOSTILE: [HOSTILE] }, HOSTILE] });
    let good = server(move |_, _| of_json("200 OK", &item)).await;
    for arguments in [
        &["item", "show", "1"][..],
        &["item", "show", "1", "--json"],
        &["poll", "show", "1"],
        &["poll", "edit", "1", "--hide"],
        &["item", "access", "1"],
        &["health", "--url", &good],
    ] {
        let (done, said) = tally_at(&good, arguments).await;
        assert!(done, "{arguments:?}: {said}");
        assert_harmless(&said, &arguments.join(" "));
        if arguments.contains(&"--json") {
            let read: Value = serde_json::from_str(&said).expect("still JSON");
            assert_eq!(read["name"], HOSTILE);
        }
    }

    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, names, votes) = (path("out"), path("names"), path("votes"));
    std::fs::write(&names, "one\ntwo\n").expect("a file");
    std::fs::write(&votes, "ada x\n").expect("a file");
    let problem = json!({ "type": "/problems/not-allowed", "title": "x", "detail": HOSTILE });
    let bad = server(move |number, head| match head {
        head if head.starts_with("get /v1/items?") => of_json("200 OK", &json!({ "items": [{ "id": 1 }] })),
        // A stream that ends, and then none.
        head if head.starts_with("get /v1/stream") && number.is_multiple_of(2) => {
            let item = json!({ "id": 1, "name": HOSTILE, "vote_count": 1, "up_count": 1, "down_count": 0, "current": true });
            let counts = json!({ "items": [item], "polls": [] });
            answer("200 OK", "text/event-stream", &format!("retry: 1\nevent: counts\ndata: {counts}\n\n"))
        }
        _ => of_json("403 Forbidden", &problem),
    })
    .await;
    for arguments in [
        &["watch", "1"][..],
        &["watch", "1", "--json"],
        &["item", "show", "1"],
        &["item", "make", "x"],
        &["item", "import", &names],
        &["poll", "show", "1"],
        &["ballots", "--poll", "1", "--count", "1", "--out", &out],
        &["replay", &votes],
    ] {
        let (done, said) = tally_at(&bad, arguments).await;
        assert!(!done, "{arguments:?}: {said}");
        assert_harmless(&said, &arguments.join(" "));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_ballot_gets_into_no_file_of_ballots() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let path = out.display().to_string();
    for ballots in [
        json!([HOSTILE]),
        json!([]),
        json!(["0".repeat(32), "1".repeat(32)]),
    ] {
        let url = server(move |_, _| of_json("201 Created", &json!({ "ballots": ballots }))).await;
        let (done, said) = tally_at(&url, &["ballots", "--poll", "1", "--count", "1", "--out", &path]).await;
        assert!(
            !done && said.contains("not the ballots that were asked for"),
            "{said}"
        );
        assert!(!out.exists(), "no ballot, no file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_not_read_into_memory() {
    let url = server(|_, _| ENDLESS.to_vec()).await;
    let refused = server(|_, _| [b"HTTP/1.1 500 No\r\n".as_slice(), &ENDLESS[17..]].concat()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, names, votes) = (path("out"), path("names"), path("votes"));
    std::fs::write(&names, "one\ntwo\n").expect("a file");
    std::fs::write(&votes, "ada x\n").expect("a file");
    for arguments in [
        &["item", "show", "1"][..],
        &["item", "import", &names],
        &["poll", "show", "1"],
        &["ballots", "--poll", "1", "--count", "1", "--out", &out],
        &["replay", &votes],
        &["health", "--url", &url],
    ] {
        let (done, said) = tally_at(&url, arguments).await;
        assert!(
            !done && said.contains("more than 8388608 bytes"),
            "{arguments:?}: {said}"
        );
        assert_eq!(said.trim().lines().count(), 1, "{arguments:?}: {said}");
    }
    let (done, said) = tally_at(&refused, &["item", "show", "1"]).await;
    assert!(!done && said.trim().lines().count() == 1, "{said}");
}

/// A login may write such rows with SQL, and a caller over HTTP such a reason.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_has_does_nothing_to_a_terminal() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    for statement in [
        "insert into voiding (voter_id, reason, until_vote_id) values ('x', $1, 1)",
        "insert into api_key (key_hash, name, scopes) values (sha256('x'), $1, array['vote'])",
        "insert into act (what, outcome, who, login, tool, details)
         values ('item.create', 'done', $1, $1, $1, jsonb_build_object($1, $1))",
    ] {
        sqlx::query(statement)
            .bind(HOSTILE)
            .execute(&pool)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    for arguments in [
        &["void", "--list"][..],
        &["void", "--list", "--json"],
        &["key", "list"],
        &["key", "list", "--json"],
        &["trail"],
        &["trail", "--json"],
    ] {
        let mut command = command_as(TALLY, Some((&stores, Role::Operator)));
        command.args(arguments);
        let output = run(command).await;
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert_harmless(&said, &arguments.join(" "));
    }
}
