//! How a stored batch gets into Redis' counters; deaths, wipes and repairs.

use std::sync::Arc;

use tally::domain::{Count, CountDelta, ExactCount, ItemId, Snapshot};
use tally::live::{CountReply, Seed};
use tally::votes::{Counting, Step};

use super::state::{Counter, Doing, ITEMS, Items, Live, SERVERS, State, TRANSACTIONS, Transactions};
use super::statement::{bit_of, count_of, item_of, transaction};
use super::{Model, Without};

/// A snapshot that sees these transactions and no others.
fn snapshot_of(committed: Transactions) -> Snapshot {
    let all = SERVERS * TRANSACTIONS;
    let is_running = |bit: &usize| committed & (1 << bit) == 0;
    let running: Vec<String> = (0..all)
        .filter(is_running)
        .map(|bit| transaction(bit).0.to_string())
        .collect();
    let text = format!(
        "{}:{}:{}",
        transaction(0).0,
        transaction(all).0,
        running.join(",")
    );
    Snapshot::parse(&text).expect("a snapshot")
}

fn seen_by(snapshot: &Snapshot) -> Transactions {
    (0..SERVERS * TRANSACTIONS)
        .filter(|bit| snapshot.sees(transaction(*bit)))
        .fold(0, |seen, bit| seen | 1 << bit)
}

fn set_of(items: impl Iterator<Item = ItemId>) -> Items {
    items.fold(0, |set, id| set | 1 << item_of(id))
}

fn items_of(deltas: &[CountDelta]) -> Items {
    set_of(deltas.iter().map(|one| one.item_id))
}

impl Model {
    /// The next call of a server that counts.
    pub(super) fn count_step(&self, state: &State, at: usize) -> Option<State> {
        let mut next = state.clone();
        let counting = match &state.servers[at].doing {
            Doing::Count(counting) => {
                let mut counting = counting.clone();
                match counting.step() {
                    Step::Count(deltas) => {
                        let bit = bit_of(counting.transaction());
                        let replies = deltas.iter().map(|one| self.count(&mut next, bit, one));
                        let replies = replies.collect();
                        counting.counted(replies);
                        counting
                    }
                    Step::Seed(missing) => {
                        let exact = missing.into_iter().map(|id| ExactCount {
                            item_id: id,
                            count: self.exact_count(state, item_of(id)),
                            counted_at: None,
                            snapshot: snapshot_of(state.committed),
                        });
                        let seeds = counting.seeds(exact.collect());
                        return Some(self.doing(next, at, Doing::Seed(counting, seeds)));
                    }
                    Step::Done | Step::GiveUp => unreachable!("another state stands for it"),
                }
            }
            Doing::Seed(counting, seeds) => {
                let mut counting = counting.clone();
                let replies: Vec<bool> = seeds.iter().map(|seed| self.seed(&mut next, seed)).collect();
                counting.seeded(seeds, &replies);
                counting
            }
            _ => return None,
        };
        let server = Arc::make_mut(&mut next.servers[at]);
        server.doing = match counting.step() {
            // A dead server gets no reply.
            _ if server.is_dead => Doing::Take,
            Step::Done => Doing::Take,
            Step::GiveUp => {
                let suspects = set_of(counting.give_up().into_iter());
                if self.without != Without::Suspects {
                    server.suspects |= suspects;
                }
                Doing::Take
            }
            Step::Count(_) | Step::Seed(_) => Doing::Count(counting),
        };
        Some(next)
    }

    /// `lua/count.lua`, for one of its keys.
    fn count(&self, state: &mut State, bit: usize, CountDelta { item_id, delta }: &CountDelta) -> CountReply {
        let counter = &mut state.counters[item_of(*item_id)];
        let Some(live) = &mut counter.live else {
            if counter.lease == 0 {
                state.drawn += 1;
                counter.lease = state.drawn;
            }
            return CountReply::Miss {
                lease: counter.lease.to_string(),
            };
        };
        let is_nothing = if self.without == Without::DownVotesOfADelta {
            delta.net == 0
        } else {
            *delta == Count::ZERO
        };
        let is_seen = live.snapshot & (1 << bit) != 0 && self.without != Without::VisibilitySnapshot;
        if !is_nothing && !is_seen {
            live.count += *delta;
        }
        CountReply::Count(live.count)
    }

    /// `lua/seed.lua`
    fn seed(&self, state: &mut State, Seed { exact, lease }: &Seed) -> bool {
        let counter = &mut state.counters[item_of(exact.item_id)];
        let has_lease = counter.lease.to_string() == *lease || self.without == Without::Lease;
        if counter.live.is_some() || !has_lease {
            return false;
        }
        *counter = Counter {
            live: Some(Live {
                count: exact.count,
                snapshot: seen_by(&exact.snapshot),
            }),
            lease: 0,
        };
        true
    }

    /// `exact_counts.sql`
    fn exact_count(&self, state: &State, item: usize) -> Count {
        let of_item = state.rows.iter().filter(|row| row.item == item);
        of_item.fold(Count::ZERO, |sum, row| sum + count_of(*row))
    }

    /// What the repair task of a server and crashed-writer recovery do.
    pub(super) fn repair(&self, state: &State, at: usize) -> Option<State> {
        let server = &state.servers[at];
        let mut next = state.clone();
        let changed = Arc::make_mut(&mut next.servers[at]);
        if !server.is_dead && server.suspects != 0 {
            changed.suspects = 0;
            next.invalidate(server.suspects);
            return Some(next);
        }
        // Recovery waits for the end of the dead server's connection.
        if server.left != 0 && !server.doing.is_storing() {
            changed.left = 0;
            next.invalidate(server.left);
            return Some(next);
        }
        None
    }

    /// What may go wrong.
    pub(super) fn faults(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        if state.faults.deaths > 0 {
            for at in 0..SERVERS {
                all.extend(self.die(state, at));
            }
        }
        let is_empty = state.counters.iter().all(|one| *one == Counter::default());
        if state.faults.wipes > 0 && !(is_empty && state.redis_numbers == [0; ITEMS]) {
            let mut next = state.clone();
            next.faults.wipes -= 1;
            next.invalidate(Items::MAX);
            next.redis_numbers = [0; ITEMS];
            all.push(next);
        }
        if state.faults.drops > 0 {
            let some = (0..ITEMS).filter(|item| state.counters[*item] != Counter::default());
            all.extend(some.map(|item| {
                let mut next = state.clone();
                next.faults.drops -= 1;
                next.invalidate(1 << item);
                next
            }));
        }
        all
    }

    /// The states after a server's death.
    /// Its call under way is lost, or executed later.
    fn die(&self, state: &State, at: usize) -> Vec<State> {
        let server = &state.servers[at];
        if server.is_dead || (server.doing == Doing::Take && server.suspects == 0) {
            return Vec::new();
        }
        let uncounted = match &server.doing {
            Doing::Count(counting) => open_items(counting),
            Doing::Seed(_, seeds) => set_of(seeds.iter().map(|seed| seed.exact.item_id)),
            Doing::Resolve { deltas, .. } => items_of(deltas),
            _ => 0,
        };
        let mut lost = state.clone();
        lost.faults.deaths -= 1;
        let dead = Arc::make_mut(&mut lost.servers[at]);
        dead.is_dead = true;
        dead.again.clear();
        dead.next = self.program.batches[at].len();
        if self.without != Without::CrashedWriterRecovery {
            dead.left = uncounted | server.suspects;
        }
        dead.suspects = 0;
        let late = lost.clone();
        Arc::make_mut(&mut lost.servers[at]).doing = Doing::Take;
        lost.unlock(at);
        let mut all = vec![lost];
        let is_reading =
            matches!(&server.doing, Doing::Count(counting) if matches!(counting.step(), Step::Seed(_)));
        if !is_reading && !matches!(server.doing, Doing::Take | Doing::Resolve { .. }) {
            all.push(late);
        }
        all
    }
}

/// The items that a batch has not counted.
fn open_items(counting: &Counting) -> Items {
    match counting.step() {
        Step::Count(deltas) => items_of(&deltas),
        Step::Seed(items) => set_of(items.into_iter()),
        Step::Done | Step::GiveUp => 0,
    }
}
