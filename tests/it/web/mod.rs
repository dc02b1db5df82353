//! The HTTP interface, as its clients see it.

pub mod access;
pub mod api;
mod cells;
mod frames;
mod openapi;
mod pages;
mod pipelining;
mod proxies;
pub mod streams;
mod transport;
mod typescript_client;
