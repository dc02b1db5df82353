//! Which commit is measured.

use std::process::Command;

use crate::results::root;

/// What a bench measures: a change elsewhere changes no figure.
const MEASURED: [&str; 8] = [
    "src",
    "lua",
    "migrations",
    "benches",
    "testkit",
    ".cargo",
    "Cargo.toml",
    "Cargo.lock",
];

/// The commit of this folder, abbreviated; `None` outside of a clone.
pub fn commit() -> Option<String> {
    git(&["rev-parse", "--short=7", "HEAD"])
}

/// Whether the code that is measured has changes that are in no commit.
pub fn has_changes() -> bool {
    let mut words = vec!["status", "--porcelain", "--"];
    words.extend(MEASURED);
    git(&words).is_some_and(|changes| !changes.is_empty())
}

/// What git answers; `None` if it fails or is not there.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(words)
        .current_dir(root())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
