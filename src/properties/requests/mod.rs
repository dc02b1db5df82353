//! The parsers of HTTP requests.

mod bodies;
mod heads;
mod queries;

pub use bodies::{
    api_key_body, ballots_body, batch_body, choice_body, item_body, item_edit_body, poll_body,
    poll_copy_body, poll_edit_body, selection_body, voiding_body, vote_body, voter_edit_body,
};
pub use heads::{authorization, idempotency_key, item_id, last_event_id, origin, path_item, path_voter};
pub use queries::{
    held_query, list_query, oembed_query, operator_query, poll_list_query, stream_query, top_query,
};

use crate::domain::{Edit, ItemName};
use crate::web::ProblemKind;
use crate::web::parsing::Refusal;

/// Words that mean nothing to a client of JSON over HTTP. They are those of Rust, of serde and of
/// Tally's own types. `read` stands for "it cannot be read", which Tally only says when it finds no
/// reason for refusing.
const FOREIGN: &[&str] = &[
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "f32",
    "f64",
    "bool",
    "char",
    "str",
    "String",
    "Option",
    "Some",
    "None",
    "Vec",
    "struct",
    "enum",
    "variant",
    "tuple",
    "unit",
    "map",
    "sequence",
    "floating",
    "serde",
    "expected",
    "invalid",
    "deserialize",
    "VoteBody",
    "NewItemBody",
    "ChangeBody",
    "BatchBody",
    "BatchVote",
    "NewPollBody",
    "NewChoiceBody",
    "PollCopyBody",
    "TopQuery",
    "SelectionBody",
    "ListQuery",
    "PollListQuery",
    "HeldQuery",
    "StreamQuery",
    "NewVoidingBody",
    "NewVoterEditBody",
    "NewApiKeyBody",
    "RotationBody",
    "TrailQuery",
    "VoidingsQuery",
    "VoterEditsQuery",
    "HistoryQuery",
    "read",
];

/// Checks that a refusal blames the client's input. It does so as RFC 9457 says, in words of JSON
/// and HTTP.
fn is_proper(refusal: &Refusal) {
    assert!((400..500).contains(&refusal.status), "{refusal:?}");
    assert_eq!(refusal.content_type, "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(&refusal.body).expect("JSON");
    assert_eq!(problem["status"], refusal.status);
    let kinds = [
        ProblemKind::Malformed,
        ProblemKind::InvalidValue,
        ProblemKind::BatchTooLarge,
        ProblemKind::NeverChanges,
    ];
    let kind = kinds.iter().find(|kind| problem["type"] == kind.address());
    assert_eq!(
        kind.map(|kind| kind.status().as_u16()),
        Some(refusal.status),
        "{problem}"
    );
    for part in ["title", "detail", "field"] {
        assert!(problem[part].is_string(), "{problem}");
    }
    let detail = problem["detail"].as_str().expect("text");
    // The name of a field that does not exist is the client's own.
    let field = format!("{}: ", problem["field"].as_str().expect("text"));
    let said = detail.strip_prefix(&field).unwrap_or(detail);
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    for word in said.split(|letter| !is_letter(letter)) {
        assert!(!FOREIGN.contains(&word), "{word}: {detail}");
    }
}

/// Checks a text that Postgres, logs and terminals take.
fn is_printable(text: &str, length: usize, limit: usize) {
    assert!((1..=limit).contains(&length), "{length}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

fn is_edit(edit: Result<Edit, Refusal>) {
    match edit {
        Ok(edit) => {
            if let Some(name) = &edit.name {
                let length = name.as_str().chars().count();
                is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
            }
        }
        Err(refusal) => is_proper(&refusal),
    }
}
