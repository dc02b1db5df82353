//! The client's address of a request, also behind proxies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use actix_web::http::header::{self, HeaderMap};
use actix_web::{HttpRequest, web};
use ipnet::IpNet;

use crate::web::access::Access;

/// The most proxies of one request that are looked at.
pub const HOPS_LIMIT: u8 = 16;

/// The header in which proxies name their client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// `X-Forwarded-For`: addresses, separated by commas.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

impl FromStr for ProxyHeader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "x-forwarded-for" => Ok(Self::XForwardedFor),
            "forwarded" => Ok(Self::Forwarded),
            _ => Err("it takes x-forwarded-for or forwarded".to_owned()),
        }
    }
}

/// Networks, separated by commas. An empty text means none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Arc<[IpNet]>);

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let texts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        let networks = texts.map(|text| {
            let one = text.parse::<IpNet>();
            let one = one.or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            one.map_err(|_| format!("{text}: a network is like 10.0.0.0/8, 2001:db8::/32 or 127.0.0.1"))
        });
        Ok(Self(networks.collect::<Result<_, _>>()?))
    }
}

impl Networks {
    /// The loopback interface.
    pub fn of_this_machine() -> Self {
        Self(
            [
                IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
                IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
            ]
            .into(),
        )
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// The proxies that are trusted to name their client.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    pub networks: Networks,
    /// The one header that all of these proxies write. Any other header comes from the client and is ignored.
    pub header: ProxyHeader,
    /// How many addresses these proxies add for each request, the client's first. `None`: as many as are in
    /// `networks`, and one more.
    pub hops: Option<u8>,
}

impl Proxies {
    /// Returns the client of a request that came from `peer`.
    ///
    /// The client is the last address on the way that is not one of these proxies, or the first that these
    /// proxies have added if their number is known. Addresses before it may be made up.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.networks.contain(client) {
            return client;
        }
        let name = match self.header {
            ProxyHeader::XForwardedFor => header::X_FORWARDED_FOR,
            ProxyHeader::Forwarded => header::FORWARDED,
        };
        let lines: Vec<&[u8]> = headers.get_all(name).map(|line| line.as_bytes()).collect();
        let hops = lines
            .into_iter()
            .rev()
            .flat_map(|line| from_the_right(line, b',').map(<[u8]>::trim_ascii))
            // A list may have empty elements, which say nothing (RFC 9110, 5.6.1).
            .filter(|hop| !hop.is_empty());
        let address_of = |hop| match self.header {
            ProxyHeader::XForwardedFor => std::str::from_utf8(hop).ok().and_then(node),
            ProxyHeader::Forwarded => forwarded_for(hop),
        };
        let mut hops = hops.take(usize::from(HOPS_LIMIT));
        if let Some(added) = self.hops {
            // With fewer addresses, the request came another way, and only the peer is known.
            let first = hops.nth(usize::from(added).saturating_sub(1));
            return first.and_then(address_of).unwrap_or(client);
        }
        for hop in hops {
            // If a proxy does not name its client, the proxy is the last known address.
            let Some(address) = address_of(hop) else { break };
            client = address;
            if !self.networks.contain(client) {
                break;
            }
        }
        client
    }
}

/// Splits a text at separators outside quotes, and returns the last part first.
///
/// The right end comes from the proxies, the left end from the client. Reading from the right, the client
/// cannot open a quote that hides what a proxy has added.
fn from_the_right(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut is_quoted = false;
        for (at, byte) in text.iter().enumerate().rev() {
            if *byte == b'"' {
                is_quoted = !is_quoted;
            } else if *byte == separator && !is_quoted {
                rest = Some(&text[..at]);
                return Some(&text[at + 1..]);
            }
        }
        rest = None;
        Some(text)
    })
}

/// Returns the address in `for=` of an element of the Forwarded header.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in from_the_right(element, b';') {
        let pair = std::str::from_utf8(pair.trim_ascii()).ok()?;
        let (name, value) = pair.split_once('=')?;
        if name.eq_ignore_ascii_case("for") {
            // RFC 7239, 4 forbids a second `for`.
            if found.is_some() {
                return None;
            }
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            found = Some(node(quoted.unwrap_or(value))?);
        }
    }
    found
}

/// Reads an address with or without a port. An IPv6 address may be in brackets.
fn node(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    };
    let address = address.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    Some(address?.to_canonical())
}

/// Returns the client of this request. `None`: the connection is closed.
pub fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    let access = request.app_data::<web::Data<Access>>()?;
    let peer = request.peer_addr()?.ip();
    Some(access.options.proxies.client(peer, request.headers()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{HeaderName, HeaderValue};

    fn client(header: ProxyHeader, peer: &str, lines: &[&str]) -> String {
        client_behind(None, header, peer, lines)
    }

    fn client_behind(hops: Option<u8>, header: ProxyHeader, peer: &str, lines: &[&str]) -> String {
        let proxies = Proxies {
            networks: "10.0.0.0/8, 2001:db8:ffff::/48".parse().expect("networks"),
            header,
            hops,
        };
        let mut headers = HeaderMap::new();
        let name = match header {
            ProxyHeader::XForwardedFor => "x-forwarded-for",
            ProxyHeader::Forwarded => "forwarded",
        };
        for line in lines {
            let value = HeaderValue::from_str(line).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        proxies
            .client(peer.parse().expect("an address"), &headers)
            .to_string()
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        use ProxyHeader::{Forwarded, XForwardedFor};
        let proxy = "10.0.0.1";
        for (header, peer, lines, expected) in [
            // Nobody else's word is taken.
            (XForwardedFor, "192.0.2.9", &["198.51.100.1"][..], "192.0.2.9"),
            (Forwarded, "192.0.2.9", &["for=198.51.100.1"], "192.0.2.9"),
            (XForwardedFor, proxy, &[], proxy),
            (XForwardedFor, proxy, &["198.51.100.1"], "198.51.100.1"),
            (
                XForwardedFor,
                "::ffff:10.0.0.1",
                &["198.51.100.1"],
                "198.51.100.1",
            ),
            // What the client made up is further left.
            (XForwardedFor, proxy, &["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
            (
                XForwardedFor,
                proxy,
                &["127.0.0.1", "198.51.100.1"],
                "198.51.100.1",
            ),
            (
                XForwardedFor,
                proxy,
                &["8.8.8.8, 198.51.100.1, 10.2.3.4"],
                "198.51.100.1",
            ),
            (XForwardedFor, proxy, &["10.9.9.9, 10.2.3.4"], "10.9.9.9"),
            (XForwardedFor, proxy, &["8.8.8.8, unknown"], proxy),
            (XForwardedFor, proxy, &["8.8.8.8, junk, 10.2.3.4"], "10.2.3.4"),
            (XForwardedFor, proxy, &["198.51.100.1:4711"], "198.51.100.1"),
            (
                XForwardedFor,
                proxy,
                &["[2001:db8::1]:4711, 10.1.1.1"],
                "2001:db8::1",
            ),
            (XForwardedFor, proxy, &["2001:db8::1"], "2001:db8::1"),
            (XForwardedFor, proxy, &["198.51.100.1,, "], "198.51.100.1"),
            (Forwarded, proxy, &["for=198.51.100.1"], "198.51.100.1"),
            (
                Forwarded,
                proxy,
                &["for=8.8.8.8, proto=https;For=\"[2001:db8::1]:80\";by=10.0.0.1"],
                "2001:db8::1",
            ),
            (
                Forwarded,
                proxy,
                &["for=8.8.8.8, for=198.51.100.1, for=10.1.1.1"],
                "198.51.100.1",
            ),
            (Forwarded, proxy, &["for=8.8.8.8, for=_hidden"], proxy),
            (Forwarded, proxy, &["for=8.8.8.8, proto=http"], proxy),
            (Forwarded, proxy, &["for=8.8.8.8;for=9.9.9.9"], proxy),
            // A quote that a client opens hides nothing that a proxy adds.
            (
                Forwarded,
                proxy,
                &["for=\"8.8.8.8, for=198.51.100.1"],
                "198.51.100.1",
            ),
            (
                Forwarded,
                proxy,
                &["for=\"x, for=\"[2001:db8::1]\""],
                "2001:db8::1",
            ),
        ] {
            assert_eq!(client(header, peer, lines), expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn where_proxies_add_a_known_number_of_addresses_the_first_of_them_is_the_client() {
        use ProxyHeader::{Forwarded, XForwardedFor};
        let proxy = "10.0.0.1";
        for (hops, header, peer, lines, expected) in [
            // A load balancer that adds its client and its own public address.
            (
                2,
                XForwardedFor,
                proxy,
                &["8.8.8.8, 198.51.100.1, 203.0.113.7"][..],
                "198.51.100.1",
            ),
            (
                2,
                XForwardedFor,
                proxy,
                &["8.8.8.8", "198.51.100.1", "203.0.113.7"],
                "198.51.100.1",
            ),
            (1, XForwardedFor, proxy, &["8.8.8.8, 10.0.0.9"], "10.0.0.9"),
            (
                3,
                XForwardedFor,
                proxy,
                &["198.51.100.1, junk, 10.1.1.1"],
                "198.51.100.1",
            ),
            (
                2,
                Forwarded,
                proxy,
                &["for=198.51.100.1, for=203.0.113.7"],
                "198.51.100.1",
            ),
            // Too few addresses, or one that is none: the peer is known.
            (2, XForwardedFor, proxy, &["8.8.8.8"], proxy),
            (2, XForwardedFor, proxy, &["junk, 203.0.113.7"], proxy),
            (2, XForwardedFor, proxy, &[], proxy),
            // Nobody else's word is taken.
            (
                2,
                XForwardedFor,
                "192.0.2.9",
                &["198.51.100.1, 203.0.113.7"],
                "192.0.2.9",
            ),
        ] {
            let client = client_behind(Some(hops), header, peer, lines);
            assert_eq!(client, expected, "{hops} {lines:?}");
        }
    }

    #[test]
    fn a_long_way_is_looked_at_as_far_as_the_limit() {
        let hops = vec!["10.1.1.1"; usize::from(HOPS_LIMIT)].join(", ");
        let line = format!("198.51.100.1, {hops}");
        assert_eq!(
            client(ProxyHeader::XForwardedFor, "10.0.0.1", &[&line]),
            "10.1.1.1"
        );
    }

    #[test]
    fn what_is_no_network_is_no_setting() {
        for wrong in ["10.0.0.0/33", "proxy", "10.0.0.0/8,", "10.0.0", "::/129"] {
            assert!(wrong.parse::<Networks>().is_err(), "{wrong}");
        }
        assert_eq!("".parse(), Ok(Networks::default()));
    }
}
