//! Faults of Redis under votes: each vote is stored once and answered, ready says what is wrong, a
//! worker's error names it too, and afterwards all counts are exact.

use redis::aio::MultiplexedConnection;
use reqwest::StatusCode;
use tally::domain::ItemId;

use super::{
    ENDLESS, keep_busy, let_load, let_load_fast, let_snapshots_fail, let_snapshots_succeed, send, takes,
};
use crate::helpers::eventually;
use crate::helpers::programs::{start_server, start_worker};
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// A fault, and what is said meanwhile.
struct Fault {
    /// What begins it and ends it, for whoever may do everything.
    begin: &'static [&'static str],
    end: &'static [&'static str],
    ready: &'static str,
    /// What `detail` and a worker's error have.
    says: &'static str,
    /// Whether the worker's pass fails, too.
    stops_worker: bool,
}

const KICK: &str = "CLIENT KILL TYPE normal SKIPME yes";

const FAULTS: [Fault; 8] = [
    Fault {
        begin: &["CONFIG SET maxmemory 1"],
        end: &["CONFIG SET maxmemory 0"],
        ready: "unavailable",
        says: "(OOM)",
        stops_worker: false,
    },
    Fault {
        begin: &["CONFIG SET min-replicas-to-write 1"],
        end: &["CONFIG SET min-replicas-to-write 0"],
        ready: "unavailable",
        says: "(NOREPLICAS)",
        stops_worker: true,
    },
    Fault {
        begin: &["REPLICAOF 127.0.0.1 1"],
        end: &["REPLICAOF NO ONE"],
        ready: "unavailable",
        says: "(READONLY)",
        stops_worker: true,
    },
    Fault {
        begin: &["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],
        end: &["REPLICAOF NO ONE"],
        ready: "unavailable",
        says: "(MASTERDOWN)",
        stops_worker: true,
    },
    Fault {
        begin: &["ACL SETUSER server -mset", "ACL SETUSER worker -sscan"],
        end: &["ACL LOAD"],
        ready: "refused",
        says: "may not run ",
        stops_worker: false,
    },
    Fault {
        begin: &["ACL SETUSER server resetkeys", "ACL SETUSER worker resetkeys"],
        end: &["ACL LOAD"],
        ready: "refused",
        says: "may not use the keys tally:*",
        stops_worker: false,
    },
    // Open connections would go on.
    Fault {
        begin: &[
            "ACL SETUSER server resetpass >x",
            "ACL SETUSER worker resetpass >x",
            KICK,
        ],
        end: &["ACL LOAD"],
        ready: "refused",
        says: "(WRONGPASS)",
        stops_worker: true,
    },
    Fault {
        begin: &["CONFIG SET maxclients 1", KICK],
        end: &["CONFIG SET maxclients 1000"],
        ready: "unavailable",
        says: "(maxclients)",
        stops_worker: true,
    },
];

/// A Tally with an item, and how many votes were cast on it.
struct Voting {
    tally: Tally,
    item: ItemId,
    owner: MultiplexedConnection,
    votes: i64,
}

impl Voting {
    async fn start() -> Self {
        let mut tally = Tally::start().await;
        let settings = ["enable-debug-command yes"];
        tally.stores.redis.set_settings(&settings);
        tally.stores.redis.stop().await;
        tally.stores.redis.start().await.expect("Redis starts");
        let item = tally.item("x").await;
        let owner = tally.stores.redis_connection().await;
        let mut voting = Self {
            tally,
            item,
            owner,
            votes: 0,
        };
        voting.until_counted().await;
        voting
    }

    async fn vote(&mut self) -> Option<i64> {
        self.votes += 1;
        self.tally.add(self.item, 1).await
    }

    /// Votes until a count is answered, which must be exact.
    async fn until_counted(&mut self) {
        self.tally.wait_until_ready("ready").await;
        let counted = loop {
            if let Some(count) = self.vote().await {
                break count;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(counted, self.votes);
    }

    /// While Redis is refused: votes are stored without counts, and ready says why.
    async fn during(&mut self, ready: &str, says: &str) {
        for _ in 0..3 {
            assert_eq!(self.vote().await, None, "{says}: stored, and not counted");
        }
        let (status, read) = self.tally.get(&format!("/v1/items/{}", self.item)).await;
        assert_eq!(status, StatusCode::OK, "{says}: {read}");
        eventually(&format!("ready says {says}"), async || {
            let (status, answer) = self.tally.get("/health/ready").await;
            assert_eq!(
                (status, answer["status"].as_str()),
                (StatusCode::OK, Some("degraded"))
            );
            let is_named = answer["detail"].as_str()?.contains(says);
            (is_named && answer["redis"] == ready).then_some(())
        })
        .await;
        assert_eq!(self.vote().await, None);
    }

    /// The error of a worker's pass.
    async fn error_of_worker(&self) -> String {
        let worker = self.tally.worker();
        let passed = async {
            worker.enter_epoch().await?;
            worker.flush().await
        };
        passed.await.expect_err("the pass fails").to_string()
    }

    /// After the fault: nothing is lost, nothing counted twice.
    async fn after(&mut self, says: &str) {
        self.until_counted().await;
        assert_eq!(self.tally.ledger_sum(self.item).await, self.votes, "{says}");
        let worker = self.tally.worker();
        worker.enter_epoch().await.expect("the stores answer");
        self.tally.assert_exact_when_quiescent(self.item).await;
        assert_eq!(self.tally.saved_count(self.item).await, self.votes, "{says}");
        // For the next one: an unsaved count.
        self.until_counted().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_refuses_votes_are_stored_ready_says_why_and_afterwards_counts_are_exact() {
    let mut voting = Voting::start().await;
    for fault in &FAULTS {
        for line in fault.begin {
            takes(&mut voting.owner, line).await;
        }
        voting.during(fault.ready, fault.says).await;
        if fault.stops_worker {
            let said = voting.error_of_worker().await;
            assert!(said.contains(fault.says) && said.contains("REDIS_URL"), "{said}");
        }
        for line in fault.end {
            takes(&mut voting.owner, line).await;
        }
        voting.after(fault.says).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_among_others_that_travel_together_is_named_in_tallys_words() {
    let mut voting = Voting::start().await;
    for command in ["TIME", "MGET"] {
        takes(&mut voting.owner, &format!("ACL SETUSER worker -{command}")).await;
        let said = voting.tally.worker().flush().await;
        let said = said.expect_err("it reads no counter").to_string();
        assert!(said.contains(&format!("(NOPERM {command})")), "{said}");
        takes(&mut voting.owner, "ACL LOAD").await;
    }
    voting.after("NOPERM").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_busy_or_loads_votes_are_stored_and_afterwards_counts_are_exact() {
    let mut voting = Voting::start().await;
    let mut owner = voting.owner.clone();

    let busy = keep_busy(&voting.tally.stores.redis, &mut owner, ENDLESS).await;
    voting.during("unavailable", "(BUSY)").await;
    let said = voting.error_of_worker().await;
    assert!(said.contains("(BUSY): wait, or SCRIPT KILL"), "{said}");
    takes(&mut owner, "SCRIPT KILL").await;
    busy.await.expect("it ends");
    voting.after("BUSY").await;

    let loading = let_load(&voting.tally.stores.redis, &mut owner).await;
    voting.during("unavailable", "(LOADING)").await;
    let said = voting.error_of_worker().await;
    assert!(said.contains("(LOADING): wait"), "{said}");
    let_load_fast(&mut owner).await;
    loading.await.expect("it ends");
    voting.after("LOADING").await;

    // A script that has written cannot be killed: Redis is restarted.
    let written = "redis.call('SET', 'x', '1') while true do end";
    let busy = keep_busy(&voting.tally.stores.redis, &mut owner, written).await;
    let unkillable = send(&mut owner, "SCRIPT KILL").await.expect_err("it has written");
    assert_eq!(unkillable.code(), Some("UNKILLABLE"));
    voting.during("unavailable", "(BUSY)").await;
    voting.tally.stores.redis.crash().await;
    busy.await.expect("it ends");
    // A name that Tally needs is gone meanwhile.
    voting
        .tally
        .stores
        .redis
        .set_settings(&["rename-command EVALSHA ''"]);
    voting.tally.stores.redis.start().await.expect("Redis starts");
    voting.during("refused", "does not know EVALSHA").await;
    voting.tally.stores.redis.stop().await;
    voting.tally.stores.redis.set_settings(&[]);
    voting.tally.stores.redis.start().await.expect("Redis starts");
    voting.after("a renamed command").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_snapshot_a_server_and_a_worker_each_name_the_cause_and_the_remedy_in_one_line() {
    let stores = Stores::start().await;
    let mut owner = stores.redis_connection().await;
    let (server, base) = start_server(&stores, "server").await;
    let worker = start_worker(&stores, "worker", &[("TALLY_FLUSH_EVERY", "50ms")]);
    let id: i64 = sqlx::query_scalar("insert into item (name) values ('x') returning id")
        .fetch_one(&stores.pool())
        .await
        .expect("an item");
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let vote = async || -> Option<i64> {
        let sent = http.post(format!("{base}/v1/items/{id}/votes")).send().await;
        let answer = sent.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        answer.json::<serde_json::Value>().await.expect("JSON")["vote_count"].as_i64()
    };
    worker.wait_for_line("the first epoch").await;
    eventually("votes are counted", async || vote().await).await;
    let folder = stores.folder().join("redis");
    let_snapshots_fail(&mut owner, folder.clone()).await;
    assert_eq!(vote().await, None);
    let of_server = server.wait_for_line("Redis failed").await;
    let ready = http.get(format!("{base}/health/ready")).send().await;
    let ready: serde_json::Value = ready.expect("an answer").json().await.expect("JSON");
    assert_eq!(
        (&ready["status"], &ready["redis"]),
        (&"degraded".into(), &"unavailable".into())
    );
    let detail = ready["detail"].as_str().expect("a detail").to_owned();
    let of_worker = eventually("the worker has a count to save", async || {
        takes(&mut owner, "CONFIG SET stop-writes-on-bgsave-error no").await;
        while vote().await.is_none() {}
        takes(&mut owner, "CONFIG SET stop-writes-on-bgsave-error yes").await;
        let said = worker.output();
        let mut lines = said.lines();
        lines
            .find(|line| line.contains("a flush failed"))
            .map(str::to_owned)
    })
    .await;
    for line in [of_server, of_worker, detail] {
        assert!(
            line.contains("takes no writes")
                && line.contains("(MISCONF)")
                && line.contains("CONFIG SET save ''"),
            "{line}"
        );
    }
    let_snapshots_succeed(&mut owner, folder).await;
    worker.wait_for_line("flushing again").await;
    let of_ledger = async || -> i64 {
        sqlx::query_scalar("select count(*) from vote")
            .fetch_one(&stores.pool())
            .await
            .expect("Postgres answers")
    };
    let counted = eventually("votes are counted", async || vote().await).await;
    assert_eq!(counted, of_ledger().await);
}
