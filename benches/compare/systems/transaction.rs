//! One transaction per vote: insert the vote, update its item. Durable and exact.

use sqlx::PgPool;
use tally::domain::{Item, ItemId, NewVote};
use tally::votes::Cast;

use super::{VoteStore, insert, item_row};

#[derive(Clone)]
pub struct Transaction {
    pub pool: PgPool,
}

impl VoteStore for Transaction {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        let mut transaction = self.pool.begin().await?;
        let stored = insert(&mut *transaction, &vote).await?;
        // The item comes last, so that its row is locked for the shortest time.
        let count: i64 = sqlx::query_scalar(
            "update item set vote_count = vote_count + $2 where id = $1 returning vote_count",
        )
        .bind(vote.item_id.get())
        .bind(i64::from(vote.value.get()))
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Cast::Accepted {
            vote: stored,
            count: Some(count.into()),
        })
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        item_row(&self.pool, id).await
    }
}
