//! Items: created once, read often.

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use super::ServerLedger;
use super::item_rows::{ItemRow, find, item_id, with_rules};
use crate::domain::{
    ActKind, Actor, Count, ExactCount, Found, Item, ItemId, ItemKey, ItemRules, Moment, NewAct, NewItem,
    StoredVote, VoteId, VoterId,
};
use crate::ledger::connect::PUBLIC_STATEMENT_LIMIT;
use crate::ledger::{LedgerError, TailProgress};

/// The most items that a page of a list looks at: hidden ones and choices of polls may stand in long rows.
/// As in the functions `search_items` and `search_polls`.
const NEXT_LIMIT_ITEMS: i64 = 20_000;

/// Which items a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing<'a> {
    All,
    /// Only items that are no choices of polls.
    WithoutChoices,
    /// Only items with this name.
    Named(&'a str),
    /// Only items whose names have all words of this text, or words that begin with them.
    Search {
        text: &'a str,
        without_choices: bool,
    },
}

impl ServerLedger {
    /// Creates an item. Its key must be unique, its name need not be.
    ///
    /// # Errors
    /// When the item needs decisions and a server of a version without them is connected
    /// ([`LedgerError::OlderServers`]). When another item has its key ([`LedgerError::KeyTaken`]).
    pub async fn create_item(&self, new: &NewItem) -> Result<Item, LedgerError> {
        Ok(self.make_item(new, None).await?.0)
    }

    /// The same as an administrative act.
    ///
    /// # Errors
    /// As [`ServerLedger::create_item`].
    pub async fn create_item_by(&self, actor: Actor, new: &NewItem) -> Result<Item, LedgerError> {
        Ok(self.make_item(new, Some(actor)).await?.0)
    }

    /// The same for a vote that is about to be cast on it. With an actor, an administrative act.
    ///
    /// # Errors
    /// As [`ServerLedger::create_item`].
    pub async fn create_item_to_vote(
        &self,
        actor: Option<Actor>,
        new: &NewItem,
    ) -> Result<Found<ItemId>, LedgerError> {
        let (item, run) = self.make_item(new, actor).await?;
        Ok(self.found(item.id, run))
    }

    /// Creates an item, in this run of Postgres.
    async fn make_item(&self, new: &NewItem, actor: Option<Actor>) -> Result<(Item, i64), LedgerError> {
        let act = actor.map(|actor| {
            let key = new.key.as_ref().map(ItemKey::as_str);
            let details = json!({ "name": new.name.as_str(), "key": key });
            let act = NewAct::over_http(actor, ActKind::ItemCreate).details(details);
            act.to_json()
        });
        let NewItem { name, key, rules } = new;
        let key = key.as_ref().map(ItemKey::as_str);
        let (id, run) = if rules.need_decisions() {
            let made = sqlx::query_file!(
                "src/ledger/sql/create_item_with_rule.sql",
                name.as_str(),
                rules.takes_down_votes,
                rules.opens_at.map(Moment::micros),
                rules.closes_at.map(Moment::micros),
                rules.max_votes,
                rules.is_numbered,
                rules.by_ballot,
                key,
                act
            )
            .fetch_one(&self.database.pool)
            .await
            .map_err(LedgerError::of_rule)?;
            (made.id, made.run)
        } else {
            let made = sqlx::query!(
                r#"with made as (
                     insert into item (name, key, takes_down_votes) values ($1, $2, $3) returning id
                 )
                 select id, postgres_run() as "run!", note_act($4, 'item:' || id) as act_id from made"#,
                name.as_str(),
                key,
                rules.takes_down_votes,
                act
            )
            .fetch_one(&self.database.pool)
            .await
            .map_err(LedgerError::of_rule)?;
            (made.id, made.run)
        };
        let item = Item {
            id: item_id(id)?,
            name: name.as_str().into(),
            key: key.map(Into::into),
            is_hidden: false,
            rules: (*rules != ItemRules::default()).then(|| Arc::new(rules.clone())),
            saved_count: Count::ZERO,
            counted_at: None,
        };
        Ok((item, run))
    }

    /// The vote that this voter holds on this item. Its value is 0 if the voter has taken it back;
    /// `None`: the voter has never voted on the item.
    pub async fn last_vote(&self, item: ItemId, voter: &VoterId) -> Result<Option<StoredVote>, LedgerError> {
        let row = sqlx::query!(
            r#"select id as "id!", value as "value!", change_number as "change_number!", number from vote_of_voter
               where item_id = $1 and voter_id = $2
               order by item_id desc, voter_id desc, change_number desc
               limit 1"#,
            item.get(),
            voter.as_str()
        )
        .fetch_optional(&self.database.pool)
        .await?;
        Ok(row.map(|row| {
            let is_held = row.change_number % 2 == 0;
            StoredVote {
                id: VoteId::new(row.id),
                value: if is_held { row.value } else { 0 },
                number: row.number.filter(|_| is_held),
            }
        }))
    }

    /// Up to `limit` items with ids above `after`, in the order of ids, without hidden ones; and the `after`
    /// of the next page. `None`: there is none. It looks at so many items at the most: a page may have
    /// fewer items, or none, and a next page all the same.
    pub async fn items(
        &self,
        after: i64,
        limit: i64,
        listing: Listing<'_>,
    ) -> Result<(Vec<Item>, Option<ItemId>), LedgerError> {
        // Several statements: for `name is null or name = $3` in one, the planner could use neither
        // index well.
        let rows = match listing {
            Listing::All => {
                sqlx::query_as!(
                    ItemRow,
                    r#"select id, name, key, is_hidden, vote_count, down_count,
                              rule_id is not null or not takes_down_votes as "has_rules!",
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from (
                           select id, name, key, is_hidden, vote_count, down_count, rule_id, takes_down_votes, counted_at
                           from item where id > $1 order by id limit $3
                       ) as next
                       where not is_hidden order by id limit $2"#,
                    after,
                    limit,
                    NEXT_LIMIT_ITEMS
                )
                .fetch_all(&self.public)
                .await?
            }
            Listing::Named(name) => {
                sqlx::query_as!(
                    ItemRow,
                    r#"select id, name, key, is_hidden, vote_count, down_count,
                              rule_id is not null or not takes_down_votes as "has_rules!",
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item where name = $3 and id > $1 and not is_hidden order by id limit $2"#,
                    after,
                    limit,
                    name
                )
                .fetch_all(&self.public)
                .await?
            }
            Listing::WithoutChoices => {
                sqlx::query_file_as!(
                    ItemRow,
                    "src/ledger/sql/items_without_choices.sql",
                    after,
                    limit,
                    NEXT_LIMIT_ITEMS
                )
                .fetch_all(&self.public)
                .await?
            }
            Listing::Search {
                text,
                without_choices,
            } => {
                let found = sqlx::query_file!(
                    "src/ledger/sql/search_items.sql",
                    after,
                    limit,
                    text,
                    without_choices
                )
                .fetch_one(&self.public)
                .await?;
                let mut rows = find(&self.public, &found.ids).await?.into_rows();
                rows.sort_unstable_by_key(|row| row.id);
                let items = with_rules(&self.public, rows).await?;
                return Ok((items, found.up_to.and_then(ItemId::new)));
            }
        };
        let items = with_rules(&self.public, rows).await?;
        let is_full = i64::try_from(items.len()) == Ok(limit);
        let next = match listing {
            _ if is_full => items.last().map(|last| last.id),
            Listing::All | Listing::WithoutChoices => self.end_of_next_items(after).await?,
            Listing::Named(_) | Listing::Search { .. } => None,
        };
        Ok((items, next))
    }

    /// The last of the next [`NEXT_LIMIT_ITEMS`] items; `None`: there are not as many.
    async fn end_of_next_items(&self, after: i64) -> Result<Option<ItemId>, LedgerError> {
        let end = sqlx::query_scalar!(
            "select max(next.id) from (select id from item where id > $1 order by id limit $2) as next
             having count(*) = $2",
            after,
            NEXT_LIMIT_ITEMS
        )
        .fetch_optional(&self.public)
        .await?;
        Ok(end.flatten().and_then(ItemId::new))
    }

    /// The items among these that exist, in no order. Each id may be given once.
    pub async fn items_by_id(&self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let rows = find(&self.public, &ids).await?.into_rows();
        with_rules(&self.public, rows).await
    }

    /// The exact counts of these items, under one snapshot. Each id may be given once. Unknown
    /// items are left out.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        let deadline = Instant::now() + PUBLIC_STATEMENT_LIMIT;
        self.exact.read_until(items, &[], deadline).await
    }

    /// How far this program has read the votes beyond the watermark, which exact counts are made of.
    pub async fn tail_progress(&self) -> Result<TailProgress, LedgerError> {
        self.exact.progress().await
    }

    /// Reads the next votes beyond the watermark. Exact counts that are asked for later find them read.
    ///
    /// # Errors
    /// When more votes lie beyond the watermark than can be kept ([`LedgerError::LongTail`]).
    pub async fn read_on(&self) -> Result<(), LedgerError> {
        self.exact.read_on().await
    }
}
