//! `tally counter`: what Redis holds of an item, for people.

use crate::domain::{ItemId, Moment};
use crate::live::{CounterParts, CounterValue, Counters};
use crate::telemetry;
use crate::telemetry::Plain;

/// Prints an item's counter. Returns whether what stands in its place is a counter, or nothing.
///
/// # Errors
/// When Redis is unavailable.
pub async fn counter(counters: &Counters, item: ItemId) -> anyhow::Result<bool> {
    let (key, value) = counters.value(item).await?;
    let lines = match value {
        CounterValue::Absent => vec![("counter", "none".to_owned())],
        CounterValue::NoCounter => {
            vec![(
                "counter",
                "someone else's value: the next vote replaces it".to_owned(),
            )]
        }
        CounterValue::Parts(ref parts) => lines(parts),
    };
    let mut text = format!("{:<10} {key}\n", "key");
    for (name, value) in lines {
        text += &format!("{name:<10} {}\n", Plain(value));
    }
    telemetry::print(text);
    Ok(!matches!(value, CounterValue::NoCounter))
}

/// The parts that are not absent.
fn lines(parts: &CounterParts) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    match parts.live() {
        Some(count) => lines.push(("count", format!("{} ({} down-votes)", count.net, count.downs))),
        None => lines.push(("count", "none".to_owned())),
    }
    if parts.revision > 0 {
        lines.push(("revision", moment(parts.revision)));
    }
    if parts.live().is_some() {
        let saved = match parts.saved {
            0 => "never".to_owned(),
            saved if saved == parts.revision => "yes".to_owned(),
            saved => format!("not since {}", moment(saved)),
        };
        lines.push(("saved", saved));
        lines.push(("seeded", moment(i64::from(parts.seeded) * 1_000_000)));
        let snapshot = if parts.snapshot.is_empty() {
            parts.xmax.to_string()
        } else {
            parts.snapshot.clone()
        };
        lines.push(("snapshot", snapshot));
    }
    for (name, text) in [("lease", &parts.lease), ("request", &parts.request)] {
        if !text.is_empty() {
            lines.push((name, text.clone()));
        }
    }
    lines
}

/// A time of Redis' clock.
fn moment(micros: i64) -> String {
    Moment::from_micros(micros).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_shown_with_what_it_has() {
        let mut parts = CounterParts {
            count: 12,
            downs: 2,
            revision: 1_790_000_000_000_001,
            xmax: 100,
            seeded: 1_790_000_000,
            ..CounterParts::default()
        };
        let of = |parts: &CounterParts, name: &str| {
            let line = lines(parts).into_iter().find(|(is, _)| *is == name);
            line.map(|(_, value)| value)
        };
        assert_eq!(of(&parts, "count").as_deref(), Some("12 (2 down-votes)"));
        assert_eq!(of(&parts, "saved").as_deref(), Some("never"));
        assert_eq!(of(&parts, "snapshot").as_deref(), Some("100"));
        assert_eq!(of(&parts, "request"), None);
        parts.saved = parts.revision;
        assert_eq!(of(&parts, "saved").as_deref(), Some("yes"));
        parts.revision += 1;
        assert_eq!(
            of(&parts, "saved").as_deref(),
            Some("not since 2026-09-21T14:13:20.000001Z")
        );
        let asked = CounterParts {
            request: "ab".to_owned(),
            ..CounterParts::default()
        };
        assert_eq!(
            lines(&asked),
            [("count", "none".to_owned()), ("request", "ab".to_owned())]
        );
    }
}
