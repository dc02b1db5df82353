//! Each route with each credential, as the table in docs/operating/access.md says.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tally::domain::{ApiKey, Scope};
use tally::web::access::Open;
use tally::web::routes;

use super::credentials::{cookie, expired_token, forged_cookie, forged_token, knows_voters, token};
use super::{Credential, api_key, operator, send_as};
use crate::helpers::answers::{DESCRIPTION, NOT_DESCRIBED};
use crate::helpers::tally::Tally;

const DOCUMENT: &str = include_str!("../../../../docs/operating/access.md");

/// A row of the table.
pub(super) struct Row {
    pub method: Method,
    pub path: String,
    /// What is special about the request's body.
    with: String,
    /// The name in TALLY_OPEN, or `all`.
    open: String,
    /// The scope of an API key, or `any`.
    pub scope: String,
    /// Whether a voter's own credential is enough.
    is_own: bool,
}

pub(super) fn rows() -> Vec<Row> {
    let (_, rest) = DOCUMENT
        .split_once("| Request | Without a credential | With an API key | With a voter's own |\n")
        .expect("the table");
    let lines = rest.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows = lines.map(|line| {
        let cells: Vec<String> = line
            .split('|')
            .map(|cell| cell.replace('`', "").trim().to_owned())
            .collect();
        let (request, with) = cells[1].split_once(", ").unwrap_or((&cells[1], ""));
        let (method, path) = request.split_once(' ').expect("a method and a path");
        Row {
            method: method.parse().expect("a method"),
            path: path.to_owned(),
            with: with.to_owned(),
            open: cells[2].clone(),
            scope: cells[3].clone(),
            is_own: cells[4] == "its own",
        }
    });
    rows.collect()
}

#[test]
fn the_table_has_every_route() {
    let listed: BTreeSet<String> = rows()
        .iter()
        .map(|row| format!("{} {}", row.method, row.path))
        .collect();
    let routes = routes()
        .iter()
        .map(|route| format!("{} {}", route.method(), route.path()));
    assert_eq!(listed, routes.collect());
}

fn body(row: &Row) -> Option<Value> {
    let vote = match row.with.as_str() {
        "with voter_id" => json!({ "voter_id": "ada" }),
        "with a ballot" => json!({ "ballot": "x" }),
        _ => json!({}),
    };
    match (row.method.as_str(), row.path.as_str()) {
        ("POST", "/v1/items/{id}/votes" | "/v1/voter") => Some(vote),
        ("POST", "/v1/voidings") => Some(json!({ "voter_id": "nobody", "reason": "x", "dry_run": true })),
        ("PUT", path) if path.ends_with("/access") => Some(json!({ "open": [] })),
        ("POST" | "PATCH", _) => Some(json!({})),
        ("PUT", "/v1/polls/{id}/votes/{voter_id}") => Some(json!({ "items": [] })),
        ("PUT", _) => Some(json!({ "value": 1 })),
        _ => None,
    }
}

fn names_ada(row: &Row) -> bool {
    row.path.contains("{voter_id}") || row.with == "with voter_id"
}

/// The problem that refuses this credential; `None`: it is not refused.
fn expected(row: &Row, open: &str, credential: Option<&str>) -> Option<&'static str> {
    let is_open = row.open == "all" || open.split(',').any(|name| name == row.open);
    match credential {
        // A route that needs no credential ignores credentials.
        _ if row.scope == "any" => None,
        Some("unknown" | "revoked" | "broken" | "forged token") => Some("credential-not-valid"),
        Some("expired token") => Some("token-expired"),
        // A client with a broken cookie must be able to get another cookie, or to delete this one.
        Some("forged cookie") if row.path != "/v1/voter" || row.method == "GET" => {
            Some("credential-not-valid")
        }
        Some(voter) if voter.starts_with("eve") && row.is_own && names_ada(row) => Some("not-your-vote"),
        Some(voter) if voter.starts_with("ada") && row.is_own => None,
        Some(voter) if voter.starts_with("eve") && row.is_own => None,
        _ if is_open => None,
        None | Some("forged cookie") => Some("credential-missing"),
        Some(scope) if scope == row.scope => None,
        Some(_) => Some("not-allowed"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_route_takes_the_credentials_that_the_table_says_and_no_other() {
    let tally = Tally::start().await;
    tally.item("x").await;
    let mut credentials: Vec<(Option<&str>, Credential)> = vec![
        (None, Credential::None),
        (
            Some("unknown"),
            Credential::Bearer(ApiKey::fresh().as_str().to_owned()),
        ),
        (Some("broken"), Credential::Bearer("tally_0".to_owned())),
        (Some("forged token"), Credential::Bearer(forged_token("ada"))),
        (Some("expired token"), Credential::Bearer(expired_token("ada"))),
        (Some("forged cookie"), forged_cookie("ada")),
        (Some("ada's cookie"), cookie("ada")),
        (Some("eve's cookie"), cookie("eve")),
        (Some("ada's token"), Credential::Bearer(token("ada"))),
        (Some("eve's token"), Credential::Bearer(token("eve"))),
    ];
    for scope in Scope::ALL {
        let (_, key) = api_key(&tally, &[scope]).await;
        credentials.push((Some(scope.name()), Credential::Bearer(key.as_str().to_owned())));
    }
    let (id, revoked) = api_key(&tally, &Scope::ALL).await;
    let is_there = operator(&tally).revoke_api_key(id).await;
    assert!(is_there.expect("Postgres answers"));
    credentials.push((Some("revoked"), Credential::Bearer(revoked.as_str().to_owned())));
    for open in [
        "",
        "anonymous",
        "voters",
        "visitors",
        "admin",
        "report",
        "anonymous,voters,visitors,admin,report",
    ] {
        let what: Open = open.parse().expect("names");
        let (base, _stop) = tally
            .server_until_dropped(|options| {
                options.access.open = what;
                knows_voters(options);
            })
            .await;
        for row in rows() {
            // No key of this test is revoked on the way.
            let id = if row.path.starts_with("/v1/api-keys") {
                "999"
            } else {
                "1"
            };
            let path = row
                .path
                .replace("{id}", id)
                .replace("{voter_id}", "ada")
                .replace("{slug}", "full")
                .replace("{name}", "page-00000000.css");
            let path = match (row.method.as_str(), path.as_str()) {
                ("GET", "/v1/votes" | "/v1/feed") => format!("{path}?voter_id=ada&items=1"),
                _ => path,
            };
            for (name, key) in &credentials {
                let request = (row.method.clone(), path.as_str());
                let (status, problem) = send_as(&tally, &base, request, key, body(&row).as_ref()).await;
                let refusal = expected(&row, open, *name);
                let said = format!("{} {path} {} of {name:?}, open: {open:?}", row.method, row.with);
                match refusal {
                    Some(refusal) => assert_eq!(problem, refusal, "{said}: {status}"),
                    None => assert!(
                        ![401, 403].contains(&status.as_u16()),
                        "{said}: {status} {problem}"
                    ),
                }
            }
        }
    }
}

/// The credentials that an operation takes, as the description has them.
fn described(row: &Row) -> (String, BTreeSet<String>, bool, bool) {
    let operation = &DESCRIPTION["paths"][&row.path][row.method.as_str().to_lowercase()];
    let Some(requirements) = operation["security"].as_array() else {
        return ("any".to_owned(), BTreeSet::from(["all".to_owned()]), false, true);
    };
    let has = |name: &str| requirements.iter().find_map(|one| one.get(name));
    let scope = has("apiKey")
        .and_then(|scopes| scopes[0].as_str())
        .unwrap_or_default();
    let open = operation["x-open"].as_array().into_iter().flatten();
    let open = open.filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    assert_eq!(
        has("voterCookie").is_some(),
        has("voterToken").is_some(),
        "{operation}"
    );
    let is_open = requirements.contains(&json!({}));
    (scope.to_owned(), open, has("voterCookie").is_some(), is_open)
}

#[test]
fn the_description_says_who_may_ask_as_the_table_does() {
    let rows = rows();
    for row in rows
        .iter()
        .filter(|row| !NOT_DESCRIBED.contains(&row.path.as_str()))
    {
        let said = format!("{} {} {}", row.method, row.path, row.with);
        let (scope, open, is_own, may_be_open) = described(row);
        assert_eq!((&scope, is_own), (&row.scope, row.is_own), "{said}");
        // An operation with several bodies has all names in the description.
        let same = rows
            .iter()
            .filter(|one| one.method == row.method && one.path == row.path);
        let expected: BTreeSet<String> = same
            .filter(|one| one.open != "no" && one.with != "with a ballot")
            .map(|one| one.open.clone())
            .collect();
        assert_eq!(open, expected, "{said}");
        assert!(may_be_open, "{said}");
    }
}
