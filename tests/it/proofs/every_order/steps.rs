//! The steps of the model: scripts, statements, batches, workers, a new epoch.

use std::sync::Arc;

use tally::domain::{CountDelta, ExactCount, ItemId, Revision, Snapshot, TransactionId};
use tally::live::{CountReply, Seed};

use super::state::{Entry, Left, Live, Quick, Rebuilt, RollUp, State, Votes, Worker};
use crate::proofs::one_vote_batch::{Batch, Call, Reply, Without};

/// The transaction id of the first batch. The others follow.
const FIRST_XID: i64 = 10;
/// Redis' first time: not 0, since the clock may step back.
const FIRST_TIME: u8 = 4;

/// The protocol for some votes and workers, perhaps without a piece.
pub(super) struct Model {
    pub deltas: Vec<i8>,
    pub workers: usize,
    pub left: Left,
    pub rounds: usize,
    pub without: Without,
}

impl Model {
    /// `lua/invalidate.lua`
    pub fn invalidate(&self, state: &mut State) {
        if let Some(live) = state.live.take() {
            state.floor = live.revision;
        }
        if self.without == Without::InvalidationFloor {
            state.floor = 0;
        }
        state.lease = 0;
        state.rebuild = state.draw();
    }

    pub fn sum(&self, votes: Votes) -> i8 {
        self.deltas
            .iter()
            .enumerate()
            .filter(|(at, _)| votes & (1 << at) != 0)
            .map(|(_, delta)| delta)
            .sum()
    }

    fn item() -> ItemId {
        ItemId::new(1).expect("positive")
    }

    fn transaction(at: usize) -> TransactionId {
        TransactionId(FIRST_XID + i64::try_from(at).expect("a few votes"))
    }

    fn batch(&self, at: usize) -> Batch {
        let delta = CountDelta {
            item_id: Self::item(),
            delta: i64::from(self.deltas[at]).into(),
        };
        if self.without == Without::CommitFirst {
            Batch::counted_first(delta, self.rounds, Self::transaction(at))
        } else {
            Batch::new(delta, self.rounds, self.without)
        }
    }

    /// A snapshot that sees these votes and no others.
    fn snapshot_of(&self, committed: Votes) -> Snapshot {
        let xid = |at| Self::transaction(at).0;
        let running: Vec<String> = (0..self.deltas.len())
            .filter(|at| committed & (1 << at) == 0)
            .map(|at| xid(at).to_string())
            .collect();
        let text = format!("{}:{}:{}", xid(0), xid(self.deltas.len()), running.join(","));
        Snapshot::parse(&text).expect("a snapshot")
    }

    fn votes_of(&self, snapshot: &Snapshot) -> Votes {
        (0..self.deltas.len())
            .filter(|at| snapshot.sees(Self::transaction(*at)))
            .fold(0, |votes, at| votes | (1 << at))
    }

    pub fn first(&self) -> State {
        State {
            committed: 0,
            live: None,
            floor: 0,
            lease: 0,
            rebuild: 0,
            saved_count: 0,
            counted_at: 0,
            now: FIRST_TIME,
            drawn: 0,
            epoch: 0,
            entry: Entry::Done,
            batches: (0..self.deltas.len())
                .map(|at| Arc::new(self.batch(at)))
                .collect(),
            workers: vec![Worker::Read; self.workers],
            roll_up: RollUp::Pass,
            stale_roll_up: RollUp::Pass,
            cold: 0,
            noted: 0,
            passed: 0,
            roll_ups: Vec::new(),
            promised: 0,
            left: self.left,
        }
    }

    /// All states that one step leads to.
    pub fn next(&self, state: &State) -> Vec<State> {
        let mut all = Vec::new();
        for at in 0..state.batches.len() {
            all.extend(self.batch_step(state, at, false));
            all.extend(self.batch_step(state, at, true));
        }
        for at in 0..state.workers.len() {
            all.extend(self.work(state, at));
        }
        all.extend(self.roll_up_steps(state));
        if self.left.quick != Quick::No && state.roll_up == RollUp::Pass {
            // A roll-up that passes nothing.
            let mut next = state.clone();
            next.note_roll_up();
            next.without_later_votes();
            all.push(next);
        }
        all.extend(self.enter(state));
        let has_key = state.live.is_some() || state.lease != 0;
        if state.left.invalidations > 0 && has_key {
            let mut next = state.clone();
            self.invalidate(&mut next);
            next.left.invalidations -= 1;
            all.push(next);
        }
        if state.left.wipes > 0 {
            let mut next = state.clone();
            next.drop_count();
            (next.lease, next.rebuild) = (0, 0);
            next.cold = 0;
            next.left.wipes -= 1;
            next.entry = Entry::RaiseNumber;
            all.push(next);
        }
        if state.left.time_outs > 0 && state.lease != 0 && state.rebuild == 0 {
            let mut next = state.clone();
            next.drop_count();
            next.lease = 0;
            next.left.time_outs -= 1;
            all.push(next);
        }
        if state.left.clock_steps > 0 {
            for now in [
                1,
                state.now.saturating_sub(1),
                state.now.saturating_sub(2),
                state.now + 2,
            ] {
                if now == 0 || now == state.now {
                    continue;
                }
                let mut next = state.clone();
                next.now = now;
                next.left.clock_steps -= 1;
                all.push(next);
            }
        }
        for next in &mut all {
            // Others do not remember it: they would be many more states.
            if self.left.cold > 0 && next.is_saved_count_read() {
                next.promised |= Self::done(next);
            }
        }
        all
    }

    /// The next step into another epoch.
    fn enter(&self, state: &State) -> Option<State> {
        let mut next = state.clone();
        next.entry = match state.entry {
            Entry::Done => return None,
            Entry::RaiseNumber => {
                next.epoch += u8::from(self.without != Without::EpochNumber);
                if self.left.quick == Quick::Unwritten {
                    next.forget_roll_ups();
                }
                Entry::InvalidateCounter
            }
            Entry::InvalidateCounter => {
                let has_key = state.live.is_some() || (state.floor, state.lease, state.rebuild) != (0, 0, 0);
                if has_key {
                    self.invalidate(&mut next);
                }
                Entry::Compare
            }
            Entry::Compare => {
                let is_exact = state.saved_count == self.sum(state.committed);
                if !is_exact && state.live.is_none() && state.rebuild == 0 {
                    self.invalidate(&mut next);
                }
                Entry::Done
            }
        };
        Some(next)
    }

    /// The next step of the batch of vote `at`. Its server may take the item for warm or for cold; `None` if
    /// it is the same either way, and for a batch that is done.
    fn batch_step(&self, state: &State, at: usize, is_cold: bool) -> Option<State> {
        let call = state.batches[at].call()?;
        if is_cold && !(matches!(call, Call::Count(..)) && self.may_be_cold(state, at)) {
            return None;
        }
        // With quick saves, votes are drawn in this order.
        let is_next = self.left.quick == Quick::No || state.committed + 1 == 1 << at;
        if matches!(call, Call::Commit) && !is_next {
            return None;
        }
        let mut next = state.clone();
        let reply = match call {
            Call::Commit => {
                next.committed |= 1 << at;
                Reply::Committed(Self::transaction(at))
            }
            Call::Count(..) if is_cold => {
                next.left.cold -= 1;
                next.cold |= (1 << at) & !state.noted;
                Reply::Counted(vec![CountReply::Cold])
            }
            Call::Count(_, deltas) => {
                Reply::Counted(deltas.iter().map(|_| self.count(&mut next, at)).collect())
            }
            Call::ReadExactCounts(_) => Reply::ExactCounts(vec![ExactCount {
                item_id: Self::item(),
                count: i64::from(self.sum(state.committed)).into(),
                counted_at: (state.counted_at > 0).then(|| Revision::from_micros(state.counted_at.into())),
                snapshot: self.snapshot_of(state.committed),
            }]),
            Call::Seed(seeds) => Reply::Seeded(seeds.iter().map(|seed| self.seed(&mut next, seed)).collect()),
            Call::Invalidate(_) => {
                self.invalidate(&mut next);
                Reply::Invalidated
            }
        };
        next.batches[at] = Arc::new(state.batches[at].after(reply));
        Some(next)
    }

    /// Whether `lua/count.lua` makes nothing for an item that is not warm.
    fn may_be_cold(&self, state: &State, at: usize) -> bool {
        let has_lease = state.lease != 0 && self.without != Without::LeaseIsWarm;
        let has_request = state.rebuild != 0 && self.without != Without::RequestIsWarm;
        let has_floor = state.floor != 0 && !(state.rebuild != 0 && self.without == Without::RequestIsWarm);
        let is_there = state.live.is_some() || has_lease || has_request || has_floor;
        self.deltas[at] != 0 && state.left.cold > 0 && !is_there
    }

    /// `lua/count.lua`, for the batch of vote `at`.
    fn count(&self, state: &mut State, at: usize) -> CountReply {
        let Some(live) = &mut state.live else {
            if state.lease == 0 {
                state.lease = state.draw();
            }
            return CountReply::Miss {
                lease: state.lease.to_string(),
            };
        };
        let is_seen = live.snapshot & (1 << at) != 0 && self.without != Without::VisibilitySnapshot;
        if self.deltas[at] != 0 && !is_seen {
            live.count += self.deltas[at];
            live.revision = state.now.max(live.revision + 1);
            state.now += 1;
        }
        CountReply::Count(i64::from(live.count).into())
    }

    /// `lua/seed.lua`
    fn seed(&self, state: &mut State, Seed { exact, lease }: &Seed) -> bool {
        let has_lease = state.lease.to_string() == *lease || self.without == Without::Lease;
        if state.live.is_some() || !has_lease {
            return false;
        }
        let number = |number: i64| u8::try_from(number).expect("a small number");
        let counted_at = number(exact.counted_at.map_or(0, Revision::micros));
        let floor = if self.without == Without::SeedFloor {
            0
        } else {
            state.floor
        };
        let revision = state.now.max(counted_at.max(floor) + 1);
        state.live = Some(Live {
            count: i8::try_from(exact.count.net).expect("a small number"),
            revision,
            saved: 0,
            snapshot: self.votes_of(&exact.snapshot),
        });
        state.floor = 0;
        state.lease = 0;
        state.now += 1;
        true
    }

    /// The next step of worker `at`; `None` when it has nothing to do.
    pub fn work(&self, state: &State, at: usize) -> Option<State> {
        let mut next = state.clone();
        let epoch = state.epoch;
        next.workers[at] = match state.workers[at] {
            Worker::Read => match state.live {
                Some(live) if live.saved == live.revision => Worker::Expire {
                    revision: live.revision,
                },
                Some(Live { count, revision, .. }) => Worker::Write {
                    epoch,
                    count,
                    revision,
                },
                None if state.rebuild != 0 => Worker::ReadExact {
                    epoch,
                    token: state.rebuild,
                },
                None => return None,
            },
            Worker::Write { epoch, .. } if epoch != state.epoch => Worker::Read,
            Worker::Write { count, revision, .. } => {
                // `counted_at` grows with each change.
                let is_same = state.saved_count == count
                    || matches!(
                        self.without,
                        Without::ColdSecondRead | Without::ClaimFloor | Without::FloorBesideLease
                    );
                let is_above = state.counted_at < revision || state.counted_at == revision && is_same;
                if is_above || self.without == Without::CountedAtGuard {
                    next.save(count, revision);
                    Worker::Mark { count, revision }
                } else {
                    Worker::InvalidateUnchanged { revision }
                }
            }
            Worker::Mark { count, revision } => {
                if let Some(live) = &mut next.live {
                    let same = if self.without == Without::Revision {
                        live.count == count
                    } else {
                        live.revision == revision
                    };
                    if same {
                        live.saved = live.revision;
                        next.rebuild = 0;
                    }
                }
                Worker::Read
            }
            Worker::InvalidateUnchanged { revision } => {
                if state.live.is_some_and(|live| live.revision == revision) {
                    self.invalidate(&mut next);
                }
                Worker::Read
            }
            Worker::Expire { revision } => {
                let is_idle =
                    |live: Live| live.revision == revision && live.saved == revision && revision <= state.now;
                if state.live.is_some_and(is_idle) {
                    next.drop_count();
                }
                Worker::Read
            }
            Worker::ReadExact { epoch, token } => Worker::Claim {
                token,
                rebuilt: Rebuilt {
                    epoch,
                    count: self.sum(state.committed),
                    counted_at: state.counted_at,
                },
            },
            Worker::Claim { token, .. } if state.rebuild != token => Worker::Read,
            Worker::Claim { token, rebuilt } => match state.live {
                Some(live) => {
                    if live.saved == live.revision {
                        next.rebuild = 0;
                    }
                    Worker::Read
                }
                None => {
                    let floor = if self.without == Without::ClaimAboveFloor {
                        0
                    } else {
                        state.floor
                    };
                    let revision = state.now.max(rebuilt.counted_at + 1).max(floor + 1);
                    if self.without != Without::ClaimFloor {
                        next.floor = revision;
                    }
                    next.now += 1;
                    Worker::WriteExact {
                        token,
                        rebuilt,
                        revision,
                    }
                }
            },
            Worker::WriteExact {
                token,
                rebuilt,
                revision,
            } => {
                let is_as_read = if self.without == Without::CompareAndSet {
                    state.counted_at <= revision
                } else {
                    state.counted_at == rebuilt.counted_at
                };
                if is_as_read && rebuilt.epoch == state.epoch {
                    next.save(rebuilt.count, revision);
                    Worker::ClearRequest { token }
                } else {
                    Worker::Read
                }
            }
            Worker::ClearRequest { token } => {
                if state.rebuild == token {
                    next.rebuild = 0;
                    // The holder of a lease may have read the item before this write.
                    let keeps_floor = state.lease != 0 && self.without != Without::FloorBesideLease;
                    if state.live.is_none() && !keeps_floor {
                        next.floor = 0;
                    }
                }
                Worker::Read
            }
        };
        Some(next)
    }
}
