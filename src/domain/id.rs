//! Ids in text.

/// A positive 64-bit number in decimal digits, without leading zeros: an id has one spelling, so
/// `+1`, ` 1` and `01` are none.
pub(super) fn parse(text: &str) -> Result<i64, ()> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    let id = plain.then(|| text.parse().ok()).flatten();
    id.filter(|id| *id > 0).ok_or(())
}
