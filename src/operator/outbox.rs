//! `tally event`: shows events, and has them delivered again.

use serde_json::{Value, json};

use super::show;
use super::trail::{CommandRefusal, note_refusal};
use crate::config::events::{EventCommand, EventList};
use crate::domain::{ActKind, Event, EventId, EventState};
use crate::ledger::{OperatorLedger, RESEND_LIMIT_EVENTS};
use crate::telemetry;
use crate::telemetry::Plain;

/// Runs `tally event`. Returns whether all was well. Fails when there is no such event.
pub async fn event(command: EventCommand) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(&command.database().database_url, "tally event")?;
    ledger.as_server().check().await?;
    let ended = run(&command, &ledger).await;
    if let (EventCommand::Resend(resend), Err(error)) = (&command, &ended) {
        let target = resend.id.map(|id| format!("event:{id}"));
        note_refusal(&ledger, ActKind::EventResend, target.as_deref(), error).await;
    }
    ledger.as_server().close().await;
    ended.map(|()| true)
}

async fn run(command: &EventCommand, ledger: &OperatorLedger) -> anyhow::Result<()> {
    match command {
        EventCommand::List(command) => list(ledger, command).await?,
        EventCommand::Show(command) => {
            let event = ledger.event(command.id).await?;
            let event = event.ok_or_else(|| unknown(command.id))?;
            show(&serde_json::to_value(event)?, command.database.json);
        }
        EventCommand::Resend(command) => {
            let resent = match command.id {
                Some(id) => match ledger.resend_events(Some(id)).await? {
                    0 => return Err(unknown(id)),
                    resent => resent,
                },
                None => resend_dead(ledger).await?,
            };
            show(&json!({ "resent": resent }), command.database.json);
        }
    }
    Ok(())
}

async fn list(ledger: &OperatorLedger, command: &EventList) -> anyhow::Result<()> {
    let state = match (command.dead, command.waiting) {
        (true, _) => Some(EventState::Dead),
        (false, true) => Some(EventState::Waiting),
        (false, false) => None,
    };
    for event in ledger.events(command.before, state, command.limit).await? {
        if command.database.json {
            telemetry::print(format_args!("{}\n", Plain(serde_json::to_string(&event)?)));
        } else {
            telemetry::print(format_args!("{}\n", Plain(line(&event))));
        }
    }
    Ok(())
}

/// Has all dead letters delivered again. Returns how many.
async fn resend_dead(ledger: &OperatorLedger) -> anyhow::Result<i64> {
    let mut total = 0;
    loop {
        let resent = ledger.resend_events(None).await?;
        total += resent;
        if resent < RESEND_LIMIT_EVENTS {
            return Ok(total);
        }
    }
}

fn unknown(id: EventId) -> anyhow::Error {
    let why = format!("there is no event {id}; tally event list shows the events");
    CommandRefusal::because("unknown-event", why)
}

/// Writes an event as one line.
fn line(event: &Event) -> String {
    let Event {
        id,
        happened_at,
        kind,
        subject,
        ..
    } = event;
    let mut line = format!("{id}  {happened_at}  {kind}  {subject}  {}", event.state.name());
    if event.tries > 0 {
        line += &format!("  {} tries", event.tries);
    }
    if let Some(problem) = &event.last_problem {
        line += &format!("  {problem}");
    }
    if event.data != Value::Null {
        line += &format!("  {}", event.data);
    }
    line
}
