//! What voters without a credential may do on an item or in a poll.

use serde_json::json;

use super::ServerLedger;
use crate::domain::{ActKind, Actor, ItemId, NewAct, OpenTo, PollId, VotedOn};
use crate::ledger::LedgerError;

/// What became of setting who may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOpen {
    /// It is set.
    Set,
    /// The item is a choice, and its poll says who may vote. If a choice alone were open, anyone
    /// could move votes away from the other choices.
    Choice,
    /// There is no such item or poll.
    Unknown,
}

impl ServerLedger {
    /// Whom these items are open to, also through their polls. Unknown items are left out.
    pub async fn open_items(&self, items: &[ItemId]) -> Result<Vec<(ItemId, OpenTo)>, LedgerError> {
        let ids: Vec<i64> = items.iter().map(|item| item.get()).collect();
        let rows = sqlx::query_file!("src/ledger/sql/open_items.sql", &ids)
            .fetch_all(self.pool())
            .await?;
        let open = rows.into_iter().filter_map(|row| {
            let to = OpenTo {
                anonymous: row.to_anonymous,
                voters: row.to_voters,
            };
            Some((ItemId::new(row.id)?, to))
        });
        Ok(open.collect())
    }

    /// Whom a poll is open to; `None`: there is no such poll.
    pub async fn open_poll(&self, poll: PollId) -> Result<Option<OpenTo>, LedgerError> {
        let voters = sqlx::query_scalar!(
            r#"select coalesce(open_poll.to_voters, false) as "to_voters!"
               from rule left join open_poll on open_poll.poll_id = rule.id
               where rule.id = $1 and rule.title is not null"#,
            poll.get()
        )
        .fetch_optional(self.pool())
        .await?;
        Ok(voters.map(|voters| OpenTo {
            anonymous: false,
            voters,
        }))
    }

    /// Whom an item or a poll is open to; `None`: it does not exist.
    pub async fn open_to(&self, of: VotedOn) -> Result<Option<OpenTo>, LedgerError> {
        match of {
            VotedOn::Item(item) => Ok(self.open_items(&[item]).await?.first().map(|(_, to)| *to)),
            VotedOn::Poll(poll) => self.open_poll(poll).await,
        }
    }

    /// Sets whom an item or a poll is open to: an administrative act. A poll is open to voters or
    /// to nobody.
    pub async fn set_open(&self, actor: Actor, of: VotedOn, to: OpenTo) -> Result<SetOpen, LedgerError> {
        let act = |what| {
            let act = NewAct::over_http(actor, what).details(json!({ "open": to.names() }));
            act.to_json()
        };
        let (outcome, act_id) = match of {
            VotedOn::Item(item) => {
                let set = sqlx::query_file!(
                    "src/ledger/sql/set_open_item.sql",
                    item.get(),
                    to.anonymous,
                    to.voters,
                    act(ActKind::ItemAccess)
                )
                .fetch_one(self.pool())
                .await?;
                let outcome = match set.is_choice {
                    Some(false) => SetOpen::Set,
                    Some(true) => SetOpen::Choice,
                    None => SetOpen::Unknown,
                };
                (outcome, set.act_id)
            }
            VotedOn::Poll(poll) => {
                let set = sqlx::query_file!(
                    "src/ledger/sql/set_open_poll.sql",
                    poll.get(),
                    to.voters,
                    act(ActKind::PollAccess)
                )
                .fetch_one(self.pool())
                .await?;
                let outcome = if set.is_there {
                    SetOpen::Set
                } else {
                    SetOpen::Unknown
                };
                (outcome, set.act_id)
            }
        };
        // It was set so before.
        if outcome == SetOpen::Set && act_id.is_none() {
            self.until_earlier_commits_are_safe().await?;
        }
        Ok(outcome)
    }
}
