//! The circuit breaker: whether Redis is called at all.

use std::sync::{PoisonError, RwLock};

use crate::live::{LiveError, Refusal};
use crate::telemetry::name;

/// The time from one closing of the circuit breaker to its next opening. A connection is used only
/// in the generation that it was made in, so a late answer over an earlier connection never counts
/// as a current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

/// Closed while Redis answers. The first call that fails opens it for all threads.
pub struct CircuitBreaker {
    inner: RwLock<Inner>,
    /// Whether the metrics show this circuit breaker. A program shows one.
    is_shown: bool,
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
    pub fn new(is_shown: bool) -> Self {
        Self {
            inner: RwLock::default(),
            is_shown,
        }
    }

    fn show(&self, available: f64) {
        if self.is_shown {
            metrics::gauge!(name::REDIS_AVAILABLE).set(available);
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
        inner.is_closed = true;
        inner.closings += 1;
        inner.refusal = None;
        // Under the lock, or a later opening could set the gauge first.
        self.show(1.0);
        drop(inner);
        tracing::info!("Redis answers: live counts are back");
    }

    /// Ends the generation in which a call failed, unless it has ended already. A late failure says
    /// nothing about the connections of a later generation.
    pub fn open(&self, failed: Generation, error: &LiveError) {
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            if inner.generation() != Some(failed) {
                return;
            }
            inner.is_closed = false;
            inner.refusal = error.refusal().cloned();
            self.show(0.0);
        }
        tracing::warn!(%error, "Redis failed: voting goes on without live counts");
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
        if is_new {
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
        let breaker = CircuitBreaker::new(true);
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
}
