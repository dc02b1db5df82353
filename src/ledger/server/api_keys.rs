//! API keys: looked up, listed and revoked. `OperatorLedger` makes them.

use std::time::Duration;

use super::ServerLedger;
use crate::domain::{ApiKeyHash, ApiKeyId, ApiKeyInfo, Moment, Scope, Scopes};
use crate::ledger::LedgerError;

/// A key that allows something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundApiKey {
    pub scopes: Scopes,
    /// How long it still does; `None`: it does not expire.
    pub left: Option<Duration>,
}

/// The scopes of these names. The table takes no others.
fn scopes(names: &[String]) -> Scopes {
    names
        .iter()
        .filter_map(|name| name.parse::<Scope>().ok())
        .collect()
}

impl ServerLedger {
    /// The key with this hash, if it allows something now. Notes that it is used.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn use_api_key(&self, key: &ApiKeyHash) -> Result<Option<FoundApiKey>, LedgerError> {
        let found = sqlx::query!("select scopes, left_micros from use_api_key($1)", key.as_bytes())
            .fetch_one(&self.database.pool)
            .await?;
        Ok(found.scopes.map(|names| FoundApiKey {
            scopes: scopes(&names),
            left: found
                .left_micros
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        }))
    }

    /// API keys, the newest first, up to `limit`.
    ///
    /// # Errors
    /// When Postgres is unavailable.
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

    /// Revokes a key. Returns whether there is one.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<bool, LedgerError> {
        let is_there = sqlx::query_scalar!(r#"select revoke_api_key($1) as "is_there!""#, id.0)
            .fetch_one(&self.database.pool)
            .await?;
        Ok(is_there)
    }
}
