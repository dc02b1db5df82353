//! Each row of the table, by a command.

use std::collections::BTreeSet;
use std::path::Path;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tally::live::{ErrorReply, Lasts, LiveError, Ran};
use testkit::stores::{is_valkey, redis_connection};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;

use super::{
    ENDLESS, keep_busy, known, let_load, let_load_fast, let_snapshots_fail, private_node, private_redis,
    send, takes,
};
use crate::helpers::eventually;
use crate::helpers::tally::redis;

/// The rows that were met: their code and text.
#[derive(Default)]
struct Met(BTreeSet<(&'static str, &'static str)>);

impl Met {
    fn row(&mut self, row: &'static ErrorReply, code: &str, what: &str) {
        assert_eq!(row.code, code, "{what}");
        self.0.insert((row.code, row.says));
    }

    fn error(&mut self, error: &RedisError, code: &str) {
        let refusal = known(error).unwrap_or_else(|| panic!("{error} is not in the table"));
        self.row(refusal.reply(), code, &error.to_string());
    }

    /// Sends a command that is answered with this error.
    async fn sent(&mut self, connection: &mut MultiplexedConnection, line: &str, code: &str) {
        self.error(&send(connection, line).await.expect_err(line), code);
    }

    fn live(&mut self, error: &LiveError, code: &str) {
        let refusal = error
            .refusal()
            .unwrap_or_else(|| panic!("{error} is not in the table"));
        self.row(refusal.reply(), code, &error.to_string());
    }
}

const SETS: &str = "EVAL return(redis.call('SET',KEYS[1],'1')) 1 x";

/// What a Redis answers because of its keys, its settings, its disk and its load.
async fn of_its_state(met: &mut Met) {
    let (folder, redis, mut owner) = private_redis(&["enable-debug-command yes", "databases 1"]).await;
    let owner = &mut owner;
    for (line, code) in [
        ("EVALSHA 0000000000000000000000000000000000000000 0", "NOSCRIPT"),
        ("NOSUCH x", "ERR"),
        ("CLIENT NOSUCH x", "ERR"),
        ("EVAL return(redis.call('NOSUCH')) 0", "ERR"),
        ("SELECT 1", "ERR"),
        ("HELLO 4", "NOPROTO"),
    ] {
        met.sent(owner, line, code).await;
    }
    takes(owner, "SET text x").await;
    met.sent(owner, "HGET text x", "WRONGTYPE").await;
    met.sent(
        owner,
        "EVAL return(redis.call('HGET',KEYS[1],'x')) 1 text",
        "WRONGTYPE",
    )
    .await;
    for (fault, ends, code) in [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
            "NOREPLICAS",
        ),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
    ] {
        takes(owner, fault).await;
        met.sent(owner, "SET x 1", code).await;
        met.sent(owner, SETS, code).await;
        takes(owner, ends).await;
    }
    takes(owner, "CONFIG SET replica-serve-stale-data no").await;
    takes(owner, "REPLICAOF 127.0.0.1 1").await;
    met.sent(owner, "GET x", "MASTERDOWN").await;
    takes(owner, "REPLICAOF NO ONE").await;

    let loading = let_load(&redis, owner).await;
    met.sent(owner, SETS, "LOADING").await;
    let_load_fast(owner).await;
    loading.await.expect("it ends");

    let busy = keep_busy(&redis, owner, ENDLESS).await;
    met.sent(owner, "GET x", "BUSY").await;
    takes(owner, "SCRIPT KILL").await;
    busy.await.expect("it ends");

    let_snapshots_fail(owner, folder.path().to_owned()).await;
    met.sent(owner, "SET x 1", "MISCONF").await;
    met.sent(owner, SETS, "MISCONF").await;

    // A script that has written can only be ended with Redis.
    takes(owner, "CONFIG SET save ''").await;
    let written = "redis.call('SET', 'x', '1') while true do end";
    let _busy = keep_busy(&redis, owner, written).await;
    let unkillable = send(owner, "SCRIPT KILL").await.expect_err("it has written");
    assert_eq!(unkillable.code(), Some("UNKILLABLE"));
    met.sent(owner, "GET x", "BUSY").await;
}

/// What it answers to a login or a connection that it does not want.
async fn of_connections(met: &mut Met) {
    let (_folder, private, mut owner) = private_redis(&[]).await;
    let (owner, port) = (&mut owner, private.port());
    let mut bare = redis_connection(&format!("redis://127.0.0.1:{port}/"))
        .await
        .expect("Redis answers");
    met.sent(&mut bare, "PING", "NOAUTH").await;
    met.sent(&mut bare, "AUTH default wrong", "WRONGPASS").await;
    takes(owner, "ACL SETUSER reader on >secret +ping").await;
    let reader = format!("redis://reader:secret@127.0.0.1:{port}/");
    let mut reader = redis_connection(&reader).await.expect("it logs in");
    met.sent(&mut reader, "GET x", "NOPERM").await;
    let wrong = redis(&format!("redis://reader:wrong@127.0.0.1:{port}/"));
    met.live(
        &wrong.ping().await.expect_err("the password is wrong"),
        "WRONGPASS",
    );

    drop((bare, reader));
    takes(owner, "CONFIG SET maxclients 1").await;
    eventually("only one connection is left", async || {
        let clients = takes(&mut owner.clone(), "CLIENT LIST").await;
        let clients: String = redis::from_redis_value(clients).expect("a text");
        (clients.lines().count() == 1).then_some(())
    })
    .await;
    // redis takes Redis' answer for that to the login.
    let full = redis(&private.url()).ping().await.expect_err("it is full");
    met.live(&full, "ERR");
    assert!(full.to_string().contains("maxclients"), "{full}");
    takes(owner, "CONFIG SET maxclients 100").await;

    // Valkey takes all of 127.0.0.0/8 for its own machine.
    if !is_valkey() {
        denied(met, owner, port).await;
    }
}

/// What it answers to a connection from another address than 127.0.0.1.
async fn denied(met: &mut Met, owner: &mut MultiplexedConnection, port: u16) {
    takes(owner, "ACL SETUSER default nopass").await;
    takes(owner, "CONFIG SET protected-mode yes").await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.2:0".parse().expect("an address"))
        .expect("an address of this machine");
    let target = format!("127.0.0.1:{port}").parse().expect("an address");
    let stream = socket.connect(target).await.expect("Redis listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.expect("a line");
    let denied = redis::parse_redis_value(line.as_bytes()).expect("a reply");
    met.error(&denied.extract_error().expect_err("it is refused"), "DENIED");
}

/// What a node of a Redis Cluster answers.
async fn of_a_cluster(met: &mut Met) {
    let (_a, first, mut one) = private_node().await;
    let (_b, second, mut two) = private_node().await;
    let (one, two) = (&mut one, &mut two);
    met.sent(one, "GET x", "CLUSTERDOWN").await;
    met.sent(one, "SELECT 1", "ERR").await;
    takes(one, "CLUSTER ADDSLOTSRANGE 0 16383").await;
    let bus: Vec<String> =
        redis::from_redis_value(takes(two, "CONFIG GET cluster-port").await).expect("a setting");
    takes(
        one,
        &format!("CLUSTER MEET 127.0.0.1 {} {}", second.port(), bus[1]),
    )
    .await;
    let id: String = redis::from_redis_value(takes(two, "CLUSTER MYID").await).expect("an id");
    eventually(
        "the slots are served, and the nodes know each other",
        async || {
            send(&mut one.clone(), "SET {x}a 1").await.ok()?;
            let nodes = send(&mut one.clone(), "CLUSTER NODES").await.ok()?;
            let nodes: String = redis::from_redis_value(nodes).ok()?;
            let line = nodes.lines().find(|line| line.starts_with(&id))?;
            (!line.contains("handshake")).then_some(())
        },
    )
    .await;
    met.sent(one, "MGET x y", "CROSSSLOT").await;
    let slot: i64 = redis::from_redis_value(takes(one, "CLUSTER KEYSLOT x").await).expect("a number");
    takes(one, &format!("CLUSTER SETSLOT {slot} MIGRATING {id}")).await;
    met.sent(one, "GET x", "ASK").await;
    met.sent(one, "MGET {x}a {x}b", "TRYAGAIN").await;
    takes(one, "DEL {x}a").await;
    takes(one, &format!("CLUSTER SETSLOT {slot} NODE {id}")).await;
    met.sent(one, "GET x", "MOVED").await;
    drop((first, second));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_the_table_of_error_replies_is_what_a_real_redis_answers() {
    let mut met = Met::default();
    of_its_state(&mut met).await;
    of_connections(&mut met).await;
    of_a_cluster(&mut met).await;
    let mut all: BTreeSet<_> = ErrorReply::all().map(|row| (row.code, row.says)).collect();
    if is_valkey() {
        // Its nodes of a Cluster may have several databases.
        all.retain(|row| ![("DENIED", ""), ("ERR", "in cluster mode")].contains(row));
    }
    assert_eq!(met.0, all);
}

#[test]
fn the_operators_page_has_every_row_of_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating/redis-errors.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for row in ErrorReply::all() {
        let name = match (row.code, row.says) {
            ("ERR", says) => format!("… {says}"),
            (code, _) => code.to_owned(),
        };
        let name = format!("`{name}`");
        let line = page
            .lines()
            .find(|line| line.starts_with('|') && line.contains(&name))
            .unwrap_or_else(|| panic!("no line has {name}"));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ran = match row.ran {
            Ran::Nothing => "no",
            Ran::Partly => "in part",
        };
        let ready = match row.lasts {
            Lasts::AWhile => "unavailable",
            Lasts::UntilAllowed => "refused",
            Lasts::ForEver => "refused; no start",
        };
        assert_eq!((cells[3], cells[4]), (ran, ready), "{line}");
    }
}
