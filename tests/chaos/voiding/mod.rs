//! Votes that are voided while others are cast. Clients vote, and an operator runs `tally void` on
//! their items and voters. Some runs are killed, continued, done twice or undone. For each vote, a
//! voiding takes effect at one moment of its run. So each history that includes what was voided and
//! cast again must be linearizable.

mod client;
mod histories;
mod judge;
mod operator;
mod plan;
pub mod tampering;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use sqlx::PgPool;
use testkit::linearizable::items::ItemOperation;
use testkit::linearizable::polls::PollOperation;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ballots;
use crate::cluster::Cluster;
use crate::credentials;
use client::VoidedClient;
use operator::Operator;
use plan::Plan;

/// Clients in a round.
const CLIENTS: u32 = 3;
/// Voters of one client. Nobody else votes for them.
const VOTERS: u32 = 5;
/// This voter's votes are voided and stay void.
const VOIDED_VOTER: u32 = 0;
/// This voter's votes are voided and cast again. It never votes on the numbered item: a vote that is
/// cast again has no number, which does not fit the history of an item that numbers its votes.
const RESTORED_VOTER: u32 = 1;
/// Votes that each limited item takes: fewer than there are voters.
const MAX_VOTES: usize = 8;
/// Anonymous votes on one item before the round: several chunks of a voiding.
const VOTES_BEFORE: u64 = 2200;
/// The longest that a client waits for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);

/// The items whose votes are voided.
#[derive(Clone, Debug, Default)]
struct Targets {
    /// Without a rule.
    plain: i64,
    /// The same; its votes are voided by item and time.
    span: i64,
    /// The same, with [`VOTES_BEFORE`].
    many: i64,
    /// Limited and numbered. Voidings of its votes are not undone.
    numbered: i64,
    /// Limited.
    limited: i64,
    /// By ballot: see [`ballots`].
    by_ballot: i64,
    poll: i64,
    choices: Vec<i64>,
}

/// The voter's id, as it is sent.
fn voter_id(voter: u32) -> String {
    format!("voided-{voter}")
}

/// Creates the items and the poll.
///
/// # Errors
/// When Postgres does not answer.
pub async fn create(owner: &PgPool) -> anyhow::Result<()> {
    sqlx::raw_sql(&format!(
        "insert into item (name) values ('voided plain'), ('voided span'), ('voided many');
         insert into vote (item_id) select id from item, generate_series(1, {VOTES_BEFORE}) where name = 'voided many';
         with made as (insert into rule default values returning id),
              item as (insert into item (name, rule_id) select 'voided numbered', id from made returning id)
         insert into place (item_id, max_votes, is_numbered) select id, {MAX_VOTES}, true from item;
         with made as (insert into rule default values returning id),
              item as (insert into item (name, rule_id) select 'voided limited', id from made returning id)
         insert into place (item_id, max_votes) select id, {MAX_VOTES} from item;
         with made as (insert into rule (title, max_choices) values ('voided poll', 1) returning id)
         insert into item (name, rule_id, takes_down_votes)
         select 'voided poll', id, false from made, generate_series(1, 3)"
    ))
    .execute(owner)
    .await?;
    Ok(())
}

impl Targets {
    async fn read(owner: &PgPool) -> anyhow::Result<Self> {
        let items: Vec<(i64, String, Option<i64>)> =
            sqlx::query_as("select id, name, rule_id from item where name like 'voided %' order by id")
                .fetch_all(owner)
                .await?;
        let mut targets = Self::default();
        for (id, name, rule) in items {
            match name.as_str() {
                "voided plain" => targets.plain = id,
                "voided span" => targets.span = id,
                "voided many" => targets.many = id,
                "voided numbered" => targets.numbered = id,
                "voided limited" => targets.limited = id,
                ballots::VOIDED_ITEM => targets.by_ballot = id,
                _ => {
                    targets.poll = rule.unwrap_or_default();
                    targets.choices.push(id);
                }
            }
        }
        Ok(targets)
    }

    /// The items of which the voters' requests are recorded.
    fn items_with_histories(&self) -> Vec<i64> {
        let items = [self.plain, self.span, self.numbered, self.limited];
        items.into_iter().chain(self.choices.iter().copied()).collect()
    }
}

/// An anonymous vote that a client cast.
#[derive(Clone, Copy, Debug)]
struct Anonymous {
    item: i64,
    value: i64,
    /// `None`: it may be stored.
    vote: Option<i64>,
}

/// What the clients and the operator of a round asked, and were answered.
#[derive(Clone, Debug, Default)]
pub struct VoidingRecords {
    targets: Targets,
    /// Voters' requests on each item that is no choice.
    histories: BTreeMap<i64, Vec<ItemOperation>>,
    /// Each voter's requests in the poll.
    selected: BTreeMap<u32, Vec<PollOperation>>,
    anonymous: Vec<Anonymous>,
    plans: Vec<Plan>,
    /// Times that the operator's program was killed.
    pub killed: u64,
    wrong_answers: Vec<String>,
}

/// The running clients, and the operator.
pub struct Voiding {
    targets: Targets,
    running: JoinSet<VoidingRecords>,
    operator: JoinSet<anyhow::Result<VoidingRecords>>,
    over: watch::Sender<bool>,
}

impl Voiding {
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
        let targets = Targets::read(owner).await?;
        let over = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for number in 0..CLIENTS {
            let client = VoidedClient {
                number,
                targets: targets.clone(),
                servers: cluster.urls.clone(),
                random: StdRng::seed_from_u64(seed ^ ((u64::from(number) + 1) << 44)),
                http: credentials::backend(),
                over: over.subscribe(),
                pause: cluster.orderly.clone(),
                records: VoidingRecords::default(),
            };
            running.spawn(client.run());
        }
        let operator = Operator::new(seed, cluster, owner, folder).await;
        let mut operators = JoinSet::new();
        operators.spawn(operator.run(targets.clone(), over.subscribe()));
        Ok(Self {
            targets,
            running,
            operator: operators,
            over,
        })
    }

    /// Ends them once each voiding, and each undoing, is done.
    ///
    /// # Errors
    /// When a client or the operator has failed.
    pub async fn finish(mut self) -> anyhow::Result<VoidingRecords> {
        self.over.send_replace(true);
        let mut all = VoidingRecords {
            targets: self.targets,
            ..VoidingRecords::default()
        };
        while let Some(one) = self.running.join_next().await {
            all.add(one?);
        }
        while let Some(one) = self.operator.join_next().await {
            all.add(one??);
        }
        Ok(all)
    }
}

impl VoidingRecords {
    /// Adds what another one has recorded.
    fn add(&mut self, one: Self) {
        for (item, history) in one.histories {
            self.histories.entry(item).or_default().extend(history);
        }
        for (voter, history) in one.selected {
            self.selected.entry(voter).or_default().extend(history);
        }
        self.anonymous.extend(one.anonymous);
        self.plans.extend(one.plans);
        self.killed += one.killed;
        self.wrong_answers.extend(one.wrong_answers);
    }
}
