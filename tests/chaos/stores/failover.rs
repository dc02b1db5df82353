//! A failover of Postgres to a standby that lagged: the last transactions are lost with the primary,
//! and the standby gives their ids out a second time.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::mount::{MntFlags, umount2};
use sqlx::{Connection, Executor, PgConnection};
use tally::dev::{Durability, PrivatePostgres};
use testkit::LOOK_EVERY;
use testkit::proxy::Proxy;
use testkit::stores::{DATABASE, SECRET};
use tokio::time::sleep;

use super::postgres::{Postgres, small_disk};

/// How often a standby is copied from its primary, at the most.
const COPIES_LIMIT: u32 = 10;
const COPY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// How long a standby may take to have everything, and to be promoted.
const FOLLOW_LIMIT: Duration = Duration::from_secs(30);
/// Items that are made while the standby lags. Postgres logs a sequence 32 ids ahead, and a standby goes
/// on from there: only the ids beyond are given out again.
const LOST_ITEMS: i64 = 64;
/// How long the primary waits for them. Other faults may let nobody make an item.
const LOST_ITEMS_LIMIT: Duration = Duration::from_secs(5);

/// How long a server may stay behind the others.
const LATE_LIMIT: Duration = Duration::from_secs(4);
/// Longer than a round.
const A_ROUND: Duration = Duration::from_secs(600);

/// A row of the ledger, with the key of its item.
#[derive(Clone, Debug, PartialEq, Eq, Hash, sqlx::FromRow)]
pub struct VoteRow {
    pub id: i64,
    pub item_id: i64,
    pub key: Option<String>,
    pub voter_id: Option<String>,
    pub value: i16,
}

/// The committed rows that went with a primary: the standby did not have them when it was promoted.
#[derive(Clone, Debug)]
pub struct Lost {
    votes: HashSet<VoteRow>,
    /// Items, with their keys.
    items: HashSet<(i64, Option<String>)>,
    /// When the primary was gone.
    at: Instant,
}

/// All that went with the primaries of a round.
#[derive(Clone, Debug, Default)]
pub struct AllLost(Vec<Lost>);

impl AllLost {
    /// Whether an acknowledgement of this row may be lost: exactly if its commit went with a primary, and the
    /// request was sent before that. `key` is the key that its client named.
    pub fn excuses(&self, row: &VoteRow, began: Instant) -> bool {
        self.0
            .iter()
            .any(|lost| began < lost.at && lost.votes.contains(row))
    }

    /// How many ids of lost votes, and of lost items, are ids of other ones now.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn given_again(&self, owner: &mut PgConnection) -> sqlx::Result<(u64, u64)> {
        if self.0.is_empty() {
            return Ok((0, 0));
        }
        let (votes, items) = rows(owner).await?;
        let votes: HashMap<i64, VoteRow> = votes.into_iter().map(|row| (row.id, row)).collect();
        let items: HashMap<i64, Option<String>> = items.into_iter().collect();
        let lost = self.0.iter().flat_map(|lost| &lost.votes);
        let votes = lost.filter(|row| votes.get(&row.id).is_some_and(|now| now != *row));
        let lost = self.0.iter().flat_map(|lost| &lost.items);
        let items = lost.filter(|(id, key)| items.get(id).is_some_and(|now| now != key));
        Ok((votes.count() as u64, items.count() as u64))
    }

    /// The same losses, as if each primary had been gone when its round began.
    pub fn earlier(&self) -> Self {
        let mut earlier = self.clone();
        for lost in &mut earlier.0 {
            lost.at -= A_ROUND;
        }
        earlier
    }

    pub fn add(&mut self, lost: Lost) {
        self.0.push(lost);
    }
}

/// A standby that follows the primary.
pub struct Standby {
    server: PrivatePostgres,
    disk: Option<std::path::PathBuf>,
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            let _ = umount2(disk, MntFlags::MNT_DETACH);
        }
    }
}

impl Postgres {
    /// Starts a standby, on a disk of its own like the primary's.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn standby(&mut self) -> anyhow::Result<Standby> {
        self.servers += 1;
        let folder = self.folder.join(format!("disk-{}", self.servers));
        let disk = small_disk(&folder)?;
        let place = disk.as_deref().unwrap_or(&folder).join("postgres");
        let mut standby = Standby {
            server: PrivatePostgres::new(&place, SECRET, Durability::Full)?
                .with_variables(self.variables.clone()),
            disk,
        };
        // Another fault may hit the primary while it is copied.
        let mut tries = 1..COPIES_LIMIT;
        while let Err(error) = standby.server.follow(&self.server).await {
            tries.next().ok_or(error)?;
            sleep(COPY_AGAIN_AFTER).await;
        }
        standby.server.start().await?;
        Ok(standby)
    }

    /// The standby gets everything up to now, and nothing more. The primary goes on for a while and is then
    /// lost, and the standby takes over. These proxies lead to it from then on. The one at `late` follows once ids
    /// were given out again: its server still knows the items of the lost primary.
    ///
    /// # Errors
    /// When the standby cannot be promoted.
    pub async fn failed_over(
        &mut self,
        mut standby: Standby,
        lasting: Duration,
        proxies: &[Proxy],
        late: Option<usize>,
    ) -> anyhow::Result<Lost> {
        let mut primary = PgConnection::connect(&self.server.url(DATABASE)).await?;
        let mut session = PgConnection::connect(&standby.server.url(DATABASE)).await?;
        let now: String = sqlx::query_scalar("select pg_current_wal_lsn()::text")
            .fetch_one(&mut primary)
            .await?;
        let has_all = format!("pg_last_wal_replay_lsn() >= '{now}'");
        ensure!(
            comes_true(&mut session, &has_all, FOLLOW_LIMIT).await,
            "the standby did not follow"
        );
        session.execute("alter system set primary_conninfo = ''").await?;
        session.execute("select pg_reload_conf()").await?;
        let has_ended = "not exists (select from pg_stat_wal_receiver)";
        ensure!(
            comes_true(&mut session, has_ended, FOLLOW_LIMIT).await,
            "the standby gets more"
        );
        let last: i64 = sqlx::query_scalar("select max(id) from item")
            .fetch_one(&mut primary)
            .await?;
        sleep(lasting).await;
        // Without them the failover loses less, and is one all the same.
        let made = format!("(select max(id) from item) >= {last} + {LOST_ITEMS}");
        comes_true(&mut primary, &made, LOST_ITEMS_LIMIT).await;
        let last: i64 = sqlx::query_scalar("select max(id) from item")
            .fetch_one(&mut primary)
            .await?;
        drop(primary);
        self.server.kill().await;
        let at = Instant::now();
        let promoted: bool = sqlx::query_scalar("select pg_promote()")
            .fetch_one(&mut session)
            .await?;
        ensure!(promoted, "the standby was not promoted");
        // Nobody else has reached it yet.
        let (kept_votes, kept_items) = rows(&mut session).await?;
        std::mem::swap(&mut self.server, &mut standby.server);
        std::mem::swap(&mut self.disk, &mut standby.disk);
        self.to_owner.point_to(self.server.port());
        let port = self.server.port();
        let others = proxies.iter().enumerate().filter(|(at, _)| Some(*at) != late);
        others.for_each(|(_, proxy)| proxy.point_to(port));
        if let Some(late) = late {
            let given_again = format!("(select max(id) from item) >= {last}");
            comes_true(&mut session, &given_again, LATE_LIMIT).await;
            proxies[late].point_to(port);
        }
        session.close().await?;

        // The old one, started where nobody finds it, says what was committed.
        let mut old = standby;
        old.server.start().await?;
        let mut session = PgConnection::connect(&old.server.url(DATABASE)).await?;
        let (votes, items) = rows(&mut session).await?;
        session.close().await?;
        old.server.crash().await;
        let votes: HashSet<VoteRow> = votes.into_iter().collect();
        let kept: HashSet<VoteRow> = kept_votes.into_iter().collect();
        ensure!(
            kept.is_subset(&votes),
            "the standby has votes that the primary never had"
        );
        let items: HashSet<_> = items.into_iter().collect();
        let kept_items: HashSet<_> = kept_items.into_iter().collect();
        Ok(Lost {
            votes: votes.difference(&kept).cloned().collect(),
            items: items.difference(&kept_items).cloned().collect(),
            at,
        })
    }
}

/// Waits for a condition. Returns whether it came true within `limit`.
async fn comes_true(session: &mut PgConnection, condition: &str, limit: Duration) -> bool {
    let ends = Instant::now() + limit;
    loop {
        let holds: Option<bool> = sqlx::query_scalar(&format!("select {condition}"))
            .fetch_one(&mut *session)
            .await
            .ok();
        if holds == Some(true) || Instant::now() > ends {
            return holds == Some(true);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Every vote, and every item with its key.
async fn rows(session: &mut PgConnection) -> sqlx::Result<(Vec<VoteRow>, Vec<(i64, Option<String>)>)> {
    let votes = sqlx::query_as(
        "select vote.id, item_id, key, voter_id, value from vote join item on item.id = item_id",
    )
    .fetch_all(&mut *session)
    .await?;
    let items = sqlx::query_as("select id, key from item")
        .fetch_all(session)
        .await?;
    Ok((votes, items))
}
