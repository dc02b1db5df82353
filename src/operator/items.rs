//! `tally item`.

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::Api;
use super::{edit_body, show};
use crate::client::AnswerError;
use crate::config::items::{Item, ItemImport, ItemMake};
use crate::files::{self, FileError, Line};
use crate::telemetry;
use crate::telemetry::Plain;

/// The most bad lines of a file that are shown. The rest are counted.
const SHOWN_LIMIT_LINES: usize = 20;
/// The most lines of a file: each is a request, and all are in memory.
const IMPORT_LIMIT_LINES: usize = 1_000_000;

/// Runs `tally item`. Returns whether all was well. Fails when the server does not answer, or refuses.
pub async fn item(command: Item) -> anyhow::Result<bool> {
    match command {
        Item::Make(make) => {
            let api = Api::new(&make.remote)?;
            let (_, item) = api
                .ask(Method::POST, &["v1", "items"], Some(&new_item(&make)))
                .await?;
            show(&item, make.remote.json);
            Ok(true)
        }
        Item::Show(wanted) => {
            let api = Api::new(&wanted.remote)?;
            let (_, item) = api.ask(Method::GET, &["v1", "items", &wanted.id], None).await?;
            show(&item, wanted.remote.json);
            Ok(true)
        }
        Item::Edit(edit) => {
            let body = edit_body(("name", edit.name.as_ref()), &edit.edits);
            let api = Api::new(&edit.remote)?;
            let (_, item) = api
                .ask(Method::PATCH, &["v1", "items", &edit.id], Some(&body))
                .await?;
            show(&item, edit.remote.json);
            Ok(true)
        }
        Item::Access(access) => {
            let api = Api::new(&access.remote)?;
            let open = super::ask_access(&api, "items", &access).await?;
            show(&open, access.remote.json);
            Ok(true)
        }
        Item::Import(import) => read_and_make(&import).await,
    }
}

fn new_item(make: &ItemMake) -> Value {
    json!({
        "name": make.name,
        "key": make.key,
        "down_votes": make.no_down_votes.then_some(false),
        "max_votes": make.max_votes,
        "numbered": make.numbered.then_some(true),
        "by_ballot": make.by_ballot.then_some(true),
        "opens_at": make.times.opens_at,
        "closes_at": make.times.closes_at,
    })
}

/// Reads a line of a file: a name, or a key, a tab and a name. Blanks around them are left out.
fn item_of_line(line: &str) -> Value {
    match line.split_once('\t') {
        Some((key, name)) => json!({ "key": key.trim(), "name": name.trim() }),
        None => json!({ "name": line.trim() }),
    }
}

/// Reads the lines of a file that are not blank, each with its number.
fn read(import: &ItemImport) -> Result<Vec<Line<Value>>, FileError> {
    let mut lines = files::lines(&import.file, IMPORT_LIMIT_LINES)?;
    let mut all = Vec::new();
    while let Some((number, line)) = lines.next()? {
        if line.is_ok_and(|line| line.trim().is_empty()) {
            continue;
        }
        all.push((number, line.map(item_of_line)));
    }
    Ok(all)
}

async fn read_and_make(import: &ItemImport) -> anyhow::Result<bool> {
    let lines = read(import)?;
    if lines.is_empty() {
        bail!("{} has no line with a name", import.file.display());
    }
    let api = Api::new(&import.remote)?;
    let bar = ProgressBar::new(lines.len() as u64).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} items, {per_sec}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let (mut made, mut there, mut bad) = (0, 0, 0);
    for (number, line) in lines {
        let asked = match line {
            Ok(item) => api.ask(Method::POST, &["v1", "items"], Some(&item)).await,
            Err(why) => Err(anyhow::anyhow!(why)),
        };
        match asked {
            Ok((status, item)) => {
                if status == StatusCode::CREATED {
                    made += 1;
                } else {
                    there += 1;
                }
                if import.remote.json {
                    bar.suspend(|| telemetry::print(format_args!("{}\n", Plain(&item))));
                }
            }
            // The following lines would fail as well.
            Err(error) if error.is::<reqwest::Error>() || error.is::<AnswerError>() => {
                bar.abandon();
                return Err(error.context(format!("stopped at line {number}; {made} items were created")));
            }
            Err(error) => {
                bad += 1;
                if bad <= SHOWN_LIMIT_LINES {
                    bar.suspend(|| telemetry::complain(format_args!("line {number}: {error}")));
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !import.remote.json {
        telemetry::print(format_args!(
            "{made} items created, {there} exist already, {bad} lines refused\n"
        ));
    }
    Ok(bad == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_name_or_a_key_a_tab_and_a_name() {
        assert_eq!(item_of_line("Tea, hot"), json!({ "name": "Tea, hot" }));
        assert_eq!(
            item_of_line("post-1\tTea"),
            json!({ "key": "post-1", "name": "Tea" })
        );
        assert_eq!(item_of_line("a\tb\tc"), json!({ "key": "a", "name": "b\tc" }));
        assert_eq!(item_of_line(" a \t b  "), json!({ "key": "a", "name": "b" }));
        assert_eq!(item_of_line("\tb"), json!({ "key": "", "name": "b" }));
    }
}
