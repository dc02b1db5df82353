//! Judges the voidings, beside what SQL alone can check ([`testkit::rules::broken`]): each is as the
//! operator wanted it and as it was reported, and the clients' histories are linearizable.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use sqlx::PgConnection;
use testkit::linearizable::items::Vote;
use testkit::linearizable::rows;

use super::plan::{Plan, Scope};
use super::{VOTES_BEFORE, VoidingRecords, voter_id};

/// The most problems that are reported.
const SHOWN: usize = 10;

/// A vote that a voter holds.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct HeldRow {
    pub id: i64,
    pub item_id: i64,
    pub voter_id: String,
    pub value: i64,
    pub number: Option<i64>,
}

impl HeldRow {
    pub fn vote(&self) -> Vote {
        Vote {
            id: self.id,
            value: self.value,
            number: self.number,
        }
    }
}

/// A vote that was voided.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct VoidedRow {
    pub vote_id: i64,
    pub by_vote_id: i64,
    pub again_vote_id: Option<i64>,
    pub reason: String,
    pub item_id: i64,
    pub voter_id: Option<String>,
    pub value: i64,
    pub number: Option<i64>,
}

#[derive(Clone, Debug, sqlx::FromRow)]
struct VoidingRow {
    id: i64,
    reason: String,
    voter_id: Option<String>,
    item_id: Option<i64>,
    cast_from: Option<String>,
    cast_until: Option<String>,
    until_vote_id: i64,
    done_vote_id: i64,
    undone_vote_id: Option<i64>,
    votes: i64,
    restored: i64,
    left_void: i64,
}

impl VoidingRow {
    fn is_of(&self, scope: &Scope) -> bool {
        let wanted = match scope {
            Scope::Item(item) => (None, Some(*item), None, None),
            Scope::Voter(voter) => (Some(voter_id(*voter)), None, None, None),
            Scope::Span { item, from, until } => (None, Some(*item), Some(from), Some(until)),
        };
        wanted
            == (
                self.voter_id.clone(),
                self.item_id,
                self.cast_from.as_ref(),
                self.cast_until.as_ref(),
            )
    }
}

impl VoidingRecords {
    /// How many votes were voided and how many were cast again, as the programs reported.
    pub fn votes(&self) -> (u64, u64) {
        let sum = |name: &str| {
            let of_plans = self.plans.iter().filter_map(|plan| plan.reports.last());
            of_plans.filter_map(|report| report[name].as_u64()).sum()
        };
        (sum("voided_votes"), sum("restored_votes"))
    }

    /// How many voidings were wanted.
    pub fn voidings(&self) -> u64 {
        self.plans.len() as u64
    }

    /// Returns what is wrong, in words.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(self, owner: &mut PgConnection) -> anyhow::Result<Vec<String>> {
        let mut problems: Vec<String> = self.wrong_answers.iter().take(SHOWN).cloned().collect();
        problems.extend(self.wrong_voidings(owner).await?);
        problems.extend(self.wrong_anonymous(owner).await?);
        problems.truncate(SHOWN);
        let voided: Vec<VoidedRow> = sqlx::query_as(
            "select voided.vote_id, by_vote_id, again_vote_id, reason, vote.item_id, vote.voter_id,
                    value::bigint, number
             from voided join voiding on voiding.id = voiding_id join vote on vote.id = voided.vote_id",
        )
        .fetch_all(&mut *owner)
        .await?;
        let looked = Instant::now();
        let held: Vec<HeldRow> = sqlx::query_as(
            "select * from (
                 select distinct on (item_id, voter_id)
                        id, item_id, voter_id, value::bigint, number, change_number
                 from vote where voter_id like 'voided-%'
                 order by item_id, voter_id, change_number desc
             ) as last where change_number % 2 = 0",
        )
        .fetch_all(&mut *owner)
        .await?;
        let stored = rows::of_items(owner, &self.targets.items_with_histories()).await?;
        // It takes a moment, in which other rounds go on.
        let without_order =
            tokio::task::spawn_blocking(move || self.without_order(&stored, &voided, &held, looked)).await?;
        problems.extend(without_order);
        Ok(problems)
    }

    async fn wrong_voidings(&self, owner: &mut PgConnection) -> anyhow::Result<Vec<String>> {
        let rows: Vec<VoidingRow> = sqlx::query_as(
            r#"select id, reason, voter_id, item_id, until_vote_id, done_vote_id, undone_vote_id,
                      to_char(cast_from at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as cast_from,
                      to_char(cast_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as cast_until,
                      (select count(*) from voided where voiding_id = voiding.id) as votes,
                      (select count(again_vote_id) from voided where voiding_id = voiding.id) as restored,
                      (select count(left_void) from voided where voiding_id = voiding.id) as left_void
               from voiding"#,
        )
        .fetch_all(owner)
        .await?;
        let mut problems = Vec::new();
        for row in &rows {
            let of_row = |plan: &&Plan| plan.reason == row.reason;
            match self.plans.iter().find(of_row) {
                Some(plan) => problems.extend(
                    self.wrong_voiding(plan, row)
                        .map(|why| format!("{}, {:?}: {why}: {row:?}", plan.reason, plan.scope)),
                ),
                None => problems.push(format!("nobody wanted {row:?}")),
            }
        }
        for plan in &self.plans {
            if !plan.is_done() {
                problems.push(format!("never done, though all was repaired: {plan:?}"));
            }
            if !rows.iter().any(|row| row.reason == plan.reason) {
                problems.push(format!("it is not there: {plan:?}"));
            }
        }
        Ok(problems)
    }

    /// Returns how a voiding differs from what was wanted and reported.
    fn wrong_voiding(&self, plan: &Plan, row: &VoidingRow) -> Option<&'static str> {
        if !row.is_of(&plan.scope) {
            return Some("it is of other votes");
        }
        if row.done_vote_id < row.until_vote_id {
            return Some("it is not done");
        }
        if plan.is_undone != row.undone_vote_id.is_some() {
            return Some("it is undone and should not be, or the other way");
        }
        if row.restored + row.left_void != if plan.is_undone { row.votes } else { 0 } {
            return Some("what was voided is not all cast again or left void, or some is and should not be");
        }
        let reports = plan
            .reports
            .iter()
            .filter(|report| report["voiding"].as_i64() == Some(row.id));
        for report in reports {
            if report["done"] != true || report["voided_votes"].as_i64() != Some(row.votes) {
                return Some("it was reported done with another number of votes");
            }
            // A program that went on with another voiding may have reported this one before its undoing.
            let undone = report["restored_votes"]
                .as_i64()
                .zip(report["left_void"].as_i64());
            if undone.is_some_and(|(restored, left)| {
                restored + left == row.votes && (restored, left) != (row.restored, row.left_void)
            }) {
                return Some("other numbers of votes were reported as cast again and left void");
            }
        }
        let mut operations = self.histories.values().flatten();
        if operations.any(|operation| plan.misses(operation, row.until_vote_id)) {
            return Some("it does not end where it began");
        }
        None
    }

    /// What is wrong with the anonymous votes.
    async fn wrong_anonymous(&self, owner: &mut PgConnection) -> anyhow::Result<Vec<String>> {
        let targets = &self.targets;
        let items = [targets.plain, targets.span, targets.many];
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "select id, item_id, value::bigint from vote
             where item_id = any($1) and voter_id is null and change_number = 0",
        )
        .bind(items)
        .fetch_all(owner)
        .await?;
        let stored: BTreeMap<i64, (i64, i64)> = rows
            .into_iter()
            .map(|(id, item, value)| (id, (item, value)))
            .collect();
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        for one in &self.anonymous {
            let Some(id) = one.vote else { continue };
            if stored.get(&id) != Some(&(one.item, one.value)) || !seen.insert(id) {
                problems.push(format!("its row is not there, or is another one's: {one:?}"));
            }
        }
        for item in items {
            for value in [1, -1] {
                let asked = || {
                    self.anonymous
                        .iter()
                        .filter(move |one| (one.item, one.value) == (item, value))
                };
                let before = if (item, value) == (targets.many, 1) {
                    VOTES_BEFORE
                } else {
                    0
                };
                let least = before + asked().filter(|one| one.vote.is_some()).count() as u64;
                let most = before + asked().count() as u64;
                let there = stored.values().filter(|row| **row == (item, value)).count() as u64;
                if !(least..=most).contains(&there) {
                    problems.push(format!(
                        "{there} votes of {value} on item {item} are nobody's, and {least} to {most} were asked for"
                    ));
                }
            }
        }
        Ok(problems)
    }
}
