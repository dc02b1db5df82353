//! The table of problem types. docs/problems.md has a section for each slug.

use actix_web::http::StatusCode;

/// One line for each problem type: its name here, its status, its slug, its title.
macro_rules! kinds {
    ($($name:ident = $status:ident, $slug:literal, $title:literal;)+) => {
        /// A problem type (RFC 9457): what went wrong, for programs to compare. Its address is the `type` of
        /// an answer. docs/problems.md explains each type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($name,)+
        }

        impl Kind {
            /// All problem types.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The type's name in addresses, and the heading of its section in docs/problems.md.
            pub fn slug(self) -> &'static str {
                match self {
                    $(Self::$name => $slug,)+
                }
            }

            /// The `type` of an answer, relative to the server that sends it.
            pub fn address(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("/problems/", $slug),)+
                }
            }

            /// The title, which is the same in each answer of the type.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)+
                }
            }

            /// The status of each answer of the type.
            pub fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)+
                }
            }
        }
    };
}

kinds! {
    // The request.
    Malformed = BAD_REQUEST, "malformed", "Malformed request";
    NotFound = NOT_FOUND, "not-found", "Not found";
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed";
    BodyTooSlow = REQUEST_TIMEOUT, "body-too-slow", "Body too slow";
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body-too-large", "Body too large";
    BatchTooLarge = PAYLOAD_TOO_LARGE, "batch-too-large", "Batch too large";
    UnsupportedContentType = UNSUPPORTED_MEDIA_TYPE, "unsupported-content-type", "Unsupported content type";
    InvalidValue = UNPROCESSABLE_ENTITY, "invalid-value", "Invalid value";
    FormatNotOffered = NOT_IMPLEMENTED, "format-not-offered", "Format not offered";
    // Who sends the request.
    CredentialMissing = UNAUTHORIZED, "credential-missing", "Credential missing";
    CredentialNotValid = UNAUTHORIZED, "credential-not-valid", "Credential not valid";
    TokenExpired = UNAUTHORIZED, "token-expired", "Token expired";
    NotAllowed = FORBIDDEN, "not-allowed", "Not allowed";
    NotYourVote = FORBIDDEN, "not-your-vote", "Not your vote";
    OperatorLogin = FORBIDDEN, "operator-login", "Operator's login needed";
    ForeignOrigin = FORBIDDEN, "foreign-origin", "Foreign origin";
    Throttled = TOO_MANY_REQUESTS, "throttled", "Throttled";
    TooManyStreamsOfAddress = TOO_MANY_REQUESTS, "too-many-streams-of-address", "Too many streams of one address";
    TooManyListsOfAddress = TOO_MANY_REQUESTS, "too-many-lists-of-address", "Too many lists of one address";
    // What the request names.
    UnknownItem = NOT_FOUND, "unknown-item", "Unknown item";
    UnknownPoll = NOT_FOUND, "unknown-poll", "Unknown poll";
    UnknownApiKey = NOT_FOUND, "unknown-api-key", "Unknown API key";
    UnknownVoiding = NOT_FOUND, "unknown-voiding", "Unknown voiding";
    UnknownVoterEdit = NOT_FOUND, "unknown-voter-edit", "Unknown edit of a voter";
    UnknownVote = NOT_FOUND, "unknown-vote", "Unknown vote";
    OtherCell = MISDIRECTED_REQUEST, "other-cell", "Other cell";
    NoVoter = NOT_FOUND, "no-voter", "No voter";
    NoVote = NOT_FOUND, "no-vote", "No vote";
    // A rule.
    Full = CONFLICT, "full", "Full";
    NotOpenYet = CONFLICT, "not-open-yet", "Not open yet";
    Closed = CONFLICT, "closed", "Closed";
    TooManyChoices = CONFLICT, "too-many-choices", "Too many choices";
    TooManyChanges = CONFLICT, "too-many-changes", "Too many changes";
    ValueNotTaken = UNPROCESSABLE_ENTITY, "value-not-taken", "Value not taken";
    VoterMissing = UNPROCESSABLE_ENTITY, "voter-missing", "Voter missing";
    NotInPoll = UNPROCESSABLE_ENTITY, "not-in-poll", "Not in the poll";
    BallotMissing = UNPROCESSABLE_ENTITY, "ballot-missing", "Ballot missing";
    BallotNotTaken = UNPROCESSABLE_ENTITY, "ballot-not-taken", "Ballot not taken";
    BallotNotValid = CONFLICT, "ballot-not-valid", "Ballot not valid";
    // A key, or an edit.
    IdempotencyKeyReused = UNPROCESSABLE_ENTITY, "key-reused", "Idempotency key reused";
    KeyTaken = CONFLICT, "key-taken", "Key taken";
    NeverChanges = UNPROCESSABLE_ENTITY, "never-changes", "Never changes";
    // An operator's act.
    VoidingNotDone = CONFLICT, "voiding-not-done", "Voiding not done";
    VoidingUnderWay = CONFLICT, "voiding-under-way", "Voiding under way";
    VoterEditUnderWay = CONFLICT, "voter-edit-under-way", "Edit of a voter under way";
    // The server.
    VoteNotStored = SERVICE_UNAVAILABLE, "vote-not-stored", "Vote not stored";
    VoteUnconfirmed = SERVICE_UNAVAILABLE, "vote-unconfirmed", "Vote unconfirmed";
    Unavailable = SERVICE_UNAVAILABLE, "unavailable", "Unavailable";
    TooManyConnections = SERVICE_UNAVAILABLE, "too-many-connections", "Too many connections";
    TooManyStreams = SERVICE_UNAVAILABLE, "too-many-streams", "Too many streams";
    TooManyLists = SERVICE_UNAVAILABLE, "too-many-lists", "Too many lists";
    OlderServers = SERVICE_UNAVAILABLE, "older-servers", "Older servers";
    NotReady = SERVICE_UNAVAILABLE, "not-ready", "Not ready";
    Internal = INTERNAL_SERVER_ERROR, "internal", "Internal error";
}
