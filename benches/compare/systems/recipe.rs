//! The usual recipe: one INSERT and one EVALSHA per vote. The row is durable. The count is
//! not exact once a process or Redis fails between the two. Nothing writes the counts back
//! to the items: that is in the recipe's favour.

use std::cell::RefCell;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult, Script};
use sqlx::PgPool;
use tally::domain::{Item, ItemId, NewVote};
use tally::votes::Cast;

use super::{VoteStore, insert};

/// Long, so that no vote fails on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The key of a count, for the check after the run.
pub fn key(item: i64) -> String {
    format!("recipe:{item}")
}

thread_local! {
    /// One for each thread that serves, as Tally has them: `benches/connections.rs` shows
    /// that a shared connection is faster than a pool.
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
        let pool = super::connect().await;
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
        let stored = insert(&self.pool, &vote).await?;
        let count: i64 = self
            .script
            .key(key(vote.item_id.get()))
            .arg(vote.value.get())
            .invoke_async(&mut self.redis().await?)
            .await?;
        Ok(Cast::Accepted {
            vote: stored,
            count: Some(count.into()),
        })
    }

    async fn item(&self, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
        let count: Option<i64> = redis::cmd("GET")
            .arg(key(id.get()))
            .query_async(&mut self.redis().await?)
            .await?;
        // A cache would give the name. To ask nobody for it is in the recipe's favour.
        let item = Item {
            rules: None,
            key: None,
            is_hidden: false,
            id,
            name: "item".into(),
            saved_count: 0.into(),
            counted_at: None,
        };
        Ok((item, count))
    }
}
