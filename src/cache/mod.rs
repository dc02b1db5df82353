//! Caches: what a program remembers, and what ends each entry.
//!
//! Each cache has a type that implements [`Remembers`], which says its size, its age, and what else
//! ends an entry. A full cache drops what is asked for least (quick_cache).
//!
//! What Postgres said ends with the run of Postgres ([`PostgresRun`](crate::domain::PostgresRun)):
//! another run may give the same ids to other items. Each new connection learns its run. When that
//! is another one, [`Ends`] ends all such caches, and connections to the run before are not used any
//! more. A remembered key also carries the run in which it was looked up. So a batch writer, whose
//! connection knows its own run, stores no vote under an id of another run.
//!
//! | Cache | Of | Entries at most | Age | What else ends an entry |
//! |---|---|---|---|---|
//! | `web`: `ItemKeys`, `PollKeys` | a thread | 50,000 each | 60 s | another run |
//! | `web::api`: `KnownAnswer` | a thread | 50,000 counts | 500 ms | another run; its counts are asked of Redis |
//! | `web::access`: `OpenItem`, `OpenPoll` | a server | 50,000 each | 10 s | another run; a change of access on this server |
//! | `web::access`: `Valid` | a server | 10,000 API keys | 60 s | another run; the key's expiry; a revocation on this server |
//! | `web::access`: `NotValid` | a server | 10,000 hashes | 60 s | another run; a revocation on this server; the key becoming valid |
//! | `web::access`: `Reporting` | a server | 10,000 API keys | 1 h | as `Valid`; only for metrics, and while Postgres does not answer |
//! | `web::access::jwt`: `Believed` | a server | 10,000 tokens | — | the token's expiry; new keys of JWTs |
//! | `counts`: `CachedList` | a server | 1,000 top lists | — | another run; a newer list; how long one is shown depends on its cost |
//! | `ledger`: `ItemFacts` | a reader's connection | 50,000 items | 60 s | another run; an edit on this server; the connection's end |
//! | `ledger`: `ItemBlock` | a server's writers | 16,384 blocks of 1,024 items | 60 s | another run; the first batch over a writer's new connection |
//!
//! What else outlives a request, and is about items or polls:
//!
//! - `watching`: what streams watch, and what they were shown of it. Another run ends the streams whose
//!   ids were looked up (by a key, or as a poll's choices), and has the rest read again.
//! - `votes::full_items`: on which items votes are looked at first. It decides nothing. The read that
//!   decides goes over the writer's connection, and only for ids of that connection's run.
//! - `live::server::suspects`: items whose counts are rebuilt. Under another run this is at most one read too
//!   many. `live::server::warm_items`: at most a live count too many.
//!
//! - [`Cache`]: shared, behind one lock; each entry has its own age.
//! - [`OwnCache`]: of one owner, without a lock, for what each read of items asks.

mod ends;
mod own;
mod shared;

use std::hash::Hash;
use std::time::Duration;

pub use ends::Ends;
pub use own::OwnCache;
pub use shared::{Asked, Cache, Look};

/// What a cache holds, and what ends an entry.
pub trait Remembers: 'static {
    type Key: Eq + Hash;
    type Value;
    /// The most that is remembered, in units of [`Remembers::weight`]: by default, entries.
    const LIMIT: usize;
    /// How long an entry is remembered after its question was asked. `None`: as long as it has a
    /// place.
    const LIMIT_AGE: Option<Duration>;

    /// How much of the limit an entry takes. It never changes.
    fn weight(_value: &Self::Value) -> u64 {
        1
    }

    /// Whether an entry has ended by itself, like an API key that has expired.
    fn is_over(_value: &Self::Value) -> bool {
        false
    }
}

/// A cache whose entries all end together at an event that its documentation names. Only such a
/// cache can forget everything.
pub trait Forgets: Remembers {}
