//! Where a request comes from.

use std::net::IpAddr;

use actix_web::HttpRequest;

/// The client's address; `None`: the system did not say.
pub fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    request.peer_addr().map(|address| address.ip())
}
