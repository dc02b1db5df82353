//! `/v1/audits`: operators ask for an audit.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::Moment;
use crate::web::access::Admin;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;

/// A request for an audit.
#[derive(Serialize, ToSchema)]
#[schema(as = AskedAudit)]
struct AskedBody {
    /// The time of the request, by the database's clock.
    #[schema(value_type = values::Time)]
    asked_at: Moment,
}

/// Request an audit.
///
/// A worker runs the audit within seconds and has wrong counts rebuilt. `GET /v1/status` shows the job
/// `audit`: the request, the worker that runs it, and the result.
#[utoipa::path(
    post,
    path = "/v1/audits",
    operation_id = "askForAudit",
    tag = "Operating",
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 202, description = "The audit was requested.", body = AskedBody, headers(("Cache-Control" = String)),
            example = json!({ "asked_at": "2030-01-31T18:00:00.123456Z" })),
        AskProblems,
    )
)]
pub async fn ask(by: Admin, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    let asked_at = state.ledger.ask_audit(by.0).await?;
    Ok(HttpResponse::Accepted()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(AskedBody { asked_at }))
}

problems!(AskProblems: WRITES, CALLERS, STORES);
