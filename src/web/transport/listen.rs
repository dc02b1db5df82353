//! Listens: the address, the threads that serve, and their connections.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Request, Response};
use actix_server::Server as Listening;
use actix_service::{IntoServiceFactory, ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::AppConfig;
use tokio::net::{TcpSocket, TcpStream};

use crate::web::limits::{
    BACKLOG_LIMIT_CONNECTIONS, DISCONNECT_LIMIT, REFUSAL_LIMIT_CONNECTIONS_PER_THREAD, THREADS_LIMIT,
};
use crate::web::transport::connection::{Connection, Places};
use crate::web::transport::connection_limits::ClientLimits;
use crate::web::transport::drain::Drain;

/// Returns how many threads serve requests. Each has its own queues, batch writers and connections.
pub fn threads() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .min(THREADS_LIMIT)
}

/// Binds an address. More connections may wait to be accepted than with std.
pub(in crate::web) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG_LIMIT_CONNECTIONS)?.into_std()
}

/// Serves an app, which is made once on each thread.
///
/// Does what actix-web's HttpServer does, but with Tally's own connections. Fails when it cannot listen on
/// the address. Once the drain begins, each connection ends with its next answer.
pub(in crate::web) fn serve<Made, App, Body>(
    listener: TcpListener,
    limits: ClientLimits,
    shutdown_limit: Duration,
    drain: Drain,
    app: impl Fn() -> Made + Clone + Send + 'static,
) -> std::io::Result<Listening>
where
    Made: IntoServiceFactory<App, Request> + 'static,
    App: ServiceFactory<Request, Config = AppConfig> + 'static,
    App::Error: Into<Response<BoxBody>> + 'static,
    App::InitError: fmt::Debug,
    App::Response: Into<Response<Body>> + 'static,
    App::Service: 'static,
    Body: MessageBody + 'static,
{
    let threads = threads();
    let limits = limits.within_open_files(threads);
    let places = Places::new(limits.connections);
    let builder = Listening::build()
        .workers(threads)
        .max_concurrent_connections(
            limits.connections.div_ceil(threads) + REFUSAL_LIMIT_CONNECTIONS_PER_THREAD,
        )
        .shutdown_timeout(shutdown_limit.as_secs().max(1))
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let service = move || {
        let app = map_config(app(), |()| AppConfig::default());
        let stopping = stopping.clone();
        let http = HttpService::build()
            .client_request_timeout(limits.head)
            .client_disconnect_timeout(DISCONNECT_LIMIT)
            .keep_alive(limits.keep_alive)
            // Idle connections are closed when the server stops.
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|connection: &Connection, data| {
                data.insert(connection.activity());
            })
            .h1(app);
        let (places, drain) = (places.clone(), drain.clone());
        fn_service(move |stream: TcpStream| {
            let (places, drain) = (places.clone(), drain.clone());
            async move {
                let address = stream.peer_addr().ok();
                match Connection::admit(stream, &places, limits, drain).await {
                    Some(connection) => Ok((connection, address)),
                    // The client has been answered.
                    None => Err(DispatchError::DisconnectTimeout),
                }
            }
        })
        .and_then(http)
    };
    Ok(builder.listen("http", listener, service)?.run())
}
