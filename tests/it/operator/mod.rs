//! Operators: their commands, their acts, and what they see.

mod acts_over_http;
mod archives;
mod commands;
pub mod exports;
mod hostile;
pub mod imports;
mod state_over_http;
pub mod voters;
mod watch;
