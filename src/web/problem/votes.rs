//! Problems of requests that vote.

use crate::votes::CastError;
use crate::web::problem::Problem;

/// A problem of a request that votes. A vote that was sent to be stored says whether it is stored. Anything
/// else goes wrong before that, so no vote of the request is stored, and the problem says so.
#[derive(Debug)]
pub struct VoteProblem(Problem);

impl From<Problem> for VoteProblem {
    fn from(problem: Problem) -> Self {
        Self(problem.without_vote())
    }
}

impl From<CastError> for VoteProblem {
    fn from(error: CastError) -> Self {
        Self(error.into())
    }
}

impl From<VoteProblem> for Problem {
    fn from(problem: VoteProblem) -> Self {
        problem.0
    }
}

impl From<VoteProblem> for actix_web::Error {
    fn from(problem: VoteProblem) -> Self {
        problem.0.into()
    }
}
