//! Signals: Ctrl-C, SIGTERM, and a closed terminal.

use tokio::signal::unix::{SignalKind, signal};

/// Listens from now on, and resolves when this program's terminal closes (SIGHUP).
///
/// # Errors
/// When the process cannot listen to signals.
pub fn hung_up() -> std::io::Result<impl Future<Output = ()>> {
    let mut hung_up = signal(SignalKind::hangup())?;
    Ok(async move { _ = hung_up.recv().await })
}

/// Listens to Ctrl-C and SIGTERM from now on, and resolves at the first. It also resolves if the
/// signal came before anyone waited. Returns the signal in words.
///
/// # Errors
/// When the process cannot listen to signals.
fn listen() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "interrupted",
            _ = terminate.recv() => "terminated",
        }
    })
}

/// Resolves silently at the first Ctrl-C or SIGTERM. It is for a command that a person ends this
/// way. It resolves at once when the process cannot listen to signals.
pub async fn interrupted() {
    if let Ok(interrupted) = listen() {
        interrupted.await;
    }
}

/// Listens to Ctrl-C and SIGTERM from now on, and resolves at the first. If the process cannot
/// listen to signals, this logs that and resolves at once.
pub fn requested_or_deaf() -> impl Future<Output = ()> {
    let listening = listen();
    async move {
        match listening {
            Ok(requested) => {
                let became = requested.await;
                tracing::info!("{became}: shutting down");
            }
            Err(error) => tracing::error!(%error, "cannot listen to signals"),
        }
    }
}
