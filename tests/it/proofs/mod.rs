//! The protocol as a whole: searches through the orders of its steps, and what each piece is for.

mod answered_counts;
mod exactness;
mod interleavings;
mod model;
mod one_vote_batch;
