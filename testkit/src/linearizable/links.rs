//! The operations that are not placed, in order.

/// Behind the last one.
pub(super) const END: usize = usize::MAX;

/// A list of indices from which any one can be taken and put back, the last one taken first.
pub(super) struct Links {
    /// The first of all stands behind the last one's.
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Links {
    pub fn new(length: usize) -> Self {
        let mut next: Vec<usize> = (1..=length).collect();
        if let Some(last) = next.last_mut() {
            *last = END;
        }
        next.push(if length == 0 { END } else { 0 });
        Self {
            next,
            before: (0..length)
                .map(|at| at.checked_sub(1).unwrap_or(length))
                .collect(),
        }
    }

    pub fn first(&self) -> usize {
        self.next[self.next.len() - 1]
    }

    /// The one behind; behind the last one, [`END`].
    pub fn next(&self, at: usize) -> usize {
        self.next.get(at).copied().unwrap_or(END)
    }

    pub fn take(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        self.next[before] = next;
        if next != END {
            self.before[next] = before;
        }
    }

    pub fn put_back(&mut self, at: usize) {
        let (before, next) = (self.before[at], self.next[at]);
        self.next[before] = at;
        if next != END {
            self.before[next] = at;
        }
    }
}
