#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tally::properties::voter_edit_body(bytes));
