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

/// Listens to Ctrl-C and SIGTERM from now on, and resolves at the first of them, also if that came
/// before anyone waited.
///
/// # Errors
/// When the process cannot listen to signals.
fn listen() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => tracing::info!("interrupted: shutting down"),
            _ = terminate.recv() => tracing::info!("terminated: shutting down"),
        }
    })
}

/// Resolves at the first Ctrl-C or SIGTERM.
///
/// # Errors
/// When the process cannot listen to signals.
pub async fn requested() -> std::io::Result<()> {
    listen()?.await;
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

/// Listens to Ctrl-C and SIGTERM from now on, and resolves at the first of them. When the process
/// cannot listen to signals, logs that and resolves at once.
pub fn requested_or_deaf() -> impl Future<Output = ()> {
    let listening = listen();
    async move {
        match listening {
            Ok(requested) => requested.await,
            Err(error) => tracing::error!(%error, "cannot listen to signals"),
        }
    }
}
