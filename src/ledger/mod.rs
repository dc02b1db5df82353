//! Postgres: the ledger, the items, and the audit's sums. All SQL is here, long statements in
//! `sql/`.
//!
//! Each role that logs in has a handle with only its own statements: [`ServerLedger`]
//! (`tally_server`), [`WorkerLedger`] (`tally_worker`), [`OperatorLedger`] (`tally_operator`), and
//! [`OwnerLedger`] for the login that owns the tables. `migrations/roles.sql` grants the roles what
//! these statements need.

mod archives;
mod connect;
mod dedicated;
mod destination;
mod error;
mod events;
mod exact_counts;
mod exports;
mod fitness;
mod hosts;
mod identity;
mod imports;
mod losses;
mod lost_waits;
mod operator;
mod owner;
mod pool;
mod promotions;
mod runs;
mod safe_commit;
mod safe_vote_id;
mod server;
mod session;
mod settings;
mod trail;
mod voter_edits;
mod worker;

pub use archives::{ArchiveLedger, BegunArchive, DroppedChunk, VotesToArchive};
pub(crate) use connect::IDLE_TRANSACTION_LIMIT;
pub use connect::{
    ACQUIRE_LIMIT, ANSWER_MARGIN, CHECK_LIMIT, OPERATOR_POOL_LIMIT_CONNECTIONS, POOL_LIMIT_CONNECTIONS,
    PROBE_POOL_LIMIT_CONNECTIONS, PUBLIC_POOL_LIMIT_CONNECTIONS, PUBLIC_STATEMENT_LIMIT,
    SERVER_POOL_LIMIT_CONNECTIONS, SERVER_STATEMENT_LIMIT, WORKER_STATEMENT_LIMIT, Writes, answers,
};
pub use error::{InvalidDatabaseUrl, LedgerError, OtherRun, Overtaken, UnfitDatabase};
pub use events::RESEND_LIMIT_EVENTS;
pub use exact_counts::TailProgress;
pub use exports::{ExportFormat, ExportTable, Snapshot, SnapshotFacts};
pub use imports::{Created, ImportOfFileError, ImportSource, NewImport};
pub use losses::{Losses, LostOfItem};
pub use operator::{OperatorLedger, VotesToVoid};
pub use owner::{
    Migrated, OwnerLedger, Partitioned, RANGE_LEAST_IDS, Role, Roles, create_database, create_logins,
};
pub use safe_vote_id::{DECIDE_LIMIT, SafeVoteId};
pub use server::{
    AddedBallots, BatchUnderWay, DecidedBatch, Decision, EditedChunk, FoundApiKey, Fullness, HeldVote,
    ImportChunk, ImportOutcome, InsertError, InsertedBatch, ItemFacts, ItemReader, JobStatus, LedgerRow,
    Listing, Loss, Migrations, ReadyWriter, Receipt, ServerLedger, SetOpen, VoidedChunk, VoteRow, VoteWriter,
    VotesOf, VotesPage, WORKER_ALIVE_LIMIT, WorkerStatus,
};
pub(crate) use server::{FULLNESS_LIMIT, KNOWN_LIMIT_BLOCKS, NAMES_LIMIT_ITEMS};
pub use session::CONNECT_LIMIT;
pub(crate) use settings::WRITER_KEEPALIVE;
pub use voter_edits::{EditInTheWay, RowOfVoter, RowsOfVoter};
pub use worker::{
    ALIVE_LIMIT_SILENCE, AuditRow, BrokenPage, DEADLOCK_LIMIT_TRIES, DueEvent, EVENT_DEAD_AGE,
    EVENT_DELIVERED_AGE, EVENT_LIMIT_AGE, EVENT_LIMIT_REFUSALS, EVENT_LIMIT_WAIT, EndedPass, EpochNumber,
    EventFacts, FailedDelivery, Heartbeat, IDEMPOTENCY_KEY_AGE, ItemSpan, JOB_LEASE_LIFE, Job, JobAttempt,
    JobLease, Moved, NotedEntries, NotedEntry, Noting, Pacing, PostgresFacts, Progress, ROLL_UP_LIMIT_IDS,
    RebuiltCount, RollUpProgress, RunOutcome, SaveOutcome, SavedState, SavingProgress, WORKER_LIMIT_SILENCE,
    WorkerLedger, WriterProgress,
};
pub(crate) use worker::{SUM_REST_LIMIT, WRITE_REST_LIMIT};
