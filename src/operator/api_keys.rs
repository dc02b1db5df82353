//! `tally key`. It uses a Postgres login, because the first API key is created before any exists.

use serde_json::json;

use super::show;
use super::trail::{CommandRefusal, note_refusal};
use crate::config::api_keys::{ApiKeyCommand, ApiKeyCreate};
use crate::domain::{ActKind, ApiKey, ApiKeyId, NewApiKey, check_api_key_name};
use crate::ledger::OperatorLedger;
use crate::telemetry;
use crate::web::{ApiKeyBody, LIST_LIMIT_API_KEYS};

/// Runs `tally key`. Returns whether all was well. Fails when the request is not allowed.
pub async fn key(command: ApiKeyCommand) -> anyhow::Result<bool> {
    let ledger = OperatorLedger::new(&command.database().database_url, "tally key")?;
    ledger.as_server().check().await?;
    let ended = run(&command, &ledger).await;
    if let (Some((what, id)), Err(error)) = (act(&command), &ended) {
        let target = id.map(|id| format!("api_key:{id}"));
        note_refusal(&ledger, what, target.as_deref(), error).await;
    }
    ledger.as_server().close().await;
    ended.map(|()| true)
}

/// Returns the act of a command, and the key's id. A list is not an act.
fn act(command: &ApiKeyCommand) -> Option<(ActKind, Option<i64>)> {
    match command {
        ApiKeyCommand::Create(_) => Some((ActKind::ApiKeyCreate, None)),
        ApiKeyCommand::List(_) => None,
        ApiKeyCommand::Revoke(one) => Some((ActKind::ApiKeyRevoke, Some(one.id))),
        ApiKeyCommand::Rotate(rotate) => Some((ActKind::ApiKeyRotate, Some(rotate.id))),
    }
}

async fn run(command: &ApiKeyCommand, ledger: &OperatorLedger) -> anyhow::Result<()> {
    match command {
        ApiKeyCommand::Create(create) => {
            let key = ApiKey::fresh();
            let id = ledger.create_api_key(&key.hash(), &wanted(create)?).await?;
            show_once(id, &key, create.database.json);
        }
        ApiKeyCommand::List(list) => {
            for key in ledger.as_server().api_keys(LIST_LIMIT_API_KEYS).await? {
                let line = serde_json::to_value(ApiKeyBody::from(key))?;
                if list.json {
                    show(&line, true);
                } else {
                    telemetry::print(format_args!("{}\n", super::line(&line)));
                }
            }
        }
        ApiKeyCommand::Revoke(one) => {
            if !ledger.revoke_api_key(ApiKeyId(one.id)).await? {
                let why = format!("there is no key {}; tally key list shows the keys", one.id);
                return Err(CommandRefusal::because("unknown-api-key", why));
            }
            show(&json!({ "id": one.id, "revoked": true }), one.database.json);
        }
        ApiKeyCommand::Rotate(rotate) => {
            let key = ApiKey::fresh();
            let made = ledger
                .rotate_api_key(ApiKeyId(rotate.id), &key.hash(), rotate.grace)
                .await?;
            let id = made.ok_or_else(|| {
                let why = format!(
                    "there is no valid key {}; tally key list shows the keys",
                    rotate.id
                );
                CommandRefusal::because("unknown-api-key", why)
            })?;
            show_once(id, &key, rotate.database.json);
        }
    }
    Ok(())
}

fn show_once(id: ApiKeyId, key: &ApiKey, as_json: bool) {
    show(&json!({ "id": id.0, "key": key.as_str() }), as_json);
}

fn wanted(create: &ApiKeyCreate) -> anyhow::Result<NewApiKey> {
    check_api_key_name(&create.name)
        .map_err(|error| CommandRefusal::because("invalid-value", error.to_string()))?;
    Ok(NewApiKey {
        name: create.name.clone(),
        scopes: create.scope.iter().copied().collect(),
        expires_at: create.expires_at,
    })
}
