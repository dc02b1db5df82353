//! Tally grows while votes are cast: from one Redis to a Redis Cluster and back, by a node, and over a restart of all.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use nix::sys::signal::Signal;
use tally::app::{self, StoreUrls};
use tally::dev::{PrivateCluster, PrivateRedis};
use tally::domain::ItemId;
use tally::ledger::Role;
use tally::live::{LiveCounts, LiveRead, SUSPECTS_LIMIT_ITEMS, Seeding};
use tally::sync::{Repair, Worker};
use testkit::stores::{redis_connection, start_cluster};
use tokio::process::Command;

use super::{Clustered, ITEMS, Line, SLOT};
use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, command, run, start_server_with, start_worker, stop, text};
use crate::helpers::stores::worker_is_alive;
use crate::helpers::tally::{Tally, logins, options, owner, redis};

/// Votes on each item that show that voting goes on.
const SOME_VOTES: i64 = 3;

/// Votes that go on until they are ended. None may be refused, and no count may be above the votes that were cast.
struct Voting<'a> {
    tally: &'a Tally,
    items: &'a [ItemId],
    votes: HashMap<ItemId, AtomicI64>,
}

impl<'a> Voting<'a> {
    fn new(tally: &'a Tally, items: &'a [ItemId]) -> Self {
        let votes = items.iter().map(|item| (*item, AtomicI64::new(0))).collect();
        Self { tally, items, votes }
    }

    /// Votes on all items in turn, at the server at this address.
    async fn go_on_at(&self, base: &str, has_ended: &AtomicBool) {
        for item in self.items.iter().cycle() {
            if has_ended.load(Ordering::Acquire) {
                return;
            }
            self.add(base, *item).await;
        }
    }

    /// Casts a vote. Returns whether it was counted at once.
    async fn add(&self, base: &str, item: ItemId) -> bool {
        let votes = &self.votes[&item];
        // Before it is sent: others may see it counted before it is answered.
        votes.fetch_add(1, Ordering::AcqRel);
        let count = self.tally.add_at(base, item, 1).await;
        let cast = votes.load(Ordering::Acquire);
        assert!(
            count.is_none_or(|count| count <= cast),
            "{item}: {count:?} of {cast}"
        );
        count.is_some()
    }

    fn all(&self) -> i64 {
        self.votes
            .values()
            .map(|votes| votes.load(Ordering::Acquire))
            .sum()
    }

    /// Waits until all items have got some more votes, while `beside` is done again and again.
    async fn some_more(&self, beside: impl AsyncFn()) {
        let until = self.all() + SOME_VOTES * ITEMS as i64;
        eventually("votes go on", async || {
            beside().await;
            (self.all() >= until).then_some(())
        })
        .await;
    }

    /// Nobody votes any more: all counts are exact, saved and live, and an audit finds nothing.
    async fn assert_exact(&self, base: &str, worker: &Worker) {
        enter(worker).await;
        for item in self.items {
            let votes = self.votes[item].load(Ordering::Acquire);
            eventually(&format!("{item} is saved with {votes} votes"), async || {
                worker.flush().await.ok()?;
                worker.roll_up().await.ok()?;
                (self.tally.saved_count(*item).await == votes).then_some(())
            })
            .await;
        }
        for item in self.items {
            let votes = self.votes[item].fetch_add(1, Ordering::AcqRel) + 1;
            let count = self.tally.add_at(base, *item, 1).await;
            assert_eq!(count, Some(votes), "{item}");
        }
        let audit = worker.audit(Repair::No).await.expect("an audit");
        assert_eq!((audit.wrong_items, audit.items), (0, self.items.len()));
    }
}

async fn enter(worker: &Worker) {
    eventually("all epochs are entered", async || {
        matches!(worker.enter_epoch().await, Ok(None)).then_some(())
    })
    .await;
}

/// How many keys a node has.
async fn keys_of(node: &PrivateRedis) -> i64 {
    let mut connection = redis_connection(&node.url()).await.expect("it answers");
    redis::cmd("DBSIZE")
        .query_async(&mut connection)
        .await
        .expect("a number")
}

/// One round of a worker's jobs, which may fail while the stores are rebuilt.
async fn work(worker: &Worker) {
    worker.enter_epoch().await.ok();
    worker.flush().await.ok();
    worker.roll_up().await.ok();
}

/// As docs/operating/scaling.md says it: the servers one by one, then the workers.
#[tokio::test(flavor = "multi_thread")]
async fn servers_and_then_workers_move_to_a_redis_cluster_and_back_under_votes_that_stay_exact() {
    let tally = Tally::start().await;
    let mut items = Vec::new();
    for _ in 0..ITEMS {
        items.push(tally.item("x").await);
    }
    let cluster = start_cluster(tally.stores.folder()).await.expect("it starts");
    let in_cluster = |role| StoreUrls {
        redis_url: cluster.login_url(role).into(),
        ..logins(&tally.stores, role)
    };
    let worker_at = |urls: StoreUrls| app::worker(&urls, options(), "test worker").expect("URLs");
    let alone = |role| logins(&tally.stores, role);
    let of_one = || worker_at(alone(Role::Worker));
    let of_cluster = || worker_at(in_cluster(Role::Worker));
    enter(&of_one()).await;

    let voting = Voting::new(&tally, &items);
    let mut base = tally.base.clone();
    // There, and back to a Redis that still has the old counts.
    for (before, after, is_there) in [(of_one(), of_cluster(), true), (of_cluster(), of_one(), false)] {
        let moved = if is_there {
            tally.another_server_at(in_cluster).await
        } else {
            tally.another_server_at(alone).await
        };
        let (old_has_ended, new_has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let moving = async {
            voting.some_more(|| work(&before)).await;
            old_has_ended.store(true, Ordering::Release);
            voting.some_more(|| work(&before)).await;
            voting.some_more(|| work(&after)).await;
            new_has_ended.store(true, Ordering::Release);
        };
        tokio::join!(
            voting.go_on_at(&base, &old_has_ended),
            voting.go_on_at(&moved, &new_has_ended),
            moving
        );
        voting.assert_exact(&moved, &after).await;
        base = moved;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_votes_of_a_server_that_is_forgotten_in_the_old_redis_are_counted_in_the_new_one() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let cluster = start_cluster(tally.stores.folder()).await.expect("it starts");
    enter(&tally.worker()).await;
    let in_cluster = |role| StoreUrls {
        redis_url: cluster.login_url(role).into(),
        ..logins(&tally.stores, role)
    };
    let worker = app::worker(&in_cluster(Role::Worker), options(), "test worker").expect("URLs");
    let moved = tally.another_server_at(in_cluster).await;
    for _ in 0..3 {
        tally.add(item, 1).await;
        tally.add_at(&moved, item, 1).await;
    }
    enter(&worker).await;
    worker_is_alive(&tally.pool).await;
    let mut votes = 6;
    for _ in 0..3 {
        tally.add(item, 1).await;
        votes += 1;
        eventually(
            "the forgotten server's vote is counted in the new Redis",
            async || {
                worker.recover_crashed_writers().await.ok()?;
                worker.flush().await.ok()?;
                (tally.saved_count(item).await == votes).then_some(())
            },
        )
        .await;
    }
    votes += 1;
    assert_eq!(tally.add_at(&moved, item, 1).await, Some(votes));
}

/// Each vote is the first one on its item, so only a worker that asks the right Redis knows that it is not saved.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_left_behind_in_the_old_redis_stops_working_and_the_other_saves_all_votes() {
    let tally = Tally::start().await;
    let cluster = start_cluster(tally.stores.folder()).await.expect("it starts");
    let (of_server, of_worker) = (cluster.login_url(Role::Server), cluster.login_url(Role::Worker));
    let common = [("TALLY_FLUSH_EVERY", "50ms"), ("TALLY_AUDIT_CRON", "0 0 0 1 1 *")];
    let left = start_worker(&tally.stores, "left", &common);
    eventually("it has entered the epoch", async || {
        let entries = "select count(*) from epoch_entry where bucket_count = 1 and entry like '%:%'";
        let entries: i64 = sqlx::query_scalar(entries).fetch_one(&tally.pool).await.ok()?;
        (entries == 1).then_some(())
    })
    .await;
    let (server, base) = start_server_with(&tally.stores, "moved-server", &[("REDIS_URL", &of_server)]).await;
    let [flush, audits] = common;
    let moved = start_worker(
        &tally.stores,
        "moved",
        &[flush, audits, ("REDIS_URL", &of_worker)],
    );
    left.wait_for_line("another worker counts in another Redis").await;
    let mut items = Vec::new();
    for _ in 0..ITEMS {
        let item = tally.item("x").await;
        tally.add_at(&base, item, 1).await;
        items.push(item);
    }
    for item in items {
        eventually("the vote is saved", async || {
            (tally.saved_count(item).await == 1).then_some(())
        })
        .await;
    }
    // A command in the old one does not take the counts back.
    let mut once = command(SYNC_WORKER, Some(&tally.stores));
    once.arg("--once");
    let output = run(once).await;
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("another worker counts in another Redis"),
        "{said}"
    );
    for program in [left, moved, server] {
        stop(program, Signal::SIGTERM).await;
    }
}

/// Runs `redis-cli --cluster` with these words. Returns whether it succeeded, and what it says.
async fn redis_cli(cluster: &PrivateCluster, words: &[&str]) -> (bool, String) {
    let mut command = Command::new("redis-cli");
    command.arg("--cluster").args(words).stdin(Stdio::null());
    let output = command.env("REDISCLI_AUTH", cluster.secret()).output().await;
    let output = output.expect("redis-cli runs: it comes with redis-server");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), said)
}

/// Changes the Cluster, once all nodes agree who has which slot.
async fn change(cluster: &PrivateCluster, words: &[&str]) {
    let first = format!("127.0.0.1:{}", cluster.nodes[0].port());
    eventually("the nodes agree", async || {
        let (is_whole, _) = redis_cli(cluster, &["check", &first]).await;
        is_whole.then_some(())
    })
    .await;
    let (done, said) = redis_cli(cluster, words).await;
    assert!(done, "{words:?}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_comes_into_a_redis_cluster_takes_its_share_of_the_slots_and_goes_again_under_votes() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    let at = |node: &PrivateRedis| format!("127.0.0.1:{}", node.port());
    let first = at(&clustered.cluster.nodes[0]);
    let folder = clustered.tally.stores.folder().join("cluster/new");
    let new = PrivateRedis::new(&folder, clustered.cluster.secret()).expect("a port");
    let started = clustered.cluster.start_another(new.persistent()).await;
    started.expect("it starts");
    let (tally, cluster, items) = (&clustered.tally, &clustered.cluster, &clustered.items);
    let new = cluster.nodes.last().expect("the new one");
    let (new_at, worker) = (at(new), tally.worker());

    let voting = Voting::new(tally, items);
    let has_ended = AtomicBool::new(false);
    let growing = async {
        change(cluster, &["add-node", &new_at, &first]).await;
        eventually("all nodes have met the new one", async || {
            for node in &cluster.nodes {
                let known = clustered.nodes(node.port()).await;
                let is_new = |one: &Line| one.port == new.port() && one.is_primary;
                known.iter().find(|one| is_new(one))?;
            }
            Some(())
        })
        .await;
        // It takes no slots before it has heard from the others who has which.
        eventually("the new one finds the Cluster whole", async || {
            let info = clustered.send(new.port(), "CLUSTER INFO").await.ok()?;
            let info: String = redis::from_redis_value(info).ok()?;
            info.contains("cluster_state:ok").then_some(())
        })
        .await;
        change(cluster, &["rebalance", &first, "--cluster-use-empty-masters"]).await;
        voting.some_more(|| work(&worker)).await;
        assert!(keys_of(new).await > 0, "the new node has some of the counters");

        let lines = clustered.nodes(new.port()).await;
        let own = lines.iter().find(|line| line.is_own).expect("itself");
        let other = lines.iter().find(|line| line.is_primary && !line.is_own);
        let other = other.expect("another one");
        let slots: usize = own
            .slots
            .iter()
            .map(|(from, to)| usize::from(to - from) + 1)
            .sum();
        let slots = slots.to_string();
        let mut words = vec!["reshard", &first, "--cluster-yes", "--cluster-slots", &slots];
        words.extend(["--cluster-from", &own.id, "--cluster-to", &other.id]);
        change(cluster, &words).await;
        change(cluster, &["del-node", &first, &own.id]).await;
        voting.some_more(|| work(&worker)).await;
        has_ended.store(true, Ordering::Release);
    };
    let working = async {
        while !has_ended.load(Ordering::Acquire) {
            work(&worker).await;
        }
    };
    tokio::join!(voting.go_on_at(&tally.base, &has_ended), growing, working);
    voting.assert_exact(&tally.base, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_of_a_redis_cluster_end_at_once_and_come_back_one_of_them_without_its_data() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let owner = clustered.owner(SLOT, 0).await.expect("an owner").port;
    for node in &mut clustered.cluster.nodes {
        node.crash().await;
    }
    assert_eq!(clustered.add_to_all().await, ITEMS, "nobody counts");
    let folder = clustered.tally.stores.folder().join("cluster");
    for (at, node) in (1..).zip(&mut clustered.cluster.nodes) {
        if node.port() == owner {
            let data = folder.join(format!("{at}/appendonlydir"));
            std::fs::remove_dir_all(data).expect("it had data");
        }
        node.start().await.expect("it starts");
    }
    clustered.until_none_is_missed().await;
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_called_nobody_while_nodes_restarted_finds_them_with_its_first_call() {
    let mut clustered = Clustered::start().await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    let items = clustered.items.clone();
    let busy = LiveCounts::open(
        owner(&clustered.tally.server_ledger),
        redis(&clustered.cluster.login_url(Role::Server)),
        SUSPECTS_LIMIT_ITEMS,
        Seeding::All,
    );
    let idle = busy.with_own_connection();
    let is_read = async |thread: &LiveCounts| match thread.read(&items).await {
        Ok(reads) => reads.iter().all(|read| matches!(read, LiveRead::Count(_))),
        Err(_) => false,
    };
    for thread in [&busy, &idle] {
        eventually("the thread reads all counts", async || {
            is_read(thread).await.then_some(())
        })
        .await;
    }
    for node in &mut clustered.cluster.nodes {
        node.crash().await;
    }
    assert!(!is_read(&busy).await, "the nodes are gone");
    for node in &mut clustered.cluster.nodes {
        node.start().await.expect("it starts");
    }
    clustered.until_none_is_missed().await;
    eventually("the busy thread reads all counts", async || {
        is_read(&busy).await.then_some(())
    })
    .await;
    assert!(is_read(&idle).await, "the other one, too, at once");
}
