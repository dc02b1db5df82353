#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tally::properties::choice_body(bytes));
