//! Compares a pool of connections to Redis with one shared connection, for reads and for
//! batches.
//!
//! `cargo bench --bench connections`. The kinds take turns several times, on one Redis. The
//! bench prints the median of each.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops"
)]

use std::time::{Duration, Instant};

use deadpool_redis::{Manager, Pool};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Pipeline};
use tally::dev::PrivateRedis;
use testkit::stores::{SECRET, folder};

const ROUNDS: usize = 5;
const RUN: Duration = Duration::from_secs(1);
const READERS: usize = 64;
const BATCH_WRITERS: usize = 2;
/// Items in a batch's pipeline.
const BATCH_ITEMS: usize = 64;
const POOL_CONNECTIONS: usize = 16;

#[derive(Clone)]
enum Kind {
    Pool(Pool),
    Shared(MultiplexedConnection),
}

impl Kind {
    async fn run(&self, pipeline: &Pipeline) {
        match self {
            Self::Pool(pool) => {
                let mut connection = pool.get().await.expect("a connection");
                pipeline.exec_async(&mut *connection).await.expect("an answer");
            }
            Self::Shared(connection) => {
                pipeline
                    .exec_async(&mut connection.clone())
                    .await
                    .expect("an answer");
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let folder = folder("tmp/bench-redis").expect("a folder");
    let mut redis = PrivateRedis::new(&folder, SECRET).expect("a free port");
    redis.start().await.expect("Redis starts");

    let info = |nodelay| {
        let settings = TcpSettings::default().set_nodelay(nodelay);
        redis
            .url()
            .into_connection_info()
            .expect("a URL")
            .set_tcp_settings(settings)
    };
    let pool =
        Pool::builder(Manager::new_with_config(info(true), AsyncConnectionConfig::new()).expect("a URL"))
            .max_size(POOL_CONNECTIONS)
            .build()
            .expect("a pool");
    let shared = |nodelay| {
        let client = Client::open(info(nodelay)).expect("a URL");
        async move {
            client
                .get_multiplexed_async_connection()
                .await
                .expect("Redis answers")
        }
    };
    let kinds = [
        ("pool", Kind::Pool(pool)),
        ("shared", Kind::Shared(shared(true).await)),
        ("shared, Nagle on", Kind::Shared(shared(false).await)),
    ];

    for (path, tasks, commands) in [("reads", READERS, 1), ("batches", BATCH_WRITERS, BATCH_ITEMS)] {
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); kinds.len()];
        for _ in 0..ROUNDS {
            for (rates, (_, kind)) in rates.iter_mut().zip(&kinds) {
                rates.push(measure(kind, tasks, commands).await);
            }
        }
        for (mut rates, (name, _)) in rates.into_iter().zip(&kinds) {
            rates.sort_by(f64::total_cmp);
            println!(
                "{path} ({tasks} tasks, {commands} commands a pipeline), {name}: {:.0} commands/s",
                rates[ROUNDS / 2]
            );
        }
    }
    redis.stop().await;
}

async fn measure(kind: &Kind, tasks: usize, commands: usize) -> f64 {
    let started = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let kind = kind.clone();
            tokio::spawn(async move {
                let mut pipeline = Pipeline::with_capacity(commands);
                for item in 0..commands {
                    pipeline.hincr(format!("tally:{{{task}-{item}}}"), "count", 1);
                }
                let mut done = 0;
                while started.elapsed() < RUN {
                    kind.run(&pipeline).await;
                    done += commands;
                }
                done
            })
        })
        .collect();
    let mut total = 0;
    for task in running {
        total += task.await.expect("no panic");
    }
    total as f64 / started.elapsed().as_secs_f64()
}
