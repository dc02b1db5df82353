//! Hostile settings of sessions: what a database and its logins have, and Tally must not follow.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use sqlx::{Executor, PgPool};
use testkit::hostile::{HARMLESS, HOSTILE};
use tokio::time::sleep;

use super::postgres::{END_PROGRAMS, Postgres};

/// Who has a setting: the database, or one of the programs' logins.
const PLACES: [&str; 4] = ["database tally", "role server", "role worker", "role operator"];
/// Other hostile values, and what else an operator may have set.
const MORE: [(&str, &str); 8] = [
    ("default_transaction_isolation", "serializable"),
    ("statement_timeout", "1ms"),
    ("row_security", "on"),
    ("plan_cache_mode", "auto"),
    ("work_mem", "64kB"),
    ("jit", "on"),
    ("enable_indexscan", "off"),
    ("lc_messages", "C.UTF-8"),
];
/// How many settings change while the programs run.
pub const CHANGED: usize = 8;

/// A setting of new sessions.
#[derive(Clone, Debug)]
pub struct SessionSetting {
    place: &'static str,
    name: &'static str,
    value: &'static str,
}

/// Draws each setting or leaves it out, and who has it.
pub fn draw(random: &mut StdRng) -> Vec<SessionSetting> {
    let all = HOSTILE.iter().map(|(name, value, _)| (*name, *value));
    let all: Vec<_> = all.chain(HARMLESS).chain(MORE).collect();
    let drawn = all.into_iter().filter_map(|(name, value)| {
        let place = PLACES.choose(random).copied().unwrap_or("database tally");
        random
            .random_bool(0.6)
            .then_some(SessionSetting { place, name, value })
    });
    drawn.collect()
}

/// Sets them. The harness' own sessions get none of them.
///
/// # Errors
/// When Postgres does not answer, or does not know one of them.
pub async fn set(owner: &PgPool, settings: &[SessionSetting]) -> anyhow::Result<()> {
    for (name, _, harmless) in HOSTILE {
        own(owner, name, harmless).await?;
    }
    for (name, default) in [
        ("enable_indexscan", "on"),
        ("default_transaction_read_only", "off"),
    ] {
        own(owner, name, default).await?;
    }
    for SessionSetting { place, name, value } in settings {
        let statement = format!("alter {place} set {name} = '{value}'");
        owner.execute(statement.as_str()).await?;
    }
    Ok(())
}

async fn own(owner: &PgPool, name: &str, value: &str) -> sqlx::Result<()> {
    let statement = format!("alter role tally set {name} = '{value}'");
    owner.execute(statement.as_str()).await.map(|_| ())
}

impl Postgres {
    /// Gives these settings to all new sessions, and ends those of the programs. With `is_read_only`, the new
    /// ones take no writes for a while; then only `ends_again` ends them.
    ///
    /// # Errors
    /// When Postgres does not answer.
    pub async fn sessions_changed(
        &mut self,
        settings: &[SessionSetting],
        is_read_only: bool,
        ends_again: bool,
        lasting: Duration,
    ) -> anyhow::Result<()> {
        let owner = self.owner();
        set(&owner, settings).await?;
        if is_read_only {
            owner
                .execute("alter database tally set default_transaction_read_only = on")
                .await?;
        }
        owner.execute(END_PROGRAMS).await?;
        sleep(lasting).await;
        if is_read_only {
            owner
                .execute("alter database tally reset default_transaction_read_only")
                .await?;
        }
        if ends_again {
            owner.execute(END_PROGRAMS).await?;
        }
        Ok(())
    }
}
