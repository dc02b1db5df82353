//! Clients of items with rules: they change and take back votes, fill an item with a limit of votes,
//! move their votes in polls, and read what voters hold. Each client records its answers and when
//! they came.

mod client;
mod judge;

use std::collections::BTreeMap;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use sqlx::PgPool;
use testkit::linearizable::items::ItemOperation;
use testkit::linearizable::polls::PollOperation;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::credentials;
use crate::pause::Pause;
use client::RuledClient;

/// Clients in a round.
const CLIENTS: u32 = 6;
/// Voters of one client. Nobody else votes for them; others read what they hold.
const VOTERS: u32 = 5;
/// Votes that the limited item takes: fewer than there are voters.
const MAX_VOTES: usize = 20;
/// The longest that a client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// How long all clients may take to have their last requests answered.
const FINISH_LIMIT: Duration = Duration::from_secs(60);

/// What the ruled clients vote on.
#[derive(Clone, Debug, Default)]
struct Targets {
    /// Without a rule: changed and taken back.
    plain: i64,
    /// Limited and numbered.
    limited: i64,
    /// One choice, and several.
    polls: Vec<PollTarget>,
}

#[derive(Clone, Debug)]
struct PollTarget {
    id: i64,
    max_choices: usize,
    choices: Vec<i64>,
}

/// The voter's id, as it is sent.
fn voter_id(voter: u32) -> String {
    format!("ruled-{voter}")
}

/// Creates the items and polls of the ruled clients. Those of an earlier round keep their votes, and get another name.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(&format!(
        "update item set name = 'earlier' where name in ('changed', 'limited', 'one', 'two');
         insert into item (name) values ('changed');
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
        let items: Vec<(i64, String, Option<i64>)> = sqlx::query_as(
            "select id, name, rule_id from item
                 where name in ('changed', 'limited', 'one', 'two') order by id",
        )
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
        let polls = (1..).zip(polls).map(|(max_choices, (id, choices))| PollTarget {
            id,
            max_choices,
            choices,
        });
        Ok(Self {
            plain,
            limited,
            polls: polls.collect(),
        })
    }

    fn items(&self) -> Vec<i64> {
        let choices = self.polls.iter().flat_map(|poll| poll.choices.iter().copied());
        choices.chain([self.plain, self.limited]).collect()
    }
}

/// What the clients of a round asked, and were answered.
#[derive(Debug, Default)]
pub struct RuledRecords {
    targets: Targets,
    /// Each voter's requests on the plain item.
    changed: BTreeMap<u32, Vec<ItemOperation>>,
    limited: Vec<ItemOperation>,
    /// Requests in polls, by the poll's place among the targets and the voter.
    selected: BTreeMap<(usize, u32), Vec<PollOperation>>,
    /// Requests that were answered.
    pub answered: u64,
    wrong_answers: Vec<String>,
}

/// The running clients.
pub struct RuledClients {
    targets: Targets,
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
                random: StdRng::seed_from_u64(seed ^ ((u64::from(number) + 1) << 48)),
                http: credentials::backend(),
                over: over.subscribe(),
                pause: pause.clone(),
                records: RuledRecords::default(),
            };
            running.spawn(client.run());
        }
        Ok(Self {
            targets,
            running,
            over,
        })
    }

    /// Ends them once the last request of each voter is answered.
    ///
    /// # Errors
    /// When a client has failed.
    pub async fn finish(mut self) -> anyhow::Result<RuledRecords> {
        self.over.send_replace(true);
        let mut all = RuledRecords {
            targets: self.targets,
            ..RuledRecords::default()
        };
        while let Some(one) = self.running.join_next().await {
            all.add(one?);
        }
        Ok(all)
    }
}

impl RuledRecords {
    /// Adds what another client has recorded.
    fn add(&mut self, one: Self) {
        for (voter, history) in one.changed {
            self.changed.entry(voter).or_default().extend(history);
        }
        self.limited.extend(one.limited);
        for (key, history) in one.selected {
            self.selected.entry(key).or_default().extend(history);
        }
        self.answered += one.answered;
        self.wrong_answers.extend(one.wrong_answers);
    }
}
