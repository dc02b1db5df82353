//! The protocol: searches through its orders, and what each piece is for.

mod answered_counts;
mod drawn_orders;
mod every_order;
mod every_state;
mod exactness;
mod failover;
mod one_vote_batch;
