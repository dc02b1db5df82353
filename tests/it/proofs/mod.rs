//! The protocol: searches through its orders, and what each piece is for.

mod answered_counts;
mod exactness;
mod interleavings;
mod model;
mod one_vote_batch;
