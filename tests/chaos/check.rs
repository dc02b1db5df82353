//! Checks that nothing was lost and nothing counted twice: compares the clients' records
//! with the ledger, and the ledger with the saved and the live counts.

use std::collections::{HashMap, HashSet};

use redis::aio::MultiplexedConnection;
use sqlx::{PgConnection, PgPool};
use tally::domain::Count;
use tally::live::CounterParts;

use crate::records::Records;
use crate::stores::VoteRow;

/// How many findings the report writes out.
const NAMED_LIMIT: usize = 20;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Votes that were acknowledged; each counts once.
    pub acknowledged: u64,
    /// Acknowledged votes without their row, and votes of the ledger that a count lacks.
    pub lost: u64,
    /// Rows beyond the first for a vote, rows that no client asked for, and votes that a
    /// count has beyond the ledger's.
    pub counted_twice: u64,
    /// Votes on an item that their clients did not name.
    pub misdirected: u64,
    /// Acknowledgements whose commits a primary of Postgres took with it. They may be lost.
    pub went_with_primary: u64,
    /// In words.
    pub findings: Vec<String>,
    /// Whether all findings are written out, for a test of the checks.
    names_all: bool,
}

impl Verdict {
    /// Writes out all findings from now on.
    pub fn finds_all(&mut self) {
        self.names_all = true;
    }

    pub fn find(&mut self, finding: String) {
        if self.findings.len() < NAMED_LIMIT || self.names_all {
            self.findings.push(finding);
        }
    }
}

/// One item's three counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub item: i64,
    pub ledger: i64,
    pub saved: i64,
    /// `None`: there is no live count, which is fine.
    pub live: Option<i64>,
    /// The same three for its down-votes alone.
    pub downs: (i64, i64, Option<i64>),
}

impl Counts {
    pub fn are_exact(&self) -> bool {
        let (ledger, saved, live) = self.downs;
        self.saved == self.ledger
            && self.live.is_none_or(|live| live == self.ledger)
            && saved == ledger
            && live.is_none_or(|live| live == ledger)
    }
}

/// The three counts of every item.
///
/// # Errors
/// When a store does not answer.
pub async fn counts(owner: &PgPool, redis: &mut MultiplexedConnection) -> anyhow::Result<Vec<Counts>> {
    counts_with(owner, async |items: Vec<i64>| {
        let mut pipeline = redis::pipe();
        for item in items {
            pipeline.cmd("GET").arg(format!("tally:{{{item}}}"));
        }
        let values: Vec<Option<Vec<u8>>> = pipeline.query_async(redis).await?;
        let live = values.into_iter().map(|value| {
            let parts = value.and_then(|value| CounterParts::read(&value))?;
            parts.live()
        });
        Ok(live.collect())
    })
    .await
}

/// The three counts of every item. `live`: the live counts of these items.
///
/// # Errors
/// When a store does not answer.
pub async fn counts_with(
    owner: &PgPool,
    live: impl AsyncFnOnce(Vec<i64>) -> anyhow::Result<Vec<Option<Count>>>,
) -> anyhow::Result<Vec<Counts>> {
    let rows: Vec<(i64, i64, i64, i64, i64)> = sqlx::query_as(
        "select item.id, item.vote_count, coalesce(votes.sum, 0)::bigint,
                item.down_count, coalesce(votes.downs, 0)
         from item
         left join (
             select item_id, sum(value) as sum,
                    count(*) filter (where value < 0 and change_number % 2 = 0)
                    - count(*) filter (where value > 0 and change_number % 2 = 1) as downs
             from vote group by item_id
         ) as votes
           on votes.item_id = item.id
         order by item.id",
    )
    .fetch_all(owner)
    .await?;
    let live = live(rows.iter().map(|(item, ..)| *item).collect()).await?;
    Ok(rows
        .into_iter()
        .zip(live)
        .map(|((item, saved, ledger, saved_downs, downs), live)| Counts {
            item,
            ledger,
            saved,
            live: live.map(|count| count.net),
            downs: (downs, saved_downs, live.map(|count| count.downs)),
        })
        .collect())
}

/// Whether live = saved = ledger for every item.
pub fn are_exact(counts: &[Counts]) -> bool {
    counts.iter().all(Counts::are_exact)
}

/// Compares the records with the ledger, and the counts with each other.
///
/// # Errors
/// When Postgres does not answer.
pub async fn verdict(
    records: &Records,
    counts: &[Counts],
    owner: &mut PgConnection,
) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    compare_rows(records, &mut *owner, &mut verdict).await?;
    for row in strays(owner).await? {
        verdict.misdirected += 1;
        verdict.find(format!(
            "a vote on an item that none of these clients names: {row:?}"
        ));
    }
    for (of, changed, rolled_up) in wrong_changes(owner).await? {
        verdict.find(format!(
            "the changes of {of} are {changed}, and its votes up to the watermark {rolled_up}"
        ));
    }
    for one in counts.iter().filter(|one| !one.are_exact()) {
        verdict.find(format!("{one:?}"));
        let (downs, saved_downs, live_downs) = one.downs;
        let sums = [Some(one.saved), one.live].map(|count| (count, one.ledger));
        let downs = [Some(saved_downs), live_downs].map(|count| (count, downs));
        for (count, ledger) in sums.into_iter().chain(downs) {
            match count {
                Some(count) if count < ledger => verdict.lost += ledger.abs_diff(count),
                Some(count) => verdict.counted_twice += count.abs_diff(ledger),
                None => {}
            }
        }
    }
    Ok(verdict)
}

/// What has changes, recent ones and by day, that are not the sum of its votes up to the watermark, with both:
/// items, and all of them together.
///
/// # Errors
/// When Postgres does not answer.
async fn wrong_changes(owner: &mut PgConnection) -> sqlx::Result<Vec<(String, i64, i64)>> {
    sqlx::query_as(
        "with changed as (
             select item_id, sum(ups - downs)::bigint as net from (
                 select item_id, ups, downs from recent_change
                 union all
                 select item_id, ups, downs from day_change
             ) as changed
             group by item_id
         ), rolled_up as (
             select item_id, sum(value) as net from vote, watermark where vote.id <= watermark.vote_id group by item_id
         )
         select 'item ' || item.id, coalesce(changed.net, 0), coalesce(rolled_up.net, 0)
         from item left join changed on changed.item_id = item.id left join rolled_up on rolled_up.item_id = item.id
         where coalesce(changed.net, 0) <> coalesce(rolled_up.net, 0)
         union all
         select 'all items together', total.net, truth.net
         from (select coalesce(sum(ups - downs), 0)::bigint as net from total_change) as total,
              (select coalesce(sum(net), 0)::bigint as net from rolled_up) as truth
         where total.net <> truth.net",
    )
    .fetch_all(owner)
    .await
}

/// Votes of one kind of clients on an item of another one. Which clients name an item shows in its name, and
/// whose a voter is, in the voter's.
///
/// # Errors
/// When Postgres does not answer.
async fn strays(owner: &mut PgConnection) -> sqlx::Result<Vec<(i64, String, String)>> {
    sqlx::query_as(
        "select vote.id, voter_id, name from vote join item on item.id = item_id
         where voter_id is not null
           and case split_part(voter_id, '-', 1)
                   when 'voter' then name not like 'item %'
                   when 'ruled' then name not in ('changed', 'limited', 'one', 'two')
                   when 'voided' then name not like 'voided %'
                   when 'keyed' then key is null
                   when 'throttled' then name <> 'throttled'
                   when 'person' then name not like 'person %'
                   when 'erased' then name not like 'person %'
                   when 'imported' then name not like 'imported %'
                   else true
               end",
    )
    .fetch_all(owner)
    .await
}

/// The rows on the items of the clients that name ids.
///
/// # Errors
/// When Postgres does not answer.
pub async fn rows(owner: &mut PgConnection) -> sqlx::Result<HashSet<VoteRow>> {
    let rows: Vec<VoteRow> = sqlx::query_as(
        "select vote.id, item_id, key, voter_id, value from vote join item on item.id = item_id
         where name like 'item %'",
    )
    .fetch_all(owner)
    .await?;
    Ok(rows.into_iter().collect())
}

type Row = (i64, i64, Option<String>, i16);

async fn compare_rows(
    records: &Records,
    owner: &mut PgConnection,
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    // The ruled clients check the votes on their own items.
    let rows: Vec<Row> = sqlx::query_as(
        "select id, item_id, voter_id, value from vote
         where item_id in (select id from item where name like 'item %')",
    )
    .fetch_all(owner)
    .await?;
    let by_id: HashMap<i64, &Row> = rows.iter().map(|row| (row.0, row)).collect();

    // Every acknowledged vote has exactly its row.
    let mut taken = HashSet::new();
    let mut voters: HashMap<(i64, &str), i16> = HashMap::new();
    let mut named: HashMap<&str, i64> = HashMap::new();
    let mut anonymous: HashMap<(i64, i16), u64> = HashMap::new();
    for vote in &records.votes {
        let ids: HashSet<i64> = vote.acknowledged.iter().map(|one| one.vote).collect();
        match &vote.voter {
            Some(voter) => {
                voters.insert((vote.item, voter), vote.value);
                named.insert(voter, vote.item);
                verdict.acknowledged += u64::from(!ids.is_empty());
                if ids.is_empty() && vote.requests > 0 && !vote.is_lost {
                    verdict.find(format!("never acknowledged, though all was repaired: {vote:?}"));
                }
                if ids.len() > 1 {
                    verdict.counted_twice += ids.len() as u64 - 1;
                    verdict.find(format!("acknowledged as several votes: {vote:?}"));
                }
            }
            None => {
                *anonymous.entry((vote.item, vote.value)).or_default() += vote.requests;
                verdict.acknowledged += vote.acknowledged.len() as u64;
                if ids.len() < vote.acknowledged.len() {
                    verdict.lost += (vote.acknowledged.len() - ids.len()) as u64;
                    verdict.find(format!("two votes were acknowledged as one: {vote:?}"));
                }
            }
        }
        for id in ids {
            let is_there = by_id
                .get(&id)
                .is_some_and(|row| (row.1, &row.2, row.3) == (vote.item, &vote.voter, vote.value));
            if !is_there || !taken.insert(id) {
                verdict.lost += 1;
                verdict.find(format!(
                    "acknowledged as vote {id}, which is not its row: {vote:?}"
                ));
            }
        }
    }

    // Every row has its request.
    let mut seen = HashSet::new();
    let mut anonymous_rows: HashMap<(i64, i16), u64> = HashMap::new();
    for (id, item, voter, value) in &rows {
        match voter {
            Some(voter) => {
                if !seen.insert((*item, voter.as_str())) {
                    verdict.counted_twice += 1;
                    verdict.find(format!("{voter} has two rows on item {item}"));
                }
                if named.get(voter.as_str()).is_some_and(|named| named != item) {
                    verdict.misdirected += 1;
                    verdict.find(format!(
                        "its client named another item: row {id} of {voter} on item {item}"
                    ));
                } else if voters.get(&(*item, voter.as_str())) != Some(value) {
                    verdict.counted_twice += 1;
                    verdict.find(format!("no client asked for row {id}: {voter} on item {item}"));
                }
            }
            None => *anonymous_rows.entry((*item, *value)).or_default() += 1,
        }
    }
    for (key, rows) in anonymous_rows {
        let asked = anonymous.get(&key).copied().unwrap_or_default();
        if rows > asked {
            verdict.counted_twice += rows - asked;
            verdict.find(format!("{rows} anonymous rows for {asked} requests of {key:?}"));
        }
    }
    Ok(())
}
