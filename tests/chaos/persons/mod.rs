//! Persons who vote under several voter ids. An operator makes two of them one, or erases one, while faults
//! begin and programs are killed; and imports a file. Each person asks for one thing after the other, so who
//! holds what at the end is known.

mod operator;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use reqwest::Method;
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::asking::ask;
use crate::cluster::Cluster;
use crate::credentials;
use crate::pause::Pause;
use operator::Operator;

/// Persons in a round.
const PERSONS: u64 = 3;
/// Votes under a new voter id, before it is merged.
const VOTES: usize = 4;
/// The longest that a person waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// The time between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// How long what is left may take once all faults have ended.
const FINISH_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the file that is imported.
const LINES: usize = 12_000;
/// Items that the file names.
const ITEMS_OF_FILE: usize = 5;

/// Stands for all erased voters.
const ERASED: &str = "erased";

/// What voters hold: by voter id and item.
type Held = BTreeMap<(String, i64), i64>;

/// Creates the items and the poll.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(
        "insert into item (name) values ('person plain'), ('person plain');
         with made as (insert into rule (title, max_choices) values ('person poll', 1) returning id)
         insert into item (name, rule_id) select 'person poll', id from made, generate_series(1, 3)",
    )
    .execute(owner)
    .await?;
    Ok(())
}

/// The items, and which of them are choices of the poll.
#[derive(Clone, Debug, Default)]
struct Targets {
    items: Vec<i64>,
    choices: Vec<i64>,
}

/// What a round's persons did.
#[derive(Debug, Default)]
pub struct PersonRecords {
    held: Held,
    /// Edits that were done.
    pub edits: u64,
    /// Times that a program was killed.
    pub killed: u64,
    problems: Vec<String>,
}

/// The running persons, and the import.
pub struct Persons {
    running: JoinSet<anyhow::Result<PersonRecords>>,
    over: watch::Sender<bool>,
}

impl Persons {
    /// Starts them. The programs' outputs go to `folder`.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn start(
        seed: u64,
        cluster: &Arc<Cluster>,
        owner: &PgPool,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let rows: Vec<(i64, bool)> =
            sqlx::query_as("select id, rule_id is not null from item where name like 'person %' order by id")
                .fetch_all(owner)
                .await?;
        let choices = rows.iter().filter(|(_, is_choice)| *is_choice);
        let targets = Targets {
            items: rows.iter().map(|(id, _)| *id).collect(),
            choices: choices.map(|(id, _)| *id).collect(),
        };
        let over = watch::Sender::new(false);
        let operator = Arc::new(Operator::new(cluster, folder).await);
        let mut running = JoinSet::new();
        for number in 0..PERSONS {
            let person = Person {
                number,
                targets: targets.clone(),
                servers: cluster.urls.clone(),
                http: credentials::backend(),
                random: StdRng::seed_from_u64(seed ^ ((number + 1) << 36)),
                over: over.subscribe(),
                pause: cluster.orderly.clone(),
                operator: Arc::clone(&operator),
                ends: None,
                records: PersonRecords::default(),
            };
            running.spawn(person.run());
        }
        running.spawn(import(
            folder.join("imported.csv"),
            StdRng::seed_from_u64(seed ^ (1 << 35)),
            over.subscribe(),
            operator,
        ));
        Ok(Self { running, over })
    }

    /// Ends them once what each of them began is done.
    ///
    /// # Errors
    /// When one has failed.
    pub async fn finish(mut self) -> anyhow::Result<PersonRecords> {
        self.over.send_replace(true);
        let mut all = PersonRecords::default();
        while let Some(one) = self.running.join_next().await {
            let one = one??;
            for (key, value) in one.held {
                *all.held.entry(key).or_default() += value;
            }
            all.edits += one.edits;
            all.killed += one.killed;
            all.problems.extend(one.problems);
        }
        Ok(all)
    }
}

impl PersonRecords {
    /// What is not as it must be.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(&self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(
            "select case when voter_id like 'erased-%' then 'erased' else voter_id end, item_id, sum(value)::bigint
             from vote where item_id in (select id from item where name like 'person %')
             group by 1, item_id having sum(value) <> 0",
        )
        .fetch_all(owner)
        .await?;
        let found: Held = rows
            .into_iter()
            .map(|(voter, item, value)| ((voter, item), value))
            .collect();
        let mut problems = self.problems.clone();
        let missing = self
            .held
            .iter()
            .filter(|(key, value)| found.get(key).unwrap_or(&0) != *value);
        problems.extend(
            missing.map(|(key, value)| format!("{key:?} must hold {value}, and holds {:?}", found.get(key))),
        );
        let further = found.iter().filter(|(key, _)| !self.held.contains_key(key));
        problems.extend(further.map(|(key, value)| format!("{key:?} must hold nothing, and holds {value}")));
        let imported: Vec<(String, i64, i64)> = sqlx::query_as(
            "select key, count(*), sum(value)::bigint from vote join item on item.id = item_id
             where key like 'imported %' group by key order by key",
        )
        .fetch_all(owner)
        .await?;
        let each = i64::try_from(LINES / ITEMS_OF_FILE)?;
        let right = |(_, rows, sum): &(String, i64, i64)| (*rows, *sum) == (each, each);
        if imported.len() != ITEMS_OF_FILE || !imported.iter().all(right) {
            problems.push(format!("each line of the file must be one vote: {imported:?}"));
        }
        Ok(problems)
    }
}

/// Imports a file, while it is killed again and again.
async fn import(
    path: std::path::PathBuf,
    mut random: StdRng,
    over: watch::Receiver<bool>,
    operator: Arc<Operator>,
) -> anyhow::Result<PersonRecords> {
    let mut text = "item_key,voter_id\n".to_owned();
    for line in 0..LINES {
        // Lines without a voter are stored once, too.
        let voter = if line % 4 == 0 {
            String::new()
        } else {
            format!("imported-{line}")
        };
        text += &format!("imported {},{voter}\n", line % ITEMS_OF_FILE);
    }
    tokio::fs::write(&path, text).await?;
    let arguments = ["import", "votes", &path.to_string_lossy(), "--make-items"].map(str::to_owned);
    let mut records = PersonRecords::default();
    let mut ends = None;
    while !operator
        .run(&arguments, &mut random, &over, &mut records.killed)
        .await
    {
        if is_late(&over, &mut ends) {
            records.problems.push("the import never ended".to_owned());
            break;
        }
        sleep(AGAIN_AFTER).await;
    }
    Ok(records)
}

/// Whether all faults ended too long ago.
fn is_late(over: &watch::Receiver<bool>, ends: &mut Option<Instant>) -> bool {
    *over.borrow() && Instant::now() > *ends.get_or_insert_with(|| Instant::now() + FINISH_LIMIT)
}

struct Person {
    number: u64,
    targets: Targets,
    servers: Vec<String>,
    http: reqwest::Client,
    random: StdRng,
    over: watch::Receiver<bool>,
    pause: Pause,
    operator: Arc<Operator>,
    /// When it gives up what is left. Set once all faults have ended.
    ends: Option<Instant>,
    records: PersonRecords,
}

impl Person {
    async fn run(mut self) -> anyhow::Result<PersonRecords> {
        let mut own = format!("person-{}-0", self.number);
        self.vote_as(&own).await;
        for round in 1.. {
            if *self.over.borrow() {
                break;
            }
            let next = format!("person-{}-{round}", self.number);
            self.vote_as(&next).await;
            let (arguments, to) = match self.random.random_range(0..4) {
                0 => (vec!["erase", &own], None),
                1 => {
                    let renamed = format!("{next}-renamed");
                    if !self.edit(&["rename", &next, &renamed]).await {
                        break;
                    }
                    self.merge(&next, &renamed);
                    own = renamed;
                    continue;
                }
                _ => (vec!["merge", &own, &next], Some(next.clone())),
            };
            if !self.edit(&arguments).await {
                break;
            }
            match to {
                Some(to) => self.merge(&own.clone(), &to),
                None => self.forget(&own.clone()),
            }
            own = next;
        }
        Ok(self.records)
    }

    /// Votes as this voter, until it is answered.
    async fn vote_as(&mut self, voter: &str) {
        for _ in 0..VOTES {
            let item = *self.targets.items.choose(&mut self.random).unwrap_or(&0);
            let value = if self.random.random_bool(0.3) { -1 } else { 1 };
            let body = json!({ "value": value });
            loop {
                let server = self.servers.choose(&mut self.random).cloned().unwrap_or_default();
                let url = format!("{server}/v1/items/{item}/votes/{voter}");
                let busy = self.pause.go_on().await;
                let asked = ask(&self.http, Method::PUT, url, &body, ANSWER_LIMIT).await;
                drop(busy);
                if matches!(asked.answer, Some((200 | 201, _))) {
                    break;
                }
                if is_late(&self.over, &mut self.ends) {
                    let why = format!(
                        "never answered, though all was repaired: {voter}, {:?}",
                        asked.answer
                    );
                    self.records.problems.push(why);
                    return;
                }
                sleep(AGAIN_AFTER).await;
            }
            // A voter has one choice of the poll.
            if self.targets.choices.contains(&item) {
                let choices = &self.targets.choices;
                self.records
                    .held
                    .retain(|(of, held), _| of != voter || !choices.contains(held));
            }
            self.records.held.insert((voter.to_owned(), item), value);
        }
    }

    /// Edits a voter, while programs are killed. Returns whether it was done.
    async fn edit(&mut self, arguments: &[&str]) -> bool {
        let mut all = vec!["voter".to_owned()];
        all.extend(arguments.iter().map(|part| (*part).to_owned()));
        all.push("--apply".to_owned());
        while !self
            .operator
            .run(&all, &mut self.random, &self.over, &mut self.records.killed)
            .await
        {
            if is_late(&self.over, &mut self.ends) {
                let why = format!("never done, though all was repaired: {arguments:?}");
                self.records.problems.push(why);
                return false;
            }
            sleep(AGAIN_AFTER).await;
        }
        self.records.edits += 1;
        true
    }

    /// What the first voter holds becomes the second's, unless that one cannot hold both.
    fn merge(&mut self, from: &str, to: &str) {
        let of = |voter: &str, held: &Held| -> Vec<(i64, i64)> {
            let own = held.iter().filter(|((of, _), _)| of == voter);
            own.map(|((_, item), value)| (*item, *value)).collect()
        };
        let held = &mut self.records.held;
        let choices = &self.targets.choices;
        let has_choice = of(to, held).iter().any(|(item, _)| choices.contains(item));
        for (item, value) in of(from, held) {
            held.remove(&(from.to_owned(), item));
            if !(has_choice && choices.contains(&item)) {
                held.entry((to.to_owned(), item)).or_insert(value);
            }
        }
    }

    /// What an erased voter held is nobody's.
    fn forget(&mut self, voter: &str) {
        let held = &mut self.records.held;
        let own: Vec<(String, i64)> = held.keys().filter(|(of, _)| of == voter).cloned().collect();
        for key in own {
            if let Some(value) = held.remove(&key) {
                *held.entry((ERASED.to_owned(), key.1)).or_default() += value;
            }
        }
    }
}
