//! Votes: from a request to a row and a live count, many at once (group commit).
//!
//! - `cast`: a vote on its way, and its answer.
//! - `queue`: where requests hand votes in.
//! - `entrance`: the way into a queue.
//! - `unfinished`: a batch on its way to Postgres, whose items become suspect if it is cut off.
//! - `batch_writer`: the task that stores and counts one batch after the other.
//! - `counting_steps`: how a stored batch gets into the live counts, missing ones included.
//! - `backoff`: when exact counts cannot be read in time, and how long nobody tries.
//! - `progress_notes`: notes how far the votes are counted.
//! - `tail_reading`: reads votes beyond the watermark while nobody rolls up.
//! - `losses`: looks for lost votes after a failover.
//! - `batch_counting`: the calls that `counting_steps` asks for.
//! - `full_items`: full items, whose votes a read refuses.
//! - `turns`: of one voter, one request is decided at a time.
//! - `decision_writer`: the writer of votes that need a decision.
//! - `alone`: storing and counting in a program that is no server.
//! - `importing`: stores the votes of a file, chunk after chunk.
//! - `voiding`: takes votes back for an operator, chunk after chunk.
//! - `voter_edits`: gives a voter's votes another voter id, chunk after chunk.
//! - `batch`: a stored batch and the answers that it still owes.
//!
//! Each thread that serves requests has a queue and batch writers of its own. An answer then
//! wakes its request on the same thread. Waking another thread would cost a system call for
//! each vote.

mod alone;
mod backoff;
mod batch;
mod batch_counting;
mod batch_writer;
mod cast;
mod counting_steps;
mod decision_writer;
mod entrance;
mod full_items;
mod importing;
mod losses;
mod progress_notes;
mod queue;
mod tail_reading;
mod turns;
mod unfinished;
mod voiding;
mod voter_edits;

pub use alone::ChunkWriter;
pub use backoff::SeedBackoff;
pub use batch_counting::{COLD_LIMIT, SEED_LIMIT, SEED_READ_LIMIT};
pub use batch_writer::{BATCH_LIMIT_VOTES, BATCH_WRITERS_PER_THREAD};
pub use cast::{Cast, CastError};
pub use counting_steps::{Counting, SEED_LIMIT_ROUNDS, Step};
pub use decision_writer::DECIDE_LIMIT_REQUESTS;
pub use full_items::FULL_LIMIT_ITEMS;
pub use importing::{IMPORT_LIMIT_VOTES, ImportError, Source, run_import};
pub use losses::keep_finding_losses;
pub(crate) use progress_notes::BATCHES_LIMIT;
pub use progress_notes::{NOTE_EVERY, ProgressNotes};
pub use queue::{DECISION_QUEUE_LIMIT_REQUESTS, QUEUE_LEAST_VOTES, QUEUE_LIMIT_VOTES, QueueOfRun, VoteQueue};
pub use tail_reading::{TAIL_STILL_LIMIT, TailReading};
pub use turns::AGAIN_LIMIT;
pub use voiding::{Direction, VoidingError, run_voiding};
pub use voter_edits::{VoterEditError, run_voter_edit};
