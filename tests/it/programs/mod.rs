//! Programs as processes: starts, signals, clocks, `tally dev`, `tally replay`, secrets.

mod deployment;
mod dev;
mod own_clocks;
mod processes;
mod replay;
mod secrets;
mod workers;
