//! The rule by which `make soak` calls a curve growing (`testkit::curve`).

use testkit::curve::{Limit, Quarters, Worse, median};

/// Higher by more than ten percent and 5.
const HIGHER: Limit = Limit {
    worse: Worse::Higher,
    percent: 10.0,
    slack: 5.0,
};
const LOWER: Limit = Limit {
    worse: Worse::Lower,
    ..HIGHER
};

/// A curve of 100 samples.
fn quarters(curve: impl Fn(f64) -> f64 + Clone) -> Quarters {
    let parts = (0..100).map(|number| f64::from(number) / 100.0);
    Quarters::of(parts.map(move |part| (part, curve(part)))).expect("enough samples")
}

#[test]
fn a_flat_curve_holds_and_its_warm_up_says_nothing() {
    let curve = quarters(|part| if part < 0.1 { 1000.0 } else { 100.0 });
    assert_eq!(
        curve,
        Quarters {
            first: 100.0,
            second: 100.0,
            last: 100.0
        }
    );
    assert!(HIGHER.holds(&curve));
    assert!(LOWER.holds(&curve));
}

#[test]
fn a_straight_line_upward_fails_and_one_downward_only_where_lower_is_worse() {
    let up = quarters(|part| 100.0 + 100.0 * part);
    assert!(!HIGHER.holds(&up));
    assert!(LOWER.holds(&up));
    let down = quarters(|part| 100.0 - 100.0 * part);
    assert!(HIGHER.holds(&down));
    assert!(!LOWER.holds(&down));
}

#[test]
fn a_curve_that_rises_only_in_the_first_quarter_holds() {
    let curve = quarters(|part| if part < 0.25 { 400.0 * part } else { 100.0 });
    assert!(HIGHER.holds(&curve));
}

#[test]
fn the_percentage_and_the_slack_add_up() {
    // The last quarter may reach 100 + 10 + 5.
    let to = |last: f64| quarters(move |part| if part < 0.75 { 100.0 } else { last });
    assert!(HIGHER.holds(&to(115.0)));
    assert!(!HIGHER.holds(&to(115.1)));
    assert!(LOWER.holds(&to(85.0)));
    assert!(!LOWER.holds(&to(84.9)));
}

#[test]
fn a_few_samples_far_off_decide_nothing() {
    let curve = quarters(|part| if part > 0.9 { 10_000.0 } else { 100.0 });
    assert!(HIGHER.holds(&curve));
}

#[test]
fn a_quarter_with_too_few_samples_gives_no_verdict() {
    let parts = || (0..100).map(|number| f64::from(number) / 100.0);
    let lost = parts().map(|part| (part, if part > 0.78 { f64::NAN } else { 1.0 }));
    assert_eq!(Quarters::of(lost), None);
    let ends_early = parts().map(|part| (part * 0.7, 1.0));
    assert_eq!(Quarters::of(ends_early), None);
}

#[test]
fn the_median_is_the_middle() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
}
