//! The server's statements: the role `tally_server`.
//!
//! - `vote_writer`: a writer's connection, and what holds for each batch.
//! - `plain_votes`, `decisions`, `voiding_chunks`, `voter_chunks`, `importing`: the batches that it stores.
//! - `chunk_deltas`: what the last three add to each item.
//! - `item_kind`: which of these ways an item's votes take.
//! - `known_items`: of which items that is known.
//! - `read_ahead`: reads of whole blocks of items.
//! - `writer_progress`: how far the votes are counted.
//! - `storing`: whether Postgres stores votes.
//! - `looks`: one look at Postgres for all who ask at once.
//! - `acknowledged`: which votes this server acknowledged lately, and which of them were lost.
//! - `item_reader`: many items at once, over a connection of its own.
//! - `full_items`: full items, and the votes that they refuse.
//! - `items`, `item_rows`, `polls`: what is voted on.
//! - `keys`: own keys, and the idempotency keys of batches.
//! - `edits`, `open_items`, `ballots`, `api_keys`: administrative acts.
//! - `held_votes`, `receipts`: what became of votes.
//! - `history`, `top`: recent changes, and the items that come first.
//! - `votes_of`: the ledger of an item or a poll, for reports.
//! - `status`: workers and jobs.

mod acknowledged;
mod api_keys;
mod ballots;
mod chunk_deltas;
mod decisions;
mod edits;
mod full_items;
mod held_votes;
mod history;
mod importing;
mod item_kind;
mod item_reader;
mod item_rows;
mod items;
mod keys;
mod known_items;
mod looks;
mod open_items;
mod plain_votes;
mod polls;
mod read_ahead;
mod receipts;
mod status;
mod storing;
mod top;
mod voiding_chunks;
mod vote_writer;
mod voter_chunks;
mod votes_of;
mod writer_progress;

pub use acknowledged::Loss;
pub use api_keys::FoundApiKey;
pub use ballots::AddedBallots;
pub use decisions::{DecidedBatch, Decision, VoteRow};
pub(crate) use full_items::FULLNESS_LIMIT;
pub use full_items::Fullness;
pub use held_votes::HeldVote;
pub use importing::{ImportChunk, ImportOutcome};
pub(crate) use item_reader::NAMES_LIMIT_ITEMS;
pub use item_reader::{ItemFacts, ItemReader};
pub use items::Listing;
pub(crate) use known_items::KNOWN_LIMIT_BLOCKS;
pub use open_items::SetOpen;
pub use plain_votes::InsertedBatch;
pub use receipts::Receipt;
pub use status::{JobStatus, WORKER_ALIVE_LIMIT, WorkerStatus};
pub use voiding_chunks::{VOID_LIMIT_IDS, VOID_LIMIT_VOTES, VoidedChunk};
pub use vote_writer::{InsertError, ReadyWriter, VoteWriter};
pub use voter_chunks::{EDIT_LIMIT_IDS, EditedChunk};
pub use votes_of::{LedgerRow, VotesOf, VotesPage};
pub use writer_progress::BatchUnderWay;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use acknowledged::Acknowledged;
use known_items::KnownItems;
use looks::Looks;
use writer_progress::Writers;

use super::connect::{
    Database, PROBE_POOL_LIMIT_CONNECTIONS, PUBLIC_POOL_LIMIT_CONNECTIONS, PUBLIC_STATEMENT_LIMIT,
    SERVER_POOL_LIMIT_CONNECTIONS, SERVER_STATEMENT_LIMIT, Writes,
};
use super::exact_counts::ExactCounts;
use super::identity::owner;
use super::pool::{Pool, PoolUse};
use super::runs;
use super::runs::Runs;
use super::safe_commit::until_earlier_commits_are_safe;
use super::settings::{KEPT_PLANS, WRITER_KEEPALIVE};
use super::{LedgerError, OtherRun, UnfitDatabase};
use crate::cache::Ends;
use crate::domain::{Cell, Cells, Owner, PostgresRun};
use crate::store_url::StoreUrl;

/// Whether the database's migrations have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// All of them have run.
    Done,
    /// Some have not run yet: `tally migrate` runs them.
    Pending,
}

/// The ledger as the role `tally_server` may use it. Cheap to clone. Every call fails when Postgres
/// is unavailable or too slow.
#[derive(Clone, Debug)]
pub struct ServerLedger {
    database: Database,
    /// For what readers ask: lists, searches, histories, polls. No vote waits for it.
    public: Pool,
    /// For what load balancers ask.
    probes: Pool,
    /// Shared by its clones.
    exact: ExactCounts,
    /// Shared by its clones.
    writers: Writers,
    /// How often items and polls were edited through this ledger and its clones. After an edit,
    /// what its readers remember may be old.
    edits: Arc<AtomicU64>,
    /// Shared by its clones.
    runs: Runs,
    /// Shared by its clones.
    acknowledged: Acknowledged,
    /// Shared by its clones.
    items: KnownItems,
    /// What the last trial found. Shared by its clones.
    trials: Looks<bool>,
    /// What the last look at the state of Postgres found. Shared by its clones.
    states: Looks<Option<(Writes, Migrations)>>,
}

impl ServerLedger {
    /// Describes the connection, and makes none yet. `application_name` is shown to Postgres'
    /// operator.
    ///
    /// # Errors
    /// When `database_url` is no URL of a Postgres.
    pub fn new(database_url: impl Into<StoreUrl>, application_name: &str) -> Result<Self, LedgerError> {
        let mut database = Database::new(database_url, application_name, SERVER_STATEMENT_LIMIT, None)?;
        let runs = Runs::default();
        let pool = |connections, limit| database.pool_for(connections, limit, &runs);
        let public = pool(PUBLIC_POOL_LIMIT_CONNECTIONS, PUBLIC_STATEMENT_LIMIT);
        let probes = pool(PROBE_POOL_LIMIT_CONNECTIONS, SERVER_STATEMENT_LIMIT);
        database.pool = pool(SERVER_POOL_LIMIT_CONNECTIONS, SERVER_STATEMENT_LIMIT);
        let exact = ExactCounts::new(&database, &runs);
        Ok(Self {
            exact,
            database,
            public,
            probes,
            writers: Writers::default(),
            edits: Arc::default(),
            items: KnownItems::new(runs.ends()),
            runs,
            acknowledged: Acknowledged::default(),
            trials: Looks::default(),
            states: Looks::default(),
        })
    }

    /// Finds a standby that is promoted while the old primary still answers, and leads this ledger's connections there.
    /// Never ends. Does nothing where the URL has one host.
    pub async fn keep_finding_promotions(self) {
        self.database.keep_finding_promotions(&self.runs).await;
    }

    /// Ends what is remembered of this ledger's answers, when Postgres fails over or is started
    /// again. It ends with the first connection that shows it.
    pub fn ends(&self) -> Ends {
        self.runs.ends()
    }

    /// How often Postgres failed over or was started again, as far as this program has seen.
    /// Whoever holds what was read earlier compares it with the number from before the read.
    pub fn changes(&self) -> u64 {
        self.runs.changes()
    }

    /// Reads what belongs together: the id of a key, and then what has this id. Without a key
    /// (`is_by_key`), the client named the id.
    ///
    /// # Errors
    /// The errors of the read. Also when Postgres failed over or was started again meanwhile
    /// ([`OtherRun`]): the id of the key may be another one's by then.
    pub async fn in_one_run<Read, Error: From<LedgerError>>(
        &self,
        is_by_key: bool,
        read: impl Future<Output = Result<Read, Error>>,
    ) -> Result<Read, Error> {
        let before = self.changes();
        let read = read.await?;
        if !is_by_key || self.changes() == before {
            Ok(read)
        } else {
            Err(LedgerError::from(OtherRun).into())
        }
    }

    /// Waits until what was committed before is as safe as a commit of one's own. An answer that tells
    /// of another's commit waits for this, and comes after the read that it is made of.
    pub async fn until_earlier_commits_are_safe(&self) -> Result<(), LedgerError> {
        Ok(until_earlier_commits_are_safe(&self.database.pool).await?)
    }

    /// The same ledger for what names ids of this run of Postgres: a call fails if it would reach
    /// another run. `None`: the client named the ids.
    #[must_use]
    pub fn only_in(&self, run: Option<PostgresRun>) -> Self {
        let mut ledger = self.clone();
        if let Some(run) = run {
            ledger.database.pool = self.database.pool.only_in(run);
            ledger.public = self.public.only_in(run);
            ledger.exact = self.exact.only_in(run);
        }
        ledger
    }

    /// The same with the small pool of an operator's login.
    pub(super) fn with_operator_pool(self) -> Self {
        Self {
            database: self.database.with_operator_pool(&self.runs),
            ..self
        }
    }

    /// The pool, for the other handles.
    pub(super) fn pool(&self) -> &Pool {
        &self.database.pool
    }

    /// A writer of votes, with a connection of its own.
    pub fn writer(&self) -> VoteWriter {
        let options = self.database.options.clone();
        let options = options.options(KEPT_PLANS).options(WRITER_KEEPALIVE);
        let session = self.database.session.with(&KEPT_PLANS).with(&WRITER_KEEPALIVE);
        VoteWriter::new(self, options, session)
    }

    /// Checks that this database is fit for Tally.
    ///
    /// # Errors
    /// When it is not ([`LedgerError::is_unfit`]).
    pub async fn check(&self) -> Result<(), LedgerError> {
        self.database.check().await
    }

    /// Which Tally this is.
    ///
    /// # Errors
    /// When the database is not migrated.
    pub async fn owner(&self) -> Result<Owner, LedgerError> {
        owner(&self.database.pool).await
    }

    /// Which cell the database is, as far as a connection has said it. A vote asks this, and nothing else.
    pub fn known_cell(&self) -> Option<Cell> {
        self.runs.cell()
    }

    /// Which cell the database is: what a connection has said, or else a new one says.
    ///
    /// # Errors
    /// When the database is not migrated.
    pub async fn cell(&self) -> Result<Cell, LedgerError> {
        if let Some(cell) = self.known_cell() {
            return Ok(cell);
        }
        let number = sqlx::query_scalar!("select cell from identity")
            .fetch_one(&self.database.pool)
            .await?;
        Ok(number.and_then(runs::cell).unwrap_or(Cell::FIRST))
    }

    /// Checks that the database is this cell, if one is asked for, and one of these cells.
    ///
    /// # Errors
    /// When it is not ([`LedgerError::is_unfit`]), or the database is not migrated.
    pub async fn check_cell(&self, asked: Option<Cell>, cells: Cells) -> Result<(), LedgerError> {
        let held = self.cell().await?;
        match asked {
            Some(asked) if asked != held => Err(UnfitDatabase::OtherCell { held, asked }.into()),
            _ if held.get() >= cells.count => Err(UnfitDatabase::CellBeyond {
                held,
                cells: cells.count,
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// How each pool is used, by its name in metrics.
    pub fn pool_uses(&self) -> [(&'static str, PoolUse); 3] {
        [
            ("keys", self.database.pool.uses()),
            ("readers", self.public.uses()),
            ("probes", self.probes.uses()),
        ]
    }

    /// Closes all connections of the pools.
    pub async fn close(&self) {
        tokio::join!(
            self.database.pool.close(),
            self.public.close(),
            self.probes.close()
        );
    }
}
