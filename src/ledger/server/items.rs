//! Items: created once, read often.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::PgExecutor;
use tokio::time::timeout;

use super::ServerLedger;
use super::connection::DedicatedConnection;
use crate::cache::{OwnCache, Remembers};
use crate::domain::{
    ActKind, Actor, Count, ExactCount, Item, ItemId, ItemKey, ItemRules, Moment, NewAct, NewItem, PollId,
    Revision, StoredVote, VoteId, VoterId,
};
use crate::ledger::LedgerError;
use crate::ledger::connect::{ANSWER_MARGIN, KEPT_PLANS};
use crate::ledger::error::is_disconnect;
use crate::ledger::exact_counts::exact_counts;

/// Items in the cache of one reader, at the most: a few megabytes a reader, 40 MB if every
/// name is as long as a name may be.
pub(crate) const NAMES_LIMIT_ITEMS: usize = 50_000;
/// How old what is remembered of items may get. An item may vanish, for example when a dump is restored
/// under a running server: it takes votes for no longer than this. A renamed item keeps its old name
/// for no longer.
pub(super) const ITEM_CACHE_LIMIT: Duration = Duration::from_secs(60);

/// Which items a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing<'a> {
    All,
    /// Only those that are no choices of polls.
    WithoutChoices,
    /// Only those of this name.
    Named(&'a str),
    /// Only those whose names have all words of this text, or words that begin with them.
    Search {
        text: &'a str,
        without_choices: bool,
    },
}

struct Row {
    id: i64,
    name: String,
    vote_count: i64,
    down_count: i64,
    counted_at: Option<i64>,
    key: Option<String>,
    is_hidden: bool,
    /// Whether its rules are not the default ones.
    has_rules: bool,
}

impl TryFrom<Row> for Item {
    type Error = sqlx::Error;

    fn try_from(row: Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: item_id(row.id)?,
            name: row.name.into(),
            key: row.key.map(Into::into),
            is_hidden: row.is_hidden,
            rules: None,
            saved_count: Count {
                net: row.vote_count,
                downs: row.down_count,
            },
            counted_at: row.counted_at.map(Revision::from_micros),
        })
    }
}

impl ServerLedger {
    /// Creates an item. Its name need not be unique, its key must be.
    ///
    /// # Errors
    /// When Postgres is unavailable; when the item needs decisions and a server of a version
    /// without them is connected ([`LedgerError::OlderServers`]); when there is one with its key
    /// ([`LedgerError::KeyTaken`]).
    pub async fn create_item(&self, new: &NewItem) -> Result<Item, LedgerError> {
        self.make_item(new, None).await
    }

    /// Creates an item, as [`ServerLedger::create_item`]: an administrative act.
    ///
    /// # Errors
    /// As [`ServerLedger::create_item`].
    pub async fn create_item_by(&self, actor: Actor, new: &NewItem) -> Result<Item, LedgerError> {
        let key = new.key.as_ref().map(ItemKey::as_str);
        let act = NewAct::over_http(actor, ActKind::ItemCreate)
            .details(json!({ "name": new.name.as_str(), "key": key }));
        self.make_item(new, Some(act)).await
    }

    async fn make_item(&self, new: &NewItem, act: Option<NewAct>) -> Result<Item, LedgerError> {
        let act = act.as_ref().map(NewAct::to_json);
        let NewItem { name, key, rules } = new;
        let key = key.as_ref().map(ItemKey::as_str);
        let id = if rules.need_decisions() {
            sqlx::query_file!(
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
            .map_err(LedgerError::of_rule)?
            .id
        } else {
            sqlx::query!(
                "with made as (
                     insert into item (name, key, takes_down_votes) values ($1, $2, $3) returning id
                 )
                 select id, note_act($4, 'item:' || id) as act_id from made",
                name.as_str(),
                key,
                rules.takes_down_votes,
                act
            )
            .fetch_one(&self.database.pool)
            .await
            .map_err(LedgerError::of_rule)?
            .id
        };
        Ok(Item {
            id: item_id(id)?,
            name: name.as_str().into(),
            key: key.map(Into::into),
            is_hidden: false,
            rules: (*rules != ItemRules::default()).then(|| Arc::new(rules.clone())),
            saved_count: Count::ZERO,
            counted_at: None,
        })
    }

    /// The vote that this voter holds on this item; its value is 0 if the voter has taken it
    /// back, and there is none if the voter has never voted on the item.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn last_vote(&self, item: ItemId, voter: &VoterId) -> Result<Option<StoredVote>, LedgerError> {
        let row = sqlx::query!(
            "select id, value, change_number, number from vote
             where item_id = $1 and voter_id = $2
             order by item_id desc, voter_id desc, change_number desc
             limit 1",
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

    /// A reader of items, with a connection of its own.
    pub fn item_reader(&self) -> ItemReader {
        let options = self.database.options.clone().options([KEPT_PLANS]);
        ItemReader {
            connection: DedicatedConnection::new(
                options,
                self.database.session.clone(),
                self.database.statement_limit + ANSWER_MARGIN,
            ),
            facts: OwnCache::default(),
            edits: Arc::clone(&self.edits),
            edits_seen: 0,
        }
    }

    /// Up to `limit` items with ids above `after` that are not hidden, in the order of their ids.
    ///
    /// # Errors
    /// When Postgres is unavailable.
    pub async fn items(
        &self,
        after: i64,
        limit: i64,
        listing: Listing<'_>,
    ) -> Result<Vec<Item>, LedgerError> {
        // Several statements: for `name is null or name = $3` in one, the planner could use neither
        // index well.
        let rows = match listing {
            Listing::All => {
                sqlx::query_as!(
                    Row,
                    r#"select id, name, key, is_hidden, vote_count, down_count,
                              rule_id is not null or not takes_down_votes as "has_rules!",
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item where id > $1 and not is_hidden order by id limit $2"#,
                    after,
                    limit
                )
                .fetch_all(&self.database.pool)
                .await?
            }
            Listing::Named(name) => {
                sqlx::query_as!(
                    Row,
                    r#"select id, name, key, is_hidden, vote_count, down_count,
                              rule_id is not null or not takes_down_votes as "has_rules!",
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item where name = $3 and id > $1 and not is_hidden order by id limit $2"#,
                    after,
                    limit,
                    name
                )
                .fetch_all(&self.database.pool)
                .await?
            }
            Listing::WithoutChoices => {
                sqlx::query_as!(
                    Row,
                    r#"select id, name, key, is_hidden, vote_count, down_count,
                              rule_id is not null or not takes_down_votes as "has_rules!",
                              (extract(epoch from counted_at) * 1000000)::bigint as counted_at
                       from item
                       where id > $1 and not is_hidden
                         and not exists (select from rule where rule.id = item.rule_id and rule.title is not null)
                       order by id limit $2"#,
                    after,
                    limit
                )
                .fetch_all(&self.database.pool)
                .await?
            }
            Listing::Search { text, without_choices } => {
                sqlx::query_file_as!(
                    Row,
                    "src/ledger/sql/search_items.sql",
                    after,
                    limit,
                    text,
                    without_choices
                )
                .fetch_all(&self.database.pool)
                .await?
            }
        };
        with_rules(&self.database.pool, rows).await
    }

    /// The items among these that exist, in no order. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn items_by_id(&self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let rows = find(&self.database.pool, &ids).await?.into_rows();
        with_rules(&self.database.pool, rows).await
    }

    /// The exact counts of these items, all under one snapshot. Each id may be given once;
    /// unknown items are left out.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn exact_counts(&self, items: &[ItemId]) -> Result<Vec<ExactCount>, LedgerError> {
        exact_counts(&self.database.pool, items).await
    }
}

/// Reads items by their ids, many at once, over a connection of its own. Over a connection of
/// the pool, each batch would be planned again, and the connection tested first.
pub struct ItemReader {
    connection: DedicatedConnection,
    /// What was read over this connection of items, and does not change with their votes.
    facts: OwnCache<ItemFacts>,
    /// [`ServerLedger::edit`] counts them here.
    edits: Arc<AtomicU64>,
    edits_seen: u64,
}

/// What of an item does not change with its votes.
#[derive(Clone, Debug)]
pub struct ItemFacts {
    pub name: Arc<str>,
    pub key: Option<Arc<str>>,
    pub is_hidden: bool,
    pub rules: Option<Arc<ItemRules>>,
}

/// By the item's id. An edit on this server ends them all, and so does the end of their connection:
/// after a failover or a restart of Postgres, another database may answer.
impl Remembers for ItemFacts {
    type Key = i64;
    type Value = Self;
    const LIMIT: usize = NAMES_LIMIT_ITEMS;
    const LIMIT_AGE: Option<Duration> = Some(ITEM_CACHE_LIMIT);
}

impl ItemReader {
    /// The facts of these items, in their order; `None` for an item that is not in the cache.
    pub fn cached_facts(&mut self, ids: &[ItemId]) -> Vec<Option<ItemFacts>> {
        let edits = self.edits.load(Ordering::Relaxed);
        if edits != self.edits_seen {
            self.edits_seen = edits;
            self.facts.clear();
        }
        let facts = self.facts.of(ids.iter().map(|id| id.get()));
        facts.into_iter().map(|one| one.cloned()).collect()
    }

    /// The items among these that exist, in no order. Each id may be given once.
    ///
    /// # Errors
    /// When Postgres is unavailable or too slow.
    pub async fn read(&mut self, ids: &[ItemId]) -> Result<Vec<Item>, LedgerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<i64> = ids.iter().map(|id| id.get()).collect();
        let items = loop {
            let (mut connection, was_kept) = self.connection.take().await?;
            if !was_kept {
                self.facts.clear();
            }
            let limit = self.connection.answer_limit;
            let reading = async {
                let rows = find(&mut connection, &ids).await?.into_rows();
                with_rules(&mut connection, rows).await
            };
            match timeout(limit, reading).await {
                Ok(Ok(items)) => {
                    self.connection.keep(connection);
                    break items;
                }
                // Postgres was restarted, for example. To read again does no harm.
                Ok(Err(LedgerError::Postgres(error))) if was_kept && is_disconnect(&error) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(LedgerError::Timeout(limit)),
            }
        };
        let facts = items.iter().map(|item| {
            let facts = ItemFacts {
                name: Arc::clone(&item.name),
                key: item.key.clone(),
                is_hidden: item.is_hidden,
                rules: item.rules.clone(),
            };
            (item.id.get(), facts)
        });
        self.facts.add(facts);
        Ok(items)
    }
}

/// Columns of items; `None` when no item was found.
struct Columns {
    ids: Option<Vec<i64>>,
    names: Option<Vec<String>>,
    vote_counts: Option<Vec<i64>>,
    down_counts: Option<Vec<i64>>,
    counted_at: Option<Vec<Option<i64>>>,
    keys: Option<Vec<Option<String>>>,
    are_hidden: Option<Vec<bool>>,
    have_rules: Option<Vec<bool>>,
}

impl Columns {
    fn into_rows(self) -> Vec<Row> {
        let columns = self.names.unwrap_or_default().into_iter();
        let columns = columns
            .zip(self.vote_counts.unwrap_or_default())
            .zip(self.down_counts.unwrap_or_default())
            .zip(self.counted_at.unwrap_or_default())
            .zip(self.keys.unwrap_or_default())
            .zip(self.are_hidden.unwrap_or_default())
            .zip(self.have_rules.unwrap_or_default());
        let rows = self.ids.unwrap_or_default().into_iter().zip(columns);
        rows.map(
            |(id, ((((((name, vote_count), down_count), counted_at), key), is_hidden), has_rules))| Row {
                id,
                name,
                vote_count,
                down_count,
                counted_at,
                key,
                is_hidden,
                has_rules,
            },
        )
        .collect()
    }
}

fn item_id(id: i64) -> Result<ItemId, sqlx::Error> {
    ItemId::new(id).ok_or_else(|| sqlx::Error::Decode(format!("item id {id} is not positive").into()))
}

/// Reads the rules of those items that have other than the default ones: mostly of none.
async fn with_rules(executor: impl PgExecutor<'_>, rows: Vec<Row>) -> Result<Vec<Item>, LedgerError> {
    let ruled: Vec<i64> = rows
        .iter()
        .filter(|row| row.has_rules)
        .map(|row| row.id)
        .collect();
    let mut items: Vec<Item> = rows.into_iter().map(Item::try_from).collect::<Result<_, _>>()?;
    if ruled.is_empty() {
        return Ok(items);
    }
    let rows = sqlx::query_file!("src/ledger/sql/item_rules.sql", &ruled)
        .fetch_all(executor)
        .await?;
    let mut rules: HashMap<i64, ItemRules> = rows
        .into_iter()
        .map(|row| {
            let rules = ItemRules {
                takes_down_votes: row.takes_down_votes,
                max_votes: row.max_votes,
                is_numbered: row.is_numbered,
                opens_at: row.opens_at.map(Moment::from_micros),
                closes_at: row.closes_at.map(Moment::from_micros),
                by_ballot: row.by_ballot,
                poll: row.poll_id.and_then(PollId::new),
                hides_count: row.hides_count,
            };
            (row.item_id, rules)
        })
        .collect();
    for item in &mut items {
        item.rules = rules.remove(&item.id.get()).map(Arc::new);
    }
    Ok(items)
}

/// One row of arrays: with a row for each item, to decode would cost more than to read.
async fn find(executor: impl PgExecutor<'_>, ids: &[i64]) -> Result<Columns, sqlx::Error> {
    sqlx::query_as!(
        Columns,
        r#"select array_agg(id) as ids, array_agg(name) as names, array_agg(vote_count) as vote_counts,
                  array_agg(down_count) as down_counts,
                  array_agg((extract(epoch from counted_at) * 1000000)::bigint)
                      as "counted_at: Vec<Option<i64>>",
                  array_agg(key) as "keys: Vec<Option<String>>", array_agg(is_hidden) as are_hidden,
                  array_agg(rule_id is not null or not takes_down_votes) as have_rules
           from item where id = any($1)"#,
        ids
    )
    .fetch_one(executor)
    .await
}
