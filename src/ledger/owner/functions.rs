//! The functions in Postgres. Each has a file in `migrations/functions/` with its current text.
//! Every `tally migrate` applies all of them again.

use super::OwnerLedger;
use crate::ledger::LedgerError;

/// Names and texts of the functions.
macro_rules! functions {
    ($($name:literal,)+) => {
        [$(($name, include_str!(concat!("../../../migrations/functions/", $name, ".sql"))),)+]
    };
}

/// The functions, in the order in which they are applied. The order matters only to a function
/// whose body is no text (`return …`): when Postgres creates it, it looks up what the body calls.
/// Functions that only servers of the last release call stand at the end, under `Former`
/// (migrations/README.md).
const FUNCTIONS: [(&str, &str); 58] = functions![
    "search_text",
    "search_vector",
    "search_query",
    "postgres_run",
    "shown_name",
    "search_items",
    "search_polls",
    "item_is_permanent",
    "vote_is_append_only",
    "vote_is_archived_first",
    "rule_is_known_to_writers",
    "writer_connection_knows_rules",
    "refuse_change_of_trail",
    "vote_ids_are_new",
    "revoke_rights",
    "copy_rights",
    "split_fault",
    "end_split",
    "vote_of_voter_is_copied",
    "begin_ranges",
    "enter_ranges",
    "add_ranges",
    "decide_votes",
    "cast_votes",
    "poll_is_final",
    "edit_times",
    "edit_item",
    "edit_poll",
    "add_choice",
    "add_ballots",
    "votes_to_void",
    "void_votes",
    "undo_votes",
    "edit_voter",
    "create_voter_edit",
    "import_votes",
    "import_items",
    "import_polls",
    "reserve_ids",
    "archive_faults",
    "begin_archive",
    "check_archive",
    "drop_archived",
    "cancel_archive",
    "drop_empty_range",
    "broken_rules",
    "broken_changes",
    "use_api_key",
    "end_api_key",
    "note_act",
    "events_are_made",
    "want_events",
    "note_event",
    "note_item_events",
    "note_poll_events",
    "late_sequences",
    "set_cell",
    "oldest_program",
];

/// Programs that migrate one database take turns here, as in `roles.sql`.
const TAKE_A_TURN: &str = "select pg_advisory_xact_lock(7416153280);";

impl OwnerLedger {
    /// Creates the functions that do not exist, before the migrations run. Triggers and indexes of
    /// a migration name some of them. Postgres does not look into their bodies, since the tables
    /// that they use may not exist yet.
    ///
    /// A function that exists stays unchanged: its new text may use columns that are still to come.
    pub(super) async fn create_missing_functions(&self) -> Result<(), LedgerError> {
        let names: Vec<String> = FUNCTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let missing = sqlx::query_scalar!(
            r#"select name as "name!" from unnest($1::text[]) as given (name)
               where not exists (
                   select from pg_proc join pg_namespace on pg_namespace.oid = pronamespace
                   where proname = name and nspname = current_schema())"#,
            &names
        )
        .fetch_all(self.database.pool.unlimited().await)
        .await?;
        if missing.is_empty() {
            return Ok(());
        }
        let texts = FUNCTIONS
            .iter()
            .filter(|(name, _)| missing.iter().any(|one| one == name));
        let statements = ["set local check_function_bodies = off;"]
            .into_iter()
            .chain(texts.map(|(_, text)| *text));
        self.apply_functions(statements).await
    }

    /// Replaces every function by its file's text, after the migrations have run. A running server
    /// calls the old function or the new one: all of them change in one transaction.
    pub(super) async fn replace_functions(&self) -> Result<(), LedgerError> {
        self.apply_functions(FUNCTIONS.iter().map(|(_, text)| *text))
            .await
    }

    async fn apply_functions(
        &self,
        statements: impl Iterator<Item = &'static str>,
    ) -> Result<(), LedgerError> {
        let statements: Vec<&str> = [TAKE_A_TURN].into_iter().chain(statements).collect();
        Ok(self.apply(&statements).await?)
    }
}
