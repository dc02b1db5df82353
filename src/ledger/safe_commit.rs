//! Whether a commit is as safe as Postgres promises.
//!
//! With a synchronous standby, a commit waits until the standby has it, too. Whoever cancels that wait
//! (`pg_cancel_backend`) leaves a transaction that is committed, and perhaps on one disk only. Postgres
//! then answers as for any other commit, and says so in a warning alone. The warning's words depend on
//! `lc_messages`, so each warning counts: then another commit must end without one. The log is in
//! order: a standby that has a later commit has the earlier one.
//!
//! sqlx gives warnings to nobody but the log. So [`listening`] runs a statement under a log of its
//! own, which hears warnings and hands everything on.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::OnceLock;

use sqlx::postgres::PgConnection;
use sqlx::{Executor, PgExecutor};
use tracing::dispatcher::{self, Dispatch};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, NoSubscriber};
use tracing::{Event, Level, Metadata, Subscriber, level_filters::LevelFilter};

/// Under this name sqlx logs what Postgres says besides its answers.
const NOTICES: &str = "sqlx::postgres::notice";

/// Takes the lock that each vote takes, and runs the triggers of the statement. It stores nothing.
pub(super) const LIKE_A_VOTE: &str = "insert into vote (item_id) select 0 where false;";

thread_local! {
    /// Whether a warning came since this was last cleared.
    static HEARD: Cell<bool> = const { Cell::new(false) };
}

/// Runs a statement. Returns whether Postgres gave a warning with it.
pub(super) async fn listening<Statement: Future>(statement: Statement) -> (Statement::Output, bool) {
    // While tracing knows a single log, it asks the thread's own about a new place that logs, and keeps
    // what that says for good: a warning first given elsewhere would never be heard here. So there are two.
    static EAR: OnceLock<[Dispatch; 2]> = OnceLock::new();
    let [ear, _] = EAR.get_or_init(|| [Dispatch::new(Ear::new()), Dispatch::new(NoSubscriber::default())]);
    let mut statement = pin!(statement);
    let mut heard = false;
    let output = poll_fn(|context| {
        HEARD.set(false);
        let polled = dispatcher::with_default(ear, || statement.as_mut().poll(context));
        heard |= HEARD.replace(false);
        polled
    });
    (output.await, heard)
}

/// Waits until what a statement committed is safe. `has_warned`: Postgres gave a warning with it.
///
/// # Errors
/// The statement's own error. Otherwise the statement is committed, and the error is never certain:
/// nobody knows whether it stays.
pub(super) async fn until_safe<Answer>(
    connection: &mut PgConnection,
    ended: Result<Answer, sqlx::Error>,
    has_warned: bool,
) -> Result<Answer, sqlx::Error> {
    let answer = ended?;
    if has_warned {
        while !commit_is_safe(connection, "").await.map_err(io::Error::other)? {}
    }
    Ok(answer)
}

/// Commits a transaction that leaves nothing behind but a note in the log of changes. `first` are
/// statements of it. Returns whether the commit is safe.
pub(super) async fn commit_is_safe(connection: &mut PgConnection, first: &str) -> Result<bool, sqlx::Error> {
    // Shortly before ids of transactions run out, Postgres warns when it gives one. Only a warning of
    // the commit itself counts.
    let begun = format!("begin; {first} select pg_logical_emit_message(true, 'tally', '')");
    connection.execute(begun.as_str()).await?;
    let (committed, has_warned) = listening(connection.execute("commit")).await;
    committed?;
    Ok(!has_warned)
}

/// Waits until what was committed before is as safe as a commit of one's own. An answer that tells of
/// another's commit, and stores nothing itself, waits for this first: someone may have cancelled that
/// commit's wait for the standby. As in `last_votes.sql`; without a standby it does nothing.
pub(super) async fn until_earlier_commits_are_safe(executor: impl PgExecutor<'_>) -> Result<(), sqlx::Error> {
    const NOTE: &str = "select pg_logical_emit_message(true, 'tally', '')
        where current_setting('synchronous_standby_names') <> ''";
    executor.execute(NOTE).await.map(drop)
}

/// A log that hears warnings of Postgres, and hands everything on to the program's log.
struct Ear {
    outer: Dispatch,
    /// What the program's log takes at the most.
    outer_level: LevelFilter,
}

impl Ear {
    fn new() -> Self {
        Self {
            outer_level: LevelFilter::current(),
            outer: dispatcher::get_default(Clone::clone),
        }
    }
}

fn is_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target() == NOTICES && *metadata.level() <= Level::WARN
}

impl Subscriber for Ear {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_warning(metadata) {
            Interest::sometimes()
        } else {
            self.outer.register_callsite(metadata)
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_warning(metadata) || self.outer.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.outer_level.max(LevelFilter::WARN))
    }

    fn event(&self, event: &Event<'_>) {
        if is_warning(event.metadata()) {
            HEARD.set(true);
            if !self.outer.enabled(event.metadata()) {
                return;
            }
        }
        self.outer.event(event);
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.outer.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.outer.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.outer.record_follows_from(span, follows);
    }

    fn enter(&self, span: &Id) {
        self.outer.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.outer.exit(span);
    }

    fn clone_span(&self, span: &Id) -> Id {
        self.outer.clone_span(span)
    }

    fn try_close(&self, span: Id) -> bool {
        self.outer.try_close(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_warning_is_heard_though_its_place_was_met_before_where_nobody_listened() {
        let warn = || tracing::warn!(target: NOTICES, "x");
        assert!(!listening(async {}).await.1);
        warn();
        assert!(listening(async { warn() }).await.1);
        assert!(!listening(async {}).await.1);
    }
}
