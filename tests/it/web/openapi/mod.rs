//! The description at `/openapi.json` has each route, problem type and field.
//! `helpers::answers` holds the answers of all other tests against it.

mod page;

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, StatusCode};
use serde_json::Value;
use tally::web::{ProblemKind, routes};

use crate::helpers::answers::{DESCRIPTION, NOT_DESCRIBED, of_answer, of_request, wrong};
use crate::helpers::tally::Tally;

/// An operation of the description.
struct Operation {
    method: String,
    path: String,
    value: &'static Value,
}

impl Operation {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

fn operations() -> Vec<Operation> {
    let paths = DESCRIPTION["paths"].as_object().expect("paths");
    let of_path = |(path, item): (&String, &'static Value)| {
        let methods = item.as_object().expect("methods").iter();
        let all = methods.map(|(method, value)| Operation {
            method: method.to_uppercase(),
            path: path.clone(),
            value,
        });
        all.collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn the_description_has_each_route_of_the_table_and_no_other() {
    assert!(routes().len() > 20);
    let listed: BTreeSet<String> = routes()
        .iter()
        .filter(|route| !NOT_DESCRIBED.contains(&route.path()))
        .map(|route| format!("{} {}", route.method(), route.path()))
        .collect();
    let described: BTreeSet<String> = operations().iter().map(Operation::name).collect();
    assert_eq!(described, listed);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_path_says_which_methods_it_takes_and_takes_head_where_it_takes_get() {
    let tally = Tally::start().await;
    let mut methods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for route in routes() {
        let of_path = methods.entry(route.path()).or_default();
        of_path.insert(route.method());
        if route.method() == "GET" {
            of_path.insert("HEAD");
        }
    }
    for (path, methods) in methods {
        let url = format!("{}{}", tally.base, path.replace(['{', '}'], ""));
        let answer = tally.http.request(Method::TRACE, url).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allow = answer.headers()["allow"].to_str().expect("text");
        assert_eq!(allow.split(", ").collect::<BTreeSet<_>>(), methods, "{path}");
    }
}

#[test]
fn each_problem_type_is_at_some_operation_and_no_other_is() {
    let mut described = BTreeSet::new();
    for operation in operations() {
        for (status, answer) in operation.value["responses"].as_object().expect("answers") {
            let problem = &answer["content"]["application/problem+json"];
            for (slug, example) in problem["examples"].as_object().into_iter().flatten() {
                let value = &example["value"];
                assert_eq!(value["type"], format!("/problems/{slug}"), "{}", operation.name());
                assert_eq!(value["status"].to_string(), *status, "{}", operation.name());
                described.insert(slug.clone());
            }
        }
    }
    let all: BTreeSet<String> = ProblemKind::ALL
        .iter()
        .map(|kind| kind.slug().to_owned())
        .collect();
    assert_eq!(described, all);
}

#[test]
fn each_operation_has_what_clients_are_made_of() {
    let mut ids = BTreeSet::new();
    let tags: Vec<&Value> = DESCRIPTION["tags"]
        .as_array()
        .expect("tags")
        .iter()
        .map(|tag| &tag["name"])
        .collect();
    assert_eq!(DESCRIPTION["openapi"], "3.1.0");
    for operation in operations() {
        let name = operation.name();
        let value = operation.value;
        let id = value["operationId"].as_str().expect("an id");
        assert!(
            id.chars().all(char::is_alphanumeric) && ids.insert(id),
            "{name}: {id}"
        );
        let of: Vec<&Value> = value["tags"].as_array().expect("a tag").iter().collect();
        assert!(of.len() == 1 && tags.contains(&of[0]), "{name}: {of:?}");
        for text in ["summary", "description"] {
            assert!(
                value[text].as_str().is_some_and(|text| text.ends_with('.')),
                "{name} {text}: {}",
                value[text]
            );
        }
        for part in operation
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{'))
        {
            let mut parameters = value["parameters"].as_array().expect("parameters").iter();
            let part = part.trim_end_matches('}');
            assert!(
                parameters.any(|one| one["in"] == "path" && one["name"] == part && one["required"] == true),
                "{name}: {part}"
            );
        }
    }
}

/// The examples in some content, each with its place.
fn examples(content: &'static Value) -> Vec<(String, &'static Value)> {
    let named = content["examples"].as_object().into_iter().flatten();
    let mut all: Vec<(String, &Value)> = named.map(|(name, one)| (name.clone(), &one["value"])).collect();
    if let Some(one) = content.get("example") {
        all.push(("example".to_owned(), one));
    }
    all
}

#[test]
fn each_example_is_as_its_schema_says() {
    let mut total = 0;
    for operation in operations() {
        let name = operation.name();
        for parameter in operation.value["parameters"].as_array().into_iter().flatten() {
            let schema = of_request(&parameter["schema"]);
            assert!(
                !schema.is_valid(&Value::Null),
                "{name}: no header and no parameter is null: {parameter}"
            );
            if let Some(example) = parameter.get("example") {
                let wrong = wrong(&schema, example);
                assert!(wrong.is_empty(), "{name}: {parameter}: {wrong:#?}");
                total += 1;
            }
        }
        let body = &operation.value["requestBody"]["content"];
        for (kind, content) in body.as_object().into_iter().flatten() {
            let examples = examples(content);
            assert!(!examples.is_empty(), "{name}: {kind} has no example");
            for (_, example) in examples {
                let wrong = wrong(&of_request(&content["schema"]), example);
                assert!(wrong.is_empty(), "{name}: {example}: {wrong:#?}");
                total += 1;
            }
        }
        for (status, answer) in operation.value["responses"].as_object().expect("answers") {
            for (kind, content) in answer["content"].as_object().into_iter().flatten() {
                let examples = examples(content);
                assert!(!examples.is_empty(), "{name}: {status} {kind} has no example");
                for (_, example) in examples {
                    // The example of the description itself is shortened.
                    if operation.path == "/openapi.json" && status == "200" {
                        continue;
                    }
                    let wrong = wrong(&of_answer(&content["schema"]), example);
                    assert!(wrong.is_empty(), "{name} {status}: {example}: {wrong:#?}");
                    total += 1;
                }
            }
        }
    }
    for (name, schema) in DESCRIPTION["components"]["schemas"].as_object().expect("schemas") {
        for example in schema["examples"].as_array().into_iter().flatten() {
            let wrong = wrong(&of_request(schema), example);
            assert!(wrong.is_empty(), "{name}: {example}: {wrong:#?}");
            total += 1;
        }
    }
    assert!(total > 300, "{total}");
}

#[test]
fn what_is_not_described_fails() {
    let answer =
        |schema: &str| of_answer(&serde_json::json!({ "$ref": format!("#/components/schemas/{schema}") }));
    let mut vote = serde_json::json!({
        "vote_id": 1, "item_id": 1, "voter_id": null, "value": 1,
        "vote_count": 1, "up_count": 1, "down_count": 0
    });
    assert_eq!(wrong(&answer("Vote"), &vote), Vec::<String>::new());
    for (member, value) in [
        ("more", Value::from(1)),
        ("value", Value::from(2)),
        ("number", Value::Null),
        ("up_count", Value::from("1")),
    ] {
        let before = vote[member].take();
        vote[member] = value;
        assert!(!wrong(&answer("Vote"), &vote).is_empty(), "{vote}");
        match before {
            Value::Null => drop(vote.as_object_mut().expect("an object").remove(member)),
            before => vote[member] = before,
        }
    }
    vote.as_object_mut().expect("an object").remove("voter_id");
    assert!(!wrong(&answer("Vote"), &vote).is_empty(), "{vote}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_the_description_or_the_page_does_not_get_it_again() {
    let tally = Tally::start().await;
    for (path, kind) in [
        ("/openapi.json", "application/json"),
        ("/docs", "text/html; charset=utf-8"),
        ("/assets/docs-00000000.css", "text/css; charset=utf-8"),
    ] {
        let url = format!("{}{path}", tally.base);
        let first = tally.http.get(&url).send().await.expect("an answer");
        assert_eq!(first.status(), StatusCode::OK, "{path}");
        assert_eq!(first.headers()["content-type"], kind);
        let etag = first.headers()["etag"].clone();
        let text = first.text().await.expect("a text");
        assert!(text.len() > 1000, "{path}");
        for known in [
            etag.to_str().expect("text").to_owned(),
            format!("\"x\", {}", etag.to_str().expect("text")),
        ] {
            let again = tally.http.get(&url).header("if-none-match", &known).send().await;
            let again = again.expect("an answer");
            assert_eq!(
                (again.status(), &again.headers()["etag"]),
                (StatusCode::NOT_MODIFIED, &etag),
                "{path} {known}"
            );
            assert_eq!(again.text().await.expect("a text"), "");
        }
        let other = tally
            .http
            .get(&url)
            .header("if-none-match", "\"other\"")
            .send()
            .await;
        assert_eq!(other.expect("an answer").status(), StatusCode::OK, "{path}");
        let head = tally.http.head(&url).send().await.expect("an answer");
        assert_eq!(
            (head.status(), &head.headers()["etag"]),
            (StatusCode::OK, &etag),
            "{path}"
        );
    }
    let served = tally
        .http
        .get(format!("{}/openapi.json", tally.base))
        .send()
        .await;
    let served: Value = served.expect("an answer").json().await.expect("JSON");
    assert_eq!(served, *DESCRIPTION);
}
