//! API keys: looked up, listed and revoked. `OperatorLedger` creates them.

use std::time::Duration;

use super::ServerLedger;
use crate::domain::{ActKind, Actor, ApiKeyHash, ApiKeyId, ApiKeyInfo, Moment, NewAct, Scope, Scopes};
use crate::ledger::{LedgerError, trail};

/// A key that is valid now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundApiKey {
    pub id: ApiKeyId,
    pub scopes: Scopes,
    /// How long it stays valid; `None`: it does not expire.
    pub left: Option<Duration>,
}

/// The scopes with these names. The table allows no others.
fn scopes(names: &[String]) -> Scopes {
    names
        .iter()
        .filter_map(|name| name.parse::<Scope>().ok())
        .collect()
}

impl ServerLedger {
    /// The key with this hash, if it is valid now. Notes that it was used.
    pub async fn use_api_key(&self, key: &ApiKeyHash) -> Result<Option<FoundApiKey>, LedgerError> {
        let found = sqlx::query!(
            "select scopes, left_micros, id from use_api_key($1)",
            key.as_bytes()
        )
        .fetch_one(&self.database.pool)
        .await?;
        Ok(found.scopes.zip(found.id).map(|(names, id)| FoundApiKey {
            id: ApiKeyId(id),
            scopes: scopes(&names),
            left: found
                .left_micros
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        }))
    }

    /// API keys, the newest first, up to `limit`.
    pub async fn api_keys(&self, limit: i64) -> Result<Vec<ApiKeyInfo>, LedgerError> {
        let rows = sqlx::query_file!("src/ledger/sql/api_keys.sql", limit)
            .fetch_all(&self.database.pool)
            .await?;
        let keys = rows.into_iter().map(|row| ApiKeyInfo {
            id: ApiKeyId(row.id),
            name: row.name,
            scopes: scopes(&row.scopes),
            created_at: Moment::from_micros(row.created_at),
            expires_at: row.expires_at.map(Moment::from_micros),
            last_used_at: row.last_used_at.map(Moment::from_micros),
            revoked_at: row.revoked_at.map(Moment::from_micros),
            is_valid: row.is_valid,
        });
        Ok(keys.collect())
    }

    /// The scopes of this key, valid or not; `None`: there is no such key.
    pub async fn scopes_of_api_key(&self, id: ApiKeyId) -> Result<Option<Scopes>, LedgerError> {
        let names = sqlx::query_scalar!("select scopes from api_key where id = $1", id.0)
            .fetch_optional(&self.database.pool)
            .await?;
        Ok(names.map(|names| scopes(&names)))
    }

    /// Revokes an API key: an administrative act. Returns whether the key exists.
    pub async fn revoke_api_key(&self, actor: Actor, id: ApiKeyId) -> Result<bool, LedgerError> {
        self.revoke(&NewAct::over_http(actor, ActKind::ApiKeyRevoke), id)
            .await
    }

    /// Revokes an API key and notes this act, unless it is revoked already. Returns whether the key
    /// exists.
    pub(in crate::ledger) async fn revoke(&self, act: &NewAct, id: ApiKeyId) -> Result<bool, LedgerError> {
        let row = sqlx::query!(
            r#"select outcome as "outcome!",
                      case when outcome = 'revoked' then note_act($2, 'api_key:' || $1::bigint) end as act_id
               from end_api_key($1) as outcome"#,
            id.0,
            act.to_json()
        )
        .fetch_one(&self.database.pool)
        .await?;
        if row.outcome == "already" {
            self.until_earlier_commits_are_safe().await?;
        }
        Ok(row.outcome != "unknown")
    }

    /// Notes an administrative act that was refused or failed.
    pub async fn note_act(&self, act: &NewAct, target: Option<&str>) -> Result<(), LedgerError> {
        trail::note(&self.database.pool, act, target).await.map(|_| ())
    }
}
