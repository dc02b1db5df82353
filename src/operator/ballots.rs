//! `tally ballots`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, bail};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::api::Api;
use super::show;
use crate::config::ballots::Ballots;
use crate::domain::Ballot;
use crate::web::BALLOTS_LIMIT;

#[derive(Deserialize)]
struct Made {
    ballots: Vec<String>,
}

/// Runs `tally ballots`: creates ballots and writes them to a new file.
///
/// # Errors
/// Fails when the file exists or cannot be written, or the server does not answer, or refuses. The ballots in
/// the file are valid even then.
pub async fn ballots(command: Ballots) -> anyhow::Result<bool> {
    let (kind, id) = match (&command.item, &command.poll) {
        (Some(item), _) => ("items", item),
        (None, Some(poll)) => ("polls", poll),
        (None, None) => bail!("--item or --poll is missing"),
    };
    let api = Api::new(&command.remote)?;
    // Before any ballot is created, so that no ballot is lost for lack of a file.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&command.out)
        .with_context(|| format!("cannot create the file {}", command.out.display()))?;
    let mut written = 0;
    while written < command.count {
        let chunk = make(&api, &mut file, kind, id, &command, command.count - written).await;
        match chunk {
            Ok(ballots) => written += ballots,
            Err(error) if written == 0 => {
                // The file is empty, so nobody needs it.
                let _ = std::fs::remove_file(&command.out);
                return Err(error);
            }
            Err(error) => {
                let file = command.out.display();
                return Err(error.context(format!("{written} of {} ballots are in {file}", command.count)));
            }
        }
    }
    show(
        &json!({ "ballots": written, "file": command.out }),
        command.remote.json,
    );
    Ok(true)
}

/// Creates the next ballots and writes them. Returns how many.
async fn make(
    api: &Api,
    file: &mut File,
    kind: &str,
    id: &str,
    command: &Ballots,
    left: u64,
) -> anyhow::Result<u64> {
    let count = left.min(BALLOTS_LIMIT.unsigned_abs());
    let body = json!({ "count": count, "expires_at": command.expires_at });
    let (_, made) = api
        .ask(Method::POST, &["v1", kind, id, "ballots"], Some(&body))
        .await?;
    let made: Made = serde_json::from_value(made)?;
    let ballots: Option<Vec<Ballot>> = made.ballots.into_iter().map(Ballot::parse).collect();
    // What is no ballot must not get into the file: it could add lines.
    let ballots = ballots.filter(|ballots| ballots.len() as u64 == count);
    let Some(ballots) = ballots else {
        bail!("the server's answer is not the ballots that were asked for");
    };
    let lines: String = ballots
        .iter()
        .map(|ballot| format!("{}\n", ballot.as_str()))
        .collect();
    file.write_all(lines.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {}", command.out.display()))?;
    Ok(count)
}
