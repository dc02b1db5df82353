//! Programs as processes: starts, settings, signals, drains, clocks, `tally dev`, `tally replay`, secrets.

mod cells;
mod databases_of_cells;
mod deployment;
mod dev;
mod doctor;
mod drain;
mod own_clocks;
mod prepare;
mod processes;
mod replay;
mod secrets;
mod settings;
mod supervised;
mod workers;
