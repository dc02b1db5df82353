//! Judges the ruled clients' requests: the ledger keeps the rules, and each history is linearizable,
//! with what the ledger holds in the end as its last read.

use std::collections::BTreeMap;
use std::time::Instant;

use sqlx::PgPool;
use testkit::linearizable::Operation;
use testkit::linearizable::items::{self, ItemOperation, Vote, Wants};
use testkit::linearizable::polls::{self, Poll, PollOperation};
use testkit::linearizable::rows::{self, Row};

use super::{CLIENTS, MAX_VOTES, PollTarget, RuledRecords, Targets, VOTERS, voter_id};

/// The most problems of a kind that are reported.
const SHOWN: usize = 10;

/// A vote that is held in the end.
#[derive(Clone, Debug, sqlx::FromRow)]
struct HeldRow {
    id: i64,
    item_id: i64,
    voter_id: String,
    value: i64,
    number: Option<i64>,
}

impl RuledRecords {
    /// Returns what is wrong, in words.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn judge(mut self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let mut problems: Vec<String> = self.wrong_answers.iter().take(SHOWN).cloned().collect();
        problems.extend(testkit::rules::broken(owner).await?.into_iter().take(SHOWN));
        problems.extend(testkit::rules::broken_keys(owner).await?.into_iter().take(SHOWN));
        problems.extend(self.wrong_numbers(owner).await?.into_iter().take(SHOWN));
        self.add_last_reads(owner).await?;
        let stored = rows::of_items(owner, &self.targets.items()).await?;
        // It takes a moment, in which other rounds go on.
        problems.extend(tokio::task::spawn_blocking(move || self.without_order(&stored)).await?);
        Ok(problems)
    }

    /// Answered numbers that are not the numbers of their votes.
    async fn wrong_numbers(&self, owner: &PgPool) -> anyhow::Result<Vec<String>> {
        let stored: Vec<(i64, i64)> =
            sqlx::query_as("select id, number from vote where item_id = $1 and number is not null")
                .bind(self.targets.limited)
                .fetch_all(owner)
                .await?;
        let stored: BTreeMap<i64, i64> = stored.into_iter().collect();
        let answers = self
            .limited
            .iter()
            .filter_map(|operation| match operation.answer? {
                items::Answer::New(vote) | items::Answer::Repeated(vote) | items::Answer::Holds(vote) => {
                    Some(vote)
                }
                _ => None,
            });
        let wrong = answers.filter(|vote| vote.number != stored.get(&vote.id).copied());
        Ok(wrong
            .map(|vote| format!("{vote:?} was answered, and has another number"))
            .collect())
    }

    /// Adds what each voter holds now as a read of each history.
    async fn add_last_reads(&mut self, owner: &PgPool) -> anyhow::Result<()> {
        let called = Instant::now();
        let rows: Vec<HeldRow> = sqlx::query_as(
            "select distinct on (item_id, voter_id)
                    id, item_id, voter_id, case when change_number % 2 = 0 then value else 0 end::bigint as value,
                    number
             from vote where voter_id like 'ruled-%'
             order by item_id, voter_id, change_number desc",
        )
        .fetch_all(owner)
        .await?;
        let returned = Instant::now();
        let held = |item: i64, voter: u32| {
            let mut rows = rows.iter().filter(|row| row.value != 0 && row.item_id == item);
            rows.find(|row| row.voter_id == voter_id(voter))
        };
        let on_item = |item: i64, voter: u32| -> ItemOperation {
            let held = held(item, voter).map(|row| Vote {
                id: row.id,
                value: row.value,
                number: row.number,
            });
            Operation {
                request: items::Request {
                    voter: Some(voter),
                    wants: Wants::Read,
                },
                answer: Some(held.map_or(items::Answer::NothingHeld, items::Answer::Holds)),
                called,
                returned,
            }
        };
        for voter in 0..CLIENTS * VOTERS {
            let last = on_item(self.targets.plain, voter);
            self.changed.entry(voter).or_default().push(last);
            self.limited.push(on_item(self.targets.limited, voter));
            for (at, poll) in self.targets.polls.iter().enumerate() {
                let choices = poll.choices.iter().copied();
                let last: PollOperation = Operation {
                    request: polls::Request::Read,
                    answer: Some(polls::Answer::Holds(
                        choices.filter(|item| held(*item, voter).is_some()).collect(),
                    )),
                    called,
                    returned,
                };
                self.selected.entry((at, voter)).or_default().push(last);
            }
        }
        Ok(())
    }

    /// The histories that do not fit what the ledger says happened.
    fn without_order(&self, stored: &[Row]) -> Vec<String> {
        let Targets {
            plain,
            limited,
            polls: targets,
        } = &self.targets;
        let changed = self.changed.iter().filter_map(|(voter, history)| {
            let effects = rows::of_voter(stored, *plain, *voter);
            let why = items::check(None, false, &effects, history).err()?;
            Some(format!("what voter {voter} changed is {why}"))
        });
        let effects = rows::of_item(stored, *limited);
        let limited = items::check(Some(MAX_VOTES), true, &effects, &self.limited);
        let limited = limited.err().map(|why| format!("the limited item is {why}"));
        let selected = self.selected.iter().filter_map(|((at, voter), history)| {
            let PollTarget {
                max_choices, choices, ..
            } = &targets[*at];
            let held = rows::of_poll(stored, choices, *voter);
            let poll = Poll {
                max_choices: *max_choices,
            };
            let why = polls::check(&poll, &held, history).err()?;
            Some(format!("what voter {voter} chose of {max_choices} is {why}"))
        });
        changed
            .take(SHOWN)
            .chain(limited)
            .chain(selected.take(SHOWN))
            .collect()
    }
}
