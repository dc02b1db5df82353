//! The server's Redis client.
//!
//! - `live_counts`: what the server asks of Redis.
//! - `calls`: how its calls get there, over a connection for each thread.
//! - `breaker`: the circuit breaker, which all threads share.
//! - `suspects`: the items whose live count may be wrong.
//! - `warm_items`: which votes make a live count.
//! - `seed_allowance`: how many of them may be on any item.
//! - `throttles`: places in the windows of throttles.
//! - `place`: whether workers have entered this Redis.
//! - `seen_place`: what looks at that have found.
//! - `state`: what the calls and the repair task share.
//! - `repair_suspects`: the task that invalidates suspects and closes the circuit breaker.

mod breaker;
mod calls;
mod live_counts;
mod place;
mod repair_suspects;
mod seed_allowance;
mod seen_place;
mod state;
mod suspects;
mod throttles;
mod warm_items;

pub(crate) use live_counts::BACK_PRESSURE_LIMIT;
pub use live_counts::{CountReply, LiveCount, LiveCounts, LiveRead, Seed};
pub use place::Place;
pub(crate) use seen_place::ELSEWHERE_LOOKS;
pub(crate) use suspects::REPAIR_LIMIT_ITEMS;
pub use suspects::SUSPECTS_LIMIT_ITEMS;
pub use throttles::THROTTLE_CALL_LIMIT_ATTEMPTS;
pub use warm_items::Seeding;
