//! Injects each fault into a cluster.

use std::sync::LazyLock;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use testkit::clock::Clock;
use testkit::proxy::Proxy;
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::faults::Fault;
use crate::programs;
use crate::schedule::{PAIR, Step};
use crate::stores::{hold_row, hold_snapshot, sessions, write_beside};

/// How long a fault waits for its worker to reach a certain point.
const POINT_LIMIT: Duration = Duration::from_secs(4);

/// What the worker's requests contain when it reads counters, and when it marks them saved.
const READ: &str = "\r\nMGET\r\n";
static MARK_SAVED: LazyLock<String> = LazyLock::new(|| {
    redis::Script::new(concat!(
        include_str!("../../lua/counter.lua"),
        include_str!("../../lua/mark_saved.lua")
    ))
    .get_hash()
    .to_owned()
});

/// How much memory Redis has left when it is almost full: a few counters' worth.
const MEMORY_LEFT_BYTES: i64 = 20_000;

/// How far clocks step, in seconds.
const HOUR: i64 = 3600;
const TEN_MINUTES_BACK: i64 = -600;
const TWENTY_SECONDS_BACK: i64 = -20;

fn back(step: &Step) -> i64 {
    if step.program.is_some() {
        TWENTY_SECONDS_BACK
    } else {
        TEN_MINUTES_BACK
    }
}

/// How far a program's own clock steps back.
fn own_back(step: &Step) -> i64 {
    match step.program {
        None => -HOUR,
        Some(program) if program < PAIR => TEN_MINUTES_BACK,
        Some(_) => TWENTY_SECONDS_BACK,
    }
}

/// Steps a store's clock. After a while, steps it back to where it was, or leaves it.
async fn step_clock(clock: &Clock, by: i64, step: &Step) -> anyhow::Result<()> {
    step_and_return(clock, by, step.lasting, step.which == 0).await
}

/// The same for the clock of one program, which keeps it when it is started again.
async fn step_own_clock(clock: &Clock, by: i64, step: &Step) -> anyhow::Result<()> {
    step_and_return(clock, by, step.lasting, step.at.as_millis().is_multiple_of(2)).await
}

async fn step_and_return(clock: &Clock, by: i64, lasting: Duration, returns: bool) -> anyhow::Result<()> {
    clock.step(by)?;
    sleep(lasting).await;
    if returns {
        clock.step(-by)?;
    }
    Ok(())
}

impl Cluster {
    /// Injects a fault and waits for its end. Returns whether that was possible: a worker may
    /// never reach the point at which it is to fail, and the system may have no small disk.
    ///
    /// # Errors
    /// When a program ended by itself or did not stop when asked to, or a store did not
    /// come back.
    pub async fn inject(&self, step: &Step) -> anyhow::Result<bool> {
        let lasting = step.lasting;
        let server = || self.servers[step.which].lock();
        let worker = || self.workers[step.which].lock();
        match step.fault {
            Fault::ServerKilled => programs::kill(&mut *server().await, lasting).await?,
            Fault::ServerRestarted => programs::restart(&mut *server().await, lasting).await?,
            Fault::ServerStopped => programs::freeze(&*server().await, lasting).await?,
            Fault::WorkerKilled => programs::kill(&mut *worker().await, lasting).await?,
            Fault::WorkerRestarted => programs::restart(&mut *worker().await, lasting).await?,
            Fault::WorkerStopped => programs::freeze(&*worker().await, lasting).await?,
            Fault::WorkerKilledBeforeMarkSaved => return self.kill_before_mark_saved(step).await,
            Fault::WorkerAsleep => return self.put_to_sleep(step).await,

            Fault::RedisKilled => self.redis.lock().await.killed(lasting).await?,
            Fault::RedisStopped => self.redis.lock().await.stopped(lasting).await?,
            Fault::RedisEmpty => self.redis.lock().await.restarted_empty(lasting).await?,
            Fault::RedisOlder => {
                let mut redis = self.redis.lock().await;
                redis.restarted_from_older_snapshot(lasting).await?;
            }
            Fault::RedisFailover => {
                let point_to = |port| self.to_redis.proxies.iter().for_each(|one| one.point_to(port));
                self.redis.lock().await.failed_over(lasting, point_to).await?;
            }
            Fault::RedisWiped => self.redis.lock().await.wiped().await?,
            Fault::RedisScriptsFlushed => self.redis.lock().await.scripts_flushed().await?,
            Fault::RedisFull => self.redis.lock().await.out_of_memory(lasting).await?,
            Fault::RedisAlmostFull => {
                // Either the next writes fit for a moment, or nothing fits at all.
                let spare_bytes = if step.which == 0 { MEMORY_LEFT_BYTES } else { 0 };
                let mut redis = self.redis.lock().await;
                redis.almost_out_of_memory(spare_bytes, lasting).await?;
            }
            Fault::RedisClockForward => step_clock(&self.redis_clock, HOUR, step).await?,
            Fault::RedisClockBack => step_clock(&self.redis_clock, back(step), step).await?,
            Fault::Tenant => {
                let url = self.redis.lock().await.url();
                return Ok(write_beside(&url, lasting).await);
            }
            Fault::RedisCut => self.to_redis.of(step.program).iter().for_each(Proxy::cut),
            Fault::RedisStalled => self.to_redis.break_for_a_while(step, Proxy::stall).await,
            Fault::RedisReplyLost => self.to_redis.break_for_a_while(step, Proxy::lose_replies).await,

            Fault::PostgresKilled => self.postgres.lock().await.killed(lasting).await?,
            Fault::PostgresBackendKilled => return self.postgres.lock().await.process_killed().await,
            Fault::PostgresImmediate => {
                let mut postgres = self.postgres.lock().await;
                postgres.restarted_immediately(lasting).await?;
            }
            Fault::PostgresStopped => self.postgres.lock().await.stopped(lasting).await?,
            Fault::PostgresFull if !self.small_disk => return Ok(false),
            Fault::PostgresFull => self.postgres.lock().await.disk_full(lasting).await?,
            Fault::PostgresNoConnections => {
                let mut postgres = self.postgres.lock().await;
                postgres.without_connections(lasting).await?;
            }
            Fault::PostgresSessions => {
                let mut random = StdRng::seed_from_u64(step.at.as_nanos() as u64);
                let mut settings = sessions::draw(&mut random);
                settings.shuffle(&mut random);
                settings.truncate(sessions::CHANGED);
                let (is_read_only, ends_again) = (step.which == 0, step.program.is_none());
                let mut postgres = self.postgres.lock().await;
                postgres
                    .sessions_changed(&settings, is_read_only, ends_again, lasting)
                    .await?;
            }
            Fault::PostgresFailover => self.fail_over(step).await?,
            Fault::PostgresReadOnly => self.postgres.lock().await.read_only(lasting).await?,
            Fault::PostgresIdleRestarted => {
                // The lock comes first, so there is one pause at a time.
                let mut postgres = self.postgres.lock().await;
                let (_paused, _rests) = tokio::join!(self.pause.begin(), self.orderly.begin());
                postgres.restarted_in_order(lasting).await?;
            }
            Fault::ServerClockForward => step_own_clock(&self.clocks[step.which], HOUR, step).await?,
            Fault::ServerClockBack => step_own_clock(&self.clocks[step.which], own_back(step), step).await?,
            Fault::WorkerClockForward => {
                step_own_clock(&self.clocks[PAIR + step.which], HOUR, step).await?;
            }
            Fault::WorkerClockBack => {
                step_own_clock(&self.clocks[PAIR + step.which], own_back(step), step).await?;
            }
            Fault::PostgresClockForward => step_clock(&self.postgres_clock, HOUR, step).await?,
            Fault::PostgresClockBack => step_clock(&self.postgres_clock, back(step), step).await?,
            Fault::RowLocked => {
                let url = self.postgres.lock().await.owner_url();
                // The hot item, and one with few votes.
                let item = if step.program.is_some() { 1 } else { 7 };
                return hold_row(&url, item, step.which == 0, lasting).await;
            }
            Fault::SnapshotHeld => {
                let url = self.postgres.lock().await.owner_url();
                return hold_snapshot(&url, lasting).await;
            }
            Fault::PostgresCut => self.to_postgres.of(step.program).iter().for_each(Proxy::cut),
            Fault::PostgresStalled => self.to_postgres.break_for_a_while(step, Proxy::stall).await,
            Fault::PostgresReplyLost => {
                self.to_postgres
                    .break_for_a_while(step, Proxy::lose_replies)
                    .await
            }
        }
        Ok(true)
    }

    /// Loses the last votes with their primary. Meanwhile the clients rest whose requests must all fit into the
    /// ledger's order.
    async fn fail_over(&self, step: &Step) -> anyhow::Result<()> {
        let mut postgres = self.postgres.lock().await;
        let standby = postgres.standby().await?;
        let _rests = self.orderly.begin().await;
        let late = step.program.map(|_| step.which);
        let proxies = &self.to_postgres.proxies;
        let lost = postgres.failed_over(standby, step.lasting, proxies, late).await?;
        self.lost.lock().await.add(lost);
        Ok(())
    }

    /// Kills a worker that has written counts to their items, before its request to mark them
    /// saved arrives.
    async fn kill_before_mark_saved(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let proxy = &self.to_redis.proxies[PAIR + step.which];
        let is_there = timeout(POINT_LIMIT, proxy.trap(&MARK_SAVED, false)).await.is_ok();
        let killed = if is_there {
            // The request that waits in the proxy is lost with its connection.
            proxy.cut();
            programs::kill(&mut worker, step.lasting).await
        } else {
            Ok(())
        };
        proxy.release();
        killed.map(|()| is_there)
    }

    /// Puts a worker to sleep past all of its deadlines: after it has read counters, or after it
    /// has written them and not yet marked them saved.
    async fn put_to_sleep(&self, step: &Step) -> anyhow::Result<bool> {
        let mut worker = self.workers[step.which].lock().await;
        worker.expect_running()?;
        let proxy = &self.to_redis.proxies[PAIR + step.which];
        let has_read = step.program.is_some();
        let point = if has_read { READ } else { MARK_SAVED.as_str() };
        let is_there = timeout(POINT_LIMIT, proxy.trap(point, has_read)).await.is_ok();
        let slept = if is_there {
            programs::freeze(&worker, step.lasting).await
        } else {
            Ok(())
        };
        proxy.release();
        slept.map(|()| is_there)
    }
}
