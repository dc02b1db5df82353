//! Caches: what a program remembers, and what ends each entry.
//!
//! Each cache has a type that implements [`Remembers`], which says its size, its age, and what else
//! ends an entry. A full cache drops what is asked for least (quick_cache).
//!
//! | Cache | Of | Entries at most | Age | What else ends an entry |
//! |---|---|---|---|---|
//! | `web`: `ItemKeys`, `PollKeys` | a thread | 50,000 each | 60 s | nothing: a key is never given away |
//! | `web::api`: `KnownAnswer` | a thread | 50,000 counts | 500 ms | nothing: its counts are asked of Redis |
//! | `web::access`: `OpenItem`, `OpenPoll` | a server | 50,000 each | 10 s | a change of access on this server |
//! | `web::access`: `Valid` | a server | 10,000 API keys | 60 s | the key's expiry; a revocation on this server |
//! | `web::access`: `NotValid` | a server | 10,000 hashes | 60 s | a revocation on this server; the key becoming valid |
//! | `web::access::jwt`: `Believed` | a server | 10,000 tokens | — | the token's expiry; new keys of JWTs |
//! | `counts`: `CachedList` | a server | 1,000 top lists | — | a newer list; how long one is shown depends on its cost |
//! | `ledger`: `ItemFacts` | a reader's connection | 50,000 items | 60 s | an edit on this server; the connection's end |
//! | `ledger`: `ItemKind` | a writer's connection | 100,000 items | 60 s | the connection's end |
//!
//! - [`Cache`]: shared, behind one lock; each entry has its own age.
//! - [`OwnCache`]: of one owner, without a lock, for what each vote reads.

mod own;
mod shared;

use std::hash::Hash;
use std::time::Duration;

pub use own::OwnCache;
pub use shared::{Asked, Cache};

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
