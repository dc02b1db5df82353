//! The token that says that saved counts may lack votes on cold items.

use futures_util::future::join_all;
use redis::RedisError;

use super::Counters;
use crate::live::LiveError;
use crate::live::buckets::Bucket;
use crate::live::scripts::{self, fresh_token, text};

/// The tokens of all buckets that have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColdToken(pub Vec<(Bucket, String)>);

impl Counters {
    /// The tokens; `None`: the saved counts have all votes on cold items.
    pub async fn cold_token(&self) -> Result<Option<ColdToken>, LiveError> {
        let buckets: Vec<Bucket> = self.redis.buckets().collect();
        let read = join_all(buckets.iter().map(|bucket| self.cold_token_of(*bucket))).await;
        let mut tokens = Vec::new();
        for (bucket, token) in buckets.into_iter().zip(read) {
            tokens.extend(token?.map(|token| (bucket, token)));
        }
        Ok((!tokens.is_empty()).then_some(ColdToken(tokens)))
    }

    async fn cold_token_of(&self, bucket: Bucket) -> Result<Option<String>, LiveError> {
        let key = self.redis.keys().cold(bucket);
        let mut connection = self.redis.get(bucket).await?;
        let read: Result<Option<String>, RedisError> =
            redis::cmd("GET").arg(&key).query_async(&mut connection).await;
        match read {
            // Someone has put another type there. Nobody knows whether there was a token.
            Err(error) if error.code() == Some("WRONGTYPE") => {
                let token = fresh_token();
                redis::cmd("SET")
                    .arg(&key)
                    .arg(&token)
                    .exec_async(&mut connection)
                    .await?;
                Ok(Some(token))
            }
            read => Ok(read?),
        }
    }

    /// Clears these tokens, except where a later vote has set another one. Returns whether it cleared all.
    ///
    /// # Errors
    /// When Redis is unavailable. Each of them may have been cleared.
    pub async fn clear_cold(&self, token: &ColdToken) -> Result<bool, LiveError> {
        let clearing = token
            .0
            .iter()
            .map(|(bucket, token)| self.clear_cold_of(*bucket, token));
        let mut has_cleared = true;
        for cleared in join_all(clearing).await {
            has_cleared &= cleared?;
        }
        Ok(has_cleared)
    }

    async fn clear_cold_of(&self, bucket: Bucket, token: &str) -> Result<bool, LiveError> {
        let mut connection = self.redis.get(bucket).await?;
        let reply = scripts::CLEAR_COLD
            .call_once(&mut connection, &[&self.redis.keys().cold(bucket)], token)
            .await?;
        match text(&reply) {
            Some("CLEARED") => Ok(true),
            Some("CHANGED") => Ok(false),
            _ => Err(scripts::CLEAR_COLD.unexpected(reply)),
        }
    }
}
