//! Ctrl-C, SIGTERM, and a terminal that is closed.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when the terminal of this program is closed (SIGHUP).
///
/// # Errors
/// When the process cannot listen to signals.
pub async fn hung_up() -> std::io::Result<()> {
    signal(SignalKind::hangup())?.recv().await;
    Ok(())
}

/// Resolves at the first Ctrl-C or SIGTERM.
///
/// # Errors
/// When the process cannot listen to signals.
pub async fn requested() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => tracing::info!("interrupted: shutting down"),
        _ = terminate.recv() => tracing::info!("terminated: shutting down"),
    }
    Ok(())
}

/// Resolves at the first Ctrl-C or SIGTERM, without a word: for a command that a person ends so. At
/// once when the process cannot listen to signals.
pub async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Resolves at the first Ctrl-C or SIGTERM. When the process cannot listen to signals, logs
/// that and resolves at once.
pub async fn requested_or_deaf() {
    if let Err(error) = requested().await {
        tracing::error!(%error, "cannot listen to signals");
    }
}
