//! As whom Tally logs in at Redis. A login that Redis refuses is read again, where it stands in a file.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo};

use super::LiveError;
use crate::store_url::StoreUrl;

/// The codes of error replies to a login that is no longer the right one.
const LOGIN_REFUSED: [&str; 2] = ["WRONGPASS", "NOAUTH"];

/// How to connect to this Redis, with the present login of this URL.
pub(super) fn log_in(info: &ConnectionInfo, url: &StoreUrl) -> ConnectionInfo {
    let info = info.clone();
    let Some(login) = url.new_login() else {
        return info;
    };
    let mut settings = info.redis_settings().clone();
    // Redis' own name for whoever names no user.
    let user = if login.user.is_empty() {
        "default".to_owned()
    } else {
        login.user
    };
    settings = settings.set_username(user);
    if let Some(password) = login.password {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

/// Makes a connection, which the calling runtime drives. If Redis refuses the login, and there is another one by
/// now, makes it with that.
pub(super) async fn connect(
    info: &ConnectionInfo,
    url: &StoreUrl,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, LiveError> {
    // In boxes: they stand deep in the futures of all programs.
    url.refresh().await;
    let number = url.login_number();
    match Box::pin(open(&log_in(info, url), config)).await {
        Err(error) if has_other_login(url, number, &error).await => {
            Box::pin(open(&log_in(info, url), config)).await
        }
        connected => connected,
    }
}

async fn open(
    info: &ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> Result<MultiplexedConnection, LiveError> {
    let client = Client::open(info.clone()).map_err(LiveError::Url)?;
    match client.get_multiplexed_async_connection_with_config(config).await {
        Ok(connection) => Ok(connection),
        Err(error) => Err(LiveError::from(error).named(info.addr()).await),
    }
}

/// Whether Redis refused the login with this number, and there is another one by now.
pub(super) async fn has_other_login(url: &StoreUrl, number: u64, error: &LiveError) -> bool {
    let is_refused = error
        .refusal()
        .is_some_and(|refusal| LOGIN_REFUSED.contains(&refusal.reply().code));
    is_refused && url.has_other_login(number).await
}
