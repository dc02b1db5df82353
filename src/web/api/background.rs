//! What a server does for an operator in the background: voidings, and edits of voters.

use crate::domain::{VoidingId, VoterEditId};
use crate::ledger::OperatorLedger;
use crate::live::Redis;
use crate::votes::{self, Direction, VoidingError, VoterEditError};
use crate::web::api::runner::{Ended, Work};
use crate::web::problem::Kind;

/// A voiding that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningVoiding(pub VoidingId, pub Direction);

impl Work for RunningVoiding {
    const WHAT: &str = "voiding";
    const UNDER_WAY: Kind = Kind::VoidingUnderWay;

    fn id(self) -> i64 {
        self.0.0
    }

    async fn run(self, ledger: OperatorLedger, redis: Redis, stop: impl Future<Output = ()> + Send) -> Ended {
        match votes::run_voiding(&ledger, &redis, self.0, self.1, stop, |_| {}).await {
            Ok(_) => Ended::Done,
            Err(VoidingError::Stopped) => Ended::Stopped,
            Err(error) => Ended::Failed(error.into()),
        }
    }
}

/// An edit of a voter that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningEdit(pub VoterEditId);

impl Work for RunningEdit {
    const WHAT: &str = "edit of a voter";
    const UNDER_WAY: Kind = Kind::VoterEditUnderWay;

    fn id(self) -> i64 {
        self.0.0
    }

    async fn run(self, ledger: OperatorLedger, redis: Redis, stop: impl Future<Output = ()> + Send) -> Ended {
        match votes::run_voter_edit(&ledger, &redis, self.0, stop, |_| {}).await {
            Ok(_) => Ended::Done,
            Err(VoterEditError::Stopped) => Ended::Stopped,
            Err(error) => Ended::Failed(error.into()),
        }
    }
}
