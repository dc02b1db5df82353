//! `tally watch`: live counts, from the server's stream.

mod screen;

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use self::screen::Screen;
use super::api::Api;
use super::events::{Event, EventReader};
use crate::config::watch::Watch;
use crate::{shutdown, telemetry};

/// The longest pause before a lost stream is opened again.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// The shortest pause after the first failure, if the server asks for none.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Runs `tally watch` until it is interrupted. Returns whether all was well.
///
/// # Errors
/// Fails when the server does not answer at first, or says that the item or poll does not exist.
pub async fn watch(command: Watch) -> anyhow::Result<bool> {
    let api = Api::new(&command.remote)?;
    let query = [("items", list(&command.items)?), ("polls", list(&command.polls)?)];
    let query: Vec<(&str, String)> = query.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    let mut screen = Screen::new(command.remote.json);
    let ended = tokio::select! {
        ended = follow(&api, &query, &mut screen) => ended.map(|()| true),
        () = shutdown::interrupted() => Ok(true),
    };
    screen.leave();
    ended
}

/// Joins references for a query.
fn list(references: &[String]) -> anyhow::Result<String> {
    if let Some(wrong) = references.iter().find(|reference| reference.contains(',')) {
        bail!("{wrong} has a comma; name it by its id");
    }
    Ok(references.join(","))
}

/// Reads streams, one after the other, until one is refused for good.
async fn follow(api: &Api, query: &[(&str, String)], screen: &mut Screen) -> anyhow::Result<()> {
    let mut last_id = String::new();
    let mut retry = FIRST_PAUSE;
    let mut failures = 0;
    let mut was_open = false;
    loop {
        let mut retry_after = Duration::ZERO;
        let why = match api.stream(query, &last_id).await {
            Ok(answer) if answer.status().is_success() => {
                was_open = true;
                let mut events = EventReader::default();
                let why = read(answer, &mut events, |event| {
                    failures = 0;
                    // What has been shown may be gone, and come back with a restored database.
                    if event.kind == "unknown" && last_id.is_empty() {
                        check_some_exist(&event.data, query)?;
                    }
                    last_id.clone_from(&event.id);
                    screen.show(event)
                })
                .await?;
                retry = events.retry.unwrap_or(retry);
                why
            }
            Ok(answer) => {
                let status = answer.status();
                retry_after = seconds_of(&answer).unwrap_or_default();
                let said = api.refusal(answer).await;
                if !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS {
                    bail!(said);
                }
                said
            }
            // At first, a wrong address is likelier than an outage.
            Err(error) if !was_open => return Err(error),
            // The causes of the error are left out, because they repeat the address.
            Err(error) => error.to_string(),
        };
        failures += 1;
        let pause = pause(failures, retry, retry_after, rand::random());
        screen.lost(&why, pause);
        tokio::time::sleep(pause).await;
    }
}

/// What of a stream does not exist.
#[derive(Deserialize)]
struct Unknown {
    items: Vec<String>,
    polls: Vec<String>,
}

/// Fails if nothing that the query names exists. `data` names what does not.
fn check_some_exist(data: &str, query: &[(&str, String)]) -> anyhow::Result<()> {
    let Unknown { items, polls } =
        serde_json::from_str(data).context("the server sent an event that is not Tally's")?;
    let named: usize = query.iter().map(|(_, all)| all.split(',').count()).sum();
    if items.len() + polls.len() < named {
        return Ok(());
    }
    match (items.first(), polls.first()) {
        (Some(item), _) => bail!("there is no item {item}"),
        (None, Some(poll)) => bail!("there is no poll {poll}"),
        (None, None) => Ok(()),
    }
}

/// Returns how long to wait after this many failures in a row. At least as long as the server asks for, and
/// not the same for all watchers. `drawn` is from 0 to 1.
fn pause(failures: u32, retry: Duration, retry_after: Duration, drawn: f64) -> Duration {
    let doubled = retry.saturating_mul(2_u32.saturating_pow(failures));
    let span = doubled.min(PAUSE_LIMIT);
    (retry_after.saturating_add(span.mul_f64(0.5 + drawn / 2.0))).min(PAUSE_LIMIT)
}

fn seconds_of(answer: &Response) -> Option<Duration> {
    let seconds = answer
        .headers()
        .get(reqwest::header::RETRY_AFTER)?
        .to_str()
        .ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Reads a stream to its end. Returns why the stream ended.
async fn read(
    mut answer: Response,
    events: &mut EventReader,
    mut on_event: impl FnMut(&Event) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    loop {
        let piece = match answer.chunk().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok("the server ended the stream".to_owned()),
            Err(error) => return Ok(telemetry::one_line(&error.into())),
        };
        for event in events.read(&piece)? {
            on_event(&event)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_not_shorter_than_the_server_asks_for_and_has_a_limit() {
        let retry = Duration::from_millis(3_127);
        assert_eq!(pause(1, retry, Duration::ZERO, 0.0), retry);
        assert_eq!(pause(2, retry, Duration::ZERO, 0.0), 2 * retry);
        assert!(pause(1, retry, Duration::ZERO, 0.5) > retry);
        assert!(pause(1, retry, Duration::from_secs(9), 0.0) > Duration::from_secs(9));
        for failures in 1..200 {
            assert!(pause(failures, retry, Duration::MAX, 1.0) <= PAUSE_LIMIT);
            assert!(pause(failures, Duration::MAX, Duration::ZERO, 1.0) <= PAUSE_LIMIT);
        }
    }
}
