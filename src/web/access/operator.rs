//! The operator's Postgres login. It voids votes, creates API keys and reads the trail. A server's own login
//! may do none of these.

use std::future::pending;

use crate::domain::Actor;
use crate::ledger::{LedgerError, OperatorLedger};
use crate::web::problem::{Kind, Problem};

/// The operator's login of a server, if it has one. Cheap to clone.
#[derive(Clone, Default)]
pub struct OperatorLogin(Option<OperatorLedger>);

impl OperatorLogin {
    pub fn new(ledger: Option<OperatorLedger>) -> Self {
        Self(ledger)
    }

    /// Returns whether the server has an operator's login.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Finds a standby that is promoted while the old primary still answers. Never ends.
    pub async fn keep_finding_promotions(self) {
        match self.0 {
            Some(ledger) => ledger.as_server().clone().keep_finding_promotions().await,
            None => pending().await,
        }
    }

    /// Returns the ledger for this actor's request, if the server has the login.
    ///
    /// `command` does the same on the command line.
    pub fn ledger_of(&self, actor: Actor, command: &'static str) -> Result<OperatorLedger, Problem> {
        let ledger = self.0.as_ref().map(|ledger| ledger.acting_for(actor));
        ledger.ok_or_else(|| Problem::operator_login_missing(command))
    }
}

impl Problem {
    fn operator_login_missing(command: &'static str) -> Self {
        let detail = format!(
            "This server has no operator's login; set TALLY_OPERATOR_DATABASE_URL, or use {command} on the command \
             line."
        );
        Self::new(Kind::OperatorLogin, detail)
    }

    /// Makes the problem of an operator's statement that failed. Logs the cause.
    pub fn of_operator(error: LedgerError) -> Self {
        if !error.refuses_login() {
            return error.into();
        }
        tracing::error!(%error, "TALLY_OPERATOR_DATABASE_URL: Postgres refuses the login, or its statement");
        let detail = "Postgres refuses the login in TALLY_OPERATOR_DATABASE_URL, or its statement; use a login \
                      in the role tally_operator. The server's log says more.";
        Self::new(Kind::OperatorLogin, detail)
    }
}
