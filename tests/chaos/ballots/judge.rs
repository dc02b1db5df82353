//! Judges the ballots: a ballot that bought a vote is spent, its vote is there, and it bought no
//! other; a refused request stored nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::PgConnection;
use tally::domain::BallotHash;

use super::{Attempt, Ballot, BallotRecords, Outcome, Target};

/// The most problems that are reported.
const SHOWN: usize = 10;

/// A vote as a client cast it, not a row of a voiding.
#[derive(Clone, Debug, sqlx::FromRow)]
struct CastRow {
    id: i64,
    item_id: i64,
    voter_id: Option<String>,
    value: i64,
    number: Option<i64>,
}

/// What Postgres has in the end.
struct Stored {
    /// For each token's hash: the rule that the ballot is for, and the vote that it bought.
    ballots: HashMap<Vec<u8>, (i64, Option<i64>)>,
    votes: BTreeMap<i64, CastRow>,
}

impl BallotRecords {
    /// Returns what is wrong, in words.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(&self, owner: &mut PgConnection) -> anyhow::Result<Vec<String>> {
        let items: Vec<i64> = self
            .targets
            .iter()
            .flat_map(|target| target.items.clone())
            .collect();
        let ballots: Vec<(Vec<u8>, i64, Option<i64>)> =
            sqlx::query_as("select token_hash, rule_id, vote_id from ballot")
                .fetch_all(&mut *owner)
                .await?;
        let votes: Vec<CastRow> = sqlx::query_as(
            "select id, item_id, voter_id, value::bigint, number from vote
             where item_id = any($1) and change_number = 0",
        )
        .bind(items)
        .fetch_all(owner)
        .await?;
        let stored = Stored {
            ballots: ballots
                .into_iter()
                .map(|(hash, rule, vote)| (hash, (rule, vote)))
                .collect(),
            votes: votes.into_iter().map(|row| (row.id, row)).collect(),
        };
        let mut problems: Vec<String> = self.wrong_answers.iter().take(SHOWN).cloned().collect();
        let mut bought = HashSet::new();
        for (at, ballot) in self.ballots.iter().enumerate() {
            let attempts = self.attempts.get(&at).map_or(&[][..], Vec::as_slice);
            let target = &self.targets[ballot.target];
            let wrong = if target.is_secret {
                of_secret_ballot(ballot, target, attempts, &stored)
            } else {
                of_ballot(ballot, target, attempts, &stored, &mut bought)
            };
            problems.extend(wrong.map(|why| format!("ballot {at} of {}: {why}: {attempts:?}", target.path)));
        }
        for target in &self.targets {
            problems.extend(self.of_target(target, &stored));
        }
        problems.truncate(SHOWN);
        Ok(problems)
    }

    /// What is wrong with all votes of a target.
    fn of_target(&self, target: &Target, stored: &Stored) -> Vec<String> {
        let path = &target.path;
        let votes: Vec<&CastRow> = stored
            .votes
            .values()
            .filter(|vote| target.items.contains(&vote.item_id))
            .collect();
        let mut problems = Vec::new();
        if let Some(vote) = votes.iter().find(|vote| vote.voter_id.is_some()) {
            problems.push(format!("{path}: a vote with a ballot has a voter: {vote:?}"));
        }
        if target.max_votes.is_some_and(|most| votes.len() > most) {
            problems.push(format!("{path}: {} votes are too many", votes.len()));
        }
        let attempts = || {
            self.attempts
                .values()
                .flatten()
                .filter(|attempt| target.items.contains(&attempt.item))
        };
        // A place of this item never becomes free again.
        if attempts().any(|attempt| attempt.outcome == Outcome::Full) && target.max_votes != Some(votes.len())
        {
            problems.push(format!(
                "{path}: it was full, and {} votes are there",
                votes.len()
            ));
        }
        if target.is_secret {
            let spent = self.ballots.iter().filter(|ballot| {
                self.targets[ballot.target] == *target && !stored.ballots.contains_key(&hash(ballot))
            });
            let spent = spent.count();
            if spent != votes.len() {
                problems.push(format!(
                    "{path}: {spent} ballots are spent, and {} votes are there",
                    votes.len()
                ));
            }
            for item in &target.items {
                let on_item = || attempts().filter(|attempt| attempt.item == *item);
                let sure = on_item().filter(|attempt| matches!(attempt.outcome, Outcome::Stored { .. }));
                let (sure, most) = (
                    sure.count(),
                    on_item().filter(|attempt| attempt.outcome.may_buy()).count(),
                );
                let there = votes.iter().filter(|vote| vote.item_id == *item).count();
                if !(sure..=most).contains(&there) {
                    problems.push(format!(
                        "{path}: {there} secret votes on item {item}, and {sure} to {most} were asked for"
                    ));
                }
            }
        } else {
            let sold: HashSet<i64> = stored.ballots.values().filter_map(|(_, vote)| *vote).collect();
            let unbought = votes.iter().find(|vote| !sold.contains(&vote.id));
            problems.extend(unbought.map(|vote| format!("{path}: no ballot bought {vote:?}")));
        }
        problems
    }
}

fn hash(ballot: &Ballot) -> Vec<u8> {
    BallotHash::of(&ballot.token).as_bytes().to_vec()
}

/// What is wrong with a ballot whose vote is known.
fn of_ballot(
    ballot: &Ballot,
    target: &Target,
    attempts: &[Attempt],
    stored: &Stored,
    bought: &mut HashSet<i64>,
) -> Option<String> {
    let Some((rule, vote)) = stored.ballots.get(&hash(ballot)) else {
        return Some("it is gone".to_owned());
    };
    if *rule != target.rule {
        return Some(format!("it is for rule {rule}"));
    }
    let vote = match vote {
        None => None,
        Some(id) => match stored.votes.get(id) {
            Some(vote) if target.items.contains(&vote.item_id) => Some(vote),
            _ => return Some(format!("it is spent on vote {id}, which is not there")),
        },
    };
    if let Some(vote) = vote {
        if !bought.insert(vote.id) {
            return Some(format!("another one bought vote {}, too", vote.id));
        }
        if !attempts
            .iter()
            .any(|attempt| attempt.outcome.may_buy() && is_for(attempt, vote))
        {
            return Some(format!("nobody asked for {vote:?}, or it was refused"));
        }
    }
    let new = attempts
        .iter()
        .filter(|attempt| matches!(attempt.outcome, Outcome::Stored { .. }));
    if new.count() > 1 {
        return Some("it bought two votes".to_owned());
    }
    let wrong = attempts.iter().find(|attempt| match attempt.outcome {
        Outcome::Stored { vote: id, number } => {
            vote.is_none_or(|vote| !is_for(attempt, vote) || (id, number) != (Some(vote.id), vote.number))
        }
        Outcome::Repeated { vote: id, number } => {
            vote.is_none_or(|vote| !is_for(attempt, vote) || (id, number) != (vote.id, vote.number))
        }
        Outcome::NotValid => {
            let is_stray = !target.items.contains(&attempt.item);
            let was_spent = || {
                vote.is_some_and(|vote| {
                    !is_for(attempt, vote)
                        && attempts.iter().any(|other| {
                            other.outcome.may_buy() && is_for(other, vote) && other.called < attempt.returned
                        })
                })
            };
            !is_stray && !was_spent()
        }
        Outcome::Full => vote.is_some(),
        Outcome::NoEffect | Outcome::Unknown => false,
    });
    wrong.map(|attempt| format!("{attempt:?} cannot be, since it bought {vote:?}"))
}

fn is_for(attempt: &Attempt, vote: &CastRow) -> bool {
    (attempt.item, attempt.value) == (vote.item_id, vote.value)
}

/// What is wrong with a secret ballot. Its row is deleted once it is spent, so nothing else is known
/// of it.
fn of_secret_ballot(
    ballot: &Ballot,
    target: &Target,
    attempts: &[Attempt],
    stored: &Stored,
) -> Option<String> {
    let is_spent = match stored.ballots.get(&hash(ballot)) {
        Some((_, Some(vote))) => return Some(format!("its row names vote {vote}")),
        Some((_, None)) => false,
        None => true,
    };
    let is_new = |attempt: &Attempt| matches!(attempt.outcome, Outcome::Stored { .. });
    let may_have_bought =
        |attempt: &Attempt| attempt.outcome.may_buy() && target.items.contains(&attempt.item);
    if attempts.iter().filter(|attempt| is_new(attempt)).count() > 1 {
        return Some("it bought two votes".to_owned());
    }
    if is_spent && !attempts.iter().any(may_have_bought) {
        return Some("it is spent, and whatever asked for that was refused".to_owned());
    }
    let wrong = attempts.iter().find(|attempt| match attempt.outcome {
        Outcome::Stored { .. } => !is_spent,
        Outcome::NotValid if target.items.contains(&attempt.item) => {
            !is_spent
                || !attempts
                    .iter()
                    .any(|other| may_have_bought(other) && other.called < attempt.returned)
        }
        _ => false,
    });
    wrong.map(|attempt| format!("{attempt:?} cannot be: it is spent: {is_spent}"))
}
