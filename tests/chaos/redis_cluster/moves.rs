//! Moves of a slot from one primary to another, step by step.

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use super::{FAILOVER_LIMIT, Installation, Owner, port_of};
use crate::pair::LOOK_EVERY;

/// Keys that one step of a move takes: `redis-cli` has it as `--cluster-pipeline`.
const MOVED_KEYS: usize = 10;

impl Installation {
    /// Begins to move a slot to another primary, which it returns.
    pub(super) async fn begin_move(&self, slot: u16, from: &Owner) -> anyhow::Result<Owner> {
        let text: String = redis::from_redis_value(self.send(from.port, &["CLUSTER", "NODES"]).await?)?;
        let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut others = lines.filter(|words| words[2] == "master" && words.len() > 8);
        let to = others.next().context("another primary with slots")?;
        let to = Owner {
            id: to[0].to_owned(),
            port: port_of(to[1])?,
        };
        let slot = slot.to_string();
        self.send(to.port, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.id])
            .await?;
        self.hand_over(&slot, from, &to).await?;
        Ok(to)
    }

    pub(super) async fn hand_over(&self, slot: &str, from: &Owner, to: &Owner) -> anyhow::Result<()> {
        let migrating = ["CLUSTER", "SETSLOT", slot, "MIGRATING", &to.id];
        self.send(from.port, &migrating).await.map(drop)
    }

    /// Moves at most so many keys. Returns how many.
    pub(super) async fn move_some(
        &self,
        slot: u16,
        from: &Owner,
        to: &Owner,
        limit: usize,
    ) -> anyhow::Result<usize> {
        let keys = self.keys_in(slot, from, limit).await?;
        if !keys.is_empty() {
            let migrate = self.migrate(to, &keys)?;
            let migrate: Vec<&str> = migrate.iter().map(String::as_str).collect();
            self.send(from.port, &migrate).await?;
        }
        Ok(keys.len())
    }

    /// At most so many keys of a slot.
    pub(super) async fn keys_in(&self, slot: u16, at: &Owner, limit: usize) -> anyhow::Result<Vec<String>> {
        let (slot, limit) = (slot.to_string(), limit.to_string());
        let reply = self
            .send(at.port, &["CLUSTER", "GETKEYSINSLOT", &slot, &limit])
            .await?;
        Ok(redis::from_redis_value(reply)?)
    }

    /// The command that moves these keys.
    pub(super) fn migrate(&self, to: &Owner, keys: &[String]) -> anyhow::Result<Vec<String>> {
        let url = self.cluster.nodes[0].url();
        let (_, rest) = url.split_once("://:").context("a password")?;
        let (secret, _) = rest.split_once('@').context("a host")?;
        let port = to.port.to_string();
        let words = [
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            "0",
            "5000",
            "REPLACE",
            "AUTH",
            secret,
            "KEYS",
        ];
        let words = words.into_iter().map(str::to_owned);
        Ok(words.chain(keys.iter().cloned()).collect())
    }

    pub(super) async fn move_all(&self, slot: u16, from: &Owner, to: &Owner) -> anyhow::Result<()> {
        while self.move_some(slot, from, to, MOVED_KEYS).await? > 0 {}
        Ok(())
    }

    /// Ends a move. `from`: the node that moved the slot, if it still runs: it hears of the end, and does not go on moving the
    /// slot when it comes back. All others hear of it from the new primary.
    pub(super) async fn end_move(&self, slot: u16, from: Option<&Owner>, to: &Owner) -> anyhow::Result<()> {
        let text = slot.to_string();
        self.send(to.port, &["CLUSTER", "SETSLOT", &text, "NODE", &to.id])
            .await?;
        if let Some(from) = from {
            self.send(from.port, &["CLUSTER", "SETSLOT", &text, "NODE", &to.id])
                .await?;
        }
        let deadline = Instant::now() + FAILOVER_LIMIT;
        while self.owner(slot, None).await?.id != to.id {
            if Instant::now() > deadline {
                bail!("the slot is not where it was moved");
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}
