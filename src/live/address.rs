//! The URL of Redis: its address, or those of its Sentinels, the login, and the certificates.

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    TlsCertificates,
};

use super::LiveError;
use crate::domain::HostList;
use crate::tls;

/// The most Sentinels in a URL. An installation has three or five.
const SENTINELS_LIMIT: usize = 16;
/// The port of a Sentinel whose address has none: that of Sentinel itself.
const SENTINEL_PORT: u16 = 26_379;
/// How a URL with Sentinels looks.
const SENTINEL_FORM: &str = "redis+sentinel://user:password@host1:26379,host2:26379,host3:26379/name";

/// The most nodes of a Cluster in a URL. They name all others.
const NODES_LIMIT: usize = 16;
/// The port of a node whose address has none: that of Redis itself.
const NODE_PORT: u16 = 6379;
/// How a URL of a Cluster looks.
const CLUSTER_FORM: &str = "redis+cluster://user:password@host1:6379,host2:6379,host3:6379";

/// Where Redis is, as its URL says.
pub(super) enum Address {
    /// This Redis, or something that leads to the primary.
    Redis(Box<ConnectionInfo>),
    /// The primary that Sentinels name.
    Sentinels(Box<SentinelAddress>),
    /// A Redis Cluster with these nodes and others.
    Cluster(Vec<ConnectionInfo>),
}

/// Where the Sentinels are that name the primary.
pub(super) struct SentinelAddress {
    pub sentinels: Vec<ConnectionInfo>,
    /// The name under which they watch the primary (`sentinel monitor <name> …`).
    pub name: String,
    /// The login and the TLS of the primary. Its host and port are for the Sentinels to say.
    pub primary: ConnectionInfo,
}

/// Reads a URL: `redis://…` or `rediss://…` for TLS, `redis+sentinel://…` or `rediss+sentinel://…` for a primary that
/// Sentinels name, `redis+cluster://…` or `rediss+cluster://…` for a Redis Cluster.
///
/// # Errors
/// As [`read_redis`]; also when the hosts, the name or the parameters are wrong.
pub(super) fn read(redis_url: &str) -> Result<Address, LiveError> {
    let Some((scheme, rest)) = redis_url.split_once("://") else {
        return redis(redis_url);
    };
    match scheme {
        "redis+sentinel" => read_sentinels("redis", rest),
        "rediss+sentinel" => read_sentinels("rediss", rest),
        "redis+cluster" => return read_nodes("redis", rest),
        "rediss+cluster" => return read_nodes("rediss", rest),
        _ => return redis(redis_url),
    }
    .map(|address| Address::Sentinels(Box::new(address)))
}

fn redis(redis_url: &str) -> Result<Address, LiveError> {
    Ok(Address::Redis(Box::new(read_redis(redis_url)?)))
}

/// Reads what follows `://`: `[user:password@]host[:port][,host[:port]…]/name[/number][?parameters]`. User, password,
/// number and certificates are for the primary; the certificates also for the Sentinels, whose login the parameters
/// `sentinel_user` and `sentinel_password` are.
fn read_sentinels(scheme: &str, rest: &str) -> Result<SentinelAddress, LiveError> {
    let wrong = |why: &str| LiveError::WrongUrl(format!("{why}; it takes {SENTINEL_FORM}"));
    let list = HostList::of(rest);
    if list.after.contains('#') {
        return Err(wrong("#, and what follows it, is not taken"));
    }
    let (path, query) = list.after.split_once('?').unwrap_or((list.after, ""));
    let path = path.strip_prefix('/').unwrap_or_default();
    let (name, number) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(wrong(
            "the name of the primary is missing (sentinel monitor <name>)",
        ));
    }
    // Sentinel takes no other names.
    if !name
        .bytes()
        .all(|one| one.is_ascii_alphanumeric() || b"._-".contains(&one))
    {
        return Err(wrong(
            "the name of the primary has letters, digits and . _ - alone",
        ));
    }
    let (parameters, sentinel_login) = split_parameters(query)
        .ok_or_else(|| wrong("of parameters for Sentinels there are sentinel_user and sentinel_password"))?;
    let hosts = list.read(SENTINEL_PORT, SENTINELS_LIMIT);
    let hosts = hosts.map_err(|why| wrong(&why.to_string()))?;
    let url = |login: &str, (host, port): &(String, u16), number: &str| {
        read_redis(&format!("{scheme}://{login}{host}:{port}/{number}?{parameters}"))
    };
    let mut sentinels = Vec::with_capacity(hosts.len());
    for host in &hosts {
        let info = url("", host, "")?;
        let settings = sentinel_login.of(info.redis_settings().clone());
        sentinels.push(info.set_redis_settings(settings));
    }
    Ok(SentinelAddress {
        sentinels,
        name: name.to_owned(),
        primary: url(list.login, &hosts[0], number)?,
    })
}

/// Reads what follows `://`: `[user:password@]host[:port][,host[:port]…][/][?parameters]`.
fn read_nodes(scheme: &str, rest: &str) -> Result<Address, LiveError> {
    let wrong = |why: &str| LiveError::WrongUrl(format!("{why}; it takes {CLUSTER_FORM}"));
    let list = HostList::of(rest);
    if list.after.contains('#') {
        return Err(wrong("#, and what follows it, is not taken"));
    }
    let (path, query) = list.after.split_once('?').unwrap_or((list.after, ""));
    if !["", "/", "/0"].contains(&path) {
        return Err(wrong("a Redis Cluster has only the database 0, and no name"));
    }
    let hosts = list.read(NODE_PORT, NODES_LIMIT);
    let hosts = hosts.map_err(|why| wrong(&why.to_string()))?;
    let nodes = hosts
        .iter()
        .map(|(host, port)| read_redis(&format!("{scheme}://{}{host}:{port}/?{query}", list.login)));
    Ok(Address::Cluster(nodes.collect::<Result<_, _>>()?))
}

/// How to connect to this host, with the login and the TLS of another one.
pub(super) fn at(like: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let at = match like.addr() {
        ConnectionAddr::TcpTls {
            insecure, tls_params, ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    like.clone().set_addr(at)
}

/// As whom Tally asks Sentinels. They have users and passwords of their own.
#[derive(Default)]
struct SentinelLogin {
    user: Option<String>,
    password: Option<String>,
}

impl SentinelLogin {
    fn of(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

/// The parameters for every connection, as they were written, and those for the login in Sentinel. `None`: one has a
/// name that only looks like those.
fn split_parameters(query: &str) -> Option<(String, SentinelLogin)> {
    let mut login = SentinelLogin::default();
    let mut others = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sentinel_user" => login.user = Some(decoded(value)),
            "sentinel_password" => login.password = Some(decoded(value)),
            name if name.starts_with("sentinel") => return None,
            _ => others.push(pair),
        }
    }
    Some((others.join("&"), login))
}

/// A value without its percent signs, as in the user and password before a host: a plus is a plus.
fn decoded(value: &str) -> String {
    let url = format!("redis://x/?x={}", value.replace('+', "%2B"));
    let read = reqwest::Url::parse(&url).ok();
    read.and_then(|url| url.query_pairs().next().map(|(_, value)| value.into_owned()))
        .unwrap_or_else(|| value.to_owned())
}

/// Reads a URL: `redis://…`, or `rediss://…` for TLS. The parameters are those of Postgres' URLs
/// and name files in PEM: `sslrootcert` (the authorities to trust instead of the system's),
/// `sslcert` and `sslkey` (Tally's own certificate).
///
/// # Errors
/// When it is no URL of a Redis, or a file cannot be read. When it names files without TLS, or TLS
/// without verification: the connection would not be as protected as the URL says.
fn read_redis(redis_url: &str) -> Result<ConnectionInfo, LiveError> {
    let info = redis_url.into_connection_info().map_err(LiveError::Url)?;
    // redis 1.x leaves Nagle's algorithm on by default. Without it, small calls have less than half
    // the median latency.
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    // Without CLIENT SETINFO: old servers do not know it, and a login may not be allowed to call
    // it.
    let login = info.redis_settings().clone().set_skip_set_lib_name();
    let info = info.set_redis_settings(login);
    let files = Files::read(redis_url)?;
    match info.addr() {
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(LiveError::WrongUrl(
            "#insecure is not taken: it would talk to anyone; sslrootcert names the authority of a certificate"
                .to_owned(),
        )),
        ConnectionAddr::TcpTls { .. } => {
            // redis takes the process' default provider. There is none unless someone sets it, or
            // only one is built in.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = Client::build_with_tls(info, files.load()?).map_err(LiveError::Url)?;
            Ok(client.get_connection_info().clone())
        }
        _ => match files.any() {
            Some(parameter) => Err(LiveError::WrongUrl(format!(
                "{parameter} is for TLS, and this URL is for Redis without it; write rediss://"
            ))),
            None => Ok(info),
        },
    }
}

/// The files that a URL names.
#[derive(Default)]
struct Files {
    sslrootcert: Option<String>,
    sslcert: Option<String>,
    sslkey: Option<String>,
}

impl Files {
    fn read(redis_url: &str) -> Result<Self, LiveError> {
        let mut files = Self::default();
        // redis has read the URL already.
        let Ok(url) = reqwest::Url::parse(redis_url) else {
            return Ok(files);
        };
        for (name, value) in url.query_pairs() {
            let file = match &*name {
                "sslrootcert" => &mut files.sslrootcert,
                "sslcert" => &mut files.sslcert,
                "sslkey" => &mut files.sslkey,
                name if name.starts_with("ssl") => {
                    return Err(LiveError::WrongUrl(
                        "of TLS it takes sslrootcert, sslcert and sslkey; rediss:// always verifies"
                            .to_owned(),
                    ));
                }
                _ => continue,
            };
            *file = Some(value.into_owned());
        }
        Ok(files)
    }

    fn any(&self) -> Option<&'static str> {
        let named = [
            ("sslrootcert", &self.sslrootcert),
            ("sslcert", &self.sslcert),
            ("sslkey", &self.sslkey),
        ];
        named
            .into_iter()
            .find(|(_, file)| file.is_some())
            .map(|(name, _)| name)
    }

    fn load(&self) -> Result<TlsCertificates, LiveError> {
        let certificates =
            |name: &str, path: &str| tls::certificates(name, path).map_err(LiveError::WrongUrl);
        let client_tls = match (&self.sslcert, &self.sslkey) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: certificates("sslcert", certificate)?,
                client_key: tls::file("sslkey", key).map_err(LiveError::WrongUrl)?,
            }),
            _ => {
                return Err(LiveError::WrongUrl("sslcert and sslkey go together".to_owned()));
            }
        };
        let root_cert = self.sslrootcert.as_ref();
        Ok(TlsCertificates {
            client_tls,
            root_cert: root_cert
                .map(|path| certificates("sslrootcert", path))
                .transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        match read(url) {
            Ok(_) => panic!("{url} is read"),
            Err(error) => error.to_string(),
        }
    }

    fn sentinels(url: &str) -> SentinelAddress {
        match read(url).expect("a URL") {
            Address::Sentinels(address) => *address,
            Address::Redis(_) | Address::Cluster(_) => panic!("{url} leads to no Sentinels"),
        }
    }

    #[test]
    fn a_url_that_would_not_protect_what_it_names_is_refused() {
        for (url, words) in [
            ("rediss://localhost/#insecure", "#insecure is not taken"),
            ("rediss://localhost/?sslmode=disable", "rediss:// always verifies"),
            ("redis://localhost/?sslrootcert=/x", "write rediss://"),
            ("redis://localhost/?sslkey=/x", "write rediss://"),
            (
                "rediss://localhost/?sslrootcert=/no/such/file",
                "cannot read /no/such/file",
            ),
            (
                "rediss://localhost/?sslrootcert=/dev/null",
                "it is a device, not a file",
            ),
            (
                "rediss://localhost/?sslrootcert=Cargo.toml",
                "takes certificates in PEM",
            ),
            ("rediss://localhost/?sslcert=/dev/null", "go together"),
        ] {
            let said = refusal(url);
            assert!(
                said.contains(words) && said.contains("REDIS_URL"),
                "{url}: {said}"
            );
        }
    }

    #[test]
    fn tls_is_what_the_scheme_says() {
        for (url, is_tls) in [
            ("redis://server:secret@localhost:6379/0", false),
            ("rediss://server:secret@localhost:6379/0", true),
        ] {
            let info = read_redis(url).expect("a URL");
            assert_eq!(matches!(info.addr(), ConnectionAddr::TcpTls { .. }), is_tls);
            assert_eq!(info.redis_settings().username(), Some("server"));
        }
    }

    #[test]
    fn sentinels_the_primarys_name_and_both_logins_are_read() {
        let read = sentinels(
            "redis+sentinel://server:a%40b@h1,h2:26380,[::1],[::2]:7/main-1/3?sentinel_user=asks&sentinel_password=c%20+d&protocol=resp3",
        );
        let addresses: Vec<String> = read.sentinels.iter().map(|one| one.addr().to_string()).collect();
        assert_eq!(addresses, ["h1:26379", "h2:26380", "::1:26379", "::2:7"]);
        assert_eq!(read.name, "main-1");
        let primary = read.primary.redis_settings();
        assert_eq!(
            (primary.username(), primary.password()),
            (Some("server"), Some("a@b"))
        );
        assert_eq!(primary.db(), 3);
        for sentinel in &read.sentinels {
            let settings = sentinel.redis_settings();
            assert_eq!(
                (settings.username(), settings.password()),
                (Some("asks"), Some("c +d"))
            );
            assert_eq!((settings.db(), settings.protocol()), (0, primary.protocol()));
        }
        let without_login = sentinels("redis+sentinel://h/x");
        let settings = without_login.sentinels[0].redis_settings();
        assert_eq!((settings.username(), settings.password()), (None, None));
        let with_tls = sentinels("rediss+sentinel://h/x");
        for info in [&with_tls.sentinels[0], &with_tls.primary] {
            assert!(matches!(info.addr(), ConnectionAddr::TcpTls { .. }));
        }
    }

    #[test]
    fn a_wrong_url_of_sentinels_is_refused_with_how_it_looks() {
        let too_many = format!("redis+sentinel://{}/x", ["h"; SENTINELS_LIMIT + 1].join(","));
        for (url, words) in [
            ("redis+sentinel://h1,h2", "the name of the primary is missing"),
            ("redis+sentinel://h1,h2/", "the name of the primary is missing"),
            ("redis+sentinel://h1,h2/my master", "letters, digits and . _ -"),
            ("redis+sentinel://h1,,h2/x", "a host is missing"),
            ("redis+sentinel:///x", "a host is missing"),
            ("redis+sentinel://h/x#y", "is not taken"),
            (
                "redis+sentinel://h/x?sentinel_passwrod=y",
                "sentinel_user and sentinel_password",
            ),
            (too_many.as_str(), "more than 16 hosts"),
            ("redis+sentinel://h:port/x", "no port"),
            ("redis+sentinel://h1,::1/x", "a host is missing"),
            ("redis+sentinel://h/x/y", "REDIS_URL"),
            ("redis+sentinel://h/x?sslkey=/x", "write rediss://"),
        ] {
            let said = refusal(url);
            assert!(
                said.contains(words) && said.contains("REDIS_URL"),
                "{url}: {said}"
            );
        }
    }

    #[test]
    fn the_nodes_of_a_cluster_have_one_login_and_the_port_of_redis_unless_one_is_given() {
        let Ok(Address::Cluster(nodes)) = read("redis+cluster://ada:secret@h1,h2:7000,[::1]:7001/") else {
            panic!("no Cluster is read");
        };
        let places: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        assert_eq!(places, ["h1:6379", "h2:7000", "::1:7001"]);
        for node in &nodes {
            let login = node.redis_settings();
            assert_eq!(
                (login.username(), login.password()),
                (Some("ada"), Some("secret"))
            );
        }
    }

    #[test]
    fn a_wrong_url_of_a_cluster_is_refused_with_its_form() {
        for (url, words) in [
            ("redis+cluster://h1,h2/1", "only the database 0"),
            ("redis+cluster://h1,h2/name", "only the database 0"),
            ("redis+cluster://", "a host is missing"),
            ("redis+cluster://h1,,h2", "a host is missing"),
            ("redis+cluster://h1:port", "no port"),
            ("redis+cluster://h1#x", "is not taken"),
            ("redis+cluster://h1/?sslkey=/x", "write rediss://"),
        ] {
            let said = refusal(url);
            assert!(
                said.contains(words) && said.contains("REDIS_URL"),
                "{url}: {said}"
            );
        }
    }
}
