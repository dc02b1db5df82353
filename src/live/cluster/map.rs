//! Which node of a Redis Cluster has each bucket.

use std::time::Duration;

use tokio::time::Instant;

use super::nodes::{At, Node};
use crate::live::buckets::{BUCKETS, Bucket};

/// How long nodes may go on naming an owner from before a known one, until they are believed. A node that was cut off
/// does so until it hears of the others; a Cluster whose nodes lost their files counts its epochs anew.
const EARLIER_LIMIT: Duration = Duration::from_secs(10);

/// The primary that has a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub at: At,
    id: String,
    epoch: u64,
    /// Counts the owners of the bucket that this program has seen. The first has 1.
    pub number: u64,
}

/// What is known of all buckets and nodes.
#[derive(Debug)]
pub struct Map {
    owners: [Option<Owner>; BUCKETS as usize],
    /// Since when an earlier owner than the known one is named.
    earlier_since: [Option<Instant>; BUCKETS as usize],
    nodes: Vec<At>,
    /// Also those without slots.
    primaries: Vec<At>,
}

impl Map {
    pub fn new() -> Self {
        Self {
            owners: [const { None }; BUCKETS as usize],
            earlier_since: [None; BUCKETS as usize],
            nodes: Vec::new(),
            primaries: Vec::new(),
        }
    }

    pub fn owner(&self, bucket: Bucket) -> Option<&Owner> {
        self.owners[bucket.index()].as_ref()
    }

    /// All nodes that were named last.
    pub fn nodes(&self) -> &[At] {
        &self.nodes
    }

    /// All primaries that were named last, also those without slots.
    pub fn all_primaries(&self) -> &[At] {
        &self.primaries
    }

    /// Takes in what nodes say. Of several that claim a bucket's slot, the one with the highest epoch has it.
    pub fn learn(&mut self, answers: &[Vec<Node>], now: Instant) {
        let (mut nodes, mut primaries): (Vec<At>, Vec<At>) = (Vec::new(), Vec::new());
        for node in answers.iter().flatten() {
            if !nodes.contains(&node.at) {
                nodes.push(node.at.clone());
            }
            if node.is_primary && !primaries.contains(&node.at) {
                primaries.push(node.at.clone());
            }
        }
        (self.nodes, self.primaries) = (nodes, primaries);
        for bucket in Bucket::first(BUCKETS) {
            let claims = answers
                .iter()
                .flatten()
                .filter(|node| node.is_primary && node.has(bucket.slot()));
            // Nobody: the slot is being given to another one, or is served by nobody. Whoever had it says so.
            let Some(node) = claims.max_by_key(|node| node.epoch) else {
                continue;
            };
            let at = bucket.index();
            let known = self.owners[at].as_ref().map_or(0, |owner| owner.epoch);
            if node.epoch < known {
                let since = *self.earlier_since[at].get_or_insert(now);
                if now.duration_since(since) < EARLIER_LIMIT {
                    continue;
                }
            }
            self.earlier_since[at] = None;
            self.set(bucket, node.at.clone(), node.id.clone(), node.epoch);
        }
    }

    /// Takes in that a node sends callers of this bucket to another one.
    pub fn moved(&mut self, bucket: Bucket, to: At) {
        let known = self.owner(bucket);
        if known.is_some_and(|owner| owner.at == to) {
            return;
        }
        // Who it is, and since when, the nodes say soon.
        let epoch = known.map_or(0, |owner| owner.epoch);
        self.set(bucket, to, String::new(), epoch);
    }

    fn set(&mut self, bucket: Bucket, at: At, id: String, epoch: u64) {
        let known = &mut self.owners[bucket.index()];
        let number = match known {
            // One that was only named by its place until now is the same one.
            Some(owner) if owner.at == at && (owner.id == id || owner.id.is_empty()) => owner.number,
            Some(owner) => owner.number + 1,
            None => 1,
        };
        *known = Some(Owner {
            at,
            id,
            epoch,
            number,
        });
    }

    /// The buckets of each primary, in order.
    pub fn primaries(&self) -> Vec<Vec<Bucket>> {
        let mut primaries: Vec<(&At, Vec<Bucket>)> = Vec::new();
        for bucket in Bucket::first(BUCKETS) {
            let Some(owner) = self.owner(bucket) else { continue };
            match primaries.iter_mut().find(|(at, _)| **at == owner.at) {
                Some((_, buckets)) => buckets.push(bucket),
                None => primaries.push((&owner.at, vec![bucket])),
            }
        }
        primaries.into_iter().map(|(_, buckets)| buckets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, port: u16, epoch: u64, slots: std::ops::RangeInclusive<u16>) -> Node {
        Node {
            id: id.to_owned(),
            at: At {
                host: "h".to_owned(),
                port,
            },
            is_primary: true,
            epoch,
            slots: vec![slots],
            leaving: Vec::new(),
            arriving: Vec::new(),
            is_asked: false,
        }
    }

    fn owner(map: &Map) -> (u16, u64) {
        let owner = map.owner(Bucket::FIRST).expect("an owner");
        (owner.at.port, owner.number)
    }

    #[test]
    fn the_claim_with_the_highest_epoch_holds_whoever_is_asked() {
        let mut map = Map::new();
        let now = Instant::now();
        let old = vec![node("a", 1, 1, 0..=16_383)];
        let new = vec![node("a", 1, 1, 1000..=16_383), node("b", 2, 3, 0..=999)];
        map.learn(std::slice::from_ref(&old), now);
        assert_eq!(owner(&map), (1, 1));
        map.learn(&[old.clone(), new.clone()], now);
        assert_eq!(owner(&map), (2, 2));
        assert_eq!(map.primaries().len(), 2);
        // A node that was cut off is asked alone.
        map.learn(std::slice::from_ref(&old), now);
        assert_eq!(owner(&map), (2, 2));
        // All of them go on saying it: they have lost their files.
        map.learn(&[old], now + EARLIER_LIMIT);
        assert_eq!(owner(&map), (1, 3));
    }

    #[test]
    fn a_node_that_sends_callers_on_is_believed_until_the_nodes_say_more() {
        let mut map = Map::new();
        let now = Instant::now();
        map.learn(&[vec![node("a", 1, 1, 0..=16_383)]], now);
        let to = At {
            host: "h".to_owned(),
            port: 2,
        };
        map.moved(Bucket::FIRST, to);
        assert_eq!(owner(&map), (2, 2));
        map.learn(&[vec![node("b", 2, 2, 0..=16_383)]], now);
        assert_eq!(owner(&map), (2, 2));
        // Another process at the same place is another owner.
        map.learn(&[vec![node("c", 2, 3, 0..=16_383)]], now);
        assert_eq!(owner(&map), (2, 3));
    }
}
