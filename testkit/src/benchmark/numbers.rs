//! Numbers in tables.

/// A whole number with commas: 66,009.
pub fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" {
        text.insert(0, '-');
    }
    text
}

/// A number with its significant digits: 66,009, 152.4, 12.3, 0.84.
pub fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 1000.0 => whole(number),
        size if size >= 100.0 => {
            let text = format!("{number:.1}");
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
        size if size >= 10.0 => format!("{number:.1}"),
        // More decimal places for small values, such as 0.025 of a core.
        size if size < 0.1 && number != 0.0 => format!("{number:.3}"),
        _ => format!("{number:.2}"),
    }
}

/// One value for each round: 4.2 · 4.4 · 4.1.
pub fn each(values: impl IntoIterator<Item = f64>) -> String {
    let values: Vec<String> = values.into_iter().map(short).collect();
    values.join(" · ")
}

/// A number with its noun: 1 round, 3 rounds.
pub fn counted(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}
