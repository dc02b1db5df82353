//! The address at which a browser sees this server.

use actix_web::HttpRequest;
use actix_web::http::header;
use actix_web::http::uri::Authority;

use crate::web::api::state::AppState;

/// Returns the origin of the server's own pages. `None`: the request names no host.
pub(super) fn origin(request: &HttpRequest, state: &AppState) -> Option<String> {
    // TALLY_HSTS says that TLS ends in front of the server.
    let scheme = match state.access.options.hsts {
        Some(_) => "https",
        None => "http",
    };
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let host = host.parse::<Authority>().ok()?;
    let is_host = !host.host().is_empty() && !host.as_str().contains('@');
    is_host.then(|| format!("{scheme}://{host}"))
}
