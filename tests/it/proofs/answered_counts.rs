//! Every answered count is possible (`testkit::answered_counts`).
//! Meanwhile two servers and two workers restart, and counts expire, are evicted and rebuilt.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tally::dev::free_port;
use tally::domain::ItemId;
use tally::ledger::Role;
use testkit::answered_counts::{Answer, History, Vote};
use testkit::programs::until_ready;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, SYNC_WORKER, TALLY, command, command_as, start};
use crate::helpers::stores::Stores;
use crate::helpers::tally::{counters, made_item, server_ledger};

/// How many clients vote and read at once.
const CLIENTS: usize = 8;
/// The first item gets half of the votes, the last so few that its count expires.
const ITEMS: usize = 8;
/// How often every program is stopped in order and started again.
const RESTARTS: usize = 2;
/// How long a program may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What one client asked, and the answers.
#[derive(Default)]
struct Seen {
    votes: Vec<Vote>,
    answers: Vec<Answer>,
}

struct Client {
    number: usize,
    random: StdRng,
    http: reqwest::Client,
    servers: Vec<String>,
    items: Vec<ItemId>,
    over: watch::Receiver<bool>,
    seen: Seen,
    /// The votes of `seen` with a voter, which can be sent again.
    repeatable: Vec<usize>,
}

impl Client {
    async fn run(mut self) -> Seen {
        while !*self.over.borrow() {
            let server = self.random.random_range(0..self.servers.len());
            match self.random.random_range(0..10) {
                0..4 => self.read(server).await,
                4 if !self.repeatable.is_empty() => {
                    let at = self.repeatable[self.random.random_range(0..self.repeatable.len())];
                    self.cast(server, at).await;
                }
                _ => {
                    let at = self.new_vote();
                    self.cast(server, at).await;
                }
            }
        }
        self.seen
    }

    fn item(&mut self) -> ItemId {
        // Each item half as often as the one before.
        let at = self.random.random::<u32>().leading_zeros() as usize;
        self.items[at.min(self.items.len() - 1)]
    }

    fn new_vote(&mut self) -> usize {
        let at = self.seen.votes.len();
        let vote = Vote {
            item: self.item().get(),
            value: if self.random.random_bool(0.3) { -1 } else { 1 },
            sent: Instant::now(),
            acknowledged: None,
        };
        self.seen.votes.push(vote);
        if self.random.random_bool(0.8) {
            self.repeatable.push(at);
        }
        at
    }

    async fn cast(&mut self, server: usize, at: usize) {
        let vote = self.seen.votes[at];
        let voter = self
            .repeatable
            .contains(&at)
            .then(|| format!("{}-{at}", self.number));
        let url = format!("{}/v1/items/{}/votes", self.servers[server], vote.item);
        let request = self
            .http
            .post(url)
            .json(&json!({ "voter_id": voter, "value": vote.value }));
        let Some((began, answer, ended)) = answered(request).await else {
            return;
        };
        // A null count: the vote will be counted later.
        let Some(count) = answer["vote_count"].as_i64() else {
            return;
        };
        // A repeat: another server may still be counting the vote.
        let is_repeated = answer["repeated"] == true;
        if !is_repeated {
            self.seen.votes[at].acknowledged.get_or_insert(ended);
        }
        self.seen.answers.push(Answer {
            item: vote.item,
            count,
            began,
            ended,
            own: if is_repeated { 0 } else { vote.value },
        });
    }

    async fn read(&mut self, server: usize) {
        let item = self.item();
        let request = self.http.get(format!("{}/v1/items/{item}", self.servers[server]));
        if let Some((began, answer, ended)) = answered(request).await
            && answer["current"] == true
        {
            self.seen.answers.push(Answer {
                item: item.get(),
                count: answer["vote_count"].as_i64().expect("a count"),
                began,
                ended,
                own: 0,
            });
        }
    }
}

/// The answer, and the times of its request and its arrival.
/// `None` for a refusal, and for a connection that ended, as when a server stops.
async fn answered(request: reqwest::RequestBuilder) -> Option<(Instant, Value, Instant)> {
    let began = Instant::now();
    let response = request.send().await.ok()?;
    let is_good = response.status().is_success();
    let answer: Value = response.json().await.ok()?;
    is_good.then(|| (began, answer, Instant::now()))
}

/// The sum of the workers' metrics with this name and these labels.
async fn sum(workers: &[String], name: &str) -> f64 {
    let mut sum = 0.0;
    for worker in workers {
        let Ok(response) = reqwest::get(format!("{worker}/metrics")).await else {
            continue;
        };
        let text = response.text().await.unwrap_or_default();
        let values = text.lines().filter_map(|line| line.strip_prefix(name));
        sum += values
            .filter_map(|value| value.trim().parse::<f64>().ok())
            .sum::<f64>();
    }
    sum
}

async fn restart(program: &mut Program) {
    let code = program.stop(Signal::SIGTERM, STOP_LIMIT).await.expect("it stops");
    assert_eq!(code, Some(0), "{}", program.output());
    program.start_again().expect("it starts");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_count_that_is_answered_lies_between_what_was_acknowledged_and_what_was_sent() {
    let stores = Stores::start().await;
    let ledger = server_ledger(&stores.database_url);
    let mut items = Vec::new();
    for _ in 0..ITEMS {
        items.push(made_item(&ledger, "x").await);
    }
    let (mut servers, mut urls) = (Vec::new(), Vec::new());
    let (mut workers, mut worker_urls) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let listen = format!("127.0.0.1:{}", free_port().expect("a port"));
        let mut serve = command_as(TALLY, Some((&stores, Role::Server)));
        serve.arg("serve").env("TALLY_LISTEN", &listen);
        servers.push(start(serve, &stores, &format!("server-{number}")));
        urls.push(format!("http://{listen}"));
        let listen = format!("127.0.0.1:{}", free_port().expect("a port"));
        let mut worker = command(SYNC_WORKER, Some(&stores));
        worker.envs([
            ("TALLY_WORKER_LISTEN", listen.as_str()),
            ("TALLY_FLUSH_EVERY", "50ms"),
            ("TALLY_FLUSH_PAGE", "3"),
            ("TALLY_SCAN_EVERY", "200ms"),
            ("TALLY_RETENTION", "100ms"),
            ("TALLY_MAX_AGE", "1s"),
            ("TALLY_AUDIT_CRON", "* * * * * *"),
        ]);
        workers.push(start(worker, &stores, &format!("worker-{number}")));
        worker_urls.push(format!("http://{listen}"));
    }
    for url in &urls {
        until_ready(url).await.expect("a server that is ready");
    }

    let over = watch::Sender::new(false);
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let client = Client {
            number,
            random: StdRng::seed_from_u64(number as u64),
            http: reqwest::Client::builder().no_proxy().build().expect("a client"),
            servers: urls.clone(),
            items: items.clone(),
            over: over.subscribe(),
            seen: Seen::default(),
            repeatable: Vec::new(),
        };
        clients.spawn(client.run());
    }
    let counters = counters(&stores.redis_login_url(Role::Worker));
    for _ in 0..RESTARTS {
        for at in 0..2 {
            counters.invalidate(&items).await.expect("Redis answers");
            restart(&mut servers[at]).await;
            until_ready(&urls[at]).await.expect("a server that is ready");
            counters.invalidate(&items).await.expect("Redis answers");
            restart(&mut workers[at]).await;
            for metric in [
                r#"tally_live_invalidations_total{why="age"}"#,
                "tally_expired_counts_total",
                "tally_rebuilt_counts_total",
                "tally_audit_seconds_count",
            ] {
                eventually(&format!("{metric} is above 0"), async || {
                    (sum(&worker_urls, metric).await > 0.0).then_some(())
                })
                .await;
            }
        }
    }
    over.send_replace(true);
    let seen = clients.join_all().await;

    let votes = seen.iter().flat_map(|one| one.votes.iter().copied());
    let history = History::new(votes);
    let answers: Vec<Answer> = seen.iter().flat_map(|one| one.answers.iter().copied()).collect();
    assert!(!answers.is_empty());
    let outside: Vec<_> = history.outside(&answers).collect();
    assert!(
        outside.is_empty(),
        "{} of {} answers lie outside, such as {:?}",
        outside.len(),
        answers.len(),
        outside.first()
    );
    println!("{} answers, all inside", answers.len());
}
