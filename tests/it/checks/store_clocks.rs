//! A clock that steps (`testkit::clock`) reaches a real store, and only that one.

use redis::aio::MultiplexedConnection;
use testkit::clock::Clock;
use testkit::stores::{Variables, redis_connection, start_redis, temporary_folder};

const HOUR: i64 = 3600;
/// The test reads one clock after the other. So they may differ by this much.
const MINUTE: i64 = 60;

async fn seconds(redis: &mut MultiplexedConnection) -> i64 {
    let (seconds, _): (i64, i64) = redis::cmd("TIME")
        .query_async(redis)
        .await
        .expect("Redis answers");
    seconds
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_of_a_stores_own_steps_forward_and_back() {
    let folder = temporary_folder("clock-").expect("a folder");
    let clock = Clock::new(folder.path()).expect("a clock");
    let start = async |name: &str, variables: Variables| {
        let redis = start_redis(&folder.path().join(name), "secret", variables).await;
        let redis = redis.expect("Redis starts");
        let connection = redis_connection(&redis.url()).await.expect("Redis answers");
        (redis, connection)
    };
    let (_stepped, mut stepped) = start("stepped", clock.variables()).await;
    let (_other, mut other) = start("other", Variables::new()).await;
    clock.step(HOUR).expect("a file");
    assert!(seconds(&mut stepped).await >= seconds(&mut other).await + HOUR - MINUTE);
    clock.step(-2 * HOUR).expect("a file");
    assert!(seconds(&mut stepped).await <= seconds(&mut other).await - HOUR + MINUTE);
}
