//! The token that says that saved counts may lack votes on cold items.

use redis::RedisError;

use super::Counters;
use crate::live::LiveError;
use crate::live::scripts::{self, fresh_token, text};

impl Counters {
    /// The token; `None`: the saved counts have all votes on cold items.
    pub async fn cold_token(&self) -> Result<Option<String>, LiveError> {
        let mut connection = self.redis.get().await?;
        let read: Result<Option<String>, RedisError> = redis::cmd("GET")
            .arg(self.redis.keys().cold())
            .query_async(&mut connection)
            .await;
        match read {
            // Someone has put another type there. Nobody knows whether there was a token.
            Err(error) if error.code() == Some("WRONGTYPE") => {
                let token = fresh_token();
                redis::cmd("SET")
                    .arg(self.redis.keys().cold())
                    .arg(&token)
                    .exec_async(&mut connection)
                    .await?;
                Ok(Some(token))
            }
            read => Ok(read?),
        }
    }

    /// Clears this token, unless a later vote has set another one. Returns whether it did.
    ///
    /// # Errors
    /// When Redis is unavailable. The token may have been cleared.
    pub async fn clear_cold(&self, token: &str) -> Result<bool, LiveError> {
        let mut connection = self.redis.get().await?;
        let reply = scripts::CLEAR_COLD
            .call_once(&mut connection, &[&self.redis.keys().cold()], token)
            .await?;
        match text(&reply) {
            Some("CLEARED") => Ok(true),
            Some("CHANGED") => Ok(false),
            _ => Err(scripts::CLEAR_COLD.unexpected(reply)),
        }
    }
}
