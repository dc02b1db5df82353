//! Ballots: added here, spent by `decide`.

use serde_json::json;

use super::ServerLedger;
use crate::domain::{ActKind, Actor, BallotHash, Moment, NewAct, PollId, VotedOn};
use crate::ledger::LedgerError;

/// What became of adding ballots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedBallots {
    Added,
    /// There is no such item or poll.
    Unknown,
    /// Its votes need no ballots.
    Unwanted,
    /// The item is a choice of this poll, so its votes take the poll's ballots.
    OfPoll(PollId),
}

impl ServerLedger {
    /// Adds ballots for an item or a poll, all of them or none: an administrative act.
    pub async fn add_ballots(
        &self,
        actor: Actor,
        of: VotedOn,
        ballots: &[BallotHash],
        expires_at: Option<Moment>,
    ) -> Result<AddedBallots, LedgerError> {
        // Over one connection: after a failover, the rule's id may be another rule's.
        let mut connection = self.database.pool.acquire().await?;
        let rule = match of {
            VotedOn::Item(item) => {
                let found = sqlx::query!(
                    r#"select rule.id as "id?", coalesce(rule.title is not null and rule.by_ballot, false) as "is_of_poll!"
                       from item left join rule on rule.id = item.rule_id where item.id = $1"#,
                    item.get()
                )
                .fetch_optional(&mut connection)
                .await?;
                if let Some(found) = &found
                    && let (true, Some(poll)) = (found.is_of_poll, found.id.and_then(PollId::new))
                {
                    return Ok(AddedBallots::OfPoll(poll));
                }
                found.map(|found| found.id)
            }
            VotedOn::Poll(poll) => {
                sqlx::query_scalar!(
                    r#"select id as "id?" from rule where id = $1 and title is not null"#,
                    poll.get()
                )
                .fetch_optional(&mut connection)
                .await?
            }
        };
        let Some(rule) = rule else {
            return Ok(AddedBallots::Unknown);
        };
        let Some(rule) = rule else {
            return Ok(AddedBallots::Unwanted);
        };
        let hashes: Vec<&[u8]> = ballots.iter().map(BallotHash::as_bytes).collect();
        let act = NewAct::over_http(actor, ActKind::BallotsCreate)
            .details(json!({ "count": ballots.len(), "expires_at": expires_at }));
        let row = sqlx::query!(
            r#"select added as "added!", case when added then note_act($4, $5) end as act_id
               from add_ballots($1, $2, timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second'
                                        + $3::bigint % 1000000 * interval '1 microsecond') as added"#,
            rule,
            &hashes as &[&[u8]],
            expires_at.map(Moment::micros),
            act.to_json(),
            of.to_string()
        )
        .fetch_one(&mut connection)
        .await?;
        Ok(if row.added {
            AddedBallots::Added
        } else {
            AddedBallots::Unwanted
        })
    }
}
