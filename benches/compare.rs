//! A first comparison, in one run: Tally against one transaction a vote.
//!
//! Both contenders are processes of their own on the same Postgres (durable) and
//! Redis, in turn, several times over, each time on a fresh database. A closed loop
//! of plain HTTP connections drives them; its own CPU time is not counted. After
//! each run, acknowledged = rows = counts is checked.
//!
//! `make bench`; the table goes to the terminal and to target/bench/results.json.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot go on stops"
)]

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::{App, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tally::dev::{Durability, PrivatePostgres, PrivateRedis, usable_folder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const ROUNDS: usize = 3;
const RUN_SECONDS: u64 = 5;
const CONNECTIONS: usize = 128;
/// Postgres connections of the transaction contender; more made it no faster.
const TRANSACTION_CONNECTIONS: u32 = 64;
const SECRET: &str = "bench";
/// Says to this program, started again, what to be.
const CONTENDER: &str = "TALLY_BENCH_CONTENDER";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    if std::env::var_os(CONTENDER).is_some() {
        return transaction_server().await;
    }
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(base).expect("a folder");
    let folder = usable_folder(&base.canonicalize().expect("a folder"))
        .expect("a folder")
        .join("bench");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut postgres =
        PrivatePostgres::new(&folder.join("postgres"), SECRET, Durability::Full).expect("a free port");
    postgres.start().await.expect("Postgres starts");
    let mut redis = PrivateRedis::new(&folder.join("redis"), SECRET).expect("a free port");
    redis.start().await.expect("Redis starts");

    let mut rows = Vec::new();
    println!("{CONNECTIONS} connections, {RUN_SECONDS} s a run, {ROUNDS} rounds");
    println!(
        "{:<8} {:<12} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "items", "contender", "votes/s", "server", "Postgres", "Redis", "sum µs"
    );
    for items in [1_usize, 10_000] {
        for round in 0..ROUNDS {
            for contender in ["transaction", "tally"] {
                let name = format!("run_{}", letters(rows.len()));
                let row = measure(&postgres, &redis, contender, items, &name).await;
                println!(
                    "{items:<8} {contender:<12} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
                    number(&row, "votes_per_second"),
                    number(&row, "server_cpu_us_per_vote"),
                    number(&row, "postgres_cpu_us_per_vote"),
                    number(&row, "redis_cpu_us_per_vote"),
                    number(&row, "cpu_us_per_vote"),
                );
                let mut row = row;
                row["round"] = json!(round);
                rows.push(row);
            }
        }
        for figure in ["votes_per_second", "cpu_us_per_vote"] {
            println!(
                "{items:<8} tally / transaction, {figure}: median of ratios {:.2}",
                ratio(&rows, items, figure)
            );
        }
    }
    redis.stop().await;
    postgres.stop().await;
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&target).expect("a folder");
    let text = serde_json::to_string_pretty(&rows).expect("JSON");
    std::fs::write(target.join("results.json"), text).expect("the results");
}

/// Database names have letters only.
fn letters(number: usize) -> String {
    number
        .to_string()
        .bytes()
        .map(|digit| char::from(b'a' + digit - b'0'))
        .collect()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().expect("a number")
}

/// The median over the rounds of the ratio within a round.
fn ratio(rows: &[Value], items: usize, figure: &str) -> f64 {
    let of = |contender: &'static str| {
        rows.iter()
            .filter(move |row| row["items"] == items && row["contender"] == contender)
    };
    let mut ratios: Vec<f64> = of("tally")
        .zip(of("transaction"))
        .map(|(tally, other)| number(tally, figure) / number(other, figure))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

async fn measure(
    postgres: &PrivatePostgres,
    redis: &PrivateRedis,
    contender: &str,
    items: usize,
    name: &str,
) -> Value {
    let database_url = postgres.create_database(name).await.expect("a database");
    let environment = [("DATABASE_URL", database_url.clone()), ("REDIS_URL", redis.url())];
    let tally = env!("CARGO_BIN_EXE_tally");
    run(Command::new(tally).arg("migrate").envs(environment.clone())).await;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect(&database_url)
        .await
        .expect("a connection");
    sqlx::query("insert into item (name) select 'item ' || n from generate_series(1, $1) n")
        .bind(i64::try_from(items).expect("a number"))
        .execute(&pool)
        .await
        .expect("items");
    flush_redis(redis).await;

    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|one| one.local_addr())
        .expect("a port")
        .port();
    let listen = format!("127.0.0.1:{port}");
    let mut command = match contender {
        "tally" => {
            let mut command = Command::new(tally);
            command.arg("serve");
            command
        }
        _ => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.env(CONTENDER, contender);
            command
        }
    };
    command
        .envs(environment.clone())
        .env("TALLY_LISTEN", &listen)
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let mut server = command
        .env("RUST_LOG", "error")
        .spawn()
        .expect("the contender starts");
    while TcpStream::connect(&listen).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The worker that Tally comes with runs too, and is counted as the server's.
    let mut worker = (contender == "tally").then(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sync-worker"));
        command
            .envs(environment.clone())
            .env("RUST_LOG", "error")
            .kill_on_drop(true);
        command.spawn().expect("the worker starts")
    });

    let ids = [server.id(), worker.as_ref().and_then(Child::id)];
    let server_cpu = || ids.iter().flatten().map(|id| cpu_us(*id)).sum::<u64>();
    let postgres_cpu = || family_cpu_us(postgres.process_id().expect("it runs"));
    let redis_cpu = || cpu_us(redis.process_id().expect("it runs"));
    let before = (server_cpu(), postgres_cpu(), redis_cpu());
    let started = Instant::now();
    let acknowledged = load(&listen, items).await;
    let seconds = started.elapsed().as_secs_f64();
    let after = (server_cpu(), postgres_cpu(), redis_cpu());

    if let Some(worker) = &mut worker {
        worker.kill().await.expect("it runs");
        run(Command::new(env!("CARGO_BIN_EXE_sync-worker"))
            .arg("--once")
            .envs(environment))
        .await;
    }
    server.kill().await.expect("it runs");
    let (votes, counts): (i64, i64) =
        sqlx::query_as("select (select count(*) from vote), (select sum(vote_count)::bigint from item)")
            .fetch_one(&pool)
            .await
            .expect("counts");
    let expected = i64::try_from(acknowledged).expect("a number");
    assert!(
        votes == expected && counts == expected,
        "{contender}: {expected} acknowledged, {votes} rows, {counts} counted"
    );
    pool.close().await;

    let each = |before: u64, after: u64| (after - before) as f64 / acknowledged as f64;
    let (server, postgres, redis) = (
        each(before.0, after.0),
        each(before.1, after.1),
        each(before.2, after.2),
    );
    json!({
        "contender": contender,
        "items": items,
        "connections": CONNECTIONS,
        "votes": acknowledged,
        "votes_per_second": acknowledged as f64 / seconds,
        "server_cpu_us_per_vote": server,
        "postgres_cpu_us_per_vote": postgres,
        "redis_cpu_us_per_vote": redis,
        "cpu_us_per_vote": server + postgres + redis,
        "verified": true,
    })
}

async fn run(command: &mut Command) {
    let output = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .await
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn flush_redis(redis: &PrivateRedis) {
    let client = redis::Client::open(redis.url()).expect("a URL");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("Redis answers");
    redis::cmd("FLUSHALL")
        .exec_async(&mut connection)
        .await
        .expect("Redis answers");
}

/// Anonymous votes from every connection, one after the other, for the run's time.
/// Returns how many were acknowledged.
async fn load(address: &str, items: usize) -> u64 {
    let total = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..CONNECTIONS)
        .map(|seed| {
            let (address, total, stop) = (address.to_owned(), Arc::clone(&total), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("a connection");
                stream.set_nodelay(true).expect("a socket");
                let mut state = seed as u64 + 1;
                let mut answer = Vec::with_capacity(4096);
                while !stop.load(Ordering::Relaxed) {
                    // A linear congruential generator is random enough to spread votes.
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let item = (state >> 33) as usize % items + 1;
                    let request = format!(
                        "POST /v1/items/{item}/votes HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
                    );
                    stream.write_all(request.as_bytes()).await.expect("a request");
                    read_answer(&mut stream, &mut answer).await;
                    assert!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
                    total.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(RUN_SECONDS)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("every vote is acknowledged");
    }
    total.load(Ordering::Relaxed)
}

/// Reads one answer with a content-length.
async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) {
    answer.clear();
    loop {
        let read = stream.read_buf(answer).await.expect("an answer");
        assert!(read > 0, "the server hung up");
        let text = std::str::from_utf8(answer).expect("text");
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse::<usize>().ok())
                .expect("a length");
            if body.len() >= length {
                return;
            }
        }
    }
}

/// The CPU time of a process, its threads included.
fn cpu_us(id: u32) -> u64 {
    stat(id).map_or(0, |(_, own, _)| own)
}

/// The CPU time of a process, of its children, and of those it has waited for.
fn family_cpu_us(parent: u32) -> u64 {
    let (_, own, waited) = stat(parent).expect("it runs");
    let children: u64 = std::fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|(of, ..)| *of == parent)
        .map(|(_, own, _)| own)
        .sum();
    own + waited + children
}

/// A process' parent, own CPU time and that of children it has waited for, in µs.
fn stat(id: u32) -> Option<(u32, u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in brackets may hold spaces; fields are counted from behind it.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let us = |at: usize| fields.get(at)?.parse::<u64>().ok().map(|ticks| ticks * 10_000);
    Some((fields.get(1)?.parse().ok()?, us(11)? + us(12)?, us(13)? + us(14)?))
}

/// The contender: insert and update in one transaction a vote.
async fn transaction_server() {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL");
    let listen = std::env::var("TALLY_LISTEN").expect("TALLY_LISTEN");
    let pool = PgPoolOptions::new()
        .max_connections(TRANSACTION_CONNECTIONS)
        .test_before_acquire(false)
        .acquire_timeout(Duration::from_secs(60))
        .connect(&url)
        .await
        .expect("a connection");
    HttpServer::new(move || {
        App::new()
            .app_data(web::Data::new(pool.clone()))
            .route("/v1/items/{id}/votes", web::post().to(transaction))
    })
    .bind(listen)
    .expect("a port")
    .run()
    .await
    .expect("a server");
}

#[derive(serde::Deserialize)]
struct Vote {
    voter_id: Option<String>,
}

async fn transaction(pool: web::Data<PgPool>, item: web::Path<i64>, vote: web::Json<Vote>) -> HttpResponse {
    match transact(&pool, *item, vote.voter_id.as_deref()).await {
        Ok((vote_id, count)) => HttpResponse::Created().json(json!({
            "vote_id": vote_id, "item_id": *item, "voter_id": vote.voter_id, "vote_count": count
        })),
        Err(error) => HttpResponse::InternalServerError().body(error.to_string()),
    }
}

async fn transact(pool: &PgPool, item: i64, voter: Option<&str>) -> Result<(i64, i64), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    let vote_id = sqlx::query_scalar("insert into vote (item_id, voter_id) values ($1, $2) returning id")
        .bind(item)
        .bind(voter)
        .fetch_one(&mut *transaction)
        .await?;
    let count =
        sqlx::query_scalar("update item set vote_count = vote_count + 1 where id = $1 returning vote_count")
            .bind(item)
            .fetch_one(&mut *transaction)
            .await?;
    transaction.commit().await?;
    Ok((vote_id, count))
}
