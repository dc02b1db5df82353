//! The circuit breaker: whether Redis is called at all.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::live::{LiveError, Refusal};
use crate::telemetry::{self, name};

/// The time from one closing of the circuit breaker to its next opening. A connection is used only
/// in the generation that it was made in, so a late answer over an earlier connection never counts
/// as a current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

/// Closed while Redis answers. The first call that fails opens it for all threads. Each bucket has its own.
pub struct CircuitBreaker {
    inner: RwLock<Inner>,
    all: Arc<AllBreakers>,
}

/// The circuit breakers of all buckets.
pub struct AllBreakers {
    number: usize,
    closed: Mutex<usize>,
    /// Whether the metrics show them. A program shows those of one client.
    is_shown: bool,
}

impl AllBreakers {
    /// So many, all open.
    pub fn new(number: usize, is_shown: bool) -> Arc<Self> {
        Arc::new(Self {
            number,
            closed: Mutex::default(),
            is_shown,
        })
    }

    /// Whether all are closed.
    pub fn are_closed(&self) -> bool {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) == self.number
    }

    /// Notes that one was closed or opened. Returns how many are closed now.
    fn note(&self, is_closed: bool) -> usize {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = if is_closed {
            *closed + 1
        } else {
            closed.saturating_sub(1)
        };
        // Under the lock, or a later change could set the gauge first.
        if self.is_shown {
            metrics::gauge!(name::REDIS_AVAILABLE).set(*closed as f64 / self.number as f64);
        }
        *closed
    }
}

#[derive(Clone, Default)]
struct Inner {
    is_closed: bool,
    /// How often it was closed.
    closings: u64,
    /// Why Redis refuses to be used, as far as it says so; `None` while the circuit breaker is
    /// closed.
    refusal: Option<Refusal>,
}

impl Inner {
    fn generation(&self) -> Option<Generation> {
        self.is_closed.then_some(Generation(self.closings))
    }
}

impl CircuitBreaker {
    /// An open circuit breaker, since nobody has called Redis yet.
    pub fn new(all: &Arc<AllBreakers>) -> Self {
        Self {
            inner: RwLock::default(),
            all: Arc::clone(all),
        }
    }

    /// The current generation; `None` while the circuit breaker is open.
    pub fn generation(&self) -> Option<Generation> {
        self.inner
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .generation()
    }

    /// Begins the next generation.
    pub fn close(&self) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let closed = match std::mem::replace(&mut inner.is_closed, true) {
            true => None,
            false => Some(self.all.note(true)),
        };
        inner.closings += 1;
        inner.refusal = None;
        drop(inner);
        // Of a Cluster's, only the last one.
        if closed.is_none_or(|closed| closed == self.all.number) {
            tracing::info!("Redis answers: live counts are back");
        }
    }

    /// Ends the generation in which a call failed, unless it has ended already. A late failure says
    /// nothing about the connections of a later generation.
    pub fn open(&self, failed: Generation, error: &LiveError) {
        let closed = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            if inner.generation() != Some(failed) {
                return;
            }
            inner.is_closed = false;
            inner.refusal = error.refusal().cloned();
            self.all.note(false)
        };
        match self.all.number {
            1 => tracing::warn!(%error, "Redis failed: voting goes on without live counts"),
            // Others follow at once, most often for the same reason.
            all if closed + 1 == all => tracing::warn!(
                %error, "a node of the Redis Cluster failed: voting goes on without the live counts that it has"
            ),
            _ => tracing::debug!(%error, "more live counts are unavailable"),
        }
        metrics::counter!(name::REDIS_FAILURES).increment(1);
    }

    /// Notes why Redis cannot be used yet. The log names each reason once in a row: a Redis that was
    /// gone may come back with another trouble.
    pub fn note_still_open(&self, error: &LiveError) {
        let Some(refusal) = error.refusal() else {
            tracing::debug!(%error, "Redis is still unavailable");
            return;
        };
        let is_new = {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let is_new = inner.refusal.as_ref() != Some(refusal);
            inner.refusal = Some(refusal.clone());
            is_new
        };
        if is_new && (self.all.number == 1 || telemetry::is_news("Redis is still unavailable", error)) {
            tracing::warn!(%error, "Redis is still unavailable");
        } else {
            tracing::debug!(%error, "Redis is still unavailable");
        }
    }

    /// Why Redis refuses to be used; `None`: it does not, or does not say why.
    pub fn refusal(&self) -> Option<Refusal> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.refusal.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_an_earlier_generation_leaves_the_circuit_breaker_closed() {
        let breaker = CircuitBreaker::new(&AllBreakers::new(1, true));
        assert_eq!(breaker.generation(), None);
        breaker.close();
        let first = breaker.generation().expect("closed");
        breaker.open(first, &LiveError::Unavailable);
        assert_eq!(breaker.generation(), None);
        breaker.open(first, &LiveError::Unavailable);
        breaker.close();
        let second = breaker.generation().expect("closed");
        assert_ne!(first, second);
        breaker.open(first, &LiveError::Unavailable);
        assert_eq!(breaker.generation(), Some(second));
        breaker.open(second, &LiveError::Unavailable);
        assert_eq!(breaker.generation(), None);
    }

    #[test]
    fn all_are_closed_only_while_each_is() {
        let all = AllBreakers::new(2, false);
        let (one, other) = (CircuitBreaker::new(&all), CircuitBreaker::new(&all));
        one.close();
        one.close();
        assert!(!all.are_closed());
        other.close();
        assert!(all.are_closed());
        let generation = one.generation().expect("closed");
        one.open(generation, &LiveError::Unavailable);
        one.open(generation, &LiveError::Unavailable);
        assert!(!all.are_closed());
        one.close();
        assert!(all.are_closed());
    }
}
