//! Top lists, cached: however many ask, one statement at a time reads them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::{Cache, Remembers};
use crate::domain::{TopKind, TopList};
use crate::ledger::{LedgerError, ServerLedger};

/// The most items of a top list.
pub const TOP_LIMIT_ITEMS: usize = 100;
/// How long a list is shown before it is read again.
const TOP_LEAST_AGE: Duration = Duration::from_secs(2);
/// A list is shown for this many times as long as it took to read. So reading takes at most a
/// twentieth of one connection.
const TOP_AGE_TIMES: u32 = 20;
/// The most lists that are remembered.
const TOP_LIMIT_LISTS: usize = 1000;

/// The top lists of a server. Cheap to clone: its threads share them.
#[derive(Clone)]
pub struct TopLists {
    ledger: ServerLedger,
    shown: Arc<Cache<CachedList>>,
    /// Held while a list is read.
    reading: Arc<tokio::sync::Mutex<()>>,
}

/// A list, and until when it is shown without being read again. An older list is still shown while
/// another caller reads. Another run of Postgres ends all entries.
#[derive(Clone)]
struct CachedList {
    list: Arc<TopList>,
    until: Instant,
}

impl Remembers for CachedList {
    type Key = TopKind;
    type Value = Self;
    const LIMIT: usize = TOP_LIMIT_LISTS;
    const LIMIT_AGE: Option<Duration> = None;
}

impl TopLists {
    /// Without any list yet.
    pub fn new(ledger: ServerLedger) -> Self {
        Self {
            shown: Arc::new(Cache::ended_by(ledger.ends())),
            ledger,
            reading: Arc::default(),
        }
    }

    /// The list of this kind, of up to [`TOP_LIMIT_ITEMS`] items; `None`: there is no such poll.
    pub async fn get(&self, kind: TopKind) -> Result<Option<Arc<TopList>>, LedgerError> {
        let asked = Instant::now();
        let before = self.shown.get(&kind);
        if let Some(shown) = before.as_ref().filter(|shown| asked < shown.until) {
            return Ok(Some(Arc::clone(&shown.list)));
        }
        let _turn = match (self.reading.try_lock(), before) {
            (Ok(turn), _) => turn,
            // Another caller is reading: an older list is better than a wait.
            (Err(_), Some(shown)) => return Ok(Some(shown.list)),
            (Err(_), None) => self.reading.lock().await,
        };
        // Another caller may have read it meanwhile.
        if let Some(shown) = self.shown.get(&kind).filter(|shown| asked < shown.until) {
            return Ok(Some(shown.list));
        }
        let asked = self.shown.asking();
        let started = Instant::now();
        let Some(list) = self.ledger.top_list(&kind, TOP_LIMIT_ITEMS as i64).await? else {
            return Ok(None);
        };
        let shown = CachedList {
            list: Arc::new(list),
            until: Instant::now() + (started.elapsed() * TOP_AGE_TIMES).max(TOP_LEAST_AGE),
        };
        self.shown.add(kind, shown.clone(), asked);
        Ok(Some(shown.list))
    }
}
