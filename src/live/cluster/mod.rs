//! A Redis Cluster: which node has each bucket, and calls of it. It is Tally's own, since the client of the redis crate
//! sends calls again that may have been done: such votes would count twice.
//!
//! - `lookup`: asks nodes, and knows what they said.
//! - `nodes`: what a node says of all nodes.
//! - `map`: which node has each bucket.
//! - `redirects`: what a reply says of where a call belongs.
//! - `connections`: connections to the nodes, and calls of buckets.

mod connections;
mod lookup;
mod map;
mod nodes;
mod redirects;

pub use connections::{BucketCalls, BucketConnection, NodeConnections};
pub use lookup::Cluster;
pub use nodes::OwnSlots;
