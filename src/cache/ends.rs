//! What ends the entries of many caches at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ends all entries of the caches that share it. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Ends(Arc<AtomicU64>);

impl Ends {
    /// Ends what is remembered, and what is being asked for.
    pub fn end_all(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// How often all entries ended. Whoever holds what was read earlier compares it with the count
    /// from before the read.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
