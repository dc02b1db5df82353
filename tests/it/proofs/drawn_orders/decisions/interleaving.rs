//! One interleaving: who takes steps, whose turn it is, and what holds at the end.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use sqlx::PgPool;
use tally::domain::{ItemId, VoterId};
use tally::ledger::VoteWriter;
use tokio::sync::RwLock;

use super::items::Items;
use super::pieces::Without;
use super::writer::{Crashed, Writer};
use crate::proofs::drawn_orders::BEGIN_US;
use crate::proofs::drawn_orders::item::{Entry, Worker};
use crate::proofs::drawn_orders::pieces::Clock;

/// The most reads of one worker in an interleaving.
const READS_LIMIT: usize = 3;

/// Whose turn it is, or what happens.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Writer(usize),
    /// The worker of this item takes a step.
    Worker(usize),
    /// The worker that enters another epoch takes a step at this item.
    Epoch(usize),
    /// The worker that recovers this crashed writer takes a step.
    Recovery(usize),
    /// The last call of this crashed writer arrives.
    LateCall(usize),
    /// A writer crashes. Perhaps its call is executed later.
    Crash(usize, bool),
    /// A counter is invalidated.
    Invalidate(usize),
    /// Redis removes a counter that expires.
    TimeOut(usize),
    /// Redis loses all counters.
    Wipe,
}

pub(super) struct Interleaving {
    items: Items,
    writers: Vec<Writer>,
    crashed: Vec<Crashed>,
    /// A worker for each item, and how often it may still read.
    workers: Vec<(Worker, usize)>,
    /// The entry into another epoch, for each item.
    entries: Vec<Entry>,
    /// How often each writer and each worker takes its turn. Some stall.
    writer_speeds: Vec<f64>,
    worker_speeds: Vec<f64>,
    clock: Clock,
    crashes_left: usize,
    invalidations_left: usize,
    wipes_left: usize,
    time_outs_left: usize,
}

impl Interleaving {
    pub(super) fn draw(items: Items, writers: Vec<Writer>, random: &mut StdRng) -> Self {
        let mut speeds = |amount: usize| {
            let speeds = (0..amount).map(|_| *[1.0, 1.0, 0.2, 0.03].choose(random).expect("a speed"));
            speeds.collect::<Vec<f64>>()
        };
        let (writer_speeds, worker_speeds) = (speeds(writers.len()), speeds(items.all.len()));
        let clocks = [Clock::Steady, Clock::Stepping, Clock::Trembling, Clock::Stopped];
        Self {
            writers,
            crashed: Vec::new(),
            workers: items
                .all
                .iter()
                .map(|_| (Worker::ReadEpoch, READS_LIMIT))
                .collect(),
            entries: vec![Entry::Done; items.all.len()],
            writer_speeds,
            worker_speeds,
            clock: *clocks.choose(random).expect("a clock"),
            crashes_left: usize::from(random.random_bool(0.4)),
            invalidations_left: random.random_range(0..=2),
            wipes_left: usize::from(random.random_bool(0.2)),
            time_outs_left: usize::from(random.random_bool(0.2)),
            items,
        }
    }

    /// The possible next steps, and the weight of each.
    fn turns(&self) -> Vec<(Turn, f64)> {
        let is_busy = |worker: &Worker| !matches!(worker, Worker::ReadEpoch);
        let writers = self
            .writers
            .iter()
            .enumerate()
            .filter(|(_, writer)| !writer.is_done());
        let mut turns: Vec<_> = writers
            .map(|(at, _)| (Turn::Writer(at), self.writer_speeds[at]))
            .collect();
        let is_active = !turns.is_empty() || self.workers.iter().any(|(worker, _)| is_busy(worker));
        for (at, (worker, reads_left)) in self.workers.iter().enumerate() {
            if is_busy(worker) || (is_active && *reads_left > 0) {
                turns.push((Turn::Worker(at), self.worker_speeds[at]));
            }
        }
        for (at, crashed) in self.crashed.iter().enumerate() {
            turns.extend((!crashed.is_recovered()).then_some((Turn::Recovery(at), 0.3)));
            turns.extend(crashed.has_late_call().then_some((Turn::LateCall(at), 0.1)));
        }
        let entries = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| **entry != Entry::Done);
        turns.extend(entries.map(|(at, _)| (Turn::Epoch(at), 1.0)));
        if is_active {
            let counting = self
                .writers
                .iter()
                .enumerate()
                .filter(|(_, writer)| writer.is_counting());
            if self.crashes_left > 0 {
                turns.extend(counting.flat_map(|(at, _)| {
                    [false, true].map(|is_call_under_way| (Turn::Crash(at, is_call_under_way), 0.2))
                }));
            }
            for at in 0..self.items.all.len() {
                turns.extend((self.invalidations_left > 0).then_some((Turn::Invalidate(at), 0.5)));
                turns.extend((self.time_outs_left > 0).then_some((Turn::TimeOut(at), 0.5)));
            }
            turns.extend((self.wipes_left > 0).then_some((Turn::Wipe, 0.5)));
        }
        turns
    }

    /// Plays until nobody has anything left to do. Returns what is wrong.
    pub(super) async fn play(&mut self, random: &mut StdRng) -> Result<(), String> {
        self.items.trace.push(format!("the clock: {:?}", self.clock));
        loop {
            let turns = self.turns();
            let Ok((turn, _)) = turns.choose_weighted(random, |(_, speed)| *speed) else {
                return Ok(());
            };
            let now = self.clock.after(self.items.now, random);
            self.items.set_clock(now).await;
            let what = self.describe(*turn);
            let now = now - BEGIN_US;
            self.items.trace.push(format!("{now:+} µs: {turn:?} {what}"));
            self.take(*turn).await?;
            if let Some(id) = self.items.lost().await {
                return Err(format!("item {id} is unsaved, but not in the index"));
            }
        }
    }

    fn describe(&self, turn: Turn) -> String {
        match turn {
            Turn::Writer(at) => self.writers[at].call(),
            Turn::Worker(at) => format!("{:?}", self.workers[at].0),
            Turn::Epoch(at) => format!("{:?}", self.entries[at]),
            Turn::Recovery(at) | Turn::LateCall(at) => format!("{:?}", self.crashed[at]),
            _ => String::new(),
        }
    }

    async fn take(&mut self, turn: Turn) -> Result<(), String> {
        let items = &mut self.items;
        match turn {
            Turn::Writer(at) => self.writers[at].step(items).await?,
            Turn::Worker(at) => {
                let (worker, reads_left) = &mut self.workers[at];
                if matches!(worker, Worker::ReadEpoch) {
                    *reads_left -= 1;
                }
                *worker = items.all[at].work(worker.clone()).await;
            }
            Turn::Epoch(at) => self.entries[at] = items.all[at].enter(self.entries[at]).await,
            Turn::Recovery(at) => self.crashed[at].recover(items).await,
            Turn::LateCall(at) => self.crashed[at].late_call(items).await,
            Turn::Crash(at, is_call_under_way) => {
                self.crashes_left -= 1;
                let crashed = self.writers[at].crash(is_call_under_way);
                if items.without != Without::CrashedWriterRecovery {
                    self.crashed.push(crashed);
                }
            }
            Turn::Invalidate(at) => {
                self.invalidations_left -= 1;
                items.all[at].invalidate().await;
            }
            Turn::TimeOut(at) => {
                self.time_outs_left -= 1;
                items.all[at].time_out().await;
            }
            Turn::Wipe => {
                self.wipes_left -= 1;
                for item in &mut items.all {
                    item.wipe().await;
                }
                self.entries.fill(Entry::RaiseNumber);
            }
        }
        Ok(())
    }

    /// What is wrong at the end, when all have done their work.
    pub(super) async fn end(&mut self, owner: &PgPool, roll_ups: &RwLock<()>) -> Result<(), String> {
        for item in &mut self.items.all {
            item.end(roll_ups, &mut self.items.trace).await?;
            let (_, truth) = item.truth().await;
            let answered = self.items.answers.count(item.id);
            if truth != answered {
                return Err(format!("item {}: ledger {truth}, answers {answered}", item.id));
            }
        }
        let ids: Vec<i64> = self.items.all.iter().map(|item| item.id.get()).collect();
        let broken = testkit::rules::broken_of(owner, &ids)
            .await
            .expect("Postgres answers");
        if !broken.is_empty() {
            return Err(broken.join("; "));
        }
        let held = held(owner, &ids).await;
        let answered = self.items.answers.all_held();
        if held != *answered {
            return Err(format!("the ledger says {held:?}, answers {answered:?}"));
        }
        Ok(())
    }

    /// Its trace, and its writers for the next interleaving.
    pub(super) fn into_parts(self) -> (Vec<String>, Vec<VoteWriter>) {
        let writers = self.writers.into_iter().map(|writer| writer.votes);
        (self.items.trace, writers.collect())
    }
}

/// What each voter holds on these items, by the last rows; 0: nothing any more.
async fn held(owner: &PgPool, items: &[i64]) -> BTreeMap<(VoterId, ItemId), i16> {
    let rows: Vec<(String, i64, i16)> = sqlx::query_as(
        "select distinct on (voter_id, item_id)
                voter_id, item_id, case when change_number % 2 = 0 then value else 0::smallint end
         from vote where item_id = any($1) and voter_id is not null
         order by voter_id, item_id, change_number desc",
    )
    .bind(items)
    .fetch_all(owner)
    .await
    .expect("Postgres answers");
    let parsed = rows.into_iter().map(|(voter, item, value)| {
        let voter = VoterId::parse(voter).expect("a voter");
        ((voter, ItemId::new(item).expect("positive")), value)
    });
    parsed.collect()
}
