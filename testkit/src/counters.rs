//! Counters in Redis, read and changed by hand.

use redis::aio::MultiplexedConnection;
use tally::live::CounterParts;

/// The parts of the counter with this key. All are absent if there is none.
///
/// # Errors
/// When Redis fails.
///
/// # Panics
/// When the value is no counter's.
pub async fn parts(redis: &mut MultiplexedConnection, key: &str) -> redis::RedisResult<CounterParts> {
    let value: Option<Vec<u8>> = redis::cmd("GET").arg(key).query_async(redis).await?;
    Ok(value.map_or_else(CounterParts::default, |value| {
        CounterParts::read(&value).expect("a counter")
    }))
}

/// The value of a counter with these parts, as `src/live/counter.rs` describes it.
pub fn value(parts: &CounterParts) -> Vec<u8> {
    let numbers = [parts.count, parts.downs, parts.revision, parts.saved, parts.xmax];
    let mut value: Vec<u8> = numbers
        .iter()
        .flat_map(|number| (*number as f64).to_le_bytes())
        .collect();
    value.extend(parts.seeded.to_le_bytes());
    let texts = format!("{}|{}|{}", parts.lease, parts.request, parts.snapshot);
    if texts != "||" {
        value.extend(texts.into_bytes());
    }
    value
}

/// Changes the counter with this key. Its time to live stays.
///
/// # Errors
/// When Redis fails.
pub async fn change(
    redis: &mut MultiplexedConnection,
    key: &str,
    change: impl FnOnce(&mut CounterParts),
) -> redis::RedisResult<()> {
    let mut parts = parts(redis, key).await?;
    change(&mut parts);
    let mut set = redis::cmd("SET");
    set.arg(key).arg(value(&parts)).arg("KEEPTTL");
    set.exec_async(redis).await
}
