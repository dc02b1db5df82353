//! The commands of an operator.
//!
//! - `api`: a client of the HTTP API.
//! - `events`: reads its streams.
//! - `items`, `polls`, `ballots`: over HTTP.
//! - `api_keys`: API keys, with a Postgres login.
//! - `archive`: votes of what has closed to files, with its own Postgres login.
//! - `cell`: the next cell, and the router before the cells.
//! - `counter`: what Redis holds of an item.
//! - `export`: tables to files, with a login for reports.
//! - `import`: files to tables, with its own Postgres login, because it can store any vote.
//! - `outbox`: events, and dead letters to send again.
//! - `ranges`: splits the ledger, with the login that owns the tables.
//! - `trail`: administrative acts.
//! - `watch`: live counts.
//! - `voiding`: with its own Postgres login, because it can take back any vote.
//! - `voters`: shows, renames, merges and erases voters, with such a login, too.

mod api;
mod api_keys;
mod archive;
mod ballots;
mod cell;
mod counter;
pub(crate) mod events;
mod export;
mod import;
mod items;
mod outbox;
mod polls;
mod ranges;
mod trail;
mod voiding;
mod voters;
mod watch;

pub use api_keys::key;
pub use archive::archive;
pub use ballots::ballots;
pub use cell::{print_next_steps, print_router};
pub use counter::counter;
pub use export::export;
pub use import::import;
pub use items::item;
pub use outbox::event;
pub use polls::poll;
pub use ranges::partition;
pub use trail::trail;
pub use voiding::void;
pub use voters::voter;
pub use watch::watch;

use api::Api;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::config::items::{Access, Edits, TimeOrNone};
use crate::telemetry;
use crate::telemetry::Plain;

/// Prints an answer as a line of JSON, or with a line for each of its parts.
fn show(answer: &Value, as_json: bool) {
    let parts = match answer {
        Value::Object(parts) if !as_json => parts,
        _ => {
            telemetry::print(format_args!("{}\n", Plain(answer)));
            return;
        }
    };
    let mut text = String::new();
    for (name, part) in parts {
        match part {
            Value::Null => {}
            Value::Array(entries) => {
                text += &format!("{}\n", Plain(name));
                for entry in entries {
                    text += &format!("  {}\n", line(entry));
                }
            }
            part => text += &format!("{:<14} {}\n", Plain(name).to_string(), line(part)),
        }
    }
    telemetry::print(text);
}

/// Writes a part of an answer as one line.
fn line(part: &Value) -> String {
    match part {
        Value::String(text) => Plain(text).to_string(),
        Value::Object(parts) => parts
            .iter()
            .filter(|(_, part)| !part.is_null())
            .map(|(name, part)| format!("{} {}", Plain(name), line(part)))
            .collect::<Vec<_>>()
            .join("  "),
        Value::Array(entries) => entries.iter().map(line).collect::<Vec<_>>().join(","),
        part => part.to_string(),
    }
}

/// Shows to whom an item or a poll is open, after setting it if asked.
async fn ask_access(api: &Api, of: &str, access: &Access) -> anyhow::Result<Value> {
    let path = ["v1", of, &access.id, "access"];
    let wanted = match (&access.open, access.closed) {
        (Some(open), _) => Some(json!({ "open": open })),
        (None, true) => Some(json!({ "open": [] })),
        (None, false) => None,
    };
    let method = if wanted.is_some() {
        Method::PUT
    } else {
        Method::GET
    };
    Ok(api.ask(method, &path, wanted.as_ref()).await?.1)
}

/// Makes the body of an edit. Fields that do not change are left out.
fn edit_body(name: (&str, Option<&String>), edits: &Edits) -> Value {
    let mut body = Map::new();
    if let (field, Some(text)) = name {
        body.insert(field.to_owned(), json!(text));
    }
    if edits.hide || edits.unhide {
        body.insert("hidden".to_owned(), json!(edits.hide));
    }
    if let Some(TimeOrNone(time)) = edits.opens_at {
        body.insert("opens_at".to_owned(), json!(time));
    }
    if let Some(TimeOrNone(time)) = edits.closes_at {
        body.insert("closes_at".to_owned(), json!(time));
    }
    Value::Object(body)
}
