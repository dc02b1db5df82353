//! Looks at Postgres that many ask for at once. One look at a time answers all of them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The look that is under way, and what the last one found. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Looks<Found>(Arc<Mutex<Option<Look<Found>>>>);

/// A look that is under way or has ended: when, and what it found.
type Look<Found> = watch::Receiver<Option<(Instant, Found)>>;

impl<Found> Default for Looks<Found> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<Found: Copy + Send + Sync + 'static> Looks<Found> {
    /// What the look that is under way finds, or the last one if it ended less than `limit_age` ago, or a
    /// new one. A look goes on whether or not anyone waits for it. `None`: it was cut off.
    pub async fn find(
        &self,
        limit_age: Duration,
        look: impl Future<Output = Found> + Send + 'static,
    ) -> Option<Found> {
        let mut current = self.current(limit_age, look);
        let ended = current.wait_for(Option::is_some).await;
        ended.ok().and_then(|ended| ended.map(|(_, found)| found))
    }

    fn current(
        &self,
        limit_age: Duration,
        look: impl Future<Output = Found> + Send + 'static,
    ) -> Look<Found> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && is_current(last, limit_age)
        {
            return last.clone();
        }
        let (tell, current) = watch::channel(None);
        tokio::spawn(async move {
            let found = look.await;
            tell.send_replace(Some((Instant::now(), found)));
        });
        *last = Some(current.clone());
        current
    }
}

fn is_current<Found>(look: &Look<Found>, limit_age: Duration) -> bool {
    match &*look.borrow() {
        // Its thread may have ended.
        None => look.has_changed().is_ok(),
        Some((ended_at, _)) => ended_at.elapsed() < limit_age,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn all_who_ask_during_a_look_get_what_it_finds_and_the_next_one_looks_again() {
        let (looks, begun, end) = (
            Looks::default(),
            Arc::new(AtomicU32::new(0)),
            Arc::new(Notify::new()),
        );
        let find = |limit_age| {
            let (looks, begun, end) = (looks.clone(), Arc::clone(&begun), Arc::clone(&end));
            async move {
                let look = async move {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    end.notified().await;
                    number
                };
                looks.find(limit_age, look).await
            }
        };
        let many = async { tokio::join!(find(Duration::ZERO), find(Duration::ZERO), find(Duration::ZERO)) };
        let (found, ()) = tokio::join!(many, async { end.notify_one() });
        assert_eq!(found, (Some(0), Some(0), Some(0)));
        assert_eq!(
            find(Duration::from_secs(3600)).await,
            Some(0),
            "it is not old yet"
        );
        let (found, ()) = tokio::join!(find(Duration::ZERO), async { end.notify_one() });
        assert_eq!(found, Some(1));
        tokio::select! {
            biased;
            found = find(Duration::ZERO) => panic!("{found:?}"),
            () = std::future::ready(()) => {}
        }
        let (found, ()) = tokio::join!(find(Duration::ZERO), async { end.notify_one() });
        assert_eq!(found, Some(2), "it goes on though nobody waits");
    }
}
