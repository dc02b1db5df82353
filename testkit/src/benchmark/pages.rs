//! Writes the tables of a run into the documents, between their markers.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::results::Results;
use super::run_page::run_page;
use super::stamp::Stamp;
use super::tables;

/// The text between the markers with this name.
///
/// # Errors
/// When a marker is missing, comes twice, or they come in the wrong order.
pub fn between<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let (begin, end) = (
        format!("<!-- bench:{name} begin -->"),
        format!("<!-- bench:{name} end -->"),
    );
    for marker in [&begin, &end] {
        match text.matches(marker.as_str()).count() {
            1 => {}
            0 => bail!("the marker {marker} is missing"),
            _ => bail!("the marker {marker} is there more than once"),
        }
    }
    let (_, after) = text.split_once(&begin).context("just found")?;
    match after.split_once(&end) {
        Some((inner, _)) => Ok(inner),
        None => bail!("the marker {end} comes before its begin"),
    }
}

/// The text with `table` between the markers of this name.
///
/// # Errors
/// As [`between`].
pub fn replace(text: &str, name: &str, table: &str) -> Result<String> {
    let inner = between(text, name)?;
    // Both are parts of one text, so this is where the inner one begins.
    let start = inner.as_ptr() as usize - text.as_ptr() as usize;
    let after = &text[start + inner.len()..];
    Ok(format!("{}\n{}\n{after}", &text[..start], table.trim()))
}

/// Writes all tables of a run into the documents below `root`, and the run's page.
/// Returns what was written. If anything is missing, it writes nothing.
///
/// # Errors
/// When the results lack what a table needs, were not verified, are of `QUICK=1`, or name no
/// commit; when a page or a marker is missing.
pub fn write_pages(root: &Path, results: &Results) -> Result<Vec<String>> {
    if let Some(fault) = results.faults().first() {
        bail!("the results are not verified ({fault}); run `make bench` again");
    }
    if results.run.quick {
        bail!(
            "the results are of QUICK=1, whose counters and ledgers are smaller; run `make bench` without it"
        );
    }
    let stamp = Stamp::of(&results.run)?;
    let page = format!("docs/runs/{}", stamp.file());
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let fill = |path: &str, text: &str, name, table: &str| {
        replace(text, name, table).with_context(|| path.to_owned())
    };

    let readme = fill("README.md", &read("README.md")?, "ways", &tables::ways(results)?)?;
    let path = "docs/benchmarks.md";
    let benchmarks = fill(path, &read(path)?, "now", &tables::now(results)?)?;
    let benchmarks = fill(path, &benchmarks, "targets", &tables::targets(results)?)?;
    let figures = run_page(results)?;
    // Keeps what someone wrote about this run.
    let run = if root.join(&page).exists() {
        fill(&page, &read(&page)?, "run", &figures)?
    } else {
        format!(
            "# {stamp}\n\nFor whoever compares versions: all figures of one run of `make bench`. [What they mean](../benchmarks.md).\n\n<!-- bench:run begin -->\n{}\n<!-- bench:run end -->\n",
            figures.trim()
        )
    };

    std::fs::create_dir_all(root.join("docs/runs"))?;
    let mut written = Vec::new();
    for (path, text) in [("README.md", readme), (path, benchmarks), (&page, run)] {
        std::fs::write(root.join(path), text).with_context(|| path.to_owned())?;
        written.push(path.to_owned());
    }
    Ok(written)
}
