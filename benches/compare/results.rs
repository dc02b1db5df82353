//! The files in target/bench.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use testkit::benchmark::Results;

const RESULTS: &str = "results.json";

/// Where the results go.
pub fn folder() -> PathBuf {
    let folder = root().join("target/bench");
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The project's folder.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Writes a file of results.
pub fn write_json(name: &str, value: &impl Serialize) {
    let text = serde_json::to_string_pretty(value).expect("JSON");
    std::fs::write(folder().join(name), text).expect("the results");
}

/// Writes the run and all rows to results.json. Called after each run, so that a bench that is
/// interrupted leaves its results.
pub fn write(results: &Results) {
    write_json(RESULTS, results);
}

/// Reads what the last bench has written.
///
/// # Errors
/// There is none, or it is of an older version of the bench.
pub fn read() -> anyhow::Result<Results> {
    let path = folder().join(RESULTS);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{}: run `make bench` first", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}: run `make bench` again", path.display()))
}
