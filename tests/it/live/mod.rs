//! Redis: what the scripts do, and what each user of it may.

mod earlier_layout;
mod prefixes;
mod scripts;
mod users;
