//! What looks at the place of a bucket's counts have found.

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many looks in a row that found the workers' counts elsewhere, they are. A look may fall into a restart that a
/// worker is about to see.
pub const ELSEWHERE_LOOKS: u32 = 2;

/// What looks at the place of a bucket's counts have found.
#[derive(Default)]
pub struct SeenPlace {
    /// How often in a row they were elsewhere. From [`ELSEWHERE_LOOKS`] on it stays until they are here again.
    elsewhere_looks: AtomicU32,
}

impl SeenPlace {
    /// Whether the workers' counts are elsewhere.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere_looks.load(Ordering::SeqCst) >= ELSEWHERE_LOOKS
    }

    /// They are, or what was seen was of another Redis. Returns whether they were elsewhere before.
    pub fn found_here(&self) -> bool {
        self.elsewhere_looks.swap(0, Ordering::SeqCst) >= ELSEWHERE_LOOKS
    }

    /// Returns whether they are taken to be elsewhere from now on.
    pub fn found_elsewhere(&self) -> bool {
        self.elsewhere_looks.fetch_add(1, Ordering::SeqCst) + 1 >= ELSEWHERE_LOOKS
    }

    pub fn found_nothing(&self) {
        if !self.is_elsewhere() {
            self.found_here();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_elsewhere_after_two_looks_in_a_row_until_they_are_here() {
        let seen = SeenPlace::default();
        assert!(!seen.found_elsewhere());
        seen.found_nothing();
        assert!(!seen.found_elsewhere());
        assert!(!seen.is_elsewhere());
        assert!(seen.found_elsewhere());
        seen.found_nothing();
        assert!(seen.is_elsewhere());
        assert!(seen.found_here());
        assert!(!seen.is_elsewhere());
        assert!(!seen.found_here());
    }
}
