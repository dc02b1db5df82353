//! The problems for errors of the votes, the counts and the ledger.

use crate::admission::AdmissionRefusal;
use crate::counts::ReadError;
use crate::domain::{EditRefusal, PollId, Refusal};
use crate::ledger::LedgerError;
use crate::telemetry::trouble;
use crate::votes::CastError;
use crate::web::problem::{Kind, NOT_STORED, Problem, Stored};

impl From<AdmissionRefusal> for Problem {
    fn from(refused: AdmissionRefusal) -> Self {
        match refused {
            AdmissionRefusal::Throttled { throttle, left } => Self::throttled(throttle, left),
            AdmissionRefusal::Busy => CastError::QueueFull.into(),
        }
    }
}

impl Problem {
    /// Makes the problem of a vote that its item does not take. Nothing is stored.
    pub fn refused(refusal: Refusal) -> Self {
        let (kind, detail, hint) = match refusal {
            Refusal::Full => (
                Kind::Full,
                "All places are taken. One is free again when someone takes a vote back.",
                "The item has max_votes votes.",
            ),
            Refusal::NotOpenYet => (
                Kind::NotOpenYet,
                "Voting has not opened yet.",
                "It opens at opens_at, which GET shows.",
            ),
            Refusal::Closed => (
                Kind::Closed,
                "Voting has closed.",
                "It closed at closes_at, which GET shows. A repeat of a vote that the voter holds still gets 200.",
            ),
            Refusal::TooManyChoices => (
                Kind::TooManyChoices,
                "You have chosen as many as you may. Take a choice back first.",
                "The voter would hold more choices than the poll's max_choices. PUT \
                 /v1/polls/{id}/votes/{voter_id} sets the whole selection.",
            ),
            Refusal::TooManyChanges => (
                Kind::TooManyChanges,
                "You have changed this vote as often as a vote may be changed. You can still take it back.",
                "Each change is two rows, and a voter has at most 1,000 rows on an item.",
            ),
            Refusal::BallotNotValid => (
                Kind::BallotNotValid,
                "This ballot is not valid here: it may be mistyped, used, expired, or for another vote.",
                "On a secret poll a spent ballot looks like an unknown one: after a lost answer it may have bought \
                 its vote.",
            ),
            Refusal::NoBallot => {
                let hint = "ballot is missing: POST /v1/items/{id}/votes with a ballot and without a voter_id. Such votes \
                            cannot be changed or taken back.";
                return Self::for_voters(Kind::BallotMissing, "You need a ballot to vote here.", hint)
                    .on_field("ballot");
            }
            Refusal::BallotUnwanted => return Self::takes_no_ballots(),
            Refusal::VoterUnwanted => {
                return Self::invalid("voter_id", "voter_id is given; a vote with a ballot takes none.");
            }
            Refusal::KeyReused => {
                let detail =
                    "Idempotency-Key was used with another body; send another key with each request.";
                return Self::new(Kind::IdempotencyKeyReused, detail).on_field("Idempotency-Key");
            }
            Refusal::KeyUnwanted => {
                let detail = "Idempotency-Key is given; a secret vote takes none, because the key would be stored with \
                              the vote.";
                return Self::invalid("Idempotency-Key", detail);
            }
            Refusal::NoDownVotes => {
                let detail = "value is -1; this item takes 1.";
                return Self::new(Kind::ValueNotTaken, detail).on_field("value");
            }
            Refusal::NoVoter => {
                let detail = "voter_id is missing; a poll takes votes of voters only.";
                return Self::new(Kind::VoterMissing, detail).on_field("voter_id");
            }
            Refusal::NotInPoll => {
                let detail = "items has an id that is not a choice of this poll; it takes item_ids of the poll's choices.";
                return Self::new(Kind::NotInPoll, detail).on_field("items");
            }
        };
        Self::for_voters(kind, detail, hint)
    }

    /// A ballot for an item or poll that takes votes without one.
    pub fn takes_no_ballots() -> Self {
        let hint = "ballot is given; leave it out. by_ballot is set when an item or a poll is created.";
        Self::for_voters(Kind::BallotNotTaken, "Votes here take no ballot.", hint).on_field("ballot")
    }

    /// Ballots for a choice. They must be created for its poll.
    pub fn choice_has_no_ballots(poll: PollId) -> Self {
        let detail = format!(
            "The item is a choice of poll {poll}; POST /v1/polls/{poll}/ballots creates ballots for the poll."
        );
        Self::new(Kind::BallotNotTaken, detail).on_field("ballot")
    }

    /// The key belongs to another item or poll already.
    pub fn key_taken(detail: impl Into<String>) -> Self {
        Self::new(Kind::KeyTaken, detail).on_field("key")
    }

    /// An edit of a field that never changes, with the reason.
    pub fn never_changes(field: &'static str, why: &str) -> Self {
        Self::new(Kind::NeverChanges, format!("{field} never changes: {why}.")).on_field(field)
    }

    /// An edit that is refused. Nothing of it is stored. `times` is the field that should set a time.
    /// `unknown` makes the problem if the item or poll does not exist.
    pub fn not_edited(refusal: EditRefusal, times: &'static str, unknown: impl FnOnce() -> Self) -> Self {
        match refusal {
            EditRefusal::Unknown => unknown(),
            EditRefusal::Closed => Self::new(
                Kind::Closed,
                "Voting has closed and the counts are final; it cannot be opened again.",
            ),
            EditRefusal::Order => Self::invalid(times, "closes_at would not be after opens_at."),
            EditRefusal::Plain => Self::never_changes(
                times,
                "the item was created without a rule, and servers remember that its votes need no decision; \
                 create one with opens_at or closes_at",
            ),
            EditRefusal::Choice => Self::never_changes(
                times,
                "the item is a choice, and its poll has the times; edit the poll",
            ),
            EditRefusal::SameChoice => Self::invalid(
                "name",
                "name is that of another choice of the poll; it takes another name.",
            ),
            EditRefusal::HiddenResults => Self::invalid(
                "closes_at",
                "closes_at is null; it takes a time, because the poll hides its results until it closes.",
            ),
        }
    }
}

/// Logs the cause, because nobody has logged it before.
impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        if matches!(error, LedgerError::OlderServers) {
            let detail = "Servers of a version without rules are connected; stop them and try again.";
            return Self::new(Kind::OlderServers, detail);
        }
        if let LedgerError::VoterEditUnderWay(id) = error {
            let detail = format!(
                "The edit {id} of this voter is not done; POST /v1/voter-edits/{id}/resume resumes it."
            );
            return Self::new(Kind::VoterEditUnderWay, detail);
        }
        if let LedgerError::OtherCell(other) = &error {
            return Self::other_cell(other);
        }
        trouble!(error, %error; "the ledger did not answer a request");
        Self::unavailable("The database is unavailable.")
    }
}

/// The batch writer has logged the cause, once for the batch.
impl From<CastError> for Problem {
    fn from(error: CastError) -> Self {
        let (stored, hint) = match error {
            CastError::QueueFull => (Stored::No, "Too many votes are waiting."),
            CastError::Closing => (Stored::No, "The server is shutting down."),
            CastError::NotStored => (Stored::No, "The database did not take the vote."),
            CastError::OtherRun => (
                Stored::No,
                "The database failed over or was started again while the vote was on its way.",
            ),
            CastError::Busy => (Stored::No, "Other requests of this voter kept coming first."),
            CastError::UnresolvedRepeat => (
                Stored::No,
                "This voter has voted on this item before, and the database did not say which vote this one repeats.",
            ),
            CastError::Unconfirmed => (
                Stored::Unknown,
                "The database did not confirm the vote. With a voter_id, an Idempotency-Key or a ballot a retry is safe: \
                 the vote counts once. Without one it may count twice.",
            ),
        };
        let (kind, detail) = match stored {
            Stored::No => (Kind::VoteNotStored, NOT_STORED),
            Stored::Unknown => (
                Kind::VoteUnconfirmed,
                "It is not certain yet whether the vote is stored. Try again in a moment.",
            ),
        };
        Self::for_voters(kind, detail, hint).of_vote(stored)
    }
}

/// The reader's task has logged the cause, once for the batch.
impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        Self::unavailable(match error {
            ReadError::QueueFull => "Too many reads are waiting.",
            ReadError::LedgerUnavailable => "The database is unavailable.",
            ReadError::Closing => "The server is shutting down.",
        })
    }
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError;
    use actix_web::http::StatusCode;
    use actix_web::http::header::{self, HeaderValue};

    use super::*;
    use crate::domain::Scope;

    #[test]
    fn what_reaches_a_voter_has_no_names_of_fields_requests_or_settings() {
        let refusals = [
            Refusal::Full,
            Refusal::NotOpenYet,
            Refusal::Closed,
            Refusal::TooManyChoices,
            Refusal::TooManyChanges,
            Refusal::BallotNotValid,
            Refusal::NoBallot,
            Refusal::BallotUnwanted,
        ];
        let errors = [
            CastError::QueueFull,
            CastError::Closing,
            CastError::NotStored,
            CastError::OtherRun,
            CastError::Busy,
            CastError::UnresolvedRepeat,
            CastError::Unconfirmed,
        ];
        let throttle = |text: &str| text.parse().expect("a throttle");
        let left = std::time::Duration::from_secs(7);
        let others = [
            ReadError::QueueFull.into(),
            Problem::unknown_item("key:post-42"),
            Problem::unknown_poll(7),
            Problem::credential_missing(Scope::Vote),
            Problem::takes_no_tokens(),
            Problem::token_not_valid("its aud is \"shop\"; this server takes \"votes\""),
            Problem::cookie_not_valid(),
            Problem::token_expired(),
            Problem::not_your_vote(),
            Problem::voter_not_allowed(Scope::Admin),
            Problem::throttled(throttle("voter:5/60s"), left),
            Problem::throttled(throttle("address:5/60s"), left),
            Problem::throttled(throttle("item:5/60s"), left),
            Problem::foreign_origin(),
            Problem::no_free_connection(),
            Problem::internal(),
            Problem::unavailable("The database is unavailable.").without_vote(),
        ];
        let refusals = refusals.into_iter().map(Problem::refused);
        for problem in refusals
            .chain(errors.into_iter().map(Problem::from))
            .chain(others)
        {
            let body: serde_json::Value = serde_json::from_str(&problem.body()).expect("JSON");
            let (detail, hint) = (&body["detail"], &body["hint"]);
            let (detail, hint) = (detail.as_str().expect("a detail"), hint.as_str().expect("a hint"));
            for name in [
                "_", "GET", "PUT", "POST", "TALLY", "Bearer", "database", "items", "/",
            ] {
                assert!(!detail.contains(name), "{name}: {detail}");
            }
            assert!(detail.ends_with('.') && hint.ends_with('.'), "{body}");
        }
    }

    #[test]
    fn every_refusal_of_a_vote_says_whether_the_vote_is_stored() {
        for (error, kind, stored) in [
            (CastError::QueueFull, Kind::VoteNotStored, "no"),
            (CastError::Closing, Kind::VoteNotStored, "no"),
            (CastError::NotStored, Kind::VoteNotStored, "no"),
            (CastError::OtherRun, Kind::VoteNotStored, "no"),
            (CastError::Busy, Kind::VoteNotStored, "no"),
            (CastError::UnresolvedRepeat, Kind::VoteNotStored, "no"),
            (CastError::Unconfirmed, Kind::VoteUnconfirmed, "unknown"),
        ] {
            let problem = Problem::from(error);
            let response = problem.error_response();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{error}");
            assert_eq!(
                response.headers().get(header::RETRY_AFTER),
                Some(&HeaderValue::from_static("1")),
                "{error}"
            );
            let body: serde_json::Value = serde_json::from_str(&problem.body()).expect("JSON");
            assert_eq!(
                (&body["type"], &body["title"], &body["stored"]),
                (&kind.address().into(), &kind.title().into(), &stored.into()),
                "{error}"
            );
        }
    }
}
