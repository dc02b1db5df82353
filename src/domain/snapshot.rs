//! Postgres' snapshots: which transactions a statement has seen.

use std::borrow::Cow;

/// The most running transactions that the text of a live count names. A snapshot of Postgres names
/// those of all databases of the server, however many there are.
pub const RUNNING_LIMIT_TRANSACTIONS: usize = 64;

/// A Postgres transaction id with its epoch (`xid8`): it only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId(pub i64);

/// A Postgres snapshot (`pg_current_snapshot()`), `xmin:xmax:running,running,…`.
///
/// A live count keeps the snapshot of its seed: the visibility snapshot. `lua/count.lua` has the
/// rule of [`Snapshot::sees`] in Lua, and `tests/it/live/scripts` compares the two.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    text: String,
    xmin: i64,
    xmax: i64,
    running: Vec<i64>,
}

/// A text that is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no snapshot; a snapshot looks like xmin:xmax:running,running")]
pub struct InvalidSnapshot(String);

impl Snapshot {
    /// From Postgres' text.
    ///
    /// # Errors
    /// When the text does not read `xmin:xmax:running,running,…`.
    pub fn parse(text: &str) -> Result<Self, InvalidSnapshot> {
        let invalid = || InvalidSnapshot(text.to_owned());
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next()?.parse::<i64>().ok();
        let (xmin, xmax) = (number().ok_or_else(invalid)?, number().ok_or_else(invalid)?);
        let running = match parts.next().ok_or_else(invalid)? {
            "" => Vec::new(),
            list => list
                .split(',')
                .map(|xid| xid.parse().map_err(|_| invalid()))
                .collect::<Result<_, _>>()?,
        };
        Ok(Self {
            text: text.to_owned(),
            xmin,
            xmax,
            running,
        })
    }

    /// Whether this snapshot has seen a *committed* transaction.
    pub fn sees(&self, TransactionId(xid): TransactionId) -> bool {
        xid < self.xmin || (xid < self.xmax && !self.running.contains(&xid))
    }

    /// The text that a live count keeps:
    /// - one number, if xmin is xmax and nothing was running: it takes Redis half the bytes,
    /// - else Postgres' own text,
    /// - or `low:xmax:running,running,…:xmin` with the newest of the running transactions, if there
    ///   are more than [`RUNNING_LIMIT_TRANSACTIONS`]. `low` is the first of these. The text does
    ///   not say whether the snapshot has seen a transaction from xmin to below `low`. Batches are
    ///   short, so theirs are among the newest.
    pub fn compact(&self) -> Cow<'_, str> {
        if self.running.is_empty() && self.xmin == self.xmax {
            return self.text.split(':').next().unwrap_or(&self.text).into();
        }
        if self.running.len() <= RUNNING_LIMIT_TRANSACTIONS {
            return self.text.as_str().into();
        }
        let mut running = self.running.clone();
        running.sort_unstable();
        let newest = running.split_off(running.len() - RUNNING_LIMIT_TRANSACTIONS);
        let low = newest.first().copied().unwrap_or(self.xmin);
        let newest: Vec<String> = newest.iter().map(i64::to_string).collect();
        format!("{low}:{}:{}:{}", self.xmax, newest.join(","), self.xmin).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_is_below_xmin_or_below_xmax_and_not_running() {
        let snapshot = Snapshot::parse("10:20:12,15").expect("a snapshot");
        let seen: Vec<i64> = (8..23).filter(|xid| snapshot.sees(TransactionId(*xid))).collect();
        assert_eq!(seen, [8, 9, 10, 11, 13, 14, 16, 17, 18, 19]);
    }

    #[test]
    fn a_text_that_is_no_snapshot_is_refused() {
        for text in ["", "1", "1:2", "a:2:", "1:b:", "1:2:x", "1:2:3,"] {
            assert!(Snapshot::parse(text).is_err(), "{text:?}");
        }
        assert!(Snapshot::parse("1:2:").is_ok());
    }

    #[test]
    fn a_compact_snapshot_names_the_newest_of_many_running_transactions() {
        let list = |xids: std::ops::Range<i64>| xids.map(|xid| xid.to_string()).collect::<Vec<_>>().join(",");
        let limit = i64::try_from(RUNNING_LIMIT_TRANSACTIONS).expect("small");
        let few = format!("10:900:{}", list(10..10 + limit));
        assert_eq!(Snapshot::parse(&few).expect("a snapshot").compact(), few);
        let many = format!("10:900:{}", list(10..12 + limit));
        let compact = format!("12:900:{}:10", list(12..12 + limit));
        assert_eq!(Snapshot::parse(&many).expect("a snapshot").compact(), compact);
    }
}
