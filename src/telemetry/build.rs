//! Which build this is.

use super::name;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built, where who built it said so in `TALLY_COMMIT`: else `unknown`.
pub fn commit() -> &'static str {
    match option_env!("TALLY_COMMIT") {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    }
}

/// The version and the commit, for `--version`.
pub fn version() -> String {
    format!("{VERSION} (commit {})", commit())
}

/// Shows it in the metrics.
pub(super) fn show() {
    let commit = commit();
    metrics::gauge!(name::BUILD, "version" => VERSION, "commit" => commit).set(1.0);
}
