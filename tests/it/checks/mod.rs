//! The checks that tests, chaos and soak share: each finds what is wrong.

mod answered_counts;
mod linearizability;
mod soak_curves;
mod store_clocks;
