//! Operators: their commands, their acts, and what they see.

mod acts_over_http;
mod archives;
mod commands;
mod exports;
mod hostile;
mod imports;
mod state_over_http;
mod watch;
