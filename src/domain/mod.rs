//! Types and rules that every module shares. No I/O.

mod access;
mod act;
mod address;
mod archive;
mod ballot;
mod cell;
mod count;
mod edit;
mod event;
mod history;
mod host_list;
mod id;
mod idempotency;
mod import;
mod item;
mod moment;
mod name;
mod owner;
mod poll;
mod postgres_run;
mod reference;
mod revision;
mod rule;
mod secret_keys;
mod snapshot;
mod text;
mod throttle;
mod top;
mod voiding;
mod vote;
mod voted_on;
mod voter_edit;

pub use access::{
    API_KEY_NAME_LIMIT_CHARACTERS, API_KEY_PREFIX, ApiKey, ApiKeyHash, ApiKeyId, ApiKeyInfo,
    InvalidApiKeyName, NewApiKey, OpenTo, Scope, Scopes, check_api_key_name,
};
pub use act::{Act, ActKind, ActOutcome, Actor, NewAct, TrailFilter, Who};
pub use address::{AddressHash, AddressKeys, client_network};
pub use archive::{Archive, ArchiveId, ArchiveState, ArchivedVotes, CheckedFile};
pub use ballot::{BALLOT_BYTES, Ballot, BallotHash};
pub use cell::{CELLS_LIMIT, Cell, Cells, InvalidCell, OtherCell};
pub use count::{Count, CountDelta, CountToSave, ExactCount};
pub use edit::{Edit, EditRefusal, TimeEdits};
pub use event::{Event, EventId, EventState, Thresholds};
pub use history::{History, HistoryOver, ItemHistory, Span};
pub use host_list::{HostList, InvalidHostList};
pub use id::{ItemId, PollId};
pub use idempotency::{Digest, IdempotencyKey};
pub use import::{Import, ImportId, ImportedVote};
pub use item::{Item, NewItem};
pub use moment::{InvalidMoment, Moment};
pub use name::{InvalidItemKey, InvalidItemName, ItemKey, ItemKeyPrefix, ItemName};
pub use owner::Owner;
pub use poll::{AddedChoice, CHOICES_LIMIT_ITEMS, ChoiceRefusal, NewPoll, Poll, PollState};
pub use postgres_run::{Found, PostgresRun};
pub use reference::{InvalidReference, Reference};
pub use revision::{RedisTime, Revision};
pub use rule::{ItemRules, Refusal};
pub use secret_keys::SecretKeys;
pub use snapshot::{InvalidSnapshot, RUNNING_LIMIT_TRANSACTIONS, Snapshot, TransactionId};
pub use text::{is_invisible, without_wrapping, wrapping};
pub use throttle::{
    Full, INTERVAL_LIMIT, THROTTLES_LIMIT, Throttle, ThrottledBy, Throttles, Window, Windows,
};
pub use top::{TopBy, TopItem, TopKind, TopList, TopOf, TopOver};
pub use voiding::{InvalidReason, REASON_LIMIT_CHARACTERS, Voiding, VoidingId, VoteFilter, check_reason};
pub use vote::{
    InvalidValue, InvalidVoterId, NewVote, StoredVote, Value, VoteId, VoteOutcome, VoteRequest, VoteSource,
    VoterId,
};
pub use voted_on::VotedOn;
pub use voter_edit::{InvalidVoterEdit, NewVoterEdit, VoterEdit, VoterEditId, VoterEditKind, VoterSummary};
