//! Holds answers against the description at `/openapi.json`.
//! The description lets answers grow. Here, a member that it does not name is wrong.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use serde_json::{Map, Value, json};
use tally::web::ProblemKind;

/// Paths of pages, which are no part of the interface.
pub const NOT_DESCRIBED: [&str; 2] = ["/assets/{name}", "/embed.js"];
/// Headers that the description has only in its text, or that are HTTP's own.
const OF_ALL: [&str; 10] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "date",
    "x-content-type-options",
    "referrer-policy",
    "content-security-policy",
    "strict-transport-security",
    "vary",
];

/// The description, as a client reads it.
pub static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(tally::web::description()).expect("JSON"));

/// The components, where each body allows only its named members.
static COMPONENTS: LazyLock<Value> = LazyLock::new(|| {
    let mut components = json!({ "schemas": {} });
    for (name, schema) in DESCRIPTION["components"]["schemas"].as_object().expect("schemas") {
        components["schemas"][name] = closed(schema, true);
    }
    components
});

/// A schema that allows only its named members.
/// A part of another schema stays open, because the whole names the members of all parts.
fn closed(schema: &Value, is_part: bool) -> Value {
    let Some(members) = schema.as_object() else {
        return schema.clone();
    };
    let mut all: Map<String, Value> = Map::new();
    for (keyword, value) in members {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), closed(property, false)))
                .collect(),
            ("items", items) => closed(items, false),
            ("oneOf" | "anyOf" | "allOf", Value::Array(parts)) => parts
                .iter()
                .map(|part| closed(part, keyword == "allOf"))
                .collect(),
            (_, other) => other.clone(),
        };
        all.insert(keyword.clone(), value);
    }
    let has_members = ["$ref", "allOf", "properties"]
        .iter()
        .any(|keyword| all.contains_key(*keyword));
    if has_members && !is_part {
        all.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
    }
    Value::Object(all)
}

/// The validator of an answer's body.
pub fn of_answer(schema: &Value) -> Validator {
    validator(&closed(schema, false), &COMPONENTS)
}

/// The validator of a request's body.
pub fn of_request(schema: &Value) -> Validator {
    validator(schema, &DESCRIPTION["components"])
}

fn validator(schema: &Value, components: &Value) -> Validator {
    let whole = json!({ "allOf": [schema], "components": components });
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&whole)
        .unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// What is wrong with a value, in words.
pub fn wrong(validator: &Validator, value: &Value) -> Vec<String> {
    let errors = validator.iter_errors(value);
    errors
        .map(|error| format!("at {}: {error}", error.instance_path()))
        .collect()
}

/// The described path that matches this one.
fn path_of(path: &str) -> Option<(&'static str, &'static Value)> {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |pattern: &str| {
        let pattern: Vec<&str> = pattern.split('/').collect();
        pattern.len() == parts.len()
            && pattern
                .iter()
                .zip(&parts)
                .all(|(of, part)| of == part || (of.starts_with('{') && !part.is_empty()))
    };
    let paths = DESCRIPTION["paths"].as_object().expect("paths");
    let found = paths.iter().find(|(pattern, _)| fits(pattern));
    found.map(|(pattern, item)| (pattern.as_str(), item))
}

/// Holds an answer against the description.
///
/// # Panics
/// When it is not as described.
pub fn check(method: &Method, path: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    let said = || format!("{method} {path}: {status} {}", String::from_utf8_lossy(body));
    let path_only = path.split('?').next().unwrap_or_default();
    let is_asset = path_only.starts_with("/assets/");
    if is_asset || NOT_DESCRIBED.contains(&path_only) || *method == Method::OPTIONS {
        return;
    }
    // The server refuses broken or oversized HTTP before there is a request.
    if body.is_empty() && [400, 408, 431].contains(&status.as_u16()) {
        return;
    }
    let name = match method.as_str() {
        "HEAD" => "get".to_owned(),
        other => other.to_lowercase(),
    };
    // A voter in the query stands for the last part of the path.
    let of_voter = path
        .split_once("/votes?")
        .filter(|(before, query)| *before != "/v1" && query.contains("voter_id=") && *method != Method::POST)
        .map(|(before, _)| format!("{before}/votes/x"));
    let path = of_voter.as_deref().unwrap_or(path);
    let Some((pattern, item)) = path_of(path) else {
        // The server refuses a foreign page's write before it looks for the path.
        assert!(
            [403, 404].contains(&status.as_u16()),
            "nothing is described there: {}",
            said()
        );
        return;
    };
    let operation = &item[&name];
    if operation.is_null() {
        assert!(
            [403, 405].contains(&status.as_u16()),
            "no such method is described: {}",
            said()
        );
        return;
    }
    let described = &operation["responses"][status.as_str()];
    assert!(!described.is_null(), "the status is not described: {}", said());
    for (name, _) in headers {
        let is_described = described["headers"]
            .as_object()
            .is_some_and(|all| all.keys().any(|known| known.eq_ignore_ascii_case(name.as_str())));
        // A refusal renews a cookie that is due, too.
        let is_renewal = name == "set-cookie" && !status.is_success();
        let is_of_all = OF_ALL.contains(&name.as_str()) || name.as_str().starts_with("access-control-");
        assert!(
            is_described || is_of_all || is_renewal,
            "{name} is not described: {}",
            said()
        );
    }
    for (name, header) in described["headers"].as_object().into_iter().flatten() {
        let is_always = [
            "X-Request-Id",
            "Retry-After",
            "Allow",
            "WWW-Authenticate",
            "RateLimit",
            "Location",
            "ETag",
            "Cache-Control",
        ];
        // The server refuses a connection too many before it reads the request.
        let is_refusal = name == "X-Request-Id" && status == StatusCode::SERVICE_UNAVAILABLE;
        if is_always.contains(&name.as_str()) && !is_refusal {
            assert!(
                headers.contains_key(name),
                "{name} is missing ({header}): {}",
                said()
            );
        }
    }
    let content = &described["content"];
    let Some(kind) = headers.get("content-type") else {
        assert!(
            content.is_null() && body.is_empty(),
            "it has no content type: {}",
            said()
        );
        return;
    };
    let kind = kind.to_str().expect("text");
    let described = &content[kind];
    assert!(!described.is_null(), "{kind} is not described: {}", said());
    if *method == Method::HEAD || !kind.ends_with("json") {
        return;
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error}: {}", said()));
    if kind == "application/problem+json" {
        // All refusals have one schema. The names of the examples are the types of this answer.
        let slug = value["type"]
            .as_str()
            .and_then(|of| of.strip_prefix("/problems/"));
        let is_described = slug.is_some_and(|slug| described["examples"].get(slug).is_some());
        assert!(is_described, "the problem type is not described: {}", said());
        assert_eq!(value["status"], status.as_u16(), "{}", said());
    }
    assert_problem_types_are_known(&value, &said());
    let validator = kept(&format!("{name} {pattern} {status} {kind}"), &described["schema"]);
    let wrong = wrong(&validator, &value);
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", said());
}

/// Every problem in a body, also as the result of one vote, is of a type that the table has.
fn assert_problem_types_are_known(value: &Value, said: &str) {
    let is_known = |address: &str| ProblemKind::ALL.iter().any(|kind| kind.address() == address);
    match value {
        Value::Array(all) => all
            .iter()
            .for_each(|one| assert_problem_types_are_known(one, said)),
        Value::Object(members) => {
            let is_problem = members.contains_key("title") && members.contains_key("detail");
            // In a schema, the members are schemas.
            if let Some(of) = members.get("type").and_then(Value::as_str)
                && is_problem
            {
                assert!(is_known(of), "{of} is in no table: {said}");
            }
            members
                .values()
                .for_each(|one| assert_problem_types_are_known(one, said));
        }
        _ => {}
    }
}

/// The validator of a schema, made once.
fn kept(name: &str, schema: &Value) -> Arc<Validator> {
    static KEPT: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let made = kept.entry(name.to_owned());
    Arc::clone(made.or_insert_with(|| Arc::new(of_answer(schema))))
}
