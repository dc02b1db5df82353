//! One transaction per vote, on tables with what each voter holds now: the plain design of a good
//! team, without a ledger. Durable and exact. A change locks the voter's row; a move in a poll
//! locks the poll's row (`select … for update`). So votes on a poll are decided one after the
//! other, and no two of them wait for each other's choices.

use anyhow::Context;
use sqlx::PgPool;
use sqlx::postgres::PgConnection;
use tally::domain::{Count, Item, ItemId, NewVote, PollId, StoredVote, Value, VoteId, VoterId};
use tally::votes::Cast;

use super::{VoteStore, item_row};

/// Its tables. The counts are in Tally's own table `item`.
const TABLES: &str = "
create table plain_vote (
    id         bigint generated always as identity primary key,
    item_id    bigint not null,
    voter_id   text not null,
    value      smallint not null,
    created_at timestamptz not null default now(),
    unique (item_id, voter_id)
);
create table plain_choice (
    poll_id   bigint not null,
    voter_id  text not null,
    item_id   bigint not null,
    primary key (poll_id, voter_id)
);
-- They are written often, without a change of what is indexed.
alter table plain_vote set (fillfactor = 70);
alter table plain_choice set (fillfactor = 70)";

/// Makes the tables, with the votes that Tally's ledger holds in polls.
pub async fn make_tables(connection: &mut PgConnection) {
    sqlx::raw_sql(TABLES)
        .execute(&mut *connection)
        .await
        .expect("tables");
    sqlx::raw_sql(
        "insert into plain_choice (poll_id, voter_id, item_id)
         select poll_id, voter_id, item_id from vote where poll_id is not null",
    )
    .execute(connection)
    .await
    .expect("choices");
}

/// Compares the acknowledged votes with the stored and counted ones, in tables that began empty.
///
/// # Errors
/// What differs.
pub async fn check(pool: &PgPool, new: u64, changed: u64) -> Result<(), String> {
    let (rows, downs): (i64, i64) =
        sqlx::query_as("select count(*), count(*) filter (where value < 0) from plain_vote")
            .fetch_one(pool)
            .await
            .expect("a count");
    if (u64::try_from(rows), u64::try_from(downs)) != (Ok(new), Ok(changed)) {
        return Err(format!(
            "{new} votes acknowledged, {rows} rows; {changed} changes acknowledged, {downs} down-votes"
        ));
    }
    let wrong: i64 = sqlx::query_scalar(
        "select count(*) from item
         left join (select item_id, sum(value) as net, count(*) filter (where value < 0) as downs
                    from plain_vote group by item_id) as held on held.item_id = item.id
         where item.vote_count <> coalesce(net, 0) or item.down_count <> coalesce(downs, 0)",
    )
    .fetch_one(pool)
    .await
    .expect("a count");
    if wrong > 0 {
        return Err(format!("{wrong} items have a wrong count"));
    }
    Ok(())
}

#[derive(Clone)]
pub struct LockingTransaction {
    pub pool: PgPool,
}

impl VoteStore for LockingTransaction {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        let mut transaction = self.pool.begin().await?;
        let value = vote.value.get();
        // The unique index decides; there is no row yet to lock.
        let id: i64 = sqlx::query_scalar(
            "insert into plain_vote (item_id, voter_id, value) values ($1, $2, $3)
             on conflict (item_id, voter_id) do nothing
             returning id",
        )
        .bind(vote.item_id.get())
        .bind(vote.voter_id.as_ref().map(VoterId::as_str))
        .bind(value)
        .fetch_optional(&mut *transaction)
        .await?
        .context("a repeated vote, which the bench never casts")?;
        // The item comes last, so that its row is locked for the shortest time.
        let count = count(&mut transaction, vote.item_id, value.into(), (value < 0).into()).await?;
        transaction.commit().await?;
        Ok(Cast::Accepted {
            vote: stored(id, value),
            count: Some(count),
        })
    }

    async fn change(&self, item: ItemId, voter: &VoterId, value: Value) -> anyhow::Result<Cast> {
        let mut transaction = self.pool.begin().await?;
        let value = value.get();
        let (id, held): (i64, i16) = sqlx::query_as(
            "update plain_vote set value = $3
             from (select id, value from plain_vote where item_id = $1 and voter_id = $2 for update) as held
             where plain_vote.id = held.id
             returning plain_vote.id, held.value",
        )
        .bind(item.get())
        .bind(voter.as_str())
        .bind(value)
        .fetch_optional(&mut *transaction)
        .await?
        .context("a change without a vote, which the bench never asks for")?;
        let downs = i64::from(value < 0) - i64::from(held < 0);
        let count = count(&mut transaction, item, (value - held).into(), downs).await?;
        transaction.commit().await?;
        Ok(Cast::Changed {
            vote: stored(id, value),
            count: Some(count),
        })
    }

    async fn choose(&self, poll: PollId, voter: &VoterId, choice: ItemId) -> anyhow::Result<bool> {
        let mut transaction = self.pool.begin().await?;
        let is_open: bool = sqlx::query_scalar(
            "select closes_at is null or clock_timestamp() < closes_at from rule where id = $1 for update",
        )
        .bind(poll.get())
        .fetch_one(&mut *transaction)
        .await?;
        anyhow::ensure!(is_open, "the poll has closed");
        // Under the lock, in one statement: the voter's row and both counts.
        let moved = sqlx::query(
            "with held as (
                 select item_id from plain_choice where poll_id = $1 and voter_id = $2
             ), chosen as (
                 insert into plain_choice (poll_id, voter_id, item_id) values ($1, $2, $3)
                 on conflict (poll_id, voter_id) do update set item_id = excluded.item_id
             )
             update item set vote_count = vote_count + case when id = $3 then 1 else -1 end
             where id in ($3, (select item_id from held))
               and (select item_id from held) is distinct from $3",
        )
        .bind(poll.get())
        .bind(voter.as_str())
        .bind(choice.get())
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(moved.rows_affected() > 0)
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        item_row(&self.pool, id).await
    }
}

/// Adds to an item's counts.
async fn count(connection: &mut PgConnection, item: ItemId, net: i64, downs: i64) -> anyhow::Result<Count> {
    let (net, downs) = sqlx::query_as(
        "update item set vote_count = vote_count + $2, down_count = down_count + $3
         where id = $1 returning vote_count, down_count",
    )
    .bind(item.get())
    .bind(net)
    .bind(downs)
    .fetch_one(connection)
    .await?;
    Ok(Count { net, downs })
}

fn stored(id: i64, value: i16) -> StoredVote {
    StoredVote {
        number: None,
        id: VoteId::new(id),
        value,
    }
}
