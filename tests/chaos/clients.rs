//! Clients that record what they asked and what was acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use testkit::answered_counts::Answer;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::credentials;
use crate::pause::Pause;
use crate::records::{Record, Records, Reply, ReplyTo};

/// The part of all requests that is sent twice, to both servers at once.
const TWICE: f64 = 0.12;
/// The part of all votes that is anonymous. These are never sent again after a failure.
const ANONYMOUS: f64 = 0.1;
/// The part of all votes that goes to the first item.
const HOT: f64 = 0.5;
/// The part of all votes that is −1.
const DOWN: f64 = 0.2;
/// The part of all requests that reads an item.
const READ: f64 = 0.25;
/// How long a client waits for an item.
const READ_LIMIT: Duration = Duration::from_secs(8);
/// A client with this many unacknowledged votes casts no new ones.
const OPEN_LIMIT_VOTES: usize = 200;
/// How long all clients may take to have these votes acknowledged once all faults have
/// ended.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct ReadAnswer {
    vote_count: i64,
    current: bool,
}

/// The running clients.
pub struct Clients {
    running: JoinSet<Records>,
    over: watch::Sender<bool>,
    acknowledged: Arc<AtomicU64>,
}

impl Clients {
    /// Starts casting votes on the items 1 to `items` over all servers.
    pub fn start(seed: u64, clients: usize, items: i64, servers: &[String], pause: &Pause) -> Self {
        let over = watch::Sender::new(false);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut running = JoinSet::new();
        for number in 0..clients {
            let client = Client {
                number,
                items,
                servers: servers.to_vec(),
                random: StdRng::seed_from_u64(seed ^ ((number as u64 + 1) << 32)),
                http: reqwest::Client::new(),
                over: over.subscribe(),
                pause: pause.clone(),
                acknowledged: Arc::clone(&acknowledged),
                records: Records::default(),
            };
            running.spawn(client.run());
        }
        Self {
            running,
            over,
            acknowledged,
        }
    }

    /// Votes acknowledged so far; each counts once.
    pub fn acknowledged(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.acknowledged)
    }

    /// Casts no new votes, waits until the open ones are acknowledged, and returns the
    /// records.
    pub async fn finish(mut self) -> anyhow::Result<Records> {
        self.over.send_replace(true);
        let mut all = Records::default();
        while let Some(one) = self.running.join_next().await {
            all.add(one?);
        }
        Ok(all)
    }
}

struct Client {
    number: usize,
    items: i64,
    servers: Vec<String>,
    random: StdRng,
    http: reqwest::Client,
    over: watch::Receiver<bool>,
    pause: Pause,
    acknowledged: Arc<AtomicU64>,
    records: Records,
}

impl Client {
    async fn run(mut self) -> Records {
        // Votes with a voter id that are not acknowledged yet.
        let mut open: Vec<usize> = Vec::new();
        let mut finish_by = None;
        loop {
            let over = *self.over.borrow();
            if over {
                let ends = *finish_by.get_or_insert(Instant::now() + FINISH_LIMIT);
                if open.is_empty() || Instant::now() > ends {
                    return self.records;
                }
            }
            let busy = self.pause.go_on().await;
            if !over && self.random.random_bool(READ) {
                self.read().await;
                continue;
            }
            let again = over || open.len() >= OPEN_LIMIT_VOTES || self.random.random_bool(0.3);
            let at = if again && !open.is_empty() {
                open.swap_remove(self.random.random_range(0..open.len()))
            } else {
                self.new_vote()
            };
            let is_finished = self.cast(at).await;
            drop(busy);
            if !is_finished {
                open.push(at);
                sleep(Duration::from_millis(self.random.random_range(5..50))).await;
            }
            sleep(Duration::from_millis(self.random.random_range(0..4))).await;
        }
    }

    fn item(&mut self) -> i64 {
        if self.random.random_bool(HOT) {
            1
        } else {
            self.random.random_range(1..=self.items)
        }
    }

    fn new_vote(&mut self) -> usize {
        let at = self.records.votes.len();
        let voter = (!self.random.random_bool(ANONYMOUS)).then(|| format!("voter-{}-{at}", self.number));
        let item = self.item();
        let value = if self.random.random_bool(DOWN) { -1 } else { 1 };
        self.records.votes.push(Record {
            item,
            voter,
            value,
            requests: 0,
            acknowledged: Vec::new(),
            timed: None,
            is_lost: false,
        });
        at
    }

    /// Sends a vote once or twice. Returns whether it is finished: it is acknowledged, or it is
    /// anonymous and never sent again.
    async fn cast(&mut self, at: usize) -> bool {
        let first = self.random.random_range(0..self.servers.len());
        let limit = Duration::from_millis(self.random.random_range(1000..8000));
        let vote = self.records.votes[at].clone();
        let post = self.post(first, &vote, limit);
        let replies = if self.random.random_bool(TWICE) {
            let second = (first + 1) % self.servers.len();
            let (one, other) = tokio::join!(post, self.post(second, &vote, limit));
            vec![one, other]
        } else {
            vec![post.await]
        };
        let was_acknowledged = !self.records.votes[at].acknowledged.is_empty();
        self.records.note(at, &replies);
        let record = &mut self.records.votes[at];
        let mut acknowledged = 0;
        let count =
            |is: fn(&ReplyTo) -> bool| replies.iter().filter(|reply| is(&reply.answer)).count() as u64;
        let throttled = count(|answer| matches!(answer, ReplyTo::Throttled));
        let ran_out = count(|answer| matches!(answer, ReplyTo::RanOut));
        // A refused request stores nothing, so it explains no row.
        record.requests += replies.len() as u64 - throttled - ran_out;
        self.records.throttled += throttled;
        self.records.ran_out += ran_out;
        for reply in replies {
            match reply.answer {
                ReplyTo::Acknowledged(answer) => {
                    if (answer.item_id, answer.voter_id.as_ref(), answer.value)
                        != (vote.item, vote.voter.as_ref(), vote.value)
                    {
                        self.records
                            .wrong_answers
                            .push(format!("{vote:?} was answered as another vote"));
                    }
                    if vote.voter.is_none() || !was_acknowledged && acknowledged == 0 {
                        self.acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    acknowledged += 1;
                }
                ReplyTo::Open | ReplyTo::Throttled | ReplyTo::RanOut => {}
                ReplyTo::Wrong(why) => self.records.wrong_answers.push(why),
            }
        }
        record.voter.is_none() || !record.acknowledged.is_empty()
    }

    /// Sends a vote, with a credential that may cast it.
    fn post(&mut self, server: usize, vote: &Record, limit: Duration) -> impl Future<Output = Reply> + use<> {
        let url = format!("{}/v1/items/{}/votes", self.servers[server], vote.item);
        let body = serde_json::json!({ "voter_id": vote.voter, "value": vote.value });
        let request = self.http.post(url).json(&body).timeout(limit);
        let (request, runs_out) = credentials::add(request, vote.voter.as_deref(), &mut self.random);
        let vote = format!("{vote:?}");
        async move {
            let began = Instant::now();
            let answer = answer_to(request, &vote, runs_out).await;
            Reply {
                began,
                ended: Instant::now(),
                answer,
            }
        }
    }

    /// Reads an item. A refusal is no answer, and a count that is marked as not current is none
    /// either.
    async fn read(&mut self) {
        let item = self.item();
        let server = &self.servers[self.random.random_range(0..self.servers.len())];
        let request = self
            .http
            .get(format!("{server}/v1/items/{item}"))
            .timeout(READ_LIMIT);
        let began = Instant::now();
        let Ok(response) = request.send().await else {
            return;
        };
        if !response.status().is_success() {
            return;
        }
        match response.json::<ReadAnswer>().await {
            Ok(answer) if answer.current => self.records.answers.push(Answer {
                item,
                count: answer.vote_count,
                began,
                ended: Instant::now(),
                own: 0,
            }),
            Err(error) if error.is_decode() => {
                self.records
                    .wrong_answers
                    .push(format!("an item that cannot be read: {error}"));
            }
            _ => {}
        }
    }
}

async fn answer_to(request: RequestBuilder, vote: &str, runs_out: bool) -> ReplyTo {
    let Ok(response) = request.send().await else {
        return ReplyTo::Open;
    };
    match response.status() {
        StatusCode::CREATED | StatusCode::OK => match response.bytes().await {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(answer) => ReplyTo::Acknowledged(answer),
                Err(error) => ReplyTo::Wrong(format!("an acknowledgement that cannot be read: {error}")),
            },
            Err(_) => ReplyTo::Open,
        },
        StatusCode::SERVICE_UNAVAILABLE if response.headers().contains_key("retry-after") => ReplyTo::Open,
        StatusCode::UNAUTHORIZED if runs_out => ReplyTo::RanOut,
        StatusCode::TOO_MANY_REQUESTS if response.headers().contains_key("retry-after") => ReplyTo::Throttled,
        status => ReplyTo::Wrong(format!("{vote} was answered {status}")),
    }
}
