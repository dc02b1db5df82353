//! Places in the windows of throttles.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;

use super::LiveCounts;
use crate::domain::{Full, THROTTLES_LIMIT, Throttles, Window, Windows};
use crate::live::LiveError;
use crate::live::buckets::Bucket;
use crate::live::scripts;

/// The most attempts in one call: Redis serves nobody else meanwhile.
pub const THROTTLE_CALL_LIMIT_ATTEMPTS: usize = 256;

/// A plan names windows in two bytes, and Lua unpacks no more than some 8,000 values.
const _: () = assert!(THROTTLE_CALL_LIMIT_ATTEMPTS * THROTTLES_LIMIT < 8000);

impl LiveCounts {
    /// Takes a place in each window of these attempts, in their order. Takes up to
    /// [`THROTTLE_CALL_LIMIT_ATTEMPTS`] attempts. An attempt with a full window is refused and
    /// takes no place.
    ///
    /// # Errors
    /// When Redis is unavailable or answers with an error: each attempt may have taken its places.
    pub async fn throttle(
        &self,
        throttles: &Throttles,
        attempts: &[Windows],
    ) -> Result<Vec<Option<Full>>, LiveError> {
        let all = throttles.all();
        let mut numbers: HashMap<Window, u16> = HashMap::new();
        let mut windows: Vec<Window> = Vec::new();
        let mut plan: Vec<u8> = Vec::with_capacity(attempts.len() * all.len() * 2);
        for attempt in attempts {
            for throttle in 0..all.len() {
                let number = attempt.of(throttle).map_or(0, |window| {
                    *numbers.entry(window).or_insert_with(|| {
                        windows.push(window);
                        // Below 8,000: see above.
                        u16::try_from(windows.len()).unwrap_or(0)
                    })
                });
                plan.extend(number.to_be_bytes());
            }
        }
        if windows.is_empty() {
            return Ok(vec![None; attempts.len()]);
        }
        let keys = self.keys();
        let replies = self
            .call(Bucket::FIRST, async |mut connection| {
                let command = |_| {
                    let mut command = scripts::THROTTLE.command(windows.len());
                    for Window { throttle, of } in &windows {
                        command.arg(keys.throttle(&all[*throttle], *of));
                    }
                    command.arg(&plan);
                    for throttle in all {
                        command
                            .arg(throttle.limit.get())
                            .arg(interval_ms(throttle.interval));
                    }
                    command
                };
                scripts::THROTTLE.invoke(&mut connection, 1, command).await
            })
            .await
            .map_err(|failed| self.open_breaker(Bucket::FIRST, failed))?;
        match replies.into_iter().next() {
            Some(Value::Array(replies)) if replies.len() == attempts.len() => replies
                .into_iter()
                .map(|reply| verdict(reply, all.len()))
                .collect(),
            other => Err(scripts::THROTTLE.unexpected(other.unwrap_or(Value::Nil))),
        }
    }
}

/// At most a day ([`crate::domain::INTERVAL_LIMIT`]).
fn interval_ms(interval: Duration) -> u64 {
    interval.as_secs() * 1000
}

fn verdict(reply: Value, throttles: usize) -> Result<Option<Full>, LiveError> {
    let full = match &reply {
        Value::Int(0) => return Ok(None),
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(number), Value::Int(ms)] => usize::try_from(*number - 1)
                .ok()
                .filter(|throttle| *throttle < throttles)
                .zip(u64::try_from(*ms).ok()),
            _ => None,
        },
        _ => None,
    };
    match full {
        Some((throttle, ms)) => Ok(Some(Full {
            throttle,
            left: Duration::from_millis(ms),
        })),
        None => Err(scripts::THROTTLE.unexpected(reply)),
    }
}
