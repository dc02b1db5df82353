//! The plot, an SVG file: bars for each system under each workload, of its votes a second,
//! CPU time a vote, and latency at half load.

use std::fmt::Write;

use testkit::benchmark::{Line, Results, Row, System, median_row};

use crate::results::folder;
use crate::workloads::Workload;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 110.0;
const PANEL_HEIGHT: f64 = 260.0;
/// Below each panel: the workloads' names and air.
const PANEL_GAP: f64 = 90.0;

/// A colour for each system; distinct in grey and to the colour-blind.
pub fn colour(system: System) -> &'static str {
    match system {
        System::Nginx => "#666666",
        System::NoOp => "#bbbbbb",
        System::Transaction => "#cc3311",
        System::LockingTransaction => "#882255",
        System::BatchedTransaction => "#ee9944",
        System::Recipe => "#0077bb",
        System::Tally => "#117733",
    }
}

struct Bar {
    system: System,
    /// In its ledger.
    rows: i64,
    label: String,
    line: Line,
}

struct Group {
    name: &'static str,
    bars: Vec<Bar>,
}

/// A bar and one in front of it: how high, how dark. Stacked bars would mislead on a
/// logarithmic axis.
type Heights = Vec<(f64, f64)>;

/// A panel's title, and what its bars show.
type Panel = (&'static str, fn(&Line) -> Heights);

/// Writes target/bench/plot.svg.
pub fn write(results: &Results, workloads: &[Workload]) {
    let groups: Vec<Group> = workloads
        .iter()
        .map(|workload| Group {
            name: workload.name,
            bars: results
                .cases(workload.name)
                .into_iter()
                .map(|case| {
                    let rows: Vec<&Row> = results.rows(workload.name, case).collect();
                    let line = median_row(&rows);
                    Bar {
                        system: case.system,
                        rows: case.ledger_rows,
                        label: format!("{}, {}", workload.about, line.name),
                        line,
                    }
                })
                .collect(),
        })
        .filter(|group| !group.bars.is_empty())
        .collect();
    if groups.is_empty() {
        return;
    }
    std::fs::write(folder().join("plot.svg"), draw(&groups)).expect("the plot");
}

fn draw(groups: &[Group]) -> String {
    let panels: [Panel; 3] = [
        ("votes and reads a second, closed loop (logarithmic)", |line| {
            vec![(line.rate, 1.0)]
        }),
        (
            "CPU µs a vote (a read where there are only reads), server, worker, Postgres and Redis together (logarithmic)",
            |line| vec![(line.cpu.sum(), 1.0)],
        ),
        (
            "latency p99, ms: closed loop pale, open loop at half of the system's own maximum dark (logarithmic)",
            |line| {
                let closed = (line.closed.p99, 0.35);
                let open = line.open.as_ref().map(|open| (open.p99, 1.0));
                [closed].into_iter().chain(open).collect()
            },
        ),
    ];
    let height = TOP + (PANEL_HEIGHT + PANEL_GAP) * panels.len() as f64;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="#222">
<rect width="{WIDTH}" height="{height}" fill="white"/>
<text x="{LEFT}" y="34" font-size="20">Tally against other ways of counting votes</text>
<text x="{LEFT}" y="54">Medians of the rounds of one run; all on one machine, the load generator too. fsync and synchronous_commit on.</text>
"##
    );
    let mut x = LEFT;
    for system in System::ALL {
        let name = system.title();
        let colour = colour(system);
        let _ = writeln!(
            svg,
            r#"<rect x="{x:.0}" y="68" width="14" height="14" fill="{colour}"/><text x="{:.0}" y="80">{name}</text>"#,
            x + 20.0
        );
        x += 60.0 + 7.0 * name.len() as f64;
    }
    for (at, (title, heights)) in panels.into_iter().enumerate() {
        let top = TOP + (PANEL_HEIGHT + PANEL_GAP) * at as f64;
        panel(&mut svg, groups, title, heights, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, groups: &[Group], title: &str, heights: fn(&Line) -> Heights, top: f64) {
    let values: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.bars)
        .flat_map(|bar| heights(&bar.line))
        .map(|(height, _)| height)
        .filter(|height| *height > 0.0)
        .collect();
    let largest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = values.iter().copied().fold(largest, f64::min);
    // Whole decades, at least one; from a little below the smallest bar, so that it can be seen.
    let low = (smallest / 1.5).log10().floor();
    let high = largest.log10().ceil().max(low + 1.0);
    let bottom = top + PANEL_HEIGHT;
    let y = |value: f64| {
        let part = (value.max(f64::MIN_POSITIVE).log10() - low) / (high - low);
        bottom - part.clamp(0.0, 1.0) * (PANEL_HEIGHT - 20.0)
    };
    let _ = writeln!(
        svg,
        r#"<text x="{LEFT}" y="{:.0}" font-size="14">{title}</text>"#,
        top + 6.0
    );
    let right = WIDTH - RIGHT;
    for decade in low as i32..=high as i32 {
        let value = 10_f64.powi(decade);
        let at = y(value);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{at:.1}" x2="{right}" y2="{at:.1}" stroke="#ddd"/><text x="{:.0}" y="{:.1}" text-anchor="end">{}</text>"##,
            LEFT - 8.0,
            at + 4.0,
            number(value)
        );
    }
    // The space between groups is as wide as a bar.
    let slots: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    let slot = (right - LEFT) / slots as f64;
    let mut x = LEFT + slot / 2.0;
    for (at, group) in groups.iter().enumerate() {
        let begin = x;
        for bar in &group.bars {
            for (place, (height, shade)) in heights(&bar.line).into_iter().enumerate() {
                let upper = y(height);
                let inset = slot * (0.05 + 0.2 * place as f64);
                let value = number(height);
                let _ = writeln!(
                    svg,
                    r#"<rect x="{:.1}" y="{upper:.1}" width="{:.1}" height="{:.1}" fill="{}" fill-opacity="{shade}"><title>{}: {value}</title></rect>"#,
                    x + inset,
                    slot - 2.0 * inset,
                    bottom - upper,
                    colour(bar.system),
                    escape(&bar.label),
                );
                if slot > 15.0 {
                    let _ = writeln!(
                        svg,
                        r#"<text x="{:.1}" y="{:.1}" font-size="9" text-anchor="middle">{value}</text>"#,
                        x + slot / 2.0,
                        upper - 3.0,
                    );
                }
            }
            if bar.rows > 0 {
                let _ = writeln!(
                    svg,
                    r#"<text x="{:.1}" y="{:.1}" font-size="9" text-anchor="middle" fill="white">{} rows</text>"#,
                    x + slot / 2.0,
                    bottom - 4.0,
                    number(bar.rows as f64)
                );
            }
            x += slot;
        }
        // Two heights in turn, so that long names do not run into each other.
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            f64::midpoint(begin, x),
            bottom + 18.0 + 16.0 * (at % 2) as f64,
            escape(&group.name.replace('_', " "))
        );
        x += slot;
    }
    let _ = writeln!(
        svg,
        r##"<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#222"/>"##
    );
}

/// A number with few digits.
fn number(value: f64) -> String {
    if value >= 1_000_000.0 {
        format!("{}M", trim(value / 1_000_000.0))
    } else if value >= 1000.0 {
        format!("{}k", trim(value / 1000.0))
    } else {
        trim(value)
    }
}

fn trim(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
