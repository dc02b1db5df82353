//! Redis: what the scripts do, and what each user may do.

mod earlier_layout;
mod prefixes;
mod scripts;
mod users;
