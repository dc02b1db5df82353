//! TLS to the stores: the files that a URL names. Also says why a store is refused, in words for an
//! operator.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, InvalidMessage};

use crate::files;

/// The largest file of certificates or keys. A system's bundle of authorities has a quarter of a megabyte.
const FILE_LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// Reads the certificate file that a URL names in this parameter. Checks that it holds some.
/// Without this check, a store would be refused for its certificate, since no authority is trusted.
///
/// # Errors
/// When it cannot be read, or holds no certificate in PEM.
pub fn certificates(parameter: &str, path: &str) -> Result<Vec<u8>, String> {
    let bytes = file(parameter, path)?;
    let is_one = |one: Result<CertificateDer<'_>, _>| one.is_ok();
    let mut found = CertificateDer::pem_slice_iter(&bytes).map(is_one).peekable();
    if found.peek().is_some() && found.all(|one| one) {
        Ok(bytes)
    } else {
        Err(format!("{parameter}: {path} takes certificates in PEM"))
    }
}

/// Reads a file that a URL names in this parameter.
///
/// # Errors
/// When it cannot be read, or is no file of text.
pub fn file(parameter: &str, path: &str) -> Result<Vec<u8>, String> {
    files::read(Path::new(path), FILE_LIMIT_BYTES).map_err(|error| format!("{parameter}: {error}"))
}

/// What is wrong with a store that should speak TLS. Waiting does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    #[error(
        "no authority that is trusted here has signed its certificate; name the file of the authority \
         that has: sslrootcert in the URL"
    )]
    UnknownAuthority,
    #[error("its certificate is for another name than the host in the URL")]
    OtherName,
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet")]
    NotYetValid,
    #[error("its certificate is not valid: {0}")]
    Certificate(String),
    #[error("it does not speak TLS, which the URL asks for")]
    NoTls,
    #[error("it wants a certificate of Tally's own: sslcert and sslkey in the URL name its files")]
    ClientCertificate,
}

impl TlsFault {
    /// The fault within this error, however deep; `None`: there is none.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        Some(match cause(error)? {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            // The store answers in its own protocol.
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NoTls,
            rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired) => {
                Self::ClientCertificate
            }
            _ => return None,
        })
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer => Self::UnknownAuthority,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            // The key of another authority with the same name.
            CertificateError::BadSignature => Self::UnknownAuthority,
            other => Self::Certificate(other.to_string()),
        }
    }
}

/// The error of rustls within this one.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    /// The form in which redis keeps causes.
    type Shared = Arc<dyn Error + Send + Sync>;
    let mut error = error;
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // These two types name as their source not the error that they hold, but its source.
        let held: Option<&'a (dyn Error + 'static)> = if let Some(shared) = error.downcast_ref::<Shared>() {
            Some(&**shared)
        } else if let Some(held) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(held)
        } else {
            None
        };
        error = held.or_else(|| error.source())?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_however_the_stores_crates_wrap_it() {
        let expired = || rustls::Error::InvalidCertificate(CertificateError::Expired);
        let in_io = || io::Error::new(io::ErrorKind::InvalidData, expired());
        for error in [
            Box::new(expired()) as Box<dyn Error>,
            Box::new(in_io()),
            Box::new(sqlx::Error::Io(in_io())),
            Box::new(sqlx::Error::Tls(Box::new(expired()))),
            Box::new(redis::RedisError::from(in_io())),
            Box::new(redis::RedisError::from(expired())),
        ] {
            assert_eq!(TlsFault::of(&*error), Some(TlsFault::Expired), "{error:?}");
        }
        let other = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        assert_eq!(TlsFault::of(&sqlx::Error::Io(other)), None);
    }
}
