//! `tally trail`: shows administrative acts. Also notes what the other commands do.

use crate::config::trail::Trail;
use crate::domain::{Act, ActKind, ActOutcome, TrailFilter};
use crate::ledger::OperatorLedger;
use crate::telemetry;
use crate::telemetry::Plain;

/// Runs `tally trail`. Returns whether all was well.
pub async fn trail(command: Trail) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(&command.database.database_url, "tally trail")?;
    ledger.as_server().check().await?;
    let filter = TrailFilter {
        since: command.since,
        until: command.until,
        before_id: command.before,
        who: command.who,
        what: command.what.map(str::to_owned),
    };
    let acts = ledger.trail(&filter, command.limit).await;
    ledger.as_server().close().await;
    for act in acts? {
        if command.database.json {
            telemetry::print(format_args!("{}\n", Plain(serde_json::to_string(&act)?)));
        } else {
            telemetry::print(format_args!("{}\n", Plain(line(&act))));
        }
    }
    Ok(true)
}

/// Writes an act as one line.
fn line(act: &Act) -> String {
    let mut line = format!("{}  {}  {}  {}", act.id, act.acted_at, act.who, act.what);
    let mut add = |part: &str| {
        line.push_str("  ");
        line.push_str(part);
    };
    if let Some(target) = &act.target {
        add(target);
    }
    add(&act.outcome);
    if let Some(problem) = &act.problem {
        add(problem);
    }
    if let Some(id) = act.begun_id {
        add(&format!("begun as {id}"));
    }
    match &act.address {
        Some(address) => add(&format!("from {} {address}", act.tool)),
        None => add(&format!("from {}", act.tool)),
    }
    if act.details.as_object().is_some_and(|details| !details.is_empty()) {
        add(&super::line(&act.details));
    }
    line
}

/// An operator's command that is not allowed or not possible. The request is wrong, not a store.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct CommandRefusal {
    /// The problem type for the trail.
    problem: &'static str,
    why: String,
}

impl CommandRefusal {
    /// Refuses a command. `why` says what would be right.
    pub fn because(problem: &'static str, why: impl Into<String>) -> anyhow::Error {
        let why = why.into();
        Self { problem, why }.into()
    }
}

/// Notes an act that was refused or failed. If the trail cannot be written, that is only logged, because the
/// act has ended.
pub(super) async fn note_refusal(
    ledger: &OperatorLedger,
    what: ActKind,
    target: Option<&str>,
    error: &anyhow::Error,
) {
    let act = ledger.act(what);
    let act = match error.downcast_ref::<CommandRefusal>() {
        Some(refused) => act.outcome(ActOutcome::Refused, Some(refused.problem)),
        None => act.outcome(ActOutcome::Failed, None),
    };
    if let Err(error) = ledger.note_act(&act, target).await {
        tracing::warn!(%error, what = what.name(), "the outcome of an act is not in the trail");
    }
}
