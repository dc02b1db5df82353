//! Completions for shells and manual pages, made from the same table as `--help`.

use std::path::Path;

use clap::CommandFactory;

use super::{Completions, Program, SyncWorker, Tally};

/// The completions of a program for a shell.
pub fn completions(asked: &Completions) -> String {
    let (mut command, name) = match asked.program {
        Program::Tally => (Tally::command(), "tally"),
        Program::SyncWorker => (SyncWorker::command(), "sync-worker"),
    };
    let mut text = Vec::new();
    clap_complete::generate(asked.shell, &mut command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes a manual page for each program and each of its commands.
///
/// # Errors
/// When the folder is not there, or cannot be written.
pub fn write_manual(folder: &Path) -> std::io::Result<()> {
    for command in [Tally::command(), SyncWorker::command()] {
        clap_mangen::generate_to(command, folder)?;
    }
    Ok(())
}
