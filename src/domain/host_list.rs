//! Lists of hosts in the URLs of stores: `user:password@one:5432,two:5432/database`.

use std::net::Ipv6Addr;

/// What follows `://` in a URL, split around its hosts.
#[derive(Clone, Copy, Debug)]
pub struct HostList<'a> {
    /// The user and the password with the @ behind them; or nothing.
    pub login: &'a str,
    hosts: &'a str,
    /// The path and the rest.
    pub after: &'a str,
}

/// Why a list of hosts is none. It shows nothing of the URL: a part of the password may stand where a host should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostList {
    #[error("a host is missing")]
    Missing,
    #[error("there is a blank in the list of hosts")]
    Blank,
    #[error("what follows the colon after a host is no port (an IPv6 address stands in [ ])")]
    Port,
    #[error("what begins with [ is no IPv6 address in [ ]")]
    Address,
    #[error("it names more than {0} hosts")]
    TooMany(usize),
}

impl<'a> HostList<'a> {
    /// Splits what follows `://`.
    pub fn of(rest: &'a str) -> Self {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, after) = rest.split_at(end);
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        Self { login, hosts, after }
    }

    /// Whether it names more than one host.
    pub fn are_several(&self) -> bool {
        self.hosts.contains(',')
    }

    /// The first host as it is written, with its port if it has one.
    pub fn first(&self) -> &'a str {
        self.hosts.split(',').next().unwrap_or_default()
    }

    /// Each host, an IPv6 address in its brackets, with its port.
    ///
    /// # Errors
    /// When one of them is no host, or there are more than `limit_hosts`.
    pub fn read(&self, default_port: u16, limit_hosts: usize) -> Result<Vec<(String, u16)>, InvalidHostList> {
        let hosts: Vec<_> = self
            .hosts
            .split(',')
            .map(|text| host_and_port(text, default_port))
            .collect::<Result<_, _>>()?;
        if hosts.len() > limit_hosts {
            return Err(InvalidHostList::TooMany(limit_hosts));
        }
        Ok(hosts)
    }
}

fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), InvalidHostList> {
    let end = match text.strip_prefix('[') {
        None => text.find(':').unwrap_or(text.len()),
        Some(rest) => {
            let (address, _) = rest.split_once(']').ok_or(InvalidHostList::Address)?;
            address
                .parse::<Ipv6Addr>()
                .map_err(|_| InvalidHostList::Address)?;
            address.len() + 2
        }
    };
    let (host, port) = text.split_at(end);
    if host.is_empty() {
        return Err(InvalidHostList::Missing);
    }
    if host.contains(char::is_whitespace) {
        return Err(InvalidHostList::Blank);
    }
    let port = match (port.is_empty(), port.strip_prefix(':').map(str::parse)) {
        (true, _) => default_port,
        (false, Some(Ok(port))) if port > 0 => port,
        _ => return Err(InvalidHostList::Port),
    };
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_around_its_hosts() {
        for (rest, parts) in [
            ("u:p%40@one:1,two/x?y", ("u:p%40@", "one:1", "/x?y")),
            ("u:a,b@one/x", ("u:a,b@", "one", "/x")),
            ("one", ("", "one", "")),
            ("/x?host=a", ("", "", "/x?host=a")),
            ("one?x=a@b", ("", "one", "?x=a@b")),
        ] {
            let list = HostList::of(rest);
            assert_eq!((list.login, list.first(), list.after), parts, "{rest}");
        }
        assert!(HostList::of("one,two/x").are_several());
        assert!(!HostList::of("u:a,b@one/x?options=a,b").are_several());
    }

    #[test]
    fn each_host_has_its_port_or_the_usual_one() {
        let hosts = HostList::of("one:6432,two,[::1],[::2]:7/x").read(5432, 8);
        let hosts = hosts.expect("a list");
        let hosts: Vec<(&str, u16)> = hosts.iter().map(|(host, port)| (host.as_str(), *port)).collect();
        assert_eq!(
            hosts,
            [("one", 6432), ("two", 5432), ("[::1]", 5432), ("[::2]", 7)]
        );
    }

    #[test]
    fn what_is_no_list_of_hosts_is_refused() {
        for (rest, why) in [
            ("one,,two", InvalidHostList::Missing),
            ("one,:5/x", InvalidHostList::Missing),
            ("one, two", InvalidHostList::Blank),
            ("one:x,two", InvalidHostList::Port),
            ("one:,two", InvalidHostList::Port),
            ("one:0,two", InvalidHostList::Port),
            ("one,two:99999", InvalidHostList::Port),
            ("one,fe80::1", InvalidHostList::Port),
            ("one,[::1]5", InvalidHostList::Port),
            ("one,[::1", InvalidHostList::Address),
            ("one,[x]:1", InvalidHostList::Address),
            ("a,b,c,d", InvalidHostList::TooMany(3)),
        ] {
            assert_eq!(HostList::of(rest).read(1, 3), Err(why), "{rest}");
        }
    }
}
