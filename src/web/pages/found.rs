//! What is read for a page of one item or one poll, and the answer that contains it.

use std::str::FromStr;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use tokio::time::timeout;

use crate::counts::{ItemCount, PollCount};
use crate::domain::{Cell, ItemId, PollId, Reference};
use crate::web::api::state::AppState;
use crate::web::pages::html::HTML;
use crate::web::problem::{Problem, TALLY_CELL};
use crate::web::request::reference;
use crate::web::transport::gzip;
use crate::web::transport::kept::{Fresh, Head};
use crate::web::transport::tags;

/// The longest time that a page waits for its counts. Without them the page says so, and its script tries
/// again.
pub(super) const READ_LIMIT: Duration = Duration::from_secs(1);
/// When a client should retry a page that has no counts.
const RETRY_AFTER_SECONDS: &str = "5";
/// The text of a page that has no counts. Its script requests the page again.
pub(super) const UNAVAILABLE: &str = "<p class=\"note\" lang=\"en\" dir=\"ltr\">The counts cannot be shown right now. Try again in a moment.</p>";

/// How much of the request is in the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    All,
    /// The item or the poll does not exist.
    Nothing,
    /// It lies in this cell, and this server is another one's.
    OtherCell(Cell),
    /// Postgres did not answer in time.
    Unknown,
}

impl Has {
    /// Returns the name that the page's script uses.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Nothing | Self::OtherCell(_) => "nothing",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the text of a page without an item or a poll.
    pub(super) fn instead(self, nothing: &str) -> String {
        match self {
            Self::Nothing | Self::OtherCell(_) => {
                format!("<p class=\"note\" lang=\"en\" dir=\"ltr\">{nothing}</p>")
            }
            Self::All | Self::Unknown => UNAVAILABLE.to_owned(),
        }
    }
}

/// Reads the item or poll from the path's second part, as it was sent.
fn reference_in<Id: FromStr>(request: &HttpRequest) -> Result<Reference<Id>, Problem> {
    reference::path_reference(request.uri().path().split('/').nth(2).unwrap_or_default())
}

/// Reads an item and its count.
///
/// # Errors
/// Fails when there is no such item.
pub(super) async fn item(state: &AppState, reference: &Reference<ItemId>) -> Result<ItemCount, Problem> {
    let read = async {
        let id = state.references.item(reference).await?.id;
        let read = state.counts.one(id).await?;
        read.ok_or_else(|| Problem::unknown_item(id))
    };
    state.ledger.in_one_run(reference.is_key(), read).await
}

/// Reads a poll and its counts.
///
/// # Errors
/// Fails when there is no such poll.
pub(super) async fn poll(state: &AppState, reference: &Reference<PollId>) -> Result<PollCount, Problem> {
    let read = async {
        let id = state.references.poll(reference).await?.id;
        let read = state.counts.poll(id).await?;
        let (poll, _) = read.ok_or_else(|| Problem::unknown_poll(id))?;
        Ok(poll)
    };
    state.ledger.in_one_run(reference.is_key(), read).await
}

/// Reads the item of a page's path in time.
pub(super) async fn item_of(request: &HttpRequest, state: &AppState) -> (Has, Option<ItemCount>) {
    in_time(async { item(state, &reference_in(request)?).await }).await
}

/// Reads the poll of a page's path in time.
pub(super) async fn poll_of(request: &HttpRequest, state: &AppState) -> (Has, Option<PollCount>) {
    in_time(async { poll(state, &reference_in(request)?).await }).await
}

/// Waits for what a page contains, and says how much of it there is.
async fn in_time<T>(read: impl Future<Output = Result<T, Problem>>) -> (Has, Option<T>) {
    match timeout(READ_LIMIT, read).await {
        Ok(Ok(found)) => (Has::All, Some(found)),
        Ok(Err(problem)) => match problem.cell() {
            Some(cell) => (Has::OtherCell(cell), None),
            None if problem.kind().status().is_client_error() => (Has::Nothing, None),
            None => (Has::Unknown, None),
        },
        Err(_) => (Has::Unknown, None),
    }
}

/// Makes the answer with a page. `policy` says what the page may load, and who may frame it.
pub(super) fn answer(request: &HttpRequest, has: Has, policy: &str, body: String) -> HttpResponse {
    let head = Head {
        content_type: HTML,
        policy,
        tag: tags::tag_of(body.as_bytes()),
    };
    let mut response = match has {
        Has::All if tags::has(request, &head.tag) => HttpResponse::NotModified(),
        Has::All => HttpResponse::Ok(),
        Has::Nothing => HttpResponse::NotFound(),
        Has::OtherCell(_) => HttpResponse::MisdirectedRequest(),
        Has::Unknown => HttpResponse::ServiceUnavailable(),
    };
    if let Has::OtherCell(cell) = has {
        response.insert_header((TALLY_CELL, u64::from(cell.get())));
    }
    if has == Has::Unknown {
        response.insert_header((header::RETRY_AFTER, RETRY_AFTER_SECONDS));
    }
    let body = Bytes::from(body);
    let compressed = || gzip::compress(&body, gzip::Effort::Least);
    head.finish(request, response, Fresh::IfAsked, body.clone(), compressed)
}
