//! `/v1/api-keys`: which API keys there are, and revoking them. They are made by `tally key` alone:
//! whoever steals a key cannot make another one with it.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{ApiKeyInfo, Moment};
use crate::http::access::Admin;
use crate::http::description::{problems, values};
use crate::http::extract::PathApiKey;
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// API keys that a list shows, the newest ones.
pub const LIST_LIMIT_API_KEYS: i64 = 1000;

/// An API key, without what its holder has.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyBody {
    #[schema(value_type = values::Id)]
    id: i64,
    name: String,
    /// What it allows.
    #[schema(value_type = Vec<ScopeName>)]
    scopes: Vec<&'static str>,
    #[schema(value_type = values::Time)]
    created_at: Moment,
    #[schema(required, value_type = Option<values::Time>)]
    expires_at: Option<Moment>,
    #[schema(required, value_type = Option<values::Time>)]
    last_used_at: Option<Moment>,
    #[schema(required, value_type = Option<values::Time>)]
    revoked_at: Option<Moment>,
    /// Whether it allows something now.
    valid: bool,
}

impl From<ApiKeyInfo> for ApiKeyBody {
    fn from(key: ApiKeyInfo) -> Self {
        Self {
            id: key.id.0,
            name: key.name,
            scopes: key.scopes.names(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            revoked_at: key.revoked_at,
            valid: key.is_valid,
        }
    }
}

/// What an API key allows: the names in its schema.
#[derive(ToSchema)]
#[schema(as = Scope, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum ScopeName {
    Vote,
    Admin,
    Report,
}

/// API keys, the newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKeys)]
struct ApiKeysBody {
    /// At most 1,000.
    api_keys: Vec<ApiKeyBody>,
}

/// Lists the API keys, the newest first.
///
/// Without what their holders have. They are made by `tally key` alone.
#[utoipa::path(
    get,
    path = "/v1/api-keys",
    operation_id = "listApiKeys",
    tag = "API keys",
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The API keys.", body = ApiKeysBody,
            headers(("Cache-Control" = String)),
            example = json!({
                "api_keys": [{
                    "id": 1, "name": "backend of the website", "scopes": ["vote"],
                    "created_at": "2030-01-31T18:00:00Z", "expires_at": null, "last_used_at": null,
                    "revoked_at": null, "valid": true
                }]
            })),
        ListProblems,
    )
)]
pub async fn list(_: Admin, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    let keys = state.ledger.api_keys(LIST_LIMIT_API_KEYS).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(ApiKeysBody {
            api_keys: keys.into_iter().map(ApiKeyBody::from).collect(),
        }))
}

problems!(ListProblems: CALLERS, STORES);

/// Revokes an API key.
///
/// At once on this server, within a minute on others.
#[utoipa::path(
    delete,
    path = "/v1/api-keys/{id}",
    operation_id = "revokeApiKey",
    tag = "API keys",
    params(("id" = values::Id, Path, description = "The API key.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 204, description = "It is revoked."),
        RevokeProblems,
    )
)]
pub async fn revoke(by: Admin, state: web::Data<AppState>, id: PathApiKey) -> Result<HttpResponse, Problem> {
    let is_there = state.ledger.revoke_api_key(by.0, id.0).await?;
    state.access.api_keys.forget();
    if is_there {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::unknown_api_key(id.0.0))
    }
}

problems!(RevokeProblems: WRITES, CALLERS, STORES; UnknownApiKey);
