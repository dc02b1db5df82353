//! Programs as processes: starts, signals, `tally dev`, `tally replay`, secrets.

mod deployment;
mod dev;
mod prepare;
mod processes;
mod replay;
mod secrets;
mod workers;
