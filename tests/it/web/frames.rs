//! Pages for frames, and oEmbed. tests/browser has them in a browser.

use nix::sys::signal::Signal;
use reqwest::header::{ACCEPT_ENCODING, IF_NONE_MATCH};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tally::web::access::hsts;

use crate::helpers::tally::Tally;

const CMS: &str = "https://cms.example.org,http://127.0.0.1:8000";
const ANCESTORS: &str = "frame-ancestors https://cms.example.org http://127.0.0.1:8000";

/// A server that pages of [`CMS`] may frame.
async fn framed() -> Tally {
    Tally::start_with(|options| options.access.frames = CMS.parse().expect("origins")).await
}

async fn load(tally: &Tally, path: &str) -> Response {
    let answer = tally.http.get(format!("{}{path}", tally.base)).send().await;
    answer.expect("an answer")
}

async fn page(tally: &Tally, path: &str) -> String {
    let answer = load(tally, path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.text().await.expect("a text")
}

fn policy(answer: &Response) -> String {
    let policies = answer.headers().get_all("content-security-policy");
    let policies: Vec<&str> = policies.iter().filter_map(|one| one.to_str().ok()).collect();
    assert_eq!(policies.len(), 1, "{policies:?}");
    policies[0].to_owned()
}

async fn poll(tally: &Tally, new: Value) -> i64 {
    let (status, poll) = tally.post("/v1/polls", &new).await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    poll["id"].as_i64().expect("an id")
}

/// Asks for the frame of an address at this host.
async fn oembed(tally: &Tally, url: &str, more: &[(&str, &str)]) -> (StatusCode, Value) {
    let asked = reqwest::Url::parse_with_params(&format!("{}/oembed", tally.base), [("url", url)]);
    let mut asked = asked.expect("an address");
    asked.query_pairs_mut().extend_pairs(more);
    let path = format!("{}?{}", asked.path(), asked.query().unwrap_or_default());
    tally.get(&path).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pages_of_the_named_origins_may_frame_a_vote_and_none_may_frame_another_page() {
    let mut tally = framed().await;
    let item = tally.item("Bicycles").await;
    let id = poll(&tally, json!({ "title": "Lunch?", "choices": ["Soup", "Salad"] })).await;
    let frames = [
        format!("/items/{item}/frame"),
        format!("/polls/{id}/frame?lang=de"),
        "/polls/999/frame".to_owned(),
    ];
    for path in &frames {
        let policy = policy(&load(&tally, path).await);
        assert!(policy.ends_with(ANCESTORS), "{path}: {policy}");
        assert!(policy.starts_with("default-src 'none'; "), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
    let known = load(&tally, &frames[0]).await.headers()["etag"].clone();
    let again = tally.http.get(format!("{}{}", tally.base, frames[0]));
    let again = again
        .header(IF_NONE_MATCH, known)
        .send()
        .await
        .expect("an answer");
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert!(policy(&again).ends_with(ANCESTORS));
    let others: [&str; 11] = [
        "/",
        &format!("/items/{item}"),
        &format!("/polls/{id}"),
        &format!("/v1/polls/{id}"),
        "/embed",
        "/ops",
        "/docs",
        "/oembed?url=x",
        "/assets/frame-00000000.js",
        "/polls/1/frame?lang=",
        "/polls/1/frames",
    ];
    for path in others {
        let policy = policy(&load(&tally, path).await);
        assert!(policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("cms"), "{path}: {policy}");
    }
    tally.base = tally.another_server().await;
    for path in &frames {
        let policy = policy(&load(&tally, path).await);
        assert!(policy.ends_with("frame-ancestors 'none'"), "{path}: {policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_has_the_vote_alone_with_its_counts_and_loads_from_where_it_is() {
    let tally = framed().await;
    let item = tally.item("Bicycles & <b>trams</b>").await;
    tally.vote(item, "ada").await;
    let new = json!({ "title": "Lunch?", "choices": ["Soup", "Salad"], "key": "a/b" });
    let id = poll(&tally, new).await;
    let html = page(&tally, &format!("/items/{item}/frame")).await;
    assert!(html.contains("Bicycles &amp; &lt;b&gt;trams&lt;/b&gt;"), "{html}");
    assert!(
        html.contains(">1<span class=\"unseen\" lang=\"en\"> vote<"),
        "{html}"
    );
    for path in [
        format!("/polls/{id}/frame"),
        "/polls/key:a%2Fb/frame".to_owned(),
        "/polls/key:/frame?key=a%2Fb&lang=en".to_owned(),
    ] {
        let html = page(&tally, &path).await;
        for shown in ["<title>Lunch?</title>", ">Soup<", "0 votes", "0 voters."] {
            assert!(html.contains(shown), "{path} has no {shown}: {html}");
        }
        let own = format!("href=\"../../polls/{id}\" target=\"_blank\" rel=\"noopener\"");
        assert!(html.contains(&own), "{path}: {html}");
        assert!(!html.contains("<header"), "{path}: {html}");
        // Below a path of another site, an address that begins with a slash would lead elsewhere.
        for (name, address) in html.split('"').zip(html.split('"').skip(1)) {
            if name.ends_with("href=") || name.ends_with("src=") {
                assert!(address.starts_with("../../"), "{path}: {address}");
            }
        }
    }
    let script = html
        .split('"')
        .find_map(|text| text.strip_prefix("../../assets/frame-"));
    let script = script.filter(|name| name.ends_with(".css")).expect("a style");
    assert_eq!(
        load(&tally, &format!("/assets/frame-{script}")).await.status(),
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_frame_says_how_it_looks_or_what_is_wrong() {
    let tally = framed().await;
    let item = tally.item("x").await;
    let path = format!("/items/{item}/frame");
    for (query, html, body) in [
        ("", "<html lang=\"en\" dir=\"ltr\">", "data-accent=\"\""),
        (
            "?lang=ar&accent=A00000&scheme=dark",
            "<html lang=\"ar\" dir=\"rtl\" data-scheme=\"dark\">",
            "data-accent=\"a00000\"",
        ),
    ] {
        let text = page(&tally, &format!("{path}{query}")).await;
        assert!(text.contains(html) && text.contains(body), "{query}: {text}");
    }
    for (query, status, field) in [
        ("lang=%3Cb%3E", 422, "lang"),
        ("accent=red", 422, "accent"),
        ("accent=%23a00000", 422, "accent"),
        ("scheme=blue", 422, "scheme"),
        ("colour=a00000", 400, "colour"),
        ("lang=de&lang=fr", 400, "lang"),
    ] {
        let (got, problem) = tally.get(&format!("{path}?{query}")).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{problem}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_nothing_says_so_and_one_without_postgres_says_that_it_has_no_counts() {
    let tally = framed().await;
    let item = tally.item("Bicycles").await;
    for path in ["/items/999/frame", "/polls/x/frame", "/items/key:nope/frame"] {
        let answer = load(&tally, path).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        let html = answer.text().await.expect("a text");
        assert!(
            html.contains("There is no such ") && html.contains("data-has=\"nothing\""),
            "{html}"
        );
        assert!(!html.contains("<tally-"), "{html}");
    }
    let postgres = &tally.stores.postgres;
    postgres.signal_all(Signal::SIGSTOP).expect("it runs");
    let answer = load(&tally, "/polls/1/frame").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "5");
    let html = answer.text().await.expect("a text");
    assert!(html.contains("The counts cannot be shown right now."), "{html}");
    let (status, problem) = oembed(&tally, &format!("{}/polls/1", tally.base), &[]).await;
    assert_eq!(
        (status, &problem["type"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("/problems/unavailable"))
    );
    postgres.signal_all(Signal::SIGCONT).expect("it runs");
    assert_eq!(tally.ledger_sum(item).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_hidden_are_in_no_frame() {
    let tally = framed().await;
    let new = json!({
        "title": "Board", "choices": ["Yes", "No"],
        "closes_at": "2100-01-01T00:00:00Z", "results_before_close": false,
    });
    let id = poll(&tally, new).await;
    let path = format!("/polls/{id}/frame");
    let before = page(&tally, &path).await;
    let (_, read) = tally.get(&format!("/v1/polls/{id}")).await;
    let choice = read["choices"][0]["item_id"].as_i64().expect("an id");
    let body = json!({ "voter_id": "ada" });
    let (status, answer) = tally.post(&format!("/v1/items/{choice}/votes"), &body).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    assert_eq!(before, page(&tally, &path).await);
    assert!(before.contains("Results show when it closes."), "{before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_vote_gets_the_frame_that_shows_it() {
    let tally = framed().await;
    let item = tally.item("\"A\" & <b>").await;
    let id = poll(
        &tally,
        json!({ "title": "Lunch?", "choices": ["Soup", "Salad"], "key": "a/b" }),
    )
    .await;
    let base = &tally.base;
    let (status, answer) = oembed(&tally, &format!("{base}/polls/{id}"), &[]).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let (width, height) = (&answer["width"], &answer["height"]);
    assert_eq!(
        answer,
        json!({
            "type": "rich", "version": "1.0", "title": "Lunch?", "provider_name": "Tally", "provider_url": base,
            "cache_age": 86_400, "width": 600, "height": height,
            "html": format!("<iframe src=\"{base}/polls/{id}/frame\" title=\"Lunch?\" width=\"{width}\" \
                height=\"{height}\" style=\"border: 0; max-width: 100%\" loading=\"lazy\"></iframe>")
        })
    );
    // Each of these addresses is of the same poll. What a CMS adds is ignored.
    let frame = |below: &str, query: &str| format!("<iframe src=\"{base}{below}/polls/{id}/frame{query}\" ");
    for (path, below, query) in [
        (format!("/polls/{id}/"), "", ""),
        (format!("/polls/{id}/frame"), "", ""),
        ("/polls/key:a%2Fb".to_owned(), "", ""),
        ("/polls/key:?key=a%2Fb&lang=de".to_owned(), "", "?lang=de"),
        (format!("/tally/polls/{id}?utm_source=x"), "/tally", ""),
        (
            format!("/polls/{id}?scheme=dark&accent=A00000"),
            "",
            "?accent=a00000&amp;scheme=dark",
        ),
    ] {
        let (status, answer) = oembed(&tally, &format!("{base}{path}"), &[("dnt", "1")]).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
        let html = answer["html"].as_str().expect("HTML");
        assert!(html.starts_with(&frame(below, query)), "{path}: {html}");
    }
    let sizes = [("maxwidth", "320"), ("maxheight", "100"), ("format", "json")];
    let (_, answer) = oembed(&tally, &format!("{base}/items/{item}"), &sizes).await;
    assert_eq!((&answer["width"], &answer["height"]), (&json!(320), &json!(100)));
    let html = answer["html"].as_str().expect("HTML");
    assert!(
        html.contains(" title=\"&quot;A&quot; &amp; &lt;b&gt;\" width=\"320\" height=\"100\" "),
        "{html}"
    );
    // A poll of many choices needs more height, up to a limit.
    let names: Vec<String> = (0..100).map(|number| format!("Choice {number}")).collect();
    let long = poll(&tally, json!({ "title": "Long?", "choices": names })).await;
    let (_, answer) = oembed(&tally, &format!("{base}/polls/{long}"), &[]).await;
    assert_eq!(answer["height"], 800);
    assert!(
        height.as_u64().is_some_and(|height| (200..300).contains(&height)),
        "{height}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_vote_of_this_server_has_no_frame() {
    let mut tally = framed().await;
    tally.item("x").await;
    let base = tally.base.clone();
    for (url, status, kind) in [
        (format!("{base}/polls/999"), 404, "unknown-poll"),
        (format!("{base}/items/key:nope"), 404, "unknown-item"),
        (format!("{base}/items/x"), 404, "not-found"),
        (format!("{base}/embed"), 404, "not-found"),
        ("https://evil.example/items/1".to_owned(), 404, "not-found"),
        (
            base.replace("http://", "http://ada@") + "/items/1",
            404,
            "not-found",
        ),
        ("/items/1".to_owned(), 404, "not-found"),
        (format!("{base}/items/1?accent=red"), 422, "invalid-value"),
    ] {
        let (got, problem) = oembed(&tally, &url, &[]).await;
        assert_eq!(
            (got.as_u16(), &problem["type"]),
            (status, &json!(format!("/problems/{kind}"))),
            "{url}: {problem}"
        );
    }
    let url = format!("{base}/items/1");
    for (more, status, field) in [
        (("format", "xml"), 501, "format"),
        (("maxwidth", "0"), 400, "maxwidth"),
        (("maxheight", "tall"), 400, "maxheight"),
        (("url", "x"), 400, "url"),
    ] {
        let (got, problem) = oembed(&tally, &url, &[more]).await;
        assert_eq!(
            (got.as_u16(), &problem["field"]),
            (status, &json!(field)),
            "{problem}"
        );
    }
    let (status, problem) = tally.get("/oembed").await;
    assert_eq!(
        (status, &problem["field"]),
        (StatusCode::BAD_REQUEST, &json!("url"))
    );
    // Nobody may frame anything.
    tally.base = tally.another_server().await;
    let (status, problem) = oembed(&tally, &format!("{}/items/1", tally.base), &[]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let detail = problem["detail"].as_str().expect("a text");
    assert!(detail.contains("TALLY_FRAME_ORIGINS"), "{detail}");
}

/// The address in the line of a page's head that names its frame, as a browser reads it.
fn discovered(html: &str) -> Option<String> {
    let (_, line) = html.split_once("<link rel=\"alternate\" type=\"application/json+oembed\" href=\"")?;
    Some(line.split('"').next()?.replace("&amp;", "&"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_vote_names_its_frame_and_no_other_page_does() {
    let mut tally = framed().await;
    let item = tally.item("Bicycles").await;
    let id = poll(
        &tally,
        json!({ "title": "Lunch?", "choices": ["Soup", "Salad"], "key": "lunch" }),
    )
    .await;
    for (path, frame) in [
        (format!("/items/{item}"), format!("/items/{item}/frame\"")),
        (
            format!("/polls/{id}?lang=de&utm_source=x"),
            format!("/polls/{id}/frame?lang=de\""),
        ),
        (
            "/polls/key:lunch?lang=%22".to_owned(),
            format!("/polls/{id}/frame\""),
        ),
    ] {
        let address = discovered(&page(&tally, &path).await).expect("an address");
        let answer = tally.http.get(&address).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK, "{address}");
        assert_eq!(answer.headers()["content-type"], "application/json");
        let answer: Value = answer.json().await.expect("JSON");
        let html = answer["html"].as_str().expect("HTML");
        assert!(
            html.starts_with(&format!("<iframe src=\"{}{frame}", tally.base)),
            "{html}"
        );
    }
    for path in ["/", "/embed", "/docs", "/items/999"] {
        let html = load(&tally, path).await.text().await.expect("a text");
        assert_eq!(discovered(&html), None, "{path}");
    }
    let behind = tally
        .another_server_with(|options| {
            options.access.frames = CMS.parse().expect("origins");
            options.access.hsts = Some(hsts(std::time::Duration::from_secs(300)));
        })
        .await;
    let asked = tally.http.get(format!("{behind}/items/{item}"));
    let asked = asked.header("host", "votes.example.org").send().await;
    let html = asked.expect("an answer").text().await.expect("a text");
    let address = discovered(&html).expect("an address");
    assert!(
        address.starts_with("https://votes.example.org/oembed?url=https%3A%2F%2Fvotes"),
        "{address}"
    );
    tally.base = tally.another_server().await;
    assert_eq!(discovered(&page(&tally, &format!("/items/{item}")).await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_and_its_description_come_compressed_and_not_again_to_who_has_them() {
    let tally = framed().await;
    let item = tally.item("Bicycles").await;
    let url = format!("{}/items/{item}", tally.base)
        .replace(':', "%3A")
        .replace('/', "%2F");
    for path in [format!("/items/{item}/frame"), format!("/oembed?url={url}")] {
        let ask = |known: &str| {
            let request = tally.http.get(format!("{}{path}", tally.base));
            request
                .header(ACCEPT_ENCODING, "gzip")
                .header(IF_NONE_MATCH, known)
                .send()
        };
        let first = ask("\"other\"").await.expect("an answer");
        assert_eq!(first.status(), StatusCode::OK, "{path}");
        assert_eq!(first.headers()["content-encoding"], "gzip", "{path}");
        assert_eq!(first.headers()["cache-control"], "no-cache", "{path}");
        let etag = first.headers()["etag"].to_str().expect("text").to_owned();
        let again = ask(&etag).await.expect("an answer");
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{path}");
    }
}
