//! The page at `/docs`: its markup, and the calls that it shows.

use std::collections::BTreeSet;
use std::process::Command;

use reqwest::StatusCode;
use serde_json::json;
use tally::domain::Scope;
use tally::web::ServerOptions;
use tally::web::access::Open;

use super::operations;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;
use crate::web::access::api_key;
use crate::web::access::credentials::{knows_voters, token};

/// Where the page's calls go.
const SERVER: &str = "http://127.0.0.1:8080";

async fn page(tally: &Tally) -> String {
    let page = tally.http.get(format!("{}/docs", tally.base)).send().await;
    let page = page.expect("an answer");
    assert_eq!(page.status(), StatusCode::OK);
    let policy = page.headers()["content-security-policy"].to_str().expect("text");
    assert!(
        policy.starts_with("default-src 'none';") && !policy.contains("unsafe") && !policy.contains("script")
    );
    page.text().await.expect("a text")
}

/// A tag: its name, whether it ends one, its attributes.
struct Tag {
    name: String,
    is_end: bool,
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(of, _)| of == name)
            .map(|(_, value)| value.as_str())
    }
}

/// The tags of a page, in order. No text of this page contains `<` or `>`.
fn tags(page: &str) -> Vec<Tag> {
    let tags = page.split('<').skip(1).map(|rest| {
        let (tag, text) = rest
            .split_once('>')
            .unwrap_or_else(|| panic!("a tag without an end: {rest}"));
        assert!(!text.contains('>'), "a > outside of a tag: {rest}");
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while let Some((name, value)) = rest.split_once("=\"") {
            let (value, after) = value.split_once('"').expect("a value in quotes");
            attributes.push((name.trim().to_owned(), value.to_owned()));
            rest = after;
        }
        Tag {
            name: name.trim_start_matches('/').to_owned(),
            is_end: name.starts_with('/'),
            attributes,
        }
    });
    tags.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_well_formed_has_no_script_and_leads_only_to_what_is_there() {
    let tally = Tally::start().await;
    let page = page(&tally).await;
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">"));
    let tags = tags(&page);
    let mut open = Vec::new();
    let mut level = 0;
    let (mut ids, mut names, mut links) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for tag in &tags {
        let is_empty = ["!doctype", "meta", "link"].contains(&tag.name.as_str());
        if tag.is_end {
            assert_eq!(open.pop(), Some(tag.name.as_str()), "ends are in order");
            continue;
        }
        if !is_empty {
            open.push(&tag.name);
        }
        let heading = tag
            .name
            .strip_prefix('h')
            .and_then(|rest| rest.parse::<i32>().ok());
        if let Some(heading) = heading {
            assert!(
                heading <= level + 1,
                "after a heading of level {level} comes one of {heading}"
            );
            assert_eq!(heading == 1, level == 0, "one heading of the first level");
            level = heading;
        }
        for (name, value) in &tag.attributes {
            assert!(
                !name.starts_with("on") && name != "style" && name != "src",
                "{name}=\"{value}\""
            );
        }
        assert!(
            !["script", "style", "img", "iframe", "form"].contains(&tag.name.as_str()),
            "{}",
            tag.name
        );
        if let Some(id) = tag.attribute("id") {
            assert!(ids.insert(id), "{id} is there twice");
        }
        names.insert(tag.name.as_str());
        links.extend(tag.attribute("href"));
        links.extend(tag.attribute("aria-labelledby").map(|_| "#main"));
    }
    assert!(open.is_empty(), "{open:?}");
    for landmark in ["header", "nav", "main", "title", "details", "summary"] {
        assert!(names.contains(landmark), "{landmark}");
    }
    let labels = tags.iter().filter_map(|tag| tag.attribute("aria-labelledby"));
    assert!(labels.clone().count() > 20);
    assert!(labels.clone().all(|label| ids.contains(label)));
    let elsewhere: BTreeSet<&str> = links.into_iter().filter(|link| *link != "data:,").collect();
    for link in elsewhere {
        match link.strip_prefix('#') {
            Some(id) => assert!(ids.contains(id), "{link}"),
            None => {
                assert!(link.starts_with('/'), "it leads to no other server: {link}");
                let answer = tally.http.get(format!("{}{link}", tally.base)).send().await;
                assert_eq!(answer.expect("an answer").status(), StatusCode::OK, "{link}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_each_operation_with_its_problems() {
    let tally = Tally::start().await;
    let page = page(&tally).await;
    for operation in operations() {
        let id = operation.value["operationId"].as_str().expect("an id");
        let (_, shown) = page
            .split_once(&format!("<article aria-labelledby=\"{id}\">"))
            .expect("an article");
        let (shown, _) = shown.split_once("</article>").expect("an end");
        let call = format!("<code>{} {}</code>", operation.method, operation.path);
        assert!(shown.contains(&call), "{shown}");
        for (status, answer) in operation.value["responses"].as_object().expect("answers") {
            let problem = &answer["content"]["application/problem+json"]["examples"];
            for slug in problem.as_object().into_iter().flatten().map(|(slug, _)| slug) {
                let link = format!("<dt>{status} <a href=\"/problems/{slug}\">");
                assert!(shown.contains(&link), "{id}: {slug}");
            }
        }
    }
}

/// The texts of the calls of one kind.
fn calls(page: &str, kind: &str) -> Vec<String> {
    let begin = format!("data-call=\"{kind}\"><code>");
    let texts = page.split(&begin).skip(1).map(|rest| {
        let (text, _) = rest.split_once("</code>").expect("an end");
        text.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&amp;", "&")
    });
    texts.collect()
}

/// Makes the items and polls that the description's examples name.
async fn make_what_examples_name(tally: &Tally) {
    for (path, body, id) in [
        ("/v1/items", json!({ "name": "A post", "key": "post-42" }), "id"),
        (
            "/v1/polls",
            json!({ "title": "Lunch?", "choices": ["soup", "salad"] }),
            "id",
        ),
        ("/v1/items/1/votes", json!({ "voter_id": "bob" }), "vote_id"),
    ] {
        let (status, made) = tally.post(path, &body).await;
        assert_eq!((status, &made[id]), (StatusCode::CREATED, &json!(1)), "{made}");
    }
    let (_, poll) = tally.get("/v1/polls/1").await;
    assert_eq!(poll["choices"][0]["item_id"], 2, "{poll}");
    for (path, body) in [
        (
            "/v1/items",
            json!({ "name": "Raffle", "key": "raffle", "by_ballot": true }),
        ),
        (
            "/v1/polls",
            json!({ "title": "Board", "key": "board", "choices": ["yes", "no"], "by_ballot": true }),
        ),
    ] {
        let (status, made) = tally.post(path, &body).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
    }
    let (id, _) = api_key(tally, &[Scope::Vote]).await;
    assert_eq!(id.0, 1);
    let voiding = json!({ "voter_id": "nobody", "reason": "x", "dry_run": false });
    let (status, voiding) = tally.post("/v1/voidings", &voiding).await;
    assert_eq!(
        (status, &voiding["id"]),
        (StatusCode::ACCEPTED, &json!(1)),
        "{voiding}"
    );
    let edit = json!({ "kind": "erase", "voter_id": "nobody else", "dry_run": false });
    let (status, edit) = tally.post("/v1/voter-edits", &edit).await;
    assert_eq!((status, &edit["id"]), (StatusCode::ACCEPTED, &json!(1)), "{edit}");
    eventually("the voiding and the edit are done", async || {
        let (_, voiding) = tally.get("/v1/voidings/1").await;
        let (_, edit) = tally.get("/v1/voter-edits/1").await;
        let is_done = voiding["state"] == "voided" && edit["state"] == "done";
        (is_done && voiding["under_way"] == false && edit["under_way"] == false).then_some(())
    })
    .await;
}

/// Runs a call in a shell. Returns the status of its answer.
fn status_of(call: &str, base: &str, key: &str) -> String {
    // A stream has no end. curl gives up after a while and exits with 28.
    let is_stream = call.contains(" -N ");
    let limit = if is_stream { "--max-time 2 " } else { "" };
    let options = format!("curl -s -o /dev/null -w '%{{http_code}}' {limit}");
    let call = call.replacen("curl -s ", &options, 1);
    let ended = Command::new("sh")
        .args(["-euc", &call.replace(SERVER, base)])
        .env("TALLY_API_KEY", key)
        .env("VOTER_TOKEN", token("ada"))
        .output()
        .expect("sh");
    let is_left = is_stream && ended.status.code() == Some(28);
    assert!(ended.status.success() || is_left, "{call}: {ended:?}");
    String::from_utf8(ended.stdout).expect("text")
}

/// Sets what some of the calls need.
fn knows_all(options: &mut ServerOptions) {
    knows_voters(options);
    options.access.frames = "https://cms.example.org".parse().expect("an origin");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_with_curl_do_what_they_say() {
    let tally = Tally::start().await;
    make_what_examples_name(&tally).await;
    let (_, key) = api_key(&tally, &Scope::ALL).await;
    let closed = tally
        .another_server_with(|options| {
            options.access.open = Open::default();
            knows_all(options);
        })
        .await;
    let open = tally.another_server_with(knows_all).await;
    let page = page(&tally).await;
    let calls_with_curl = calls(&page, "curl");
    assert_eq!(calls_with_curl.len(), operations().len());
    assert_eq!(calls(&page, "javascript").len(), operations().len());
    for call in &calls_with_curl {
        assert!(call.starts_with("curl -s ") && call.contains(SERVER), "{call}");
        let status = status_of(call, &closed, key.as_str());
        assert!(status.starts_with('2'), "{status}: {call}");
    }
    for call in &calls_with_curl {
        let lines: Vec<&str> = call.split(" \\\n  ").collect();
        let open_lines = lines.iter().filter(|line| !line.contains("$TALLY_API_KEY"));
        let call = open_lines.copied().collect::<Vec<_>>().join(" ");
        let status = status_of(&call, &open, "none");
        assert!(status.starts_with('2'), "{status}: {call}");
    }
}
