//! The pages as the server sends them: their counts, and what they load.
//! tests/browser tests them in a browser.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use nix::sys::signal::Signal;
use reqwest::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::helpers::eventually;
use crate::helpers::tally::Tally;

async fn load(tally: &Tally, path: &str) -> Response {
    let answer = tally.http.get(format!("{}{path}", tally.base)).send().await;
    answer.expect("an answer")
}

async fn page(tally: &Tally, path: &str) -> String {
    let answer = load(tally, path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.text().await.expect("a text")
}

async fn poll(tally: &Tally, new: Value) -> (i64, Vec<i64>) {
    let (status, poll) = tally.post("/v1/polls", &new).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    let choices = poll["choices"].as_array().expect("choices");
    let choices = choices.iter().filter_map(|one| one["item_id"].as_i64());
    (poll["id"].as_i64().expect("an id"), choices.collect())
}

async fn choose(tally: &Tally, poll: i64, voter: &str, choice: i64) {
    let path = format!("/v1/polls/{poll}/votes/{voter}");
    let body = json!({ "items": [choice] });
    let (status, answer) = tally.send(Method::PUT, &path, Some(&body)).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_the_names_and_the_counts_in_them() {
    let tally = Tally::start().await;
    let item = tally.item("Bicycles & <b>trams</b>").await;
    for voter in ["ada", "bob"] {
        tally.vote(item, voter).await;
    }
    let (id, choices) = poll(&tally, json!({ "title": "Lunch?", "choices": ["Soup", "Salad"] })).await;
    for (voter, choice) in [("ada", 0), ("bob", 0), ("eve", 1)] {
        choose(&tally, id, voter, choices[choice]).await;
    }
    for path in ["/".to_owned(), format!("/polls/{id}")] {
        let html = page(&tally, &path).await;
        for shown in ["Lunch?", "Soup", "2 votes", "67%", "1 vote<", "33%", "3 voters."] {
            assert!(html.contains(shown), "{path} has no {shown}");
        }
    }
    let html = page(&tally, &format!("/polls/{id}")).await;
    assert!(html.contains("<title>Lunch?</title>"), "{html}");
    assert!(
        html.contains("content=\"Soup 67%, Salad 33%. 3 voters.\""),
        "{html}"
    );
    for path in ["/".to_owned(), format!("/items/{item}")] {
        let html = page(&tally, &path).await;
        assert!(html.contains("Bicycles &amp; &lt;b&gt;trams&lt;/b&gt;"), "{path}");
        assert!(!html.contains("<b>trams"), "{path}");
        assert!(
            html.contains(">2<span class=\"unseen\" lang=\"en\"> votes"),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_hidden_are_nowhere_in_a_page() {
    let tally = Tally::start().await;
    let new = json!({
        "title": "Board", "choices": ["Yes", "No"],
        "closes_at": "2100-01-01T00:00:00Z", "results_before_close": false,
    });
    let (id, choices) = poll(&tally, new).await;
    let before = (
        page(&tally, "/").await,
        page(&tally, &format!("/polls/{id}")).await,
    );
    let choice = page(&tally, &format!("/items/{}", choices[0])).await;
    for voter in ["ada", "bob", "eve"] {
        choose(&tally, id, voter, choices[0]).await;
    }
    let after = (
        page(&tally, "/").await,
        page(&tally, &format!("/polls/{id}")).await,
    );
    assert_eq!(before, after, "votes that are hidden change nothing");
    assert_eq!(choice, page(&tally, &format!("/items/{}", choices[0])).await);
    assert!(after.0.contains("Results show when it closes."), "{}", after.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_and_further_pages_are_plain_links() {
    let tally = Tally::start().await;
    for number in 0..101 {
        tally.item(&format!("Fox {number}")).await;
    }
    tally.item("A \"hedgehog\" & more").await;
    let first = page(&tally, "/?search=fox").await;
    for (text, is_there) in [("value=\"fox\"", true), ("Fox 99<", true), ("Fox 100<", false)] {
        assert_eq!(first.contains(text), is_there, "{text}: {first}");
    }
    assert!(!first.contains("hedgehog"), "{first}");
    let link = first.split("class=\"more\"").nth(1).expect("a link");
    let link = link
        .split("href=\"")
        .nth(1)
        .and_then(|link| link.split('"').next());
    let link = link.expect("an address").replace("&amp;", "&");
    let second = page(&tally, &link).await;
    assert!(
        second.contains("Fox 100<") && !second.contains("Fox 99<"),
        "{link}"
    );
    assert!(!second.contains("class=\"more\""), "there are no more");
    let found = page(&tally, "/?search=%22hedgehog%22+%26&utm_source=x").await;
    assert!(found.contains("A &quot;hedgehog&quot; &amp; more"), "{found}");
    // A cursor that cannot be read is ignored.
    for query in ["after=x", "before=99999999999999999999"] {
        assert!(
            page(&tally, &format!("/?{query}")).await.contains("Fox 0<"),
            "{query}"
        );
    }
    let nothing = page(&tally, "/?search=%3Cb%3Enothing%00").await;
    assert!(
        nothing.contains("Nothing has “&lt;b&gt;nothing” in its name."),
        "{nothing}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_comes_compressed_and_not_again_to_who_has_it() {
    let tally = Tally::start().await;
    tally.item("Bicycles").await;
    let mut paths = vec!["/".to_owned(), "/items/1".to_owned()];
    paths.extend(["/embed", "/ops", "/docs", "/openapi.json", "/embed.js"].map(str::to_owned));
    let html = page(&tally, "/").await;
    let assets = html.split('"').filter(|text| text.starts_with("/assets/"));
    paths.extend(assets.map(str::to_owned));
    assert!(paths.len() > 10, "{paths:?}");
    for path in paths {
        let ask = |known: Option<String>, encoding: &'static str| {
            let mut request = tally.http.get(format!("{}{path}", tally.base));
            if let Some(known) = known {
                request = request.header(IF_NONE_MATCH, known);
            }
            request.header(ACCEPT_ENCODING, encoding).send()
        };
        let plain = ask(None, "identity").await.expect("an answer");
        assert!(plain.headers().get("content-encoding").is_none(), "{path}");
        assert_eq!(plain.headers()["vary"], "accept-encoding", "{path}");
        let etag = plain.headers()["etag"].to_str().expect("text").to_owned();
        let is_asset = path.starts_with("/assets/");
        let is_kept = plain.headers()["cache-control"] == "public, max-age=31536000, immutable";
        assert_eq!(is_asset, is_kept, "{path}");
        let text = plain.bytes().await.expect("a body");
        let compressed = ask(None, "br, gzip").await.expect("an answer");
        assert_eq!(compressed.headers()["etag"], etag.as_str(), "{path}");
        // A picture does not get smaller.
        if compressed.headers().get("content-encoding").is_some() {
            let bytes = compressed.bytes().await.expect("a body");
            let mut unpacked = Vec::new();
            GzDecoder::new(&bytes[..])
                .read_to_end(&mut unpacked)
                .expect("gzip");
            assert!(bytes.len() < text.len(), "{path}");
            assert_eq!(unpacked, text, "{path}");
        } else {
            assert!(path.ends_with(".png"), "{path}");
        }
        let again = ask(Some(etag), "gzip").await.expect("an answer");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
        assert!(again.bytes().await.expect("no body").is_empty(), "{path}");
    }
}

/// What every page with an element loads before it shows anything, as a browser gets it.
const ELEMENTS_LIMIT_BYTES: usize = 16 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn the_elements_script_is_small() {
    let tally = Tally::start().await;
    let asked = tally.http.get(format!("{}/embed.js", tally.base));
    let answer = asked
        .header(ACCEPT_ENCODING, "gzip")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let bytes = answer.bytes().await.expect("a body").len();
    assert!(bytes <= ELEMENTS_LIMIT_BYTES, "{bytes} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asset_of_another_version_is_what_there_is_now_and_others_are_not_found() {
    let tally = Tally::start().await;
    let other = load(&tally, "/assets/page-01234567.css").await;
    assert_eq!(other.status(), StatusCode::OK);
    assert_eq!(other.headers()["cache-control"], "no-cache");
    for path in [
        "page.css",
        "page-.css",
        "x-01234567.css",
        "page-01234567.js.css",
        "..%2Fpages",
    ] {
        let answer = load(&tally, &format!("/assets/{path}")).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_postgres_a_page_says_that_it_has_no_counts() {
    let tally = Tally::start().await;
    let item = tally.item("Bicycles").await;
    tally.vote(item, "ada").await;
    let postgres = &tally.stores.postgres;
    postgres.signal_all(Signal::SIGSTOP).expect("it runs");
    for path in ["/", "/items/999", "/polls/1"] {
        let answer = load(&tally, path).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(answer.headers()["retry-after"], "5");
        let html = answer.text().await.expect("a text");
        assert!(html.contains("The counts cannot be shown right now."), "{html}");
        assert!(
            html.contains("id=\"view\"") && !html.contains("class=\"held\""),
            "{path}"
        );
    }
    postgres.signal_all(Signal::SIGCONT).expect("it runs");
    eventually("it has counts again", async || {
        let answer = load(&tally, "/").await;
        let html = answer.text().await.expect("a text");
        html.contains("Bicycles").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_what_is_not_there_says_so() {
    let tally = Tally::start().await;
    for path in [
        "/items/999",
        "/polls/1",
        "/items/abc",
        "/polls/key:nope",
        "/items/0",
    ] {
        let answer = load(&tally, path).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let html = answer.text().await.expect("a text");
        assert!(html.contains("There is no such "), "{html}");
        let again = tally.http.get(format!("{}{path}", tally.base));
        let again = again.header(IF_NONE_MATCH, "*").send().await.expect("an answer");
        assert_eq!(again.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_pages_address_is_decoded_once() {
    let tally = Tally::start().await;
    for (key, name) in [("%2e", "percent"), (".", "dot"), ("a,b", "comma")] {
        let (status, item) = tally
            .post("/v1/items", &json!({ "name": name, "key": key }))
            .await;
        assert_eq!(status, StatusCode::CREATED, "{item}");
    }
    for (path, name) in [("%252e", "percent"), ("a%2Cb", "comma")] {
        let html = page(&tally, &format!("/items/key:{path}")).await;
        assert!(html.contains(&format!("<title>{name}</title>")), "{html}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_previews_picture_is_at_the_host_that_was_asked_or_at_none() {
    let tally = Tally::start().await;
    for (host, picture) in [
        (
            "votes.example.org:8443",
            "http://votes.example.org:8443/assets/preview-",
        ),
        ("[::1]:80", "http://[::1]:80/assets/preview-"),
        ("evil.example/x", "\"/assets/preview-"),
        ("a@evil.example", "\"/assets/preview-"),
        ("x' y", "\"/assets/preview-"),
    ] {
        let request = tally.http.get(&tally.base).header("host", host);
        let answer = request.send().await.expect("an answer");
        // The HTTP library may refuse an invalid host first.
        if picture.starts_with('"') && answer.status() == StatusCode::BAD_REQUEST {
            continue;
        }
        let html = answer.text().await.expect("a text");
        assert!(html.contains(picture), "{host}: {html}");
    }
}

/// What some browser that docs/embed.md names lacks.
const TOO_NEW: [&str; 24] = [
    "AbortSignal.any(",
    "Array.fromAsync",
    "Iterator.from",
    "Map.groupBy",
    "Math.sumPrecise",
    "Object.groupBy",
    "Promise.try",
    "Promise.withResolvers",
    "RegExp.escape",
    "Temporal.",
    "URL.canParse",
    "URL.parse(",
    "Uint8Array.fromBase64",
    ".difference(",
    ".intersection(",
    ".isSubsetOf(",
    ".isWellFormed(",
    ".moveBefore(",
    ".setHTMLUnsafe(",
    ".toReversed(",
    ".toSorted(",
    ".toSpliced(",
    ".union(",
    "scheduler.",
];

/// The scripts in this folder and below.
fn scripts(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_script = path.extension().is_some_and(|one| one == "js" || one == "ts");
        if path.is_dir() {
            found.extend(scripts(&path));
        } else if is_script && !path.ends_with("schema.d.ts") {
            let text = std::fs::read_to_string(&path).expect("a text");
            found.push((path, text));
        }
    }
    found
}

#[test]
fn the_scripts_use_nothing_that_a_named_browser_lacks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = scripts(&root.join("src/web/pages"));
    let client = scripts(&root.join("clients/typescript/src"));
    assert!(pages.len() > 10 && client.len() > 5);
    for (path, text) in pages.into_iter().chain(client) {
        for new in TOO_NEW {
            assert!(!text.contains(new), "{} uses {new}", path.display());
        }
        // `size` of URLSearchParams came late. Sets and maps have it everywhere.
        let parameters = text.split("new URLSearchParams").filter_map(|before| {
            let name = before.trim_end().strip_suffix('=')?.trim_end();
            name.rsplit([' ', '\n']).next()
        });
        for name in parameters.filter(|name| !name.is_empty()) {
            let size = format!("{name}.size");
            assert!(!text.contains(&size), "{} uses {size}", path.display());
        }
    }
}
