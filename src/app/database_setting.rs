//! Which setting an error of Postgres is about. The ledger knows URLs, and not where they are from.

use crate::ledger::LedgerError;
use crate::sync::SyncError;

/// Names DATABASE_URL before an error that is about the database or its URL.
pub(super) fn named(error: anyhow::Error) -> anyhow::Error {
    let is_about_database = error
        .chain()
        .filter_map(|cause| match cause.downcast_ref() {
            Some(SyncError::Ledger(error)) => Some(error),
            _ => cause.downcast_ref(),
        })
        .any(LedgerError::is_about_database);
    if is_about_database {
        error.context("DATABASE_URL")
    } else {
        error
    }
}

/// Names the setting before an error of the operator's login of a server.
pub(super) fn named_operator(error: LedgerError) -> anyhow::Error {
    // As a text: the ledger's error in it would be named again.
    anyhow::anyhow!("TALLY_OPERATOR_DATABASE_URL: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{InvalidDatabaseUrl, UnfitDatabase};
    use crate::telemetry::one_line;
    use crate::votes::VoidingError;

    fn standby() -> LedgerError {
        UnfitDatabase::Standby.into()
    }

    #[test]
    fn an_error_about_the_database_names_its_setting_once() {
        let errors: [anyhow::Error; 4] = [
            standby().into(),
            SyncError::from(standby()).into(),
            VoidingError::from(standby()).into(),
            anyhow::Error::from(standby()).context("tally void"),
        ];
        for error in errors {
            let line = one_line(&named(error));
            assert!(line.starts_with("DATABASE_URL: "), "{line}");
            assert_eq!(line.matches("DATABASE_URL").count(), 1, "{line}");
            assert_eq!(line.matches("is a standby").count(), 1, "{line}");
        }
    }

    #[test]
    fn an_error_of_the_operators_login_names_its_own_setting() {
        let wrong = InvalidDatabaseUrl::Tls("sslrootcert: cannot read x".to_owned());
        let line = one_line(&named(named_operator(wrong.into())));
        assert_eq!(line, "TALLY_OPERATOR_DATABASE_URL: sslrootcert: cannot read x");
    }

    #[test]
    fn an_error_about_something_else_names_no_setting() {
        let errors: [anyhow::Error; 2] = [
            LedgerError::KeyTaken.into(),
            SyncError::from(LedgerError::OlderServers).into(),
        ];
        for error in errors {
            let line = one_line(&named(error));
            assert!(!line.contains("DATABASE_URL"), "{line}");
        }
    }
}
