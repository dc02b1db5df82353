//! `/v1/api-keys`: lists, creates, rotates and revokes API keys. Only a server with an operator's login
//! creates them. On any other server, a stolen key cannot be used to create more keys.

use std::time::Duration;

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{ApiKey, ApiKeyId, ApiKeyInfo, Moment, NewApiKey, Scope, Scopes, check_api_key_name};
use crate::web::access::{Admin, Caller};
use crate::web::api::fields::moment;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathApiKey, form};

/// The most API keys in a list. The newest come first.
pub const LIST_LIMIT_API_KEYS: i64 = 1000;
/// The longest time that an old key stays valid after its rotation: 30 days. Whoever needs longer creates
/// another key.
pub const GRACE_LIMIT_SECONDS: i64 = 30 * 86_400;
/// How long an old key stays valid by default, the same as with `tally key rotate`.
const GRACE_DEFAULT_SECONDS: i64 = 3600;

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyBody {
    #[schema(value_type = values::Id)]
    id: i64,
    name: String,
    /// What the key allows.
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
    /// Whether the key is valid now.
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

/// API keys, with the newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = ApiKeys)]
struct ApiKeysBody {
    /// At most 1,000.
    api_keys: Vec<ApiKeyBody>,
}

form! {
    /// The body of a request for an API key.
    #[derive(ToSchema)]
    #[schema(as = NewApiKey, examples(json!({ "name": "backend of the website", "scopes": ["vote"] })))]
    pub struct NewApiKeyBody {
        /// The key's owner, or where the key is used.
        #[schema(value_type = values::ApiKeyName)]
        name: String,
        /// What the key allows: one or more of the scopes that the caller has.
        #[schema(value_type = Vec<ScopeName>, min_items = 1)]
        scopes: Vec<String>,
        /// The time at which the key expires (RFC 3339). Without it the key never expires.
        #[schema(value_type = Option<values::Time>)]
        expires_at: Option<String>,
    }
}

impl NewApiKeyBody {
    /// Returns the key that the body asks for.
    pub(in crate::web) fn into_new(self) -> Result<NewApiKey, Problem> {
        check_api_key_name(&self.name).map_err(|error| Problem::invalid("name", format!("{error}.")))?;
        let scopes = self.scopes.iter().map(|name| name.parse::<Scope>());
        let scopes: Result<Scopes, String> = scopes.collect();
        let scopes = scopes.map_err(|error| Problem::invalid("scopes", format!("scopes: {error}.")))?;
        if self.scopes.is_empty() {
            let detail = "scopes is empty; it takes one or more of vote, admin and report.";
            return Err(Problem::invalid("scopes", detail));
        }
        Ok(NewApiKey {
            name: self.name,
            scopes,
            expires_at: moment("expires_at", self.expires_at)?,
        })
    }
}

/// An API key that was just created.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeApiKey)]
struct MadeBody<'a> {
    #[schema(value_type = values::Id)]
    id: i64,
    /// The secret that the key's holder sends. It is shown once: Tally keeps only a hash.
    key: &'a str,
}

fn made(id: ApiKeyId, key: &ApiKey) -> HttpResponse {
    HttpResponse::Created()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(MadeBody {
            id: id.0,
            key: key.as_str(),
        })
}

/// Create an API key.
///
/// The caller can give only scopes that it has itself, or that are open to anyone. The key is shown once.
/// This needs a server with an operator's login (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/api-keys",
    operation_id = "createApiKey",
    tag = "API keys",
    request_body(content = NewApiKeyBody, example = json!({ "name": "backend of the website", "scopes": ["vote"] })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The key was created.", body = MadeBody, headers(("Cache-Control" = String)),
            example = json!({
                "id": 2, "key": "tally_0c7f8b62a9d14e5f8a3b6c7d9e0f1a2b5d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a"
            })),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    caller: Caller,
    state: web::Data<AppState>,
    body: Json<NewApiKeyBody>,
) -> Result<HttpResponse, Problem> {
    let new = body.0.into_new()?;
    caller.may_give(new.scopes)?;
    let ledger = state.operator.ledger_of(by.0, "tally key create")?;
    let key = ApiKey::fresh();
    let id = ledger.create_api_key(&key.hash(), &new).await;
    Ok(made(id.map_err(Problem::of_operator)?, &key))
}

problems!(CreateProblems: WRITES, BODIES, CALLERS, OPERATORS, STORES; BodyTooLarge);

/// List API keys.
///
/// The newest come first. Their secrets are not shown.
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

form! {
    /// The body of a request to rotate an API key.
    #[derive(ToSchema)]
    #[schema(as = Rotation, examples(json!({ "grace_seconds": 86400 })))]
    pub struct RotationBody {
        /// How long the old key stays valid. Defaults to an hour.
        #[schema(minimum = 0, maximum = 2592000)]
        grace_seconds: Option<i64>,
    }
}

impl RotationBody {
    /// Returns how long the old key stays valid.
    pub(in crate::web) fn into_grace(self) -> Result<Duration, Problem> {
        let seconds = self.grace_seconds.unwrap_or(GRACE_DEFAULT_SECONDS);
        if !(0..=GRACE_LIMIT_SECONDS).contains(&seconds) {
            let detail = format!("grace_seconds is {seconds}; it takes 0 to {GRACE_LIMIT_SECONDS}.");
            return Err(Problem::invalid("grace_seconds", detail));
        }
        Ok(Duration::from_secs(seconds.unsigned_abs()))
    }
}

/// Rotate an API key.
///
/// Creates a key with the name and the scopes of the old key. The caller must have these scopes. The old key
/// expires after `grace_seconds`. This needs a server with an operator's login
/// (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    post,
    path = "/v1/api-keys/{id}/rotate",
    operation_id = "rotateApiKey",
    tag = "API keys",
    params(("id" = values::Id, Path, description = "The old API key.", example = json!(2))),
    request_body(content = RotationBody, example = json!({ "grace_seconds": 86400 })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The new key was created.", body = MadeBody, headers(("Cache-Control" = String)),
            example = json!({
                "id": 3, "key": "tally_5d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a0c7f8b62a9d14e5f8a3b6c7d9e0f1a2b"
            })),
        RotateProblems,
    )
)]
pub async fn rotate(
    by: Admin,
    caller: Caller,
    state: web::Data<AppState>,
    id: PathApiKey,
    body: Json<RotationBody>,
) -> Result<HttpResponse, Problem> {
    let grace = body.0.into_grace()?;
    let unknown = || Problem::no_valid_api_key(id.0.0);
    let scopes = state.ledger.scopes_of_api_key(id.0).await?;
    caller.may_give(scopes.ok_or_else(unknown)?)?;
    let ledger = state.operator.ledger_of(by.0, "tally key rotate")?;
    let key = ApiKey::fresh();
    let new = ledger.rotate_api_key(id.0, &key.hash(), grace).await;
    let new = new.map_err(Problem::of_operator)?.ok_or_else(unknown)?;
    // The old key now expires at another time.
    state.access.api_keys.forget();
    Ok(made(new, &key))
}

problems!(RotateProblems: WRITES, BODIES, CALLERS, OPERATORS, STORES; BodyTooLarge, UnknownApiKey);

/// Revoke an API key.
///
/// This server refuses the key at once, other servers within a minute.
#[utoipa::path(
    delete,
    path = "/v1/api-keys/{id}",
    operation_id = "revokeApiKey",
    tag = "API keys",
    params(("id" = values::Id, Path, description = "The API key.", example = json!(1))),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 204, description = "The key is revoked."),
        RevokeProblems,
    )
)]
pub async fn revoke(by: Admin, state: web::Data<AppState>, id: PathApiKey) -> Result<HttpResponse, Problem> {
    let is_there = state.ledger.revoke_api_key(by.0, id.0).await;
    // Also after an error: the key may be revoked.
    state.access.api_keys.forget();
    if is_there? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::unknown_api_key(id.0.0))
    }
}

problems!(RevokeProblems: WRITES, CALLERS, STORES; UnknownApiKey);
