//! What a node of a Redis Cluster says of all nodes: the reply of `CLUSTER NODES`.

use std::fmt;
use std::ops::RangeInclusive;

use redis::aio::ConnectionLike;

use crate::live::LiveError;
use crate::live::buckets::Bucket;

/// Where a node is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.host, self.port)
    }
}

/// A node, as another one or itself sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub at: At,
    pub is_primary: bool,
    /// The number of the election or move in which it got its slots: of two nodes that claim a slot, the one with the
    /// higher number has it.
    pub epoch: u64,
    pub slots: Vec<RangeInclusive<u16>>,
    /// The slots that it is handing over. Only the node itself says so.
    pub leaving: Vec<u16>,
    /// The slots that it takes over. Only the node itself says so.
    pub arriving: Vec<u16>,
    /// Whether it is the node that was asked.
    pub is_asked: bool,
}

impl Node {
    pub fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

/// The slots that a node says it has itself.
pub struct OwnSlots(Option<Node>);

impl OwnSlots {
    /// Asks the node at the other end.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(connection: &mut impl ConnectionLike) -> Result<Self, LiveError> {
        let reply: String = redis::cmd("CLUSTER").arg("NODES").query_async(connection).await?;
        // It may not know its own address.
        let asked = At {
            host: String::new(),
            port: 0,
        };
        let nodes = read(&reply, &asked, false);
        Ok(Self(
            nodes.into_iter().find(|node| node.is_asked && node.is_primary),
        ))
    }

    pub fn has(&self, bucket: Bucket) -> bool {
        self.0.as_ref().is_some_and(|node| node.has(bucket.slot()))
    }

    /// Whether it is taking the bucket over from another node, or was when that one failed over.
    pub fn is_arriving(&self, bucket: Bucket) -> bool {
        self.0
            .as_ref()
            .is_some_and(|node| node.arriving.contains(&bucket.slot()))
    }

    /// Whether it is handing the bucket over to another node.
    pub fn is_leaving(&self, bucket: Bucket) -> bool {
        self.0
            .as_ref()
            .is_some_and(|node| node.leaving.contains(&bucket.slot()))
    }
}

/// Reads the reply. A node without an address, or that is not known well yet, is left out. `asked`: where the node is
/// that answered, which may not know its own address. `is_named`: whether names are preferred to addresses, as
/// certificates need them.
pub fn read(reply: &str, asked: &At, is_named: bool) -> Vec<Node> {
    reply
        .lines()
        .filter_map(|line| node(line, asked, is_named))
        .collect()
}

/// Reads a line: `<id> <ip:port@bus-port[,name][,…]> <flags> <primary> <ping> <pong> <epoch> <connection> <slots>…`.
fn node(line: &str, asked: &At, is_named: bool) -> Option<Node> {
    let mut words = line.split(' ');
    let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
    let is = |flag: &str| flags.split(',').any(|one| one == flag);
    if is("noaddr") || is("handshake") {
        return None;
    }
    let epoch = words.nth(3)?.parse().ok()?;
    let (address, rest) = address.split_once('@')?;
    let (ip, port) = address.rsplit_once(':')?;
    // A bus port comes first.
    let name = rest.split(',').nth(1).unwrap_or("");
    let is_asked = is("myself");
    let host = match (ip, name) {
        (_, name) if is_named && !name.is_empty() => name,
        ("", _) if is_asked => &asked.host,
        ("", _) => return None,
        (ip, _) => ip,
    };
    let mut slots = Vec::new();
    let (mut leaving, mut arriving) = (Vec::new(), Vec::new());
    for word in words.skip(1) {
        match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(moving) => {
                let slot_of = |arrow: &str| moving.split_once(arrow)?.0.parse::<u16>().ok();
                leaving.extend(slot_of("->-"));
                arriving.extend(slot_of("-<-"));
            }
            None => {
                let (from, to) = word.split_once('-').unwrap_or((word, word));
                slots.push(from.parse().ok()?..=to.parse().ok()?);
            }
        }
    }
    Some(Node {
        id: id.to_owned(),
        at: At {
            host: host.to_owned(),
            port: port.parse().ok()?,
        },
        is_primary: is("master"),
        epoch,
        slots,
        leaving,
        arriving,
        is_asked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> At {
        At {
            host: "10.0.0.9".to_owned(),
            port: 7000,
        }
    }

    #[test]
    fn nodes_are_read_with_their_slots_and_those_that_they_hand_over() {
        let reply = "\
            aa :7000@17000 myself,master - 0 0 5 connected 0-100 7 [7->-bb] [9-<-bb]\n\
            bb 10.0.0.2:7001@17001,b.example,shard-id=1 master,fail? - 0 1 6 connected 101-16383\n\
            cc 10.0.0.3:7002@17002 slave bb 0 1 6 connected\n\
            dd :0@0 master,noaddr - 0 1 1 disconnected\n\
            ee 10.0.0.5:7003@17003 handshake - 0 0 0 disconnected\n";
        let nodes = read(reply, &asked(), false);
        let seen: Vec<_> = nodes
            .iter()
            .map(|node| (node.id.as_str(), node.at.to_string(), node.is_primary, node.epoch))
            .collect();
        assert_eq!(
            seen,
            [
                ("aa", "10.0.0.9:7000".to_owned(), true, 5),
                ("bb", "10.0.0.2:7001".to_owned(), true, 6),
                ("cc", "10.0.0.3:7002".to_owned(), false, 6),
            ]
        );
        let moving = (nodes[0].leaving.as_slice(), nodes[0].arriving.as_slice());
        assert_eq!((nodes[0].slots.len(), moving), (2, (&[7][..], &[9][..])));
        assert!(nodes[0].has(7) && nodes[0].is_asked && !nodes[1].has(7));
        // A certificate has a name.
        assert_eq!(read(reply, &asked(), true)[1].at.host, "b.example");
    }

    #[test]
    fn a_node_with_an_ip6_address_is_read() {
        let nodes = read("aa ::1:7000@17000 master - 0 0 5 connected 0-1", &asked(), false);
        assert_eq!((nodes[0].at.host.as_str(), nodes[0].at.port), ("::1", 7000));
    }
}
