//! Another tenant of the same Redis database: many keys of its own, and constant traffic.

use std::time::Duration;

use tally::live::CounterParts;
use testkit::counters::value;
use testkit::stores::redis_connection;
use tokio::time::{Instant, sleep};

/// How many keys it writes at once, and how many times that number it has in all.
const KEYS_AT_ONCE: usize = 200;
const BATCHES: usize = 10;
/// The pause between two writes: it must take a part of Redis, not all of it.
const PAUSE: Duration = Duration::from_millis(5);

/// Writes, expires and deletes keys for a while, among them counters under another prefix
/// that look like Tally's. Returns whether it wrote any: Redis may be unavailable.
pub async fn write_beside(url: &str, lasting: Duration) -> bool {
    let Ok(mut redis) = redis_connection(url).await else {
        return false;
    };
    let counter = CounterParts {
        count: 7,
        revision: 1,
        xmax: 1,
        seeded: 1,
        request: "x".to_owned(),
        ..CounterParts::default()
    };
    let until = Instant::now() + lasting;
    let mut batch = 0;
    while Instant::now() < until {
        let mut pipeline = redis::pipe();
        for key in 0..KEYS_AT_ONCE {
            let number = batch % BATCHES * KEYS_AT_ONCE + key;
            let session = format!("session:{number}");
            match number % 4 {
                0 => pipeline
                    .cmd("SET")
                    .arg(session)
                    .arg(number)
                    .arg("PX")
                    .arg(50)
                    .ignore(),
                1 => pipeline
                    .cmd("DEL")
                    .arg(format!("session:{}", number + 1))
                    .ignore(),
                2 => pipeline.cmd("SET").arg(session).arg(number).ignore(),
                _ => pipeline
                    .set(format!("other-tally:{{{number}}}"), value(&counter))
                    .ignore(),
            };
        }
        // It fails while Redis is unavailable, and while it is out of memory.
        let _: redis::RedisResult<()> = pipeline.query_async(&mut redis).await;
        batch += 1;
        sleep(PAUSE).await;
    }
    batch > 0
}
