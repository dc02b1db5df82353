//! What an operator does and sees over HTTP.
//!
//! - `acts`: what is done.
//! - `state`: what is seen.

mod acts;
mod state;
