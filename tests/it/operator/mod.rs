//! What operators do and see.

mod acts_over_http;
mod commands;
mod state_over_http;
mod watch;
