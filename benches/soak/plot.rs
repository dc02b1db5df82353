//! The plot, an SVG file: a panel for each group of curves, over the minutes of the run.

use std::fmt::Write;

use testkit::curve::{WARM_UP_PART, median};

use crate::curves::{Curve, Panel, Samples};
use crate::report::folder;

const COLUMNS: usize = 2;
const PANEL_WIDTH: f64 = 460.0;
const PANEL_HEIGHT: f64 = 150.0;
/// Left of each panel, for the numbers of its axis.
const LEFT: f64 = 70.0;
/// Above each panel, for its title and the names of its curves.
const ABOVE: f64 = 70.0;
/// Above all panels.
const TOP: f64 = 70.0;
const MARGIN: f64 = 30.0;
/// How many points a curve has at most: each the median of the samples that fall on it.
const POINTS_LIMIT: usize = 300;
/// Lines across a panel, at most one more.
const GRID_LINES: f64 = 4.0;
/// Lines down a panel, at most one more.
const GRID_COLUMNS: f64 = 6.0;
/// Distinct in grey and to the colour-blind.
const COLOURS: [&str; 5] = ["#0077bb", "#cc3311", "#117733", "#ee9944", "#aa3377"];

/// Writes target/soak/soak.svg.
pub fn write(samples: &Samples) -> anyhow::Result<()> {
    Ok(std::fs::write(folder()?.join("soak.svg"), draw(samples))?)
}

fn draw(samples: &Samples) -> String {
    let mut panels: Vec<Panel> = Vec::new();
    for curve in &samples.curves {
        if !panels.contains(&curve.panel) {
            panels.push(curve.panel);
        }
    }
    let rows = panels.len().div_ceil(COLUMNS);
    let width = MARGIN + COLUMNS as f64 * (LEFT + PANEL_WIDTH);
    let height = TOP + rows as f64 * (ABOVE + PANEL_HEIGHT) + 2.0 * MARGIN;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222">
<rect width="{width}" height="{height}" fill="white"/>
<text x="{LEFT}" y="34" font-size="20">A soak of Tally</text>
<text x="{LEFT}" y="54">Two servers, two workers, Postgres, Redis and the load on one machine; across: minutes. Grey: a report holds a snapshot. Left of the dashed line: not judged.</text>
"##
    );
    for (at, panel) in panels.into_iter().enumerate() {
        let x = LEFT + (at % COLUMNS) as f64 * (LEFT + PANEL_WIDTH);
        let y = TOP + (at / COLUMNS) as f64 * (ABOVE + PANEL_HEIGHT) + ABOVE;
        let curves: Vec<&Curve> = samples
            .curves
            .iter()
            .filter(|curve| curve.panel == panel)
            .collect();
        draw_panel(&mut svg, samples, panel, &curves, (x, y));
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where values lie in a panel.
struct Axis {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    marks: Vec<f64>,
}

impl Axis {
    /// A linear axis begins at 0; a logarithmic one has whole decades.
    fn of(values: impl Iterator<Item = f64> + Clone, is_logarithmic: bool) -> Self {
        let largest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
        if is_logarithmic {
            let smallest = values.filter(|value| *value > 0.0).fold(largest, f64::min);
            let low = smallest.log10().floor();
            let high = largest.log10().ceil().max(low + 1.0);
            let decades = (high - low) as i32;
            let marks = (0..=decades).map(|decade| 10_f64.powf(low + f64::from(decade)));
            return Self {
                low,
                high,
                is_logarithmic,
                marks: marks.collect(),
            };
        }
        let step = step(largest, GRID_LINES);
        let lines = (largest / step).ceil().max(1.0);
        Self {
            low: 0.0,
            high: lines * step,
            is_logarithmic,
            marks: (0..=lines as u32).map(|line| f64::from(line) * step).collect(),
        }
    }

    /// How far up, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let at = if self.is_logarithmic {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        };
        ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// A round step, 1, 2 or 5 times a power of ten: about `lines` of them make this length.
fn step(length: f64, lines: f64) -> f64 {
    let wanted = length / lines;
    let power = 10_f64.powf(wanted.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|one| one * power >= wanted);
    step.unwrap_or(10.0) * power
}

fn draw_panel(svg: &mut String, samples: &Samples, panel: Panel, curves: &[&Curve], (x, y): (f64, f64)) {
    let lines: Vec<(&str, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|curve| (curve.name.as_str(), points(&samples.seconds, &curve.values)))
        .collect();
    let values = lines
        .iter()
        .flat_map(|(_, points)| points.iter().map(|(_, value)| *value));
    let axis = Axis::of(values, panel.is_logarithmic);
    let end = samples.seconds.last().copied().unwrap_or(1.0);
    let across = |seconds: f64| x + seconds / end * PANEL_WIDTH;
    let up = |value: f64| y + (1.0 - axis.part(value)) * PANEL_HEIGHT;
    let (bottom, right) = (y + PANEL_HEIGHT, x + PANEL_WIDTH);
    let kind = if panel.is_logarithmic {
        " (logarithmic)"
    } else {
        ""
    };
    let _ = writeln!(
        svg,
        r#"<text x="{x:.0}" y="{:.0}" font-size="13">{}{kind}</text>"#,
        y - 26.0,
        panel.title
    );
    for (from, until) in reports(samples) {
        let _ = writeln!(
            svg,
            r##"<rect x="{:.1}" y="{y:.1}" width="{:.1}" height="{PANEL_HEIGHT}" fill="#eee"/>"##,
            across(from),
            across(until) - across(from)
        );
    }
    for mark in &axis.marks {
        let at = up(*mark);
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="#ccc"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
            x - 6.0,
            at + 4.0,
            number(*mark)
        );
    }
    let minutes = end / 60.0;
    let every = step(minutes, GRID_COLUMNS);
    for mark in 0..=(minutes / every) as u32 {
        let minute = f64::from(mark) * every;
        let at = across(minute * 60.0);
        let _ = writeln!(
            svg,
            r##"<line x1="{at:.1}" y1="{bottom:.1}" x2="{at:.1}" y2="{:.1}" stroke="#222"/><text x="{at:.1}" y="{:.1}" text-anchor="middle">{}</text>"##,
            bottom + 4.0,
            bottom + 16.0,
            number(minute)
        );
    }
    let judged_from = across(WARM_UP_PART * end);
    let _ = writeln!(
        svg,
        r##"<line x1="{judged_from:.1}" y1="{y:.1}" x2="{judged_from:.1}" y2="{bottom:.1}" stroke="#888" stroke-dasharray="3 3"/>"##
    );
    let mut name_x = x;
    for ((name, points), colour) in lines.iter().zip(COLOURS.iter().cycle()) {
        let _ = writeln!(
            svg,
            r#"<text x="{name_x:.0}" y="{:.0}" fill="{colour}">{name}</text>"#,
            y - 9.0
        );
        name_x += 14.0 + 6.5 * name.len() as f64;
        let path: Vec<String> = points
            .iter()
            .map(|(seconds, value)| format!("{:.1},{:.1}", across(*seconds), up(*value)))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.3"/>"#,
            path.join(" ")
        );
    }
    let _ = writeln!(
        svg,
        r##"<line x1="{x:.1}" y1="{bottom:.1}" x2="{right:.1}" y2="{bottom:.1}" stroke="#222"/>"##
    );
}

/// A curve in few points.
fn points(seconds: &[f64], values: &[f64]) -> Vec<(f64, f64)> {
    let each = seconds.len().div_ceil(POINTS_LIMIT).max(1);
    let chunks = seconds.chunks(each).zip(values.chunks(each));
    let point = |(seconds, values): (&[f64], &[f64])| {
        let measured = values.iter().copied().filter(|value| !value.is_nan());
        Some((*seconds.last()?, median(measured)?))
    };
    chunks.filter_map(point).collect()
}

/// When each report began and ended to hold its snapshot.
fn reports(samples: &Samples) -> Vec<(f64, f64)> {
    let mut reports: Vec<(f64, f64)> = Vec::new();
    let mut was_open = false;
    for (seconds, is_open) in samples.seconds.iter().zip(&samples.report_open) {
        if *is_open && !was_open {
            reports.push((*seconds, *seconds));
        } else if was_open && let Some(last) = reports.last_mut() {
            last.1 = *seconds;
        }
        was_open = *is_open;
    }
    reports
}

/// A number with few digits.
fn number(value: f64) -> String {
    let text = if value >= 1000.0 {
        return format!("{}k", number(value / 1000.0));
    } else if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    };
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
