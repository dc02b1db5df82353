//! Clients of items with rules: they change and take back votes, fill items that take only so
//! many, and move their votes in polls. Each records what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::pause::Pause;

/// Clients in a round.
const CLIENTS: usize = 6;
/// Voters of one client. Nobody else votes for them, so what they hold is known.
const VOTERS: usize = 5;
/// Votes that the limited item takes: fewer than there are voters.
const MAX_VOTES: i64 = 20;
/// How long a client waits for an answer, at the most.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How long all clients may take to have their last requests answered.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// What the ruled clients vote on.
#[derive(Clone, Debug)]
struct Targets {
    /// Without a rule: changed and taken back.
    plain: i64,
    /// Limited and numbered.
    limited: i64,
    /// One choice, and several.
    polls: Vec<(i64, Vec<i64>)>,
}

/// Creates the items and polls of the ruled clients.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(&format!(
        "insert into item (name) values ('changed');
         with made as (insert into rule default values returning id),
              item as (insert into item (name, rule_id) select 'limited', id from made returning id)
         insert into place (item_id, max_votes, is_numbered) select id, {MAX_VOTES}, true from item;
         with made as (insert into rule (title, max_choices) values ('one', 1), ('two', 2) returning id, title)
         insert into item (name, rule_id, takes_down_votes)
         select title, id, false from made, generate_series(1, 4)"
    ))
    .execute(owner)
    .await?;
    Ok(())
}

impl Targets {
    async fn read(owner: &PgPool) -> anyhow::Result<Self> {
        let items: Vec<(i64, String, Option<i64>)> =
            sqlx::query_as("select id, name, rule_id from item where name not like 'item %' order by id")
                .fetch_all(owner)
                .await?;
        let mut polls: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let (mut plain, mut limited) = (0, 0);
        for (id, name, rule) in items {
            match (name.as_str(), rule) {
                ("changed", _) => plain = id,
                ("limited", _) => limited = id,
                (_, Some(poll)) => polls.entry(poll).or_default().push(id),
                (_, None) => {}
            }
        }
        Ok(Self {
            plain,
            limited,
            polls: polls.into_iter().collect(),
        })
    }
}

/// What a voter may hold: values by item.
type Held = BTreeMap<i64, i64>;

/// What one voter may hold on one target, as far as it was answered.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What the last decision that was answered has left.
    answered: Held,
    /// What requests without an answer ask for: they may be decided at any time until the end.
    open: BTreeSet<Held>,
}

/// What was answered to the clients of a round.
#[derive(Debug, Default)]
pub struct RuledRecords {
    /// By the items of a target and the voter.
    known: BTreeMap<(Vec<i64>, String), Known>,
    /// Numbers that were answered, with their votes.
    numbers: BTreeMap<i64, i64>,
    /// Requests that were answered.
    pub answered: u64,
    wrong_answers: Vec<String>,
}

/// The running clients.
pub struct RuledClients {
    running: JoinSet<RuledRecords>,
    over: watch::Sender<bool>,
}

impl RuledClients {
    /// Starts them over all servers.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn start(seed: u64, servers: &[String], pause: &Pause, owner: &PgPool) -> anyhow::Result<Self> {
        let targets = Targets::read(owner).await?;
        let over = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let client = RuledClient {
                number,
                targets: targets.clone(),
                servers: servers.to_vec(),
                random: StdRng::seed_from_u64(seed ^ ((number as u64 + 1) << 48)),
                http: reqwest::Client::new(),
                over: over.subscribe(),
                pause: pause.clone(),
                records: RuledRecords::default(),
            };
            running.spawn(client.run());
        }
        Ok(Self { running, over })
    }

    /// Ends them once the last request of each voter is answered.
    ///
    /// # Errors
    /// When a client has failed.
    pub async fn finish(mut self) -> anyhow::Result<RuledRecords> {
        self.over.send_replace(true);
        let mut all = RuledRecords::default();
        while let Some(one) = self.running.join_next().await {
            let one = one?;
            all.known.extend(one.known);
            all.numbers.extend(one.numbers);
            all.answered += one.answered;
            all.wrong_answers.extend(one.wrong_answers);
        }
        Ok(all)
    }
}

impl RuledRecords {
    /// What must not be, in words.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(&self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let mut problems: Vec<String> = self.wrong_answers.iter().take(10).cloned().collect();
        problems.extend(testkit::rules::broken(owner).await?.into_iter().take(10));
        let rows: Vec<(i64, String, i64)> = sqlx::query_as(
            "select item_id, voter_id, sum(value)::bigint from vote
             where voter_id like 'ruled %' group by item_id, voter_id having sum(value) <> 0",
        )
        .fetch_all(owner)
        .await?;
        for ((items, voter), known) in &self.known {
            let of_voter = rows
                .iter()
                .filter(|(item, who, _)| items.contains(item) && who == voter);
            let held: Held = of_voter.map(|(item, _, value)| (*item, *value)).collect();
            if held != known.answered && !known.open.contains(&held) {
                problems.push(format!("{voter} holds {held:?} and was answered {known:?}"));
            }
        }
        for (vote, number) in &self.numbers {
            let stored: Option<i64> = sqlx::query_scalar("select number from vote where id = $1")
                .bind(vote)
                .fetch_optional(owner)
                .await?
                .flatten();
            if stored != Some(*number) {
                problems.push(format!(
                    "vote {vote} was answered the number {number} and has {stored:?}"
                ));
            }
        }
        Ok(problems)
    }
}

/// One request, and what it asks for.
struct Request {
    items: Vec<i64>,
    voter: String,
    method: Method,
    path: String,
    body: Option<Value>,
    wanted: Held,
    /// Whether a vote that is held stays.
    keeps: bool,
}

struct RuledClient {
    number: usize,
    targets: Targets,
    servers: Vec<String>,
    random: StdRng,
    http: reqwest::Client,
    over: watch::Receiver<bool>,
    pause: Pause,
    records: RuledRecords,
}

impl RuledClient {
    async fn run(mut self) -> RuledRecords {
        while !*self.over.borrow() {
            let request = self.request();
            let busy = self.pause.go_on().await;
            let is_answered = self.send(&request).await;
            self.records.answered += u64::from(is_answered);
            drop(busy);
            sleep(Duration::from_millis(self.random.random_range(0..20))).await;
        }
        // Each voter's last request must be answered, now that everything works again.
        let ends = Instant::now() + FINISH_LIMIT;
        for at in 0..VOTERS {
            let request = self.change(&format!("ruled {} {at}", self.number));
            while !self.send(&request).await {
                if Instant::now() > ends {
                    let why = format!("never answered, though all was repaired: {}", request.path);
                    self.records.wrong_answers.push(why);
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        self.records
    }

    fn request(&mut self) -> Request {
        let voter = format!("ruled {} {}", self.number, self.random.random_range(0..VOTERS));
        match self.random.random_range(0..3) {
            0 => self.change(&voter),
            1 => self.limited(&voter),
            _ => self.select(&voter),
        }
    }

    fn change(&mut self, voter: &str) -> Request {
        let item = self.targets.plain;
        let value = *[1, -1, 0].choose(&mut self.random).unwrap_or(&1);
        self.set(item, voter, value)
    }

    fn set(&self, item: i64, voter: &str, value: i64) -> Request {
        Request {
            items: vec![item],
            voter: voter.to_owned(),
            method: if value == 0 { Method::DELETE } else { Method::PUT },
            path: format!("/v1/items/{item}/votes/{}", voter.replace(' ', "%20")),
            body: (value != 0).then(|| json!({ "value": value })),
            wanted: (value != 0).then_some((item, value)).into_iter().collect(),
            keeps: false,
        }
    }

    fn limited(&mut self, voter: &str) -> Request {
        let item = self.targets.limited;
        if self.random.random_bool(0.4) {
            return self.set(item, voter, 0);
        }
        Request {
            items: vec![item],
            voter: voter.to_owned(),
            method: Method::POST,
            path: format!("/v1/items/{item}/votes"),
            body: Some(json!({ "voter_id": voter })),
            wanted: Held::from([(item, 1)]),
            keeps: true,
        }
    }

    fn select(&mut self, voter: &str) -> Request {
        let at = self.random.random_range(0..self.targets.polls.len());
        let (poll, choices) = self.targets.polls[at].clone();
        let limit = at + 1;
        let chosen: Vec<i64> = choices
            .choose_multiple(&mut self.random, limit)
            .take(self.random.random_range(0..=limit))
            .copied()
            .collect();
        Request {
            wanted: chosen.iter().map(|item| (*item, 1)).collect(),
            items: choices,
            voter: voter.to_owned(),
            method: Method::PUT,
            path: format!("/v1/polls/{poll}/votes/{}", voter.replace(' ', "%20")),
            body: Some(json!({ "items": chosen })),
            keeps: false,
        }
    }

    /// Sends a request and notes the answer. Returns whether it was answered.
    async fn send(&mut self, request: &Request) -> bool {
        let server = &self.servers[self.random.random_range(0..self.servers.len())];
        let sent = self
            .http
            .request(request.method.clone(), format!("{server}{}", request.path))
            .timeout(ANSWER_LIMIT)
            .json(&request.body);
        let answer = async {
            let response = sent.send().await.ok()?;
            let status = response.status();
            Some((status, response.json::<Value>().await.ok()?))
        };
        let answer = answer.await;
        let key = (request.items.clone(), request.voter.clone());
        let known = self.records.known.entry(key).or_default();
        match answer {
            Some((StatusCode::OK | StatusCode::CREATED, answer)) => {
                // A repeat of a vote tells what is held already.
                let value = answer["value"].as_i64().filter(|_| request.keeps);
                known.answered = match value {
                    Some(value) => request.wanted.keys().map(|item| (*item, value)).collect(),
                    None => request.wanted.clone(),
                };
                if let (Some(number), Some(vote)) = (answer["number"].as_i64(), answer["vote_id"].as_i64()) {
                    self.records.numbers.insert(vote, number);
                }
                true
            }
            Some((StatusCode::CONFLICT, answer)) => {
                // Full: this voter held nothing, and nothing was stored.
                if answer["type"] != "urn:tally:problem:full" {
                    self.records
                        .wrong_answers
                        .push(format!("{}: {answer}", request.path));
                }
                known.answered = Held::new();
                true
            }
            Some((StatusCode::SERVICE_UNAVAILABLE, answer)) if answer["stored"] == "no" => false,
            Some((StatusCode::SERVICE_UNAVAILABLE, _)) | None => {
                known.open.insert(request.wanted.clone());
                false
            }
            Some((status, answer)) => {
                let why = format!("{} was answered {status}: {answer}", request.path);
                self.records.wrong_answers.push(why);
                true
            }
        }
    }
}
