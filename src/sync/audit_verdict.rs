//! What the audit says about an item, at one look and after several.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::HashMap;

use crate::domain::{Count, ItemId, Revision};
use crate::ledger::{AuditRow, Moved};
use crate::live::Counter;

/// What one comparison says about an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    InFlight,
    Rebuilding,
    /// The item has a later revision than the count that is marked as saved. It was written since
    /// the read, unless the next look finds the same.
    Ahead {
        of: Revision,
        by: u64,
    },
    Wrong {
        by: u64,
    },
}

/// Pure: compares a row with a counter that was read before it.
pub(super) fn verdict(row: &AuditRow, counter: &Counter) -> Verdict {
    let exact = row.exact_count;
    let judge = |count: Count, under_way: Moved| {
        // The range of a count while these votes are on their way.
        let (least, most) = (exact + -under_way.up, exact + under_way.down);
        let is_plausible =
            (least.net..=most.net).contains(&count.net) && (least.downs..=most.downs).contains(&count.downs);
        if count == exact {
            Verdict::Right
        } else if is_plausible {
            Verdict::InFlight
        } else {
            Verdict::Wrong {
                by: count.distance(exact),
            }
        }
    };
    match counter.count {
        // A rebuild will write the item, and there is no count that could be wrong.
        None if counter.rebuild.is_some() => Verdict::Rebuilding,
        // Without a live count, readers get the saved count; or the exact count, until the next roll-up has
        // saved the votes of a cold item.
        None => judge(row.saved_count, row.unsaved),
        Some((count, revision)) => match judge(count, row.in_flight) {
            // The item must hold the count that is marked as saved.
            Verdict::Right if counter.saved == Some(revision) => {
                let by = row.saved_count.distance(count);
                match row.counted_at.cmp(&Some(revision)) {
                    Equal | Greater if by == 0 => Verdict::Right,
                    Greater => Verdict::Ahead { of: revision, by },
                    // Or the item is older than what was saved: Postgres was restored.
                    Equal | Less => Verdict::Wrong { by },
                }
            }
            // An item that is ahead of its unsaved count refuses it.
            Verdict::Right if row.counted_at > Some(revision) && row.saved_count != count => Verdict::Ahead {
                of: revision,
                by: row.saved_count.distance(count),
            },
            verdict => verdict,
        },
    }
}

/// What the audit concludes about an item after a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Right,
    Rebuilding,
    Wrong {
        by: u64,
    },
    /// Not clear yet: something may have been under way. The next look tells.
    Open,
}

/// The looks at the items of a page, one after the other.
#[derive(Default)]
pub(super) struct Looks {
    /// The items that were ahead at the look before.
    ahead: HashMap<ItemId, Revision>,
}

impl Looks {
    /// What this look at an item says, given the looks before.
    pub fn finding(&mut self, item: ItemId, verdict: Verdict) -> Finding {
        match verdict {
            Verdict::Right => Finding::Right,
            Verdict::Rebuilding => Finding::Rebuilding,
            Verdict::InFlight => Finding::Open,
            Verdict::Wrong { by } => Finding::Wrong { by },
            // The item is ahead of the same revision a second time, so nothing was under way. A
            // worker wrote a count late, from before a failover to a slower clock.
            Verdict::Ahead { of, by } if self.ahead.insert(item, of) == Some(of) => Finding::Wrong { by },
            Verdict::Ahead { .. } => Finding::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::RedisTime;

    fn moved((up, down): (i64, i64)) -> Moved {
        Moved {
            up: up.into(),
            down: down.into(),
        }
    }

    fn row(exact_count: i64, saved_count: i64, counted_at: i64, in_flight: (i64, i64)) -> AuditRow {
        AuditRow {
            item_id: ItemId::new(1).expect("positive"),
            saved_count: saved_count.into(),
            counted_at: (counted_at > 0).then(|| Revision::from_micros(counted_at)),
            exact_count: exact_count.into(),
            in_flight: moved(in_flight),
            unsaved: moved(in_flight),
        }
    }

    fn counter(count: Option<(i64, i64)>, saved: Option<i64>, rebuild: bool) -> Counter {
        Counter {
            item_id: ItemId::new(1).expect("positive"),
            now: RedisTime::from_micros(1000),
            count: count.map(|(count, revision)| (count.into(), Revision::from_micros(revision))),
            saved: saved.map(Revision::from_micros),
            seeded: count.map(|_| RedisTime::from_micros(1)),
            rebuild: rebuild.then(|| "token".to_owned()),
        }
    }

    #[test]
    fn a_live_count_may_differ_only_by_its_votes_in_flight() {
        let live = |count| counter(Some((count, 10)), None, false);
        // 10 in the ledger, of which 3 up and 1 down are in-flight.
        let row = row(10, 0, 0, (3, 1));
        assert_eq!(verdict(&row, &live(10)), Verdict::Right);
        for count in [7, 8, 9, 11] {
            assert_eq!(verdict(&row, &live(count)), Verdict::InFlight, "{count}");
        }
        assert_eq!(verdict(&row, &live(6)), Verdict::Wrong { by: 4 });
        assert_eq!(verdict(&row, &live(12)), Verdict::Wrong { by: 2 });
    }

    #[test]
    fn without_a_live_count_the_saved_count_must_be_exact() {
        let none = counter(None, None, false);
        assert_eq!(verdict(&row(10, 10, 5, (0, 0)), &none), Verdict::Right);
        assert_eq!(verdict(&row(10, 9, 5, (1, 0)), &none), Verdict::InFlight);
        assert_eq!(verdict(&row(10, 9, 5, (0, 0)), &none), Verdict::Wrong { by: 1 });
        assert_eq!(
            verdict(&row(10, 9, 5, (0, 0)), &counter(None, None, true)),
            Verdict::Rebuilding
        );
    }

    #[test]
    fn only_without_a_live_count_may_a_saved_count_lack_votes_until_the_next_roll_up() {
        let none = counter(None, None, false);
        let of = |saved: i64| AuditRow {
            unsaved: moved((2, 1)),
            ..row(10, saved, 5, (0, 0))
        };
        for saved in [8, 9, 11] {
            assert_eq!(verdict(&of(saved), &none), Verdict::InFlight, "{saved}");
        }
        assert_eq!(verdict(&of(7), &none), Verdict::Wrong { by: 3 });
        assert_eq!(verdict(&of(12), &none), Verdict::Wrong { by: 2 });
        let live = counter(Some((9, 20)), None, false);
        assert_eq!(verdict(&of(9), &live), Verdict::Wrong { by: 1 });
    }

    #[test]
    fn what_is_marked_as_saved_must_stand_in_the_item() {
        let saved = counter(Some((10, 20)), Some(20), false);
        assert_eq!(verdict(&row(10, 10, 20, (0, 0)), &saved), Verdict::Right);
        assert_eq!(verdict(&row(10, 7, 20, (0, 0)), &saved), Verdict::Wrong { by: 3 });
        // The item is older than what was saved: Postgres was restored, for example.
        assert_eq!(verdict(&row(10, 7, 19, (0, 0)), &saved), Verdict::Wrong { by: 3 });
        // The item was written since the read, or late.
        assert_eq!(
            verdict(&row(10, 7, 21, (0, 0)), &saved),
            Verdict::Ahead {
                of: Revision::from_micros(20),
                by: 3
            }
        );
        assert_eq!(verdict(&row(10, 10, 21, (0, 0)), &saved), Verdict::Right);
        // An unsaved count says nothing of the item yet.
        let unsaved = counter(Some((10, 20)), Some(15), false);
        assert_eq!(verdict(&row(10, 7, 15, (0, 0)), &unsaved), Verdict::Right);
        // Unless the item is ahead of it, and will refuse it.
        let ahead = Verdict::Ahead {
            of: Revision::from_micros(20),
            by: 3,
        };
        assert_eq!(verdict(&row(10, 7, 21, (0, 0)), &unsaved), ahead);
        assert_eq!(verdict(&row(10, 10, 21, (0, 0)), &unsaved), Verdict::Right);
        assert_eq!(verdict(&row(10, 7, 20, (0, 0)), &unsaved), Verdict::Right);
    }

    #[test]
    fn an_item_that_is_ahead_is_wrong_when_the_next_look_finds_it_ahead_of_the_same() {
        let mut looks = Looks::default();
        let [ada, eve] = [1, 2].map(|id| ItemId::new(id).expect("positive"));
        let ahead = |of| Verdict::Ahead {
            of: Revision::from_micros(of),
            by: 3,
        };
        assert_eq!(looks.finding(ada, ahead(20)), Finding::Open);
        assert_eq!(looks.finding(eve, ahead(20)), Finding::Open, "another item");
        assert_eq!(looks.finding(ada, ahead(21)), Finding::Open, "another count");
        assert_eq!(looks.finding(ada, ahead(21)), Finding::Wrong { by: 3 });
        assert_eq!(looks.finding(eve, Verdict::Right), Finding::Right);
    }

    #[test]
    fn what_is_certain_at_one_look_needs_no_other() {
        let mut looks = Looks::default();
        let item = ItemId::new(1).expect("positive");
        for (verdict, finding) in [
            (Verdict::Right, Finding::Right),
            (Verdict::Rebuilding, Finding::Rebuilding),
            (Verdict::Wrong { by: 2 }, Finding::Wrong { by: 2 }),
            (Verdict::InFlight, Finding::Open),
        ] {
            assert_eq!(looks.finding(item, verdict), finding);
        }
    }
}
