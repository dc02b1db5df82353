//! The trail over HTTP. The statement that does an act also notes it. This module notes acts that were
//! refused or failed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, web};
use tokio::time::{Instant, timeout};

use crate::domain::{ActKind, ActOutcome, ApiKeyId, NewAct, VoidingId, VoterEditId};
use crate::ledger::ServerLedger;
use crate::telemetry::{name, trouble};
use crate::web::access::{Access, Caller};
use crate::web::limits::{REFUSED_ACT_NOTE_LIMIT, REFUSED_ACTS_LIMIT_PER_MINUTE};
use crate::web::problem::Problem;
use crate::web::references::References;
use crate::web::request::reference::path_reference;

/// The time for [`REFUSED_ACTS_LIMIT_PER_MINUTE`].
const MINUTE: Duration = Duration::from_secs(60);

/// A request that is an administrative act. Reads are not acts.
#[derive(Clone, Debug)]
pub struct Act {
    pub method: Method,
    /// The path of its route.
    pub path: &'static str,
    pub kind: ActKind,
}

impl Act {
    /// Returns the target of a request as the trail names it: what the `{id}` of its path names. An unknown
    /// key is left out, because it may be anything, even a secret.
    async fn target(&self, request: &HttpRequest) -> Option<String> {
        let references = request.app_data::<web::Data<References>>()?;
        let (resource, _) = self.path.strip_prefix("/v1/")?.split_once("/{id}")?;
        // The part of the path that the extractors read, too.
        let part = request.uri().path().split('/').nth(3).unwrap_or_default();
        match resource {
            "items" => {
                let item = references.find_item(&path_reference(part).ok()?).await.ok()??;
                Some(format!("item:{}", item.id))
            }
            "polls" => {
                let poll = references.poll(&path_reference(part).ok()?).await.ok()?;
                Some(format!("poll:{}", poll.id))
            }
            "api-keys" => part
                .parse::<ApiKeyId>()
                .ok()
                .map(|id| format!("api_key:{}", id.0)),
            "voidings" => part
                .parse::<VoidingId>()
                .ok()
                .map(|id| format!("voiding:{}", id.0)),
            "voter-edits" => part
                .parse::<VoterEditId>()
                .ok()
                .map(|id| format!("voter_edit:{}", id.0)),
            _ => None,
        }
    }
}

/// The acts that a server notes when they are refused, with a limit. Cheap to clone: its threads share the
/// limit.
#[derive(Clone)]
pub struct RefusedActs {
    ledger: ServerLedger,
    acts: Arc<[Act]>,
    noted: NotedActs,
}

/// The number of refused acts that were noted recently.
#[derive(Clone, Default)]
struct NotedActs(Arc<Mutex<Option<Noted>>>);

/// How many acts were noted since this time.
struct Noted {
    since: Instant,
    acts: u32,
}

impl RefusedActs {
    /// Has noted no act yet.
    pub fn new(ledger: ServerLedger, acts: Vec<Act>) -> Self {
        Self {
            ledger,
            acts: acts.into(),
            noted: NotedActs::default(),
        }
    }

    /// Finds the act of a request with this method on the route with this path.
    fn find(&self, method: &Method, path: &str) -> Option<&Act> {
        self.acts
            .iter()
            .find(|act| act.method == *method && act.path == path)
    }
}

impl NotedActs {
    /// Returns whether one more act may be noted.
    fn take(&self, now: Instant) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *noted {
            Some(noted) if now.duration_since(noted.since) < MINUTE => {
                if noted.acts >= REFUSED_ACTS_LIMIT_PER_MINUTE {
                    return false;
                }
                noted.acts += 1;
            }
            noted => *noted = Some(Noted { since: now, acts: 1 }),
        }
        true
    }
}

/// Notes an administrative request that is refused or fails.
pub async fn note_refusals<Body: MessageBody>(
    request: ServiceRequest,
    next: Next<Body>,
) -> Result<ServiceResponse<Body>, Error> {
    let response = next.call(request).await?;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        let outcome = if status.is_client_error() {
            ActOutcome::Refused
        } else {
            ActOutcome::Failed
        };
        let problem = response.response().error();
        let problem = problem.and_then(|error| error.as_error::<Problem>());
        let problem = problem.map(|problem| problem.kind().slug());
        // A write from a foreign origin is refused before the request has a route, so its path is matched
        // here.
        let pattern = response.request().match_pattern();
        let access = response.request().app_data::<web::Data<Access>>();
        if let Some((pattern, access)) = pattern.zip(access)
            && let Some(act) = access.refused_acts.find(response.request().method(), &pattern)
        {
            let noting = note(response.request(), &access.refused_acts, act, outcome, problem);
            let is_noted = timeout(REFUSED_ACT_NOTE_LIMIT, noting).await.unwrap_or(false);
            let noted = if is_noted { "yes" } else { "no" };
            metrics::counter!(name::REFUSED_ACTS, "noted" => noted).increment(1);
        }
    }
    Ok(response)
}

/// Returns whether the act was noted.
async fn note(
    request: &HttpRequest,
    refused: &RefusedActs,
    act: &Act,
    outcome: ActOutcome,
    problem: Option<&'static str>,
) -> bool {
    // A caller without a valid credential is a stranger. Notes of strangers would fill the table.
    let caller = Caller::read(request, false).await;
    let Some(actor) = caller.ok().and_then(|caller| caller.known()) else {
        return false;
    };
    if !refused.noted.take(Instant::now()) {
        return false;
    }
    let target = act.target(request).await;
    let new = NewAct::over_http(actor, act.kind).outcome(outcome, problem);
    match refused.ledger.note_act(&new, target.as_deref()).await {
        Ok(()) => true,
        Err(error) => {
            let what = act.kind.name();
            trouble!(warn, %error, what = what; "an act that was refused or failed is not in the trail");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_refused_acts_are_noted_in_a_minute_and_no_more() {
        let acts = NotedActs::default();
        let begin = Instant::now();
        let noted = |now| (0..1000).filter(|_| acts.clone().take(now)).count();
        let limit = REFUSED_ACTS_LIMIT_PER_MINUTE as usize;
        assert_eq!(noted(begin), limit);
        assert_eq!(noted(begin + MINUTE / 2), 0);
        assert_eq!(noted(begin + MINUTE), limit);
    }
}
