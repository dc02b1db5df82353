//! Cells: ids that say where they were drawn, requests that reach the wrong cell, lists over all cells.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tally::app;
use tally::domain::{Cells, ItemId};

use crate::helpers::cells::{TWO, cell, tally};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// The first id of cell 1.
const FIRST_OF_ONE: i64 = (1 << 40) + 1;
/// Above it, JavaScript's numbers are not exact.
const SAFE_LIMIT: i64 = (1 << 53) - 1;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_database_becomes_the_cell_that_it_is_migrated_as_and_stays_it() {
    let stores = Stores::start().await;
    let url = stores.postgres.create_database("next").await.expect("a database");
    let migrate = async |asked| app::migrate_as(&url, "test", asked).await;
    let highest = cell(8191);
    assert_eq!(migrate(Some(highest)).await.expect("it migrates").cell, highest);
    assert_eq!(migrate(None).await.expect("it stays").cell, highest);
    assert_eq!(migrate(Some(highest)).await.expect("it stays").cell, highest);
    let refused = migrate(Some(cell(3)))
        .await
        .expect_err("it is another one")
        .to_string();
    assert!(
        refused.starts_with("this database is cell 8191, and was to be cell 3"),
        "{refused}"
    );
    let pool = testkit::stores::owner_pool(&url).expect("a URL");
    let ranges: Vec<(String, i64, i64)> = sqlx::query_as(
        "select sequencename::text, start_value, max_value from pg_sequences where schemaname = 'public' order by 1",
    )
    .fetch_all(&pool)
    .await
    .expect("Postgres answers");
    assert!(ranges.len() >= 11, "{ranges:?}");
    for (name, first, last) in ranges {
        assert_eq!((first, last), (highest.before_ids() + 1, SAFE_LIMIT), "{name}");
    }
    let first: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
        .fetch_one(&pool)
        .await
        .expect("an item");
    assert_eq!(first, highest.before_ids() + 1);
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_given_no_cell_is_cell_0_and_draws_1_first() {
    let stores = Stores::start().await;
    let url = stores
        .postgres
        .create_database("single")
        .await
        .expect("a database");
    assert_eq!(
        app::migrate_as(&url, "test", None)
            .await
            .expect("it migrates")
            .cell,
        cell(0)
    );
    let pool = testkit::stores::owner_pool(&url).expect("a URL");
    let first: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
        .fetch_one(&pool)
        .await
        .expect("an item");
    assert_eq!(first, 1);
    pool.close().await;
}

/// A server must not serve a database that is another cell than its settings say.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_refuses_a_database_of_another_cell_and_one_that_its_settings_leave_out() {
    let stores = crate::helpers::cells::stores(1).await;
    let urls = crate::helpers::tally::logins(&stores, tally::ledger::Role::Server);
    let check = async |asked, cells| {
        let checked = app::check_for_server(&urls, "test", asked, cells).await;
        checked.map_err(|error| error.to_string())
    };
    check(Some(cell(1)), TWO).await.expect("it is cell 1");
    check(None, TWO).await.expect("it is one of them");
    let other = check(Some(cell(0)), TWO).await.expect_err("it is cell 1");
    assert!(
        other.contains("this database is cell 1, and was to be cell 0"),
        "{other}"
    );
    let beyond = check(None, Cells::ONE).await.expect_err("there is one cell");
    assert!(
        beyond.contains("TALLY_CELLS says that there are 1: raise it"),
        "{beyond}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_in_another_cell_than_the_first_are_counted_exactly_and_their_ids_are_safe_in_javascript() {
    let tally = tally(1, TWO).await;
    let item = tally.item("x").await;
    assert_eq!(item.get(), FIRST_OF_ONE);
    for voter in ["ada", "bob", "ada"] {
        let (status, vote) = tally.vote(item, voter).await;
        assert!(status.is_success(), "{vote}");
        let id = vote["vote_id"].as_i64().expect("an id");
        assert!((FIRST_OF_ONE..=SAFE_LIMIT).contains(&id), "{id}");
        let (status, receipt) = tally.get(&format!("/v1/votes/{id}")).await;
        assert_eq!(
            (status, &receipt["item_id"]),
            (StatusCode::OK, &json!(item.get()))
        );
    }
    let path = format!("/v1/items/{item}/votes/bob");
    let (status, _) = tally.send(Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::OK);
    tally.roll_up_all().await;
    tally.assert_exact_when_quiescent(item).await;
    let audit = tally
        .worker()
        .audit(tally::sync::Repair::No)
        .await
        .expect("an audit");
    assert_eq!(audit.wrong_items, 0);
    assert_eq!(tally.saved_count(item).await, 1);
    let (_, poll) = tally
        .post(
            "/v1/polls",
            &json!({ "title": "Lunch?", "choices": ["soup", "salad"] }),
        )
        .await;
    for id in [
        &poll["id"],
        &poll["choices"][0]["item_id"],
        &poll["choices"][1]["item_id"],
    ] {
        assert!(id.as_i64().expect("an id") >= FIRST_OF_ONE, "{poll}");
    }
}

/// Sends a request that must be another cell's. Returns the problem.
async fn misdirected(tally: &Tally, method: Method, path: &str, body: Option<&Value>, of: u16) -> Value {
    let mut request = tally
        .http
        .request(method.clone(), format!("{}{path}", tally.base));
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    assert_eq!(
        answer.status(),
        StatusCode::MISDIRECTED_REQUEST,
        "{method} {path}"
    );
    assert_eq!(
        answer.headers()["tally-cell"],
        of.to_string().as_str(),
        "{method} {path}"
    );
    let (status, problem) = tally.send(method.clone(), path, body).await;
    assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
    assert_eq!(
        (&problem["type"], &problem["cell"]),
        (&json!("/problems/other-cell"), &json!(of)),
        "{method} {path}"
    );
    problem
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_names_what_another_cell_has_is_refused_with_that_cell_and_stores_nothing() {
    let tally = tally(1, TWO).await;
    let here = tally.item("here").await;
    let vote = json!({ "voter_id": "ada" });
    for (method, path, body) in [
        (Method::GET, "/v1/items/5".to_owned(), None),
        (Method::POST, "/v1/items/5/votes".to_owned(), Some(vote.clone())),
        (
            Method::PUT,
            "/v1/items/5/votes/ada".to_owned(),
            Some(json!({ "value": 1 })),
        ),
        (Method::DELETE, "/v1/items/5/votes/ada".to_owned(), None),
        (Method::GET, "/v1/items/5/history?over=hour".to_owned(), None),
        (Method::GET, "/v1/items/5/stream".to_owned(), None),
        (
            Method::PATCH,
            "/v1/items/5".to_owned(),
            Some(json!({ "name": "y" })),
        ),
        (Method::GET, "/v1/polls/5".to_owned(), None),
        (
            Method::PUT,
            "/v1/polls/5/votes/ada".to_owned(),
            Some(json!({ "items": [6] })),
        ),
        (Method::GET, "/v1/votes/5".to_owned(), None),
        // Of several cells: the one that is not here is named.
        (Method::GET, format!("/v1/items?ids={here},5"), None),
        (Method::GET, format!("/v1/feed?voter_id=ada&items={here},5"), None),
        (
            Method::GET,
            format!("/v1/feed?voter_id=ada&items={here}&polls=5"),
            None,
        ),
        (
            Method::GET,
            format!("/v1/votes?voter_id=ada&items={here},5"),
            None,
        ),
        (Method::GET, format!("/v1/stream?items={here},5"), None),
        (
            Method::POST,
            "/v1/votes".to_owned(),
            Some(
                json!({ "votes": [{ "item_id": here.get(), "voter_id": "ada" }, { "item_id": 5, "voter_id": "ada" }] }),
            ),
        ),
        // The page after an id, or before one, is that cell's.
        (Method::GET, "/v1/items?after=5".to_owned(), None),
        (Method::GET, "/v1/polls?before=5".to_owned(), None),
        // Own keys lie in cell 0.
        (Method::GET, "/v1/items/key:post-42".to_owned(), None),
        (
            Method::POST,
            "/v1/items".to_owned(),
            Some(json!({ "name": "x", "key": "post-42" })),
        ),
    ] {
        let problem = misdirected(&tally, method, &path, body.as_ref(), 0).await;
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("this is cell 1"), "{detail}");
    }
    // The next cell may be there before the settings of this server name it.
    let next = (2_i64 << 40) + 7;
    misdirected(&tally, Method::GET, &format!("/v1/items/{next}"), None, 2).await;
    // No cell draws such an id.
    for id in [SAFE_LIMIT + 1, i64::MAX] {
        let (status, _) = tally.get(&format!("/v1/items/{id}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from vote")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(rows, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_lie_in_the_cell_that_their_part_before_the_first_slash_hashes_to() {
    let cells = Cells { count: 3, of_keys: 2 };
    let (zero, one) = (tally(0, cells).await, tally(1, cells).await);
    let mut taken = [0, 0];
    for number in 0..20 {
        let key = format!("page-{number}/post");
        let new = json!({ "name": "x", "key": key });
        let (first, _) = zero.post("/v1/items", &new).await;
        let (second, _) = one.post("/v1/items", &new).await;
        let of = usize::from(tally::domain::Cell::of_key(&key, 2).get());
        let expected = [StatusCode::CREATED, StatusCode::MISDIRECTED_REQUEST];
        assert_eq!([first, second], [expected[of], expected[1 - of]], "{key}");
        taken[of] += 1;
    }
    assert!(taken[0] > 0 && taken[1] > 0, "{taken:?}");
}

/// Follows a list's pages from its beginning, as a client behind a router does, and returns the ids.
async fn pages_of(tallys: [&Tally; 2], list: &str, first: usize, parameter: &str, below: i64) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut query = "?limit=2".to_owned();
    let mut at = first;
    loop {
        let (status, page) = tallys[at].get(&format!("/v1/{list}{query}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let listed = page[list].as_array().expect("a list");
        ids.extend(listed.iter().map(|one| one["id"].as_i64().expect("an id")));
        let Some(next) = page[format!("next_{parameter}")].as_i64() else {
            return ids;
        };
        // As the router does.
        at = usize::try_from((next - below) >> 40).expect("a cell");
        query = format!("?limit=2&{parameter}={next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_follows_the_pages_of_a_list_sees_all_cells() {
    let (zero, one) = (tally(0, TWO).await, tally(1, TWO).await);
    let mut polls = Vec::new();
    for tally in [&zero, &one] {
        for number in 0..3 {
            let new = json!({ "title": format!("poll {number}"), "choices": ["a", "b"] });
            let (status, poll) = tally.post("/v1/polls", &new).await;
            assert_eq!(status, StatusCode::CREATED, "{poll}");
            polls.push(poll["id"].as_i64().expect("an id"));
        }
    }
    let items = pages_of([&zero, &one], "items", 0, "after", 0).await;
    let mut sorted = items.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!((items.len(), &items), (12, &sorted));
    assert!(items[5] < FIRST_OF_ONE && items[6] >= FIRST_OF_ONE, "{items:?}");
    // The newest come first, and those of the last cell are taken for the newest.
    polls.reverse();
    assert_eq!(pages_of([&zero, &one], "polls", 1, "before", 1).await, polls);
    // Where the settings name one cell, a list ends with its own.
    let alone = tally(0, Cells::ONE).await;
    let (_, page) = alone.get("/v1/items").await;
    assert_eq!(page["next_after"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_by_address_looks_at_no_ids_below_the_cell() {
    let tally = tally(
        8191,
        Cells {
            count: 8192,
            of_keys: 1,
        },
    )
    .await;
    let item: ItemId = tally.item("x").await;
    tally.add(item, 1).await;
    sqlx::query(
        "insert into vote_address (vote_id, address_hash) select id, substring(sha256('') for 16) from vote",
    )
    .execute(&tally.pool)
    .await
    .expect("an address");
    let (up_to, ids): (i64, Vec<i64>) = sqlx::query_as(
        "select up_to, ids from votes_to_void(null, null, null, null, array[substring(sha256('') for 16)], null, 0,
                                              (select max(id) from vote), 10, 10)",
    )
    .fetch_one(&tally.pool)
    .await
    .expect("the votes");
    assert_eq!(ids, [up_to]);
}
