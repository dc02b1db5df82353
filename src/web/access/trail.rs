//! The trail over HTTP. What is done is noted by the statement that does it; here it is noted what
//! was refused or failed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, web};
use tokio::time::{Instant, timeout};

use crate::domain::{ActKind, ActOutcome, ApiKeyId, NewAct, Reference, VoidingId};
use crate::telemetry::name;
use crate::web::access::Caller;
use crate::web::api::state::AppState;
use crate::web::limits::{REFUSED_ACT_NOTE_LIMIT, REFUSED_ACTS_LIMIT_PER_MINUTE};
use crate::web::problem::Problem;
use crate::web::request::reference::path_reference;

/// The time that [`REFUSED_ACTS_LIMIT_PER_MINUTE`] is for.
const MINUTE: Duration = Duration::from_secs(60);

/// What a request does, by its route; `None`: nothing administrative. Reads are no acts.
fn act_of(method: &Method, pattern: &str) -> Option<(ActKind, Of)> {
    Some(match (method.as_str(), pattern) {
        ("POST", "/v1/items") => (ActKind::ItemCreate, Of::Nothing),
        ("PATCH", "/v1/items/{id}") => (ActKind::ItemEdit, Of::Item),
        ("PUT", "/v1/items/{id}/access") => (ActKind::ItemAccess, Of::Item),
        ("PUT", "/v1/polls/{id}/access") => (ActKind::PollAccess, Of::Poll),
        ("POST", "/v1/items/{id}/ballots") => (ActKind::BallotsCreate, Of::Item),
        ("POST", "/v1/polls") => (ActKind::PollCreate, Of::Nothing),
        ("PATCH", "/v1/polls/{id}") => (ActKind::PollEdit, Of::Poll),
        ("POST", "/v1/polls/{id}/ballots") => (ActKind::BallotsCreate, Of::Poll),
        ("POST", "/v1/api-keys") => (ActKind::ApiKeyCreate, Of::Nothing),
        ("POST", "/v1/api-keys/{id}/rotate") => (ActKind::ApiKeyRotate, Of::ApiKey),
        ("DELETE", "/v1/api-keys/{id}") => (ActKind::ApiKeyRevoke, Of::ApiKey),
        ("POST", "/v1/audits") => (ActKind::AuditAsk, Of::Nothing),
        ("POST", "/v1/voidings") => (ActKind::VoidingCreate, Of::Nothing),
        ("POST", "/v1/voidings/{id}/resume") => (ActKind::VoidingRun, Of::Voiding),
        ("POST", "/v1/voidings/{id}/undo") => (ActKind::VoidingUndo, Of::Voiding),
        _ => return None,
    })
}

/// What the `{id}` of a path is of.
#[derive(Clone, Copy)]
enum Of {
    Nothing,
    Item,
    Poll,
    ApiKey,
    Voiding,
}

impl Of {
    /// What a request is about, as the trail names it. A key that no item has may be anything, a
    /// secret too, and is left out.
    async fn target(self, request: &HttpRequest, state: &AppState) -> Option<String> {
        // The part of the path that the extractors read too.
        let part = request.uri().path().split('/').nth(3).unwrap_or_default();
        match self {
            Self::Nothing => None,
            Self::Item => {
                let reference: Reference<_> = path_reference(part).ok()?;
                let id = state.find_item(&reference).await.ok()??;
                Some(format!("item:{id}"))
            }
            Self::Poll => {
                let reference: Reference<_> = path_reference(part).ok()?;
                let id = state.poll(&reference).await.ok()?;
                Some(format!("poll:{id}"))
            }
            Self::ApiKey => part
                .parse::<ApiKeyId>()
                .ok()
                .map(|id| format!("api_key:{}", id.0)),
            Self::Voiding => part
                .parse::<VoidingId>()
                .ok()
                .map(|id| format!("voiding:{}", id.0)),
        }
    }
}

/// How many refused acts a server notes. Cheap to clone: its threads share the count.
#[derive(Clone, Default)]
pub struct RefusedActs(Arc<Mutex<Option<Noted>>>);

/// How many were noted since when.
struct Noted {
    since: Instant,
    acts: u32,
}

impl RefusedActs {
    /// Whether one more may be noted.
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
        // A page of a foreign origin is refused before the request has a route: it is matched here.
        let pattern = response.request().match_pattern();
        let act = pattern.and_then(|pattern| act_of(response.request().method(), &pattern));
        if let Some((what, of)) = act {
            let outcome = if status.is_client_error() {
                ActOutcome::Refused
            } else {
                ActOutcome::Failed
            };
            let problem = response.response().error();
            let problem = problem.and_then(|error| error.as_error::<Problem>());
            let problem = problem.map(|problem| problem.kind().slug());
            let noting = note(response.request(), what, of, outcome, problem);
            let is_noted = timeout(REFUSED_ACT_NOTE_LIMIT, noting).await.unwrap_or(false);
            let noted = if is_noted { "yes" } else { "no" };
            metrics::counter!(name::REFUSED_ACTS, "noted" => noted).increment(1);
        }
    }
    Ok(response)
}

/// Returns whether it is noted.
async fn note(
    request: &HttpRequest,
    what: ActKind,
    of: Of,
    outcome: ActOutcome,
    problem: Option<&'static str>,
) -> bool {
    let Some(state) = request.app_data::<web::Data<AppState>>() else {
        return false;
    };
    // Whoever has no valid credential is a stranger: noted, their requests would fill the table.
    let caller = Caller::read(request, false).await;
    let Some(actor) = caller.ok().and_then(|caller| caller.known()) else {
        return false;
    };
    if !state.access.refused_acts.take(Instant::now()) {
        return false;
    }
    let target = of.target(request, state).await;
    let act = NewAct::over_http(actor, what).outcome(outcome, problem);
    match state.ledger.note_act(&act, target.as_deref()).await {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, what = what.name(), "an act that was refused or failed is not in the trail");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_refused_acts_are_noted_in_a_minute_and_no_more() {
        let acts = RefusedActs::default();
        let begin = Instant::now();
        let noted = |now| (0..1000).filter(|_| acts.clone().take(now)).count();
        let limit = REFUSED_ACTS_LIMIT_PER_MINUTE as usize;
        assert_eq!(noted(begin), limit);
        assert_eq!(noted(begin + MINUTE / 2), 0);
        assert_eq!(noted(begin + MINUTE), limit);
    }
}
