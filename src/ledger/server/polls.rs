//! Polls: created once, read often.

use serde_json::json;

use super::ServerLedger;
use crate::domain::{
    ActKind, Actor, AddedChoice, CHOICES_LIMIT_ITEMS, ChoiceRefusal, Item, ItemId, ItemKey, ItemName, Moment,
    NewAct, NewPoll, Poll, PollId, PollState, VoterId,
};
use crate::ledger::LedgerError;

impl ServerLedger {
    /// Creates a poll and its choices: an administrative act.
    ///
    /// # Errors
    /// As [`ServerLedger::create_item`].
    pub async fn create_poll(&self, actor: Actor, new: &NewPoll) -> Result<PollId, LedgerError> {
        let choices: Vec<&str> = new.choices.iter().map(ItemName::as_str).collect();
        let key = new.key.as_ref().map(ItemKey::as_str);
        let act = NewAct::over_http(actor, ActKind::PollCreate).details(json!({
            "title": new.title.as_str(),
            "key": key,
            "choices": new.choices.len(),
        }));
        let id = sqlx::query_file!(
            "src/ledger/sql/create_poll.sql",
            new.title.as_str(),
            new.max_choices,
            new.opens_at.map(Moment::micros),
            new.closes_at.map(Moment::micros),
            new.shows_results,
            &choices as &[&str],
            new.by_ballot,
            new.is_secret,
            key,
            act.to_json()
        )
        .fetch_one(&self.database.pool)
        .await
        .map_err(LedgerError::of_rule)?
        .id;
        PollId::new(id).ok_or_else(|| {
            LedgerError::Postgres(sqlx::Error::Decode(
                format!("poll id {id} is not positive").into(),
            ))
        })
    }

    /// Adds a choice to a poll: an administrative act. A choice of exactly this name stays as it is.
    ///
    /// # Errors
    /// The inner error says why the choice is refused.
    pub async fn add_choice(
        &self,
        actor: Actor,
        poll: PollId,
        name: &ItemName,
    ) -> Result<Result<AddedChoice, ChoiceRefusal>, LedgerError> {
        let act = NewAct::over_http(actor, ActKind::ChoiceCreate).details(json!({ "name": name.as_str() }));
        let added = sqlx::query_file!(
            "src/ledger/sql/add_choice.sql",
            poll.get(),
            name.as_str(),
            CHOICES_LIMIT_ITEMS as i64,
            act.to_json()
        )
        .fetch_one(&self.database.pool)
        .await
        .map_err(LedgerError::of_rule)?;
        // The words are those of migrations/functions/add_choice.sql.
        Ok(Err(
            match (added.outcome.as_str(), added.item_id.and_then(ItemId::new)) {
                ("added", Some(item)) => return Ok(Ok(AddedChoice::New(item))),
                ("there", _) => return Ok(Ok(AddedChoice::There)),
                ("unknown", _) => ChoiceRefusal::Unknown,
                ("closed", _) => ChoiceRefusal::Closed,
                ("same_choice", _) => ChoiceRefusal::SameChoice,
                ("many", _) => ChoiceRefusal::Many,
                (other, _) => return Err(LedgerError::Decision(other.to_owned())),
            },
        ))
    }

    /// A poll; `None`: there is none with this id.
    pub async fn poll(&self, id: PollId) -> Result<Option<Poll>, LedgerError> {
        let mut polls = self.polls(&[id]).await?;
        Ok(polls.pop().map(|(poll, _)| poll))
    }

    /// The polls among these that exist, in no order, each with its choices in their order. Each id
    /// may be given once.
    pub async fn polls(&self, ids: &[PollId]) -> Result<Vec<(Poll, Vec<ItemId>)>, LedgerError> {
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let rows = sqlx::query!(
            r#"select id, title as "title!", key, is_hidden, max_choices, shows_results, by_ballot, is_secret, voter_count,
                      (extract(epoch from opens_at) * 1000000)::bigint as opens_at,
                      (extract(epoch from closes_at) * 1000000)::bigint as closes_at,
                      clock_timestamp() < opens_at as "is_early?",
                      clock_timestamp() >= closes_at as "is_late?",
                      array(select item.id from item where item.rule_id = rule.id order by item.id) as "choices!"
               from rule where id = any($1) and title is not null"#,
            &ids
        )
        .fetch_all(&self.public)
        .await?;
        let polls = rows.into_iter().filter_map(|row| {
            let poll = Poll {
                id: PollId::new(row.id)?,
                title: row.title,
                key: row.key,
                is_hidden: row.is_hidden,
                max_choices: row.max_choices,
                opens_at: row.opens_at.map(Moment::from_micros),
                closes_at: row.closes_at.map(Moment::from_micros),
                shows_results: row.shows_results,
                by_ballot: row.by_ballot,
                is_secret: row.is_secret,
                state: match (row.is_early, row.is_late) {
                    (_, Some(true)) => PollState::Closed,
                    (Some(true), _) => PollState::NotOpenYet,
                    _ => PollState::Open,
                },
                voter_count: row.voter_count,
            };
            let choices = row.choices.into_iter().filter_map(ItemId::new).collect();
            Some((poll, choices))
        });
        Ok(polls.collect())
    }

    /// The next `limit` polls with ids below `before`, newest first, without hidden ones; and the `before`
    /// of the next page. With `search`, only polls whose titles have all its words, or words that begin
    /// with them, as in [`ServerLedger::items`].
    pub async fn list_polls(
        &self,
        before: i64,
        limit: i64,
        search: Option<&str>,
    ) -> Result<(Vec<PollId>, Option<PollId>), LedgerError> {
        let (ids, next) = match search {
            None => {
                let ids = sqlx::query_file_scalar!("src/ledger/sql/list_polls.sql", before, limit)
                    .fetch_all(&self.public)
                    .await?;
                let is_full = i64::try_from(ids.len()) == Ok(limit);
                let next = ids.last().filter(|_| is_full).copied();
                (ids, next)
            }
            Some(text) => {
                let found = sqlx::query_file!("src/ledger/sql/search_polls.sql", before, limit, text)
                    .fetch_one(&self.public)
                    .await?;
                (found.ids, found.up_to)
            }
        };
        let ids = ids.into_iter().filter_map(PollId::new).collect();
        Ok((ids, next.and_then(PollId::new)))
    }

    /// A poll's choices, in their order.
    pub async fn choices(&self, poll: PollId) -> Result<Vec<Item>, LedgerError> {
        let ids = sqlx::query_scalar!("select id from item where rule_id = $1", poll.get())
            .fetch_all(&self.public)
            .await?;
        let ids: Vec<ItemId> = ids.into_iter().filter_map(ItemId::new).collect();
        let mut items = self.items_by_id(&ids).await?;
        items.sort_by_key(|item| item.id);
        Ok(items)
    }

    /// Whether a poll has closed, and all votes that were granted and all choices that were added before are
    /// committed. Choices and exact counts that are read after this never change. Waits for those votes and choices.
    pub async fn is_final(&self, poll: PollId) -> Result<bool, LedgerError> {
        Ok(
            sqlx::query_scalar!(r#"select poll_is_final($1) as "is_final!""#, poll.get())
                .fetch_one(&self.public)
                .await?,
        )
    }

    /// The choices that this voter holds in a poll, in order.
    pub async fn selection(&self, poll: PollId, voter: &VoterId) -> Result<Vec<ItemId>, LedgerError> {
        let items = sqlx::query_scalar!(
            r#"select last.item_id as "item_id!" from (
                   select distinct on (item_id) item_id, change_number
                   from vote_of_voter where poll_id = $1 and voter_id = $2
                   order by item_id desc, change_number desc
               ) as last
               where last.change_number % 2 = 0
               order by last.item_id"#,
            poll.get(),
            voter.as_str()
        )
        .fetch_all(&self.database.pool)
        .await?;
        Ok(items.into_iter().filter_map(ItemId::new).collect())
    }
}
