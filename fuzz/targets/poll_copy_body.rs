#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tally::properties::poll_copy_body(bytes));
