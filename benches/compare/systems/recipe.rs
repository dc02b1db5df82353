//! The usual recipe: one INSERT and one EVALSHA a vote. The row is durable; the
//! count is not exact once a process or Redis fails between the two. What writes its
//! counts back to the items is left out, in its favour.

use std::cell::RefCell;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult, Script};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tally::domain::{Item, ItemId, NewVote, StoredVote, VoteId, VoterId};
use tally::votes::Cast;

use super::{VoteStore, connections, database_url};

/// So that a busy machine fails no vote.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Where a count stands, for the check after the run.
pub fn key(item: i64) -> String {
    format!("recipe:{item}")
}

thread_local! {
    /// One for each thread that serves, as Tally has them: a shared one, which
    /// `benches/connections.rs` shows to be faster than a pool.
    static REDIS: RefCell<Option<MultiplexedConnection>> = const { RefCell::new(None) };
}

#[derive(Clone)]
pub struct Recipe {
    pool: PgPool,
    redis: Client,
    script: Script,
}

impl Recipe {
    pub async fn connect() -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(connections())
            .min_connections(connections())
            .test_before_acquire(false)
            .acquire_timeout(Duration::from_secs(60))
            .connect(&database_url())
            .await
            .expect("a connection");
        let url = std::env::var("REDIS_URL").expect("REDIS_URL");
        let info = url
            .into_connection_info()
            .expect("a URL")
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let redis = Client::open(info).expect("a URL");
        let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
        Self { pool, redis, script }
    }

    async fn redis(&self) -> RedisResult<MultiplexedConnection> {
        if let Some(connection) = REDIS.with_borrow(Option::clone) {
            return Ok(connection);
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_LIMIT));
        let connection = self
            .redis
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        REDIS.set(Some(connection.clone()));
        Ok(connection)
    }
}

impl VoteStore for Recipe {
    async fn cast(&self, vote: NewVote) -> anyhow::Result<Cast> {
        let id = sqlx::query_scalar(
            "insert into vote (item_id, voter_id, value) values ($1, $2, $3)
             on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
             returning id",
        )
        .bind(vote.item_id.get())
        .bind(vote.voter_id.as_ref().map(VoterId::as_str))
        .bind(vote.value.get())
        .fetch_optional(&self.pool)
        .await?;
        let Some(id) = id else {
            anyhow::bail!("a repeated vote, which the bench never casts");
        };
        let count = self
            .script
            .key(key(vote.item_id.get()))
            .arg(vote.value.get())
            .invoke_async(&mut self.redis().await?)
            .await?;
        Ok(Cast::Accepted {
            vote: StoredVote {
                id: VoteId::new(id),
                value: vote.value.get(),
            },
            vote_count: Some(count),
        })
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        let count: Option<i64> = redis::cmd("GET")
            .arg(key(id.get()))
            .query_async(&mut self.redis().await?)
            .await?;
        // The name would come from a cache; none is asked, in its favour.
        let item = Item {
            id,
            name: "item".into(),
            saved_count: 0,
            counted_at: None,
        };
        Ok((item, count))
    }
}
