//! The windows that a server itself knows. It counts some while Redis is unavailable, and notes
//! which ones are full.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use tokio::time::Instant;

use crate::domain::{Full, Throttles, Window, Windows};

/// The most windows that a server counts by itself: about 10 MB. Further windows are not counted.
/// Otherwise someone who makes up voters could make the server forget the windows of others.
const OWN_LIMIT_WINDOWS: usize = 100_000;
/// The most full windows that are noted. Redis is asked about further ones each time.
const FULL_LIMIT_WINDOWS: usize = 10_000;

/// The windows that a server counts by itself.
#[derive(Default)]
pub(super) struct OwnWindows(Mutex<HashMap<Window, Own>>);

struct Own {
    taken: u32,
    ends_at: Instant,
}

impl OwnWindows {
    /// Takes places, as `lua/throttle.lua` does.
    pub fn take(&self, throttles: &Throttles, attempts: &[Windows], now: Instant) -> Vec<Option<Full>> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts
            .iter()
            .map(|attempt| take_one(&mut windows, throttles, attempt, now))
            .collect()
    }
}

fn take_one(
    windows: &mut HashMap<Window, Own>,
    throttles: &Throttles,
    attempt: &Windows,
    now: Instant,
) -> Option<Full> {
    let full = throttles
        .looking_at(attempt)
        .filter_map(|(window, throttle)| {
            let own = windows.get(&window).filter(|own| own.ends_at > now)?;
            (own.taken >= throttle.limit.get()).then(|| Full {
                throttle: window.throttle,
                left: own.ends_at - now,
            })
        })
        .max_by_key(|full| full.left);
    if full.is_some() {
        return full;
    }
    for (window, throttle) in throttles.looking_at(attempt) {
        let begun = Own {
            taken: 1,
            ends_at: now + throttle.interval,
        };
        match windows.get_mut(&window) {
            Some(own) if own.ends_at > now => own.taken += 1,
            Some(own) => *own = begun,
            None => {
                if windows.len() >= OWN_LIMIT_WINDOWS {
                    windows.retain(|_, own| own.ends_at > now);
                }
                if windows.len() < OWN_LIMIT_WINDOWS {
                    windows.insert(window, begun);
                }
            }
        }
    }
    None
}

/// The windows that are full, and until when.
#[derive(Default)]
pub(super) struct FullWindows {
    until: RwLock<HashMap<Window, Instant>>,
    /// How many full windows are noted: mostly none, and then nothing is looked up.
    noted: AtomicUsize,
}

impl FullWindows {
    /// The window of this attempt that stays full for the longest time.
    pub fn find(&self, attempt: &Windows, now: Instant) -> Option<Full> {
        if self.noted.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let until = self.until.read().unwrap_or_else(PoisonError::into_inner);
        attempt
            .iter()
            .filter_map(|window| {
                let left = until.get(&window)?.checked_duration_since(now)?;
                (!left.is_zero()).then_some(Full {
                    throttle: window.throttle,
                    left,
                })
            })
            .max_by_key(|full| full.left)
    }

    /// Notes the window that refused this attempt.
    pub fn note(&self, attempt: &Windows, full: Full, now: Instant) {
        let Some(window) = attempt.of(full.throttle) else {
            return;
        };
        let mut until = self.until.write().unwrap_or_else(PoisonError::into_inner);
        if until.len() >= FULL_LIMIT_WINDOWS {
            until.retain(|_, until| *until > now);
        }
        if until.len() < FULL_LIMIT_WINDOWS {
            until.insert(window, now + full.left);
        }
        self.noted.store(until.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::Throttle;

    fn throttles(text: &str) -> Throttles {
        text.parse().expect("throttles")
    }

    /// An attempt with these windows, in the order of the throttles.
    fn attempt(throttles: &Throttles, of: &[Option<u128>]) -> Windows {
        let at = |throttle: &Throttle| throttles.all().iter().position(|one| one == throttle);
        throttles.windows(|throttle| *of.get(at(throttle)?)?)
    }

    fn full(throttle: usize, seconds: u64) -> Option<Full> {
        Some(Full {
            throttle,
            left: Duration::from_secs(seconds),
        })
    }

    #[test]
    fn a_window_takes_its_limit_and_a_refused_attempt_takes_nothing_of_any() {
        let throttles = throttles("voter:2/10s,item:3/60s");
        let (own, now) = (OwnWindows::default(), Instant::now());
        let ada = attempt(&throttles, &[Some(1), Some(9)]);
        let eve = attempt(&throttles, &[Some(2), Some(9)]);
        let verdicts = own.take(&throttles, &[ada, ada, ada, eve, eve], now);
        assert_eq!(verdicts, [None, None, full(0, 10), None, full(1, 60)]);
        // Both windows are full for Ada: she gets the one that takes longer.
        assert_eq!(own.take(&throttles, &[ada], now), [full(1, 60)]);
        let later = now + Duration::from_secs(60);
        assert_eq!(own.take(&throttles, &[ada, eve], later), [None, None]);
    }

    #[test]
    fn throttles_that_do_not_look_at_an_attempt_leave_the_others_their_limits_and_intervals() {
        let throttles = throttles("voter:5/10s,address:3/60s,item:4/3600s");
        for gaps in 0_u8..8 {
            let looks = |throttle: &usize| gaps & (1 << throttle) == 0;
            let of: Vec<Option<u128>> = (0..3).map(|at| looks(&at).then_some(7)).collect();
            let ada = attempt(&throttles, &of);
            let (own, now) = (OwnWindows::default(), Instant::now());
            let verdicts = own.take(&throttles, &[ada; 6], now);
            let tightest = (0..3).filter(looks).min_by_key(|at| throttles.all()[*at].limit);
            let expected = (0..6).map(|taken| {
                let throttle = tightest.filter(|at| taken >= throttles.all()[*at].limit.get())?;
                full(throttle, throttles.all()[throttle].interval.as_secs())
            });
            assert_eq!(verdicts, expected.collect::<Vec<_>>(), "gaps {gaps:03b}");
        }
    }

    #[test]
    fn windows_beyond_the_limit_are_not_counted_and_push_none_out() {
        let throttles = throttles("voter:1/10s");
        let (own, now) = (OwnWindows::default(), Instant::now());
        let all: Vec<Windows> = (0..=OWN_LIMIT_WINDOWS as u128)
            .map(|voter| attempt(&throttles, &[Some(voter)]))
            .collect();
        assert!(own.take(&throttles, &all, now).iter().all(Option::is_none));
        assert!(own.take(&throttles, &all[..1], now)[0].is_some());
        assert_eq!(own.take(&throttles, &all[OWN_LIMIT_WINDOWS..], now), [None]);
        let later = now + Duration::from_secs(10);
        let last = &all[OWN_LIMIT_WINDOWS..];
        assert_eq!(own.take(&throttles, last, later), [None]);
        assert!(
            own.take(&throttles, last, later)[0].is_some(),
            "ended ones make way"
        );
    }

    #[test]
    fn a_full_window_is_known_until_it_ends() {
        let throttles = throttles("voter:1/5s,item:1/5s");
        let (full, now) = (FullWindows::default(), Instant::now());
        let ada = attempt(&throttles, &[None, Some(1)]);
        assert_eq!(full.find(&ada, now), None);
        let refusal = Full {
            throttle: 1,
            left: Duration::from_secs(5),
        };
        full.note(&ada, refusal, now);
        assert_eq!(full.find(&ada, now), Some(refusal));
        assert_eq!(full.find(&attempt(&throttles, &[Some(1)]), now), None);
        assert_eq!(full.find(&ada, now + Duration::from_secs(5)), None);
    }
}
