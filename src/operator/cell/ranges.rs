//! Regular expressions of ranges of numbers, for a router that cannot divide.

use std::collections::BTreeSet;

/// Returns a regular expression of the numbers from `low` to `high`, in decimal digits.
pub fn pattern(low: u64, high: u64) -> String {
    // Where a part ends in which the last digits are free.
    let mut ends = BTreeSet::from([high]);
    let mut free = 10;
    loop {
        let end = low - low % free + free - 1;
        if end >= high {
            break;
        }
        ends.insert(end);
        free *= 10;
    }
    let mut free = 10;
    loop {
        let after = (high + 1) - (high + 1) % free;
        if after <= low {
            break;
        }
        ends.insert(after - 1);
        free *= 10;
    }
    let mut begin = low;
    let mut parts = Vec::with_capacity(ends.len());
    for end in ends {
        parts.push(part(&begin.to_string(), &end.to_string()));
        begin = end + 1;
    }
    parts.join("|")
}

/// The pattern of a part, whose ends have as many digits.
fn part(begin: &str, end: &str) -> String {
    let mut pattern = String::new();
    let mut free = 0;
    for (low, high) in begin.chars().zip(end.chars()) {
        match (low, high) {
            ('0', '9') => free += 1,
            _ if low == high => pattern.push(low),
            _ => pattern.push_str(&format!("[{low}-{high}]")),
        }
    }
    match free {
        0 => {}
        1 => pattern.push_str("[0-9]"),
        _ => pattern.push_str(&format!("[0-9]{{{free}}}")),
    }
    pattern
}

#[cfg(test)]
mod tests {
    use regex_automata::meta::Regex;

    use super::*;
    use crate::domain::Cell;

    fn matches(pattern: &str, number: u64) -> bool {
        let regex = Regex::new(&format!("^(?:{pattern})$")).expect("a pattern");
        regex.is_match(number.to_string().as_bytes())
    }

    #[test]
    fn a_pattern_matches_the_numbers_of_its_range_and_no_others() {
        for (low, high) in [
            (1, 1),
            (1, 9),
            (0, 100),
            (7, 93),
            (98, 1203),
            (1000, 1999),
            (10, 10),
        ] {
            let pattern = pattern(low, high);
            for number in 0..2500 {
                let is_in = (low..=high).contains(&number);
                assert_eq!(
                    matches(&pattern, number),
                    is_in,
                    "{low} to {high}, {number}: {pattern}"
                );
            }
        }
    }

    #[test]
    fn the_pattern_of_a_cell_has_its_ids_and_ends_where_the_next_begins() {
        for number in [0, 1, 2, 9, 10, 500, 8191] {
            let cell = Cell::new(number).expect("a cell");
            let (low, high) = (cell.before_ids().unsigned_abs(), cell.last_id().unsigned_abs());
            let pattern = pattern(low, high);
            // A parameter in nginx's files has less than 4,096 characters.
            assert!(pattern.len() < 1000, "{pattern}");
            let middle = low + (high - low) / 2;
            for id in [low, low + 1, middle, high - 1, high] {
                assert!(matches(&pattern, id), "{id}: {pattern}");
            }
            assert!(!matches(&pattern, high + 1));
            assert!(low == 0 || !matches(&pattern, low - 1));
        }
    }
}
