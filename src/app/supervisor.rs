//! Notices to a supervisor, systemd above all (`sd_notify`): that a program is ready, that it goes on, and that
//! it stops. Without one, nothing is sent.

use std::net::SocketAddr;

use reqwest::Url;
use sd_notify::NotifyState;
use tokio::time::sleep;

use crate::client;

/// How often a program says that it goes on, in the time after which it would be started again.
const SIGNS_PER_LIMIT: u32 = 3;

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "a notice does not reach the supervisor");
    }
}

/// Says that the program is ready, then again and again that it goes on, while it `is_alive`. Never resolves.
pub(super) async fn keep_notifying<T>(is_alive: impl AsyncFn() -> bool) -> T {
    notify(NotifyState::Ready);
    let every = sd_notify::watchdog_enabled().map(|limit| limit / SIGNS_PER_LIMIT);
    loop {
        match every {
            Some(every) => {
                if is_alive().await {
                    notify(NotifyState::Watchdog);
                }
                sleep(every).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Resolves with `stop`, and says that the program stops.
pub(super) async fn stopping(stop: impl Future<Output = ()>) {
    stop.await;
    notify(NotifyState::Stopping);
}

/// Whether the server at this address answers, whatever it says: a server that is full is alive.
pub(super) async fn answers(address: SocketAddr) -> bool {
    let Ok(url) = Url::parse(&format!("http://{address}/health/live")) else {
        return false;
    };
    match client::ask(&url, None).await {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(%error, "this server does not answer itself");
            false
        }
    }
}
