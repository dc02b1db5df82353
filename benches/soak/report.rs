//! What a soak prints and leaves in target/soak.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::curves::{Judged, Panel, Samples, Verdict};

/// Where the results go.
pub fn folder() -> anyhow::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/soak");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[derive(Serialize)]
struct Row<'a> {
    panel: &'static str,
    name: &'a str,
    verdict: &'static str,
    why: &'a str,
    /// The quarters' medians; null where there are too few samples.
    first_quarter: Option<f64>,
    second_quarter: Option<f64>,
    last_quarter: Option<f64>,
    bound: Option<f64>,
    /// A value for each sample; null where nothing was measured.
    values: &'a [f64],
}

#[derive(Serialize)]
struct File<'a> {
    seconds: &'a [f64],
    report_open: &'a [bool],
    curves: Vec<Row<'a>>,
}

/// Writes target/soak/samples.json.
pub fn write_json(samples: &Samples, judged: &[Judged<'_>]) -> anyhow::Result<()> {
    let curves = judged.iter().map(|one| {
        let (verdict, why) = words(&one.verdict);
        Row {
            panel: one.curve.panel.title,
            name: &one.curve.name,
            verdict,
            why,
            first_quarter: one.quarters.map(|quarters| quarters.first),
            second_quarter: one.quarters.map(|quarters| quarters.second),
            last_quarter: one.quarters.map(|quarters| quarters.last),
            bound: one.bound,
            values: &one.curve.values,
        }
    });
    let file = File {
        seconds: &samples.seconds,
        report_open: &samples.report_open,
        curves: curves.collect(),
    };
    let text = serde_json::to_string(&file)?;
    Ok(std::fs::write(folder()?.join("samples.json"), text)?)
}

fn words(verdict: &Verdict) -> (&'static str, &str) {
    match verdict {
        Verdict::Flat => ("flat", ""),
        Verdict::Explained(why) => ("explained", why),
        Verdict::NotJudged(why) => ("not judged", why),
        Verdict::Grew(why) => ("GREW", why),
    }
}

/// Prints the medians of the quarters.
pub fn print(judged: &[Judged<'_>]) {
    println!(
        "\n{:<24} {:>10} {:>10} {:>10} {:>10}",
        "medians of quarters", "first", "second", "last", "bound"
    );
    let mut former: Option<Panel> = None;
    for one in judged {
        if former.replace(one.curve.panel) != Some(one.curve.panel) {
            println!("{}", one.curve.panel.title);
        }
        let figure = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
        let (verdict, why) = words(&one.verdict);
        let why = if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        };
        println!(
            "  {:<22} {:>10} {:>10} {:>10} {:>10}  {verdict}{why}",
            one.curve.name,
            figure(one.quarters.map(|quarters| quarters.first)),
            figure(one.quarters.map(|quarters| quarters.second)),
            figure(one.quarters.map(|quarters| quarters.last)),
            figure(one.bound),
        );
    }
}

/// A number with about three digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
