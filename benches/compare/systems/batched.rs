//! Batched transactions: group commit without Redis. A batch writer takes all waiting votes;
//! one statement inserts them and updates their items. Durable and exact: the best that SQL
//! alone can do.

use std::collections::{HashMap, HashSet};

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tally::batching::take;
use tally::domain::{Item, ItemId, NewVote, StoredVote, VoteId, VoterId};
use tally::votes::{BATCH_LIMIT_VOTES, Cast, QUEUE_LIMIT_VOTES};
use tokio::sync::{mpsc, oneshot};

use super::{VoteStore, database_url, item_row};

const READ_CONNECTIONS: u32 = 8;

/// $1 item ids, $2 voter ids and $3 values have one entry for each vote; $4 has each item once.
const STORE: &str = "
with candidate as materialized (
    select position, item_id, voter_id, value, nextval('vote_id_seq') as id
    from unnest($1::bigint[], $2::text[], $3::smallint[]) with ordinality
         as given (item_id, voter_id, value, position)
), held as materialized (
    -- In the order of ids, so that two batches never wait for each other.
    select item.id from item
    where item.id = any($4::bigint[])
    order by item.id
    for no key update
), inserted as (
    insert into vote (id, item_id, voter_id, value)
    overriding system value
    select id, item_id, voter_id, value
    from candidate
    where item_id = any((select array(select id from held))::bigint[])
    order by item_id, voter_id
    on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
    returning id, item_id, value
), counted as (
    update item set vote_count = item.vote_count + total.sum
    from (select item_id, sum(value) as sum from inserted group by item_id) as total
    where item.id = total.item_id
    returning item.id, item.vote_count
)
select array(select id from candidate order by position),
       array(select id from inserted),
       array(select id from counted),
       array(select vote_count from counted)";

/// The same for anonymous votes, as in Tally: $1 item ids, $2 values, $3 each item once.
const STORE_ANONYMOUS: &str = "
with held as materialized (
    select item.id from item
    where item.id = any($3::bigint[])
    order by item.id
    for no key update
), inserted as (
    insert into vote (item_id, value)
    select item_id, value
    from unnest($1::bigint[], $2::smallint[]) as given (item_id, value)
    where item_id = any((select array(select id from held))::bigint[])
    returning id, item_id, value
), counted as (
    update item set vote_count = item.vote_count + total.sum
    from (select item_id, sum(value) as sum from inserted group by item_id) as total
    where item.id = total.item_id
    returning item.id, item.vote_count
)
select array(select id from inserted),
       array(select id from counted),
       array(select vote_count from counted)";

struct Waiting {
    vote: NewVote,
    answer: oneshot::Sender<anyhow::Result<Cast>>,
}

/// Connects for reads of items.
pub async fn connect() -> PgPool {
    PgPoolOptions::new()
        .max_connections(READ_CONNECTIONS)
        .test_before_acquire(false)
        .connect(&database_url())
        .await
        .expect("a connection")
}

/// The store of one thread.
pub struct BatchedTransaction {
    queue: mpsc::Sender<Waiting>,
    reads: PgPool,
}

impl BatchedTransaction {
    /// Starts a batch writer on the current thread, as Tally does.
    pub fn start(reads: &PgPool) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_LIMIT_VOTES);
        tokio::spawn(writer(waiting));
        Self {
            queue,
            reads: reads.clone(),
        }
    }
}

impl VoteStore for BatchedTransaction {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        let (answer, answered) = oneshot::channel();
        self.queue.try_send(Waiting { vote, answer })?;
        answered.await?
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        item_row(&self.reads, id).await
    }
}

async fn writer(mut queue: mpsc::Receiver<Waiting>) {
    let options: PgConnectOptions = database_url().parse().expect("a URL");
    // The settings of Tally's own batch writers, for the same reasons.
    let options = options.options([
        ("enable_seqscan", "off"),
        ("jit", "off"),
        ("plan_cache_mode", "force_generic_plan"),
    ]);
    let mut connection = PgConnection::connect_with(&options).await.expect("a connection");
    let mut batch = Vec::with_capacity(BATCH_LIMIT_VOTES);
    while take(&mut queue, &mut batch, BATCH_LIMIT_VOTES).await > 0 {
        let votes: Vec<&NewVote> = batch.iter().map(|one| &one.vote).collect();
        let stored = store(&mut connection, &votes).await;
        match stored {
            Ok(casts) => {
                for (waiting, cast) in batch.drain(..).zip(casts) {
                    let cast =
                        cast.ok_or_else(|| anyhow::anyhow!("a repeated vote, which the bench never casts"));
                    let _ = waiting.answer.send(cast);
                }
            }
            Err(error) => {
                let error = error.to_string();
                for waiting in batch.drain(..) {
                    let _ = waiting.answer.send(Err(anyhow::anyhow!(error.clone())));
                }
            }
        }
    }
}

/// Stores a batch; `None` for a repeat.
async fn store(connection: &mut PgConnection, votes: &[&NewVote]) -> Result<Vec<Option<Cast>>, sqlx::Error> {
    let items: Vec<i64> = votes.iter().map(|vote| vote.item_id.get()).collect();
    let values: Vec<i16> = votes.iter().map(|vote| vote.value.get()).collect();
    let mut distinct = items.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if votes.iter().all(|vote| vote.voter_id.is_none()) {
        let (ids, counted, counts): (Vec<i64>, Vec<i64>, Vec<i64>) = sqlx::query_as(STORE_ANONYMOUS)
            .bind(&items)
            .bind(&values)
            .bind(&distinct)
            .fetch_one(connection)
            .await?;
        let counts: HashMap<i64, i64> = counted.into_iter().zip(counts).collect();
        let mut ids = ids.into_iter();
        return Ok(items
            .iter()
            .zip(values)
            .map(|(item, value)| match counts.get(item) {
                None => Some(Cast::UnknownItem),
                Some(count) => ids.next().map(|id| accepted(id, value, *count)),
            })
            .collect());
    }
    let voters: Vec<Option<&str>> = votes
        .iter()
        .map(|vote| vote.voter_id.as_ref().map(VoterId::as_str))
        .collect();
    let (ids, inserted, counted, counts): (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>) = sqlx::query_as(STORE)
        .bind(&items)
        .bind(&voters)
        .bind(&values)
        .bind(&distinct)
        .fetch_one(connection)
        .await?;
    let counts: HashMap<i64, i64> = counted.into_iter().zip(counts).collect();
    let all_inserted = inserted.len() == votes.len();
    let inserted: HashSet<i64> = if all_inserted {
        HashSet::new()
    } else {
        inserted.into_iter().collect()
    };
    Ok(ids
        .into_iter()
        .zip(items)
        .zip(values)
        .map(|((id, item), value)| match counts.get(&item) {
            None => Some(Cast::UnknownItem),
            Some(_) if !all_inserted && !inserted.contains(&id) => None,
            Some(count) => Some(accepted(id, value, *count)),
        })
        .collect())
}

fn accepted(id: i64, value: i16, count: i64) -> Cast {
    Cast::Accepted {
        vote: StoredVote {
            number: None,
            id: VoteId::new(id),
            value,
        },
        count: Some(count.into()),
    }
}
