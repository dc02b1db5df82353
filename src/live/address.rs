//! The URL of Redis: its address, the login, and the certificates.

use redis::io::tcp::TcpSettings;
use redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use super::LiveError;
use crate::tls;

/// Reads a URL: `redis://…`, or `rediss://…` for TLS. The parameters are those of Postgres' URLs
/// and name files in PEM: `sslrootcert` (the authorities to trust instead of the system's),
/// `sslcert` and `sslkey` (Tally's own certificate).
///
/// # Errors
/// When it is no URL of a Redis, or a file cannot be read. When it names files without TLS, or TLS
/// without verification: the connection would not be as protected as the URL says.
pub(super) fn read(redis_url: &str) -> Result<ConnectionInfo, LiveError> {
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
        ConnectionAddr::TcpTls { insecure: true, .. } => Err(LiveError::TlsUrl(
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
            Some(parameter) => Err(LiveError::TlsUrl(format!(
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
                    return Err(LiveError::TlsUrl(
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
        let certificates = |name: &str, path: &str| tls::certificates(name, path).map_err(LiveError::TlsUrl);
        let client_tls = match (&self.sslcert, &self.sslkey) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: certificates("sslcert", certificate)?,
                client_key: tls::file("sslkey", key).map_err(LiveError::TlsUrl)?,
            }),
            _ => {
                return Err(LiveError::TlsUrl("sslcert and sslkey go together".to_owned()));
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
            Ok(info) => panic!("{url} is read as {info:?}"),
            Err(error) => error.to_string(),
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
            let info = read(url).expect("a URL");
            assert_eq!(matches!(info.addr(), ConnectionAddr::TcpTls { .. }), is_tls);
            assert_eq!(info.redis_settings().username(), Some("server"));
        }
    }
}
