//! Voters of a pair, who note each answer, and the check that no answered count was impossible.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::StatusCode;
use serde::Deserialize;
use testkit::answered_counts::{Answer, History, Vote};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const VOTERS: u64 = 16;
/// How long a voter waits after an answer.
const BETWEEN: Duration = Duration::from_millis(4);
/// How many impossible counts of a round are written out.
const NAMED_LIMIT: usize = 3;

#[derive(Deserialize)]
struct VoteAnswer {
    vote_count: Option<i64>,
}

/// What voters have seen.
#[derive(Debug, Default)]
pub struct Noted {
    /// All that were stored.
    votes: Vec<Vote>,
    /// The counts that these were answered with.
    answers: Vec<Answer>,
    /// Votes without an answer, which may be stored.
    pub unanswered: Vec<Vote>,
    /// How many votes could not be sent.
    pub unsent: u64,
    /// Other answers.
    pub refusals: Vec<String>,
}

impl Noted {
    pub fn votes(&self) -> usize {
        self.votes.len()
    }
}

/// Voters under way.
pub struct Voters {
    running: JoinSet<anyhow::Result<Noted>>,
    over: watch::Sender<bool>,
}

impl Voters {
    /// Votes on items that nobody else votes on, at all servers, until [`Voters::stop`].
    pub fn start(servers: &[SocketAddr], items: &RangeInclusive<i64>, seed: u64) -> Self {
        let over = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for number in 0..VOTERS {
            let random = StdRng::seed_from_u64(seed ^ ((number + 1) << 32));
            running.spawn(vote(servers.to_vec(), items.clone(), random, over.subscribe()));
        }
        Self { running, over }
    }

    /// Waits for the last answers.
    ///
    /// # Errors
    /// When an answer has no count, and no null for it either.
    pub async fn stop(mut self) -> anyhow::Result<Noted> {
        self.over.send_replace(true);
        let mut all = Noted::default();
        while let Some(one) = self.running.join_next().await {
            let one = one??;
            all.votes.extend(one.votes);
            all.answers.extend(one.answers);
            all.unanswered.extend(one.unanswered);
            all.unsent += one.unsent;
            all.refusals.extend(one.refusals);
        }
        Ok(all)
    }
}

async fn vote(
    servers: Vec<SocketAddr>,
    items: RangeInclusive<i64>,
    mut random: StdRng,
    over: watch::Receiver<bool>,
) -> anyhow::Result<Noted> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut noted = Noted::default();
    while !*over.borrow() {
        sleep(BETWEEN).await;
        let item = random.random_range(items.clone());
        let server = servers[random.random_range(0..servers.len())];
        let request = http
            .post(format!("http://{server}/v1/items/{item}/votes"))
            .json(&serde_json::json!({ "value": 1 }));
        let sent = Instant::now();
        let answered = async {
            let answer = request.send().await?;
            let status = answer.status();
            Ok::<_, reqwest::Error>((status, answer.bytes().await?))
        };
        match answered.await {
            Ok((StatusCode::CREATED, body)) => {
                let answer: VoteAnswer = serde_json::from_slice(&body).context("an answer to a vote")?;
                let ended = Instant::now();
                noted.votes.push(Vote {
                    item,
                    value: 1,
                    sent,
                    // Without a count it may be counted later.
                    acknowledged: answer.vote_count.map(|_| ended),
                });
                noted.answers.extend(answer.vote_count.map(|count| Answer {
                    item,
                    count,
                    began: sent,
                    ended,
                    own: 1,
                }));
            }
            Ok((status, _)) => noted.refusals.push(format!("a vote was answered {status}")),
            Err(error) if error.is_connect() => noted.unsent += 1,
            Err(_) => noted.unanswered.push(Vote {
                item,
                value: 1,
                sent,
                acknowledged: None,
            }),
        }
    }
    Ok(noted)
}

/// All votes of earlier rounds and of this one.
#[derive(Default)]
pub struct Judge {
    votes: Vec<Vote>,
}

impl Judge {
    /// The impossible counts of a round. `forgets_from`: from when on Redis may have forgotten votes, and counts may be too
    /// low until a worker has entered the new epoch. None is ever too high.
    pub fn judge(&mut self, round: &Noted, forgets_from: Option<Instant>) -> Vec<String> {
        self.votes.extend_from_slice(&round.votes);
        self.votes.extend_from_slice(&round.unanswered);
        let history = History::new(self.votes.iter().copied());
        let impossible = history.outside(&round.answers).filter(|(answer, bounds)| {
            let is_certain = forgets_from.is_none_or(|moment| answer.ended < moment);
            is_certain || answer.count > bounds.highest
        });
        let mut found: Vec<String> = impossible
            .map(|(answer, bounds)| format!("an impossible count, within {bounds:?}: {answer:?}"))
            .collect();
        let more = found.len().saturating_sub(NAMED_LIMIT);
        if more > 0 {
            found.truncate(NAMED_LIMIT);
            found.push(format!("{more} more impossible counts"));
        }
        found
    }
}

/// The check is checked: of a vote that is counted twice or not, it finds what an answer shows.
///
/// # Errors
/// When it finds something else.
pub fn check_the_judge() -> anyhow::Result<()> {
    let start = Instant::now();
    let at = |second: u64| start + Duration::from_secs(second);
    let vote = |second: u64| Vote {
        item: 1,
        value: 1,
        sent: at(second),
        acknowledged: Some(at(second + 1)),
    };
    for (count, forgets_from, is_impossible) in [
        (2, None, false),
        (3, None, true),
        (3, Some(at(0)), true),
        (1, None, true),
        (1, Some(at(3)), false),
        (1, Some(at(9)), true),
    ] {
        let answer = Answer {
            item: 1,
            count,
            began: at(2),
            ended: at(3),
            own: 1,
        };
        let noted = Noted {
            votes: vec![vote(0), vote(2)],
            answers: vec![answer],
            unanswered: Vec::new(),
            unsent: 0,
            refusals: Vec::new(),
        };
        let found = Judge::default().judge(&noted, forgets_from);
        anyhow::ensure!(
            found.is_empty() != is_impossible,
            "count {count}, forgotten from {forgets_from:?}: {found:?}"
        );
    }
    Ok(())
}
