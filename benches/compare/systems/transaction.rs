//! One transaction a vote: insert the vote, update its item. Durable and exact.

use std::time::Duration;

use sqlx::postgres::{PgPool, PgPoolOptions};
use tally::domain::{Item, ItemId, NewVote, StoredVote, VoteId, VoterId};
use tally::votes::Cast;

use super::{VoteStore, connections, database_url, item_row};

#[derive(Clone)]
pub struct Transaction {
    pool: PgPool,
}

impl Transaction {
    pub async fn connect() -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(connections())
            .min_connections(connections())
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_secs(60))
            .connect(&database_url())
            .await
            .expect("a connection");
        Self { pool }
    }
}

impl VoteStore for Transaction {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        let mut transaction = self.pool.begin().await?;
        let id = sqlx::query_scalar(
            "insert into vote (item_id, voter_id, value) values ($1, $2, $3)
             on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
             returning id",
        )
        .bind(vote.item_id.get())
        .bind(vote.voter_id.as_ref().map(VoterId::as_str))
        .bind(vote.value.get())
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(id) = id else {
            anyhow::bail!("a repeated vote, which the bench never casts");
        };
        // The item comes last, so that its row is locked for as short as can be.
        let count = sqlx::query_scalar(
            "update item set vote_count = vote_count + $2 where id = $1 returning vote_count",
        )
        .bind(vote.item_id.get())
        .bind(i64::from(vote.value.get()))
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Cast::Accepted {
            vote: StoredVote {
                id: VoteId::new(id),
                value: vote.value.get(),
            },
            vote_count: Some(count),
        })
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        item_row(&self.pool, id).await
    }
}
