//! The picture of the curves, an SVG file: a panel for each, CPU time a vote over what is varied.

use std::fmt::Write;

use super::{Medians, SYSTEMS};
use crate::plot::{colour, escape};

const COLUMNS: usize = 2;
const PANEL_WIDTH: f64 = 460.0;
const PANEL_HEIGHT: f64 = 220.0;
/// Left of each panel, for the numbers of its axis.
const LEFT: f64 = 60.0;
/// Above each panel, for its title.
const ABOVE: f64 = 50.0;
/// Below each panel, for the values of what is varied.
const BELOW: f64 = 30.0;
/// Above all panels.
const TOP: f64 = 100.0;
const MARGIN: f64 = 30.0;
/// The axis, logarithmic, and the same in all panels: µs.
const LOW: f64 = 10.0;
const HIGH: f64 = 1000.0;
const MARKS: [f64; 7] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
/// How far a number stands above its point, and below it.
const OVER: f64 = -7.0;
const UNDER: f64 = 15.0;

pub(super) fn draw(curves: &[(&str, Vec<Medians>)], stamp: &str) -> String {
    let rows = curves.len().div_ceil(COLUMNS);
    let width = MARGIN + COLUMNS as f64 * (LEFT + PANEL_WIDTH);
    let height = TOP + rows as f64 * (ABOVE + PANEL_HEIGHT + BELOW) + MARGIN;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#222">
<rect width="{width}" height="{height}" fill="white"/>
<text x="{LEFT}" y="34" font-size="20">How the cost of a vote grows</text>
<text x="{LEFT}" y="54">CPU µs a vote of servers, worker, Postgres and Redis, on a logarithmic axis</text>
<text x="{LEFT}" y="68" font-size="9">{}</text>
"##,
        escape(stamp)
    );
    let mut x = LEFT;
    for system in SYSTEMS {
        let title = system.title();
        let _ = writeln!(
            svg,
            r#"<text x="{x:.0}" y="88" font-size="13" fill="{}">{title}</text>"#,
            colour(system)
        );
        x += 30.0 + 7.5 * title.len() as f64;
    }
    for (at, (title, points)) in curves.iter().enumerate() {
        let x = LEFT + (at % COLUMNS) as f64 * (LEFT + PANEL_WIDTH);
        let y = TOP + (at / COLUMNS) as f64 * (ABOVE + PANEL_HEIGHT + BELOW) + ABOVE;
        draw_panel(&mut svg, title, points, (x, y));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_panel(svg: &mut String, title: &str, points: &[Medians], (x, y): (f64, f64)) {
    let slot = PANEL_WIDTH / points.len() as f64;
    let across = |at: usize| x + slot * (at as f64 + 0.5);
    let up = |value: f64| {
        let part = (value.max(LOW) / LOW).log10() / (HIGH / LOW).log10();
        y + (1.0 - part.min(1.0)) * PANEL_HEIGHT
    };
    let (bottom, right) = (y + PANEL_HEIGHT, x + PANEL_WIDTH);
    let _ = writeln!(
        svg,
        r#"<text x="{x:.0}" y="{:.0}" font-size="13">{}</text>"#,
        y - 12.0,
        escape(title)
    );
    for mark in MARKS {
        let at = up(mark);
        let _ = writeln!(
            svg,
            r##"<line x1="{x:.1}" y1="{at:.1}" x2="{right:.1}" y2="{at:.1}" stroke="#ccc"/><text x="{:.1}" y="{:.1}" text-anchor="end">{mark:.0}</text>"##,
            x - 6.0,
            at + 4.0,
        );
    }
    for (at, point) in points.iter().enumerate() {
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            across(at),
            bottom + 16.0,
            point.label
        );
    }
    for (number, system) in SYSTEMS.into_iter().enumerate() {
        let colour = colour(system);
        let cost_at = |(at, point): (usize, &Medians)| {
            let line = point.lines[number].as_ref()?;
            Some((at, line.cpu.sum()))
        };
        let costs: Vec<(usize, f64)> = points.iter().enumerate().filter_map(cost_at).collect();
        let path: Vec<String> = costs
            .iter()
            .map(|(at, cost)| format!("{:.1},{:.1}", across(*at), up(*cost)))
            .collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.6"/>"#,
            path.join(" ")
        );
        for (at, cost) in costs {
            let others = points[at].lines.iter().flatten().map(|line| line.cpu.sum());
            let is_highest = others.fold(0.0, f64::max) <= cost;
            let _ = writeln!(
                svg,
                r#"<circle cx="{:.1}" cy="{:.1}" r="2.5" fill="{colour}"/><text x="{0:.1}" y="{:.1}" font-size="9" text-anchor="middle" fill="{colour}">{cost:.0}</text>"#,
                across(at),
                up(cost),
                up(cost) + if is_highest { OVER } else { UNDER },
            );
        }
    }
    let _ = writeln!(
        svg,
        r##"<line x1="{x:.1}" y1="{bottom:.1}" x2="{right:.1}" y2="{bottom:.1}" stroke="#222"/>"##
    );
}
