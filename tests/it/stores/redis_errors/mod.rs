//! The error replies of Redis, each provoked in a real one.
//!
//! - `replies`: each row of the table, by a command.
//! - `faults`: what a server and a worker do meanwhile and after.
//! - `cured`: faults that end by themselves: lost scripts, values of another type, SWAPDB.
//! - `unfit`: a Redis that Tally cannot work with, and the protocol.

mod cured;
mod faults;
mod replies;
mod unfit;

use std::path::PathBuf;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tally::dev::PrivateRedis;
use tally::live::{LiveError, Refusal};
use tempfile::TempDir;
use testkit::stores::{redis_connection, temporary_folder};
use tokio::task::JoinHandle;

use crate::helpers::eventually;

/// A command of these words. `''` is an empty one.
fn words(line: &str) -> Cmd {
    let mut command = Cmd::new();
    for word in line.split(' ') {
        command.arg(if word == "''" { "" } else { word });
    }
    command
}

async fn send(connection: &mut MultiplexedConnection, line: &str) -> Result<Value, RedisError> {
    words(line).query_async(connection).await
}

/// Sends a command that Redis must take.
async fn takes(connection: &mut MultiplexedConnection, line: &str) -> Value {
    let sent = send(connection, line).await;
    sent.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// What this error is in the table.
fn known(error: &RedisError) -> Option<Refusal> {
    LiveError::from(error.clone()).refusal().cloned()
}

/// How often a Redis is started. A node of a cluster takes a second port, 10000 above the first, which others
/// may have.
const STARTS_LIMIT: u32 = 5;

/// A Redis alone, with these lines in its settings.
async fn private_redis(settings: &[&str]) -> (TempDir, PrivateRedis, MultiplexedConnection) {
    started_redis(|redis| redis.set_settings(settings)).await
}

/// A node of a Redis Cluster that knows no other one.
async fn private_node() -> (TempDir, PrivateRedis, MultiplexedConnection) {
    started_redis(|redis| redis.set_cluster_alone().expect("a port")).await
}

async fn started_redis(set: impl Fn(&mut PrivateRedis)) -> (TempDir, PrivateRedis, MultiplexedConnection) {
    let folder = temporary_folder("redis-").expect("a folder");
    let mut tries = 1..=STARTS_LIMIT;
    let redis = loop {
        let mut redis = PrivateRedis::new(folder.path(), "secret").expect("a port");
        set(&mut redis);
        match redis.start().await {
            Ok(()) => break redis,
            Err(error) => assert!(tries.next().is_some(), "{error:#}"),
        }
    };
    let owner = redis_connection(&redis.url()).await.expect("Redis answers");
    (folder, redis, owner)
}

/// Lets snapshots fail: a folder with something in it takes the snapshot's place.
async fn let_snapshots_fail(owner: &mut MultiplexedConnection, folder: PathBuf) {
    let place = folder.join("dump.rdb");
    let _ = std::fs::remove_file(&place);
    std::fs::create_dir_all(place.join("x")).expect("a folder");
    let mut save = words("CONFIG SET save");
    save.arg("3600 1000000");
    save.exec_async(owner).await.expect("Redis takes it");
    takes(owner, "BGSAVE").await;
    eventually("a snapshot has failed", async || {
        let refused = send(&mut owner.clone(), "SET x 1").await.err()?;
        known(&refused).filter(|refusal| refusal.reply().code == "MISCONF")
    })
    .await;
}

/// Ends [`let_snapshots_fail`].
async fn let_snapshots_succeed(owner: &mut MultiplexedConnection, folder: PathBuf) {
    std::fs::remove_dir_all(folder.join("dump.rdb")).expect("the folder goes");
    takes(owner, "BGSAVE").await;
    eventually("a snapshot has succeeded", async || {
        send(&mut owner.clone(), "SET x 1").await.ok()
    })
    .await;
    takes(owner, "DEL x").await;
}

/// Runs a script without end, and waits until Redis says that it is busy.
async fn keep_busy(redis: &PrivateRedis, owner: &mut MultiplexedConnection, script: &str) -> JoinHandle<()> {
    takes(owner, "CONFIG SET busy-reply-threshold 1").await;
    let mut other = redis_connection(&redis.url()).await.expect("Redis answers");
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(0);
    let running = tokio::spawn(async move {
        let _: Result<Value, RedisError> = command.query_async(&mut other).await;
    });
    eventually("Redis is busy", async || {
        let refused = send(&mut owner.clone(), "PING").await.err()?;
        known(&refused).filter(|refusal| refusal.reply().code == "BUSY")
    })
    .await;
    running
}

const ENDLESS: &str = "while true do end";

/// Lets Redis read its data again, slowly. It has many keys by then.
async fn let_load(redis: &PrivateRedis, owner: &mut MultiplexedConnection) -> JoinHandle<()> {
    takes(owner, "DEBUG POPULATE 2000 filler").await;
    takes(owner, "CONFIG SET loading-process-events-interval-bytes 1024").await;
    takes(owner, "CONFIG SET key-load-delay 5000").await;
    let mut other = redis_connection(&redis.url()).await.expect("Redis answers");
    let running = tokio::spawn(async move {
        let _ = send(&mut other, "DEBUG RELOAD").await;
    });
    eventually("Redis is loading", async || {
        let refused = send(&mut owner.clone(), "GET x").await.err()?;
        known(&refused).filter(|refusal| refusal.reply().code == "LOADING")
    })
    .await;
    running
}

/// Ends [`let_load`].
async fn let_load_fast(owner: &mut MultiplexedConnection) {
    eventually("it goes on at once", async || {
        send(&mut owner.clone(), "CONFIG SET key-load-delay 0").await.ok()
    })
    .await;
}
