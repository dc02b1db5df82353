//! `/v1/api-keys`: which API keys there are, and revoking them. They are made by `tally key` alone:
//! whoever steals a key cannot make another one with it.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;

use crate::domain::{ApiKeyInfo, Moment};
use crate::http::access::Admin;
use crate::http::extract::PathApiKey;
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// API keys that a list shows, the newest ones.
pub const LIST_LIMIT_API_KEYS: i64 = 1000;

/// An API key, without what its holder has.
#[derive(Serialize)]
pub(crate) struct ApiKeyBody {
    id: i64,
    name: String,
    scopes: Vec<&'static str>,
    created_at: Moment,
    expires_at: Option<Moment>,
    last_used_at: Option<Moment>,
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

#[derive(Serialize)]
struct ApiKeysBody {
    api_keys: Vec<ApiKeyBody>,
}

/// Lists the API keys, the newest first.
pub async fn list(_: Admin, state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    let keys = state.ledger.api_keys(LIST_LIMIT_API_KEYS).await?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(ApiKeysBody {
            api_keys: keys.into_iter().map(ApiKeyBody::from).collect(),
        }))
}

/// Revokes an API key: at once here, within a minute on other servers.
pub async fn revoke(by: Admin, state: web::Data<AppState>, id: PathApiKey) -> Result<HttpResponse, Problem> {
    let is_there = state.ledger.revoke_api_key(by.0, id.0).await?;
    state.access.api_keys.forget();
    if is_there {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::unknown_api_key(id.0.0))
    }
}
