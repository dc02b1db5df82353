//! The programs, as processes.

mod deployment;
mod dev;
mod processes;
mod replay;
mod secrets;
mod workers;
