//! `/v1/stream`, `/v1/items/{id}/stream`, `/v1/polls/{id}/stream`: counts as they change.

use std::rc::Rc;

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method, Version};
use actix_web::{HttpRequest, HttpResponse, web};
use utoipa::IntoParams;

use crate::domain::{ItemId, PollId, Reference};
use crate::watching::{Fingerprint, Stream, WatchError, Watched};
use crate::web::access::client_address;
use crate::web::api::state::AppState;
use crate::web::api::stream_places::StreamBody;
use crate::web::api::unknown::UnknownBody;
use crate::web::describe::{examples, problems, values};
use crate::web::limits::{STREAM_LIMIT_ITEMS, STREAM_LIMIT_POLLS, STREAM_LIMIT_QUERY_BYTES};
use crate::web::problem::Problem;
use crate::web::request::{PathItemReference, PathPollReference, Query, form, reference};
use crate::web::transport::activity::Activity;

static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Without this header, nginx would hold events back until it has some kilobytes.
static X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
static NO: HeaderValue = HeaderValue::from_static("no");

form! {
    /// The query of a stream. At least one of both lists is needed.
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct StreamQuery {
        /// Ids of items, or `key:` followed by your own key, separated by commas. At most 100.
        #[param(min_length = 1, example = "1")]
        items: Option<String>,
        /// Ids of polls, or `key:` followed by your own key, separated by commas. At most 10.
        #[param(min_length = 1)]
        polls: Option<String>,
    }
}

/// What a stream of nothing that exists is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfNothing {
    /// A stream that says so, and shows ids once they exist.
    Stream,
    Problem,
}

/// What a client wants to watch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub items: Vec<Reference<ItemId>>,
    pub polls: Vec<Reference<PollId>>,
}

impl Wanted {
    /// It does not exist.
    fn unknown(&self) -> Problem {
        match (self.items.first(), self.polls.first()) {
            (Some(item), _) => Problem::unknown_item(item),
            (None, Some(poll)) => Problem::unknown_poll(poll),
            (None, None) => Problem::internal(),
        }
    }
}

impl StreamQuery {
    /// Returns what the query asks for, if every parameter is allowed.
    pub(in crate::web) fn into_wanted(self) -> Result<Wanted, Problem> {
        if self.items.is_none() && self.polls.is_none() {
            let detail = "items: it is missing; give items, polls or both.";
            return Err(Problem::malformed("items", detail));
        }
        Ok(Wanted {
            items: reference::list("items", self.items.as_deref(), STREAM_LIMIT_ITEMS)?,
            polls: reference::list("polls", self.polls.as_deref(), STREAM_LIMIT_POLLS)?,
        })
    }
}

/// Stream the counts of items and polls.
///
/// Server-sent events (`text/event-stream`) without an end. The first events `counts` have everything that is watched.
/// Later ones have what changed. `data` has `items` and `polls`, as `GET` returns them. Items and polls that do not
/// exist are left out: an event `unknown` comes first each time that the stream opens, and its `data` names them (the
/// schema `Unknown`). One that was named by its id is shown once
/// it is created. One that was named by a key is not: open another stream. A client that reconnects sends the last `id`
/// as `Last-Event-ID`, and gets only what has changed since.
#[utoipa::path(
    get,
    path = "/v1/stream",
    operation_id = "stream",
    tag = "Streams",
    params(StreamQuery, LastEventId),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream",
            headers(("Cache-Control" = String), ("X-Accel-Buffering" = String)),
            example = json!(examples::events_without_some())),
        SomeProblems,
    )
)]
pub async fn some(
    request: HttpRequest,
    state: web::Data<AppState>,
    query: Query<StreamQuery>,
) -> Result<HttpResponse, Problem> {
    if request.query_string().len() > STREAM_LIMIT_QUERY_BYTES {
        let detail = format!("query: it takes at most {STREAM_LIMIT_QUERY_BYTES} bytes.");
        return Err(Problem::invalid("query", detail));
    }
    open(&request, &state, query.0.into_wanted()?, OfNothing::Stream).await
}

/// Stream an item's counts.
///
/// Server-sent events (`text/event-stream`) without an end. The first event has the item. Later events have
/// its changes. `data` has `items` and `polls`, as `GET` returns them. A client that reconnects sends the
/// last `id` as `Last-Event-ID`, and gets only what has changed since.
#[utoipa::path(
    get,
    path = "/v1/items/{id}/stream",
    operation_id = "streamItem",
    tag = "Streams",
    params(("id" = values::ItemReference, Path, example = json!(1)), LastEventId),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream",
            headers(("Cache-Control" = String), ("X-Accel-Buffering" = String)), example = json!(examples::events())),
        ItemProblems,
    )
)]
pub async fn of_item(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathItemReference,
) -> Result<HttpResponse, Problem> {
    let wanted = Wanted {
        items: vec![id.0],
        ..Wanted::default()
    };
    open(&request, &state, wanted, OfNothing::Problem).await
}

/// Stream a poll's results.
///
/// Server-sent events (`text/event-stream`) without an end. The first event has the poll. Later events have
/// its changes. `data` has `items` and `polls`, as `GET` returns them. A client that reconnects sends the
/// last `id` as `Last-Event-ID`, and gets only what has changed since.
#[utoipa::path(
    get,
    path = "/v1/polls/{id}/stream",
    operation_id = "streamPoll",
    tag = "Streams",
    params(("id" = values::PollReference, Path, example = json!(1)), LastEventId),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream",
            headers(("Cache-Control" = String), ("X-Accel-Buffering" = String)), example = json!(examples::events())),
        PollProblems,
    )
)]
pub async fn of_poll(
    request: HttpRequest,
    state: web::Data<AppState>,
    id: PathPollReference,
) -> Result<HttpResponse, Problem> {
    let wanted = Wanted {
        polls: vec![id.0],
        ..Wanted::default()
    };
    open(&request, &state, wanted, OfNothing::Problem).await
}

problems!(SomeProblems: ADDRESSES, STORES; OtherCell, TooManyStreams, TooManyStreamsOfAddress);
problems!(ItemProblems: ADDRESSES, STORES; OtherCell, UnknownItem, TooManyStreams, TooManyStreamsOfAddress);
problems!(PollProblems: ADDRESSES, STORES; OtherCell, UnknownPoll, TooManyStreams, TooManyStreamsOfAddress);

/// The header of a client that reconnects.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it only describes the header")]
struct LastEventId {
    /// The `id` of the last event, from any server.
    #[param(rename = "Last-Event-ID", example = "0a1b2c3d4e5f")]
    last_event_id: Option<String>,
}

async fn open(
    request: &HttpRequest,
    state: &AppState,
    wanted: Wanted,
    of_nothing: OfNothing,
) -> Result<HttpResponse, Problem> {
    // Check the limits before anything is read.
    let place = state.stream_places.take(client_address(request))?;
    let is_by_key = wanted.items.iter().any(Reference::is_key) || wanted.polls.iter().any(Reference::is_key);
    let watching = watch(request, state, &wanted, is_by_key);
    let (stream, unknown) = state.ledger.in_one_run(is_by_key, watching).await?;
    if of_nothing == OfNothing::Problem && !unknown.is_empty() {
        return Err(wanted.unknown());
    }
    let mut answer = HttpResponse::Ok();
    answer
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        // A proxy that compresses would hold events back, too.
        .insert_header((header::CACHE_CONTROL, "no-store, no-transform"))
        .insert_header((X_ACCEL_BUFFERING.clone(), NO.clone()));
    if request.method() == Method::HEAD {
        return Ok(answer.finish());
    }
    // The connection may stay silent until the stream ends.
    let under_way = request.conn_data::<Rc<Activity>>().map(Activity::begin_stream);
    let mut answer = answer
        .body(StreamBody::new(stream, unknown, under_way, place))
        .map_into_boxed_body();
    if request.version() < Version::HTTP_11 {
        // This client's HTTP has no chunks: the stream ends when the connection ends.
        answer.head_mut().no_chunking(true);
        answer.head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(answer)
}

/// Opens a stream of what the client names. Also returns what of it does not exist.
async fn watch(
    request: &HttpRequest,
    state: &AppState,
    wanted: &Wanted,
    is_by_key: bool,
) -> Result<(Stream, UnknownBody), Problem> {
    let mut watched: Vec<Watched> = Vec::with_capacity(wanted.items.len() + wanted.polls.len());
    let mut add = |one: Watched| {
        if !watched.contains(&one) {
            watched.push(one);
        }
    };
    let items = state.references.find_items(&wanted.items).await?;
    let items: Vec<Option<Watched>> = items.into_iter().map(|item| Some(item?.id.into())).collect();
    items.iter().flatten().for_each(|item| add(*item));
    let mut polls: Vec<Option<Watched>> = Vec::with_capacity(wanted.polls.len());
    for reference in &wanted.polls {
        let poll = state.references.find_poll(reference).await?;
        polls.push(poll.map(|poll| poll.id.into()));
    }
    polls.iter().flatten().for_each(|poll| add(*poll));
    let seen = request
        .headers()
        .get(&LAST_EVENT_ID)
        .and_then(|id| Fingerprint::read(id.as_bytes(), watched.len()));
    let stream = state.watching.open(watched, seen, is_by_key).await?;
    let unknown = stream.unknown();
    let is_unknown = |one: &Option<Watched>| one.is_none_or(|one| unknown.contains(&one));
    let unknown = UnknownBody::new(
        state.voting.options.creates,
        wanted.items.iter().zip(items.iter().map(is_unknown)),
        wanted.polls.iter().zip(polls.iter().map(is_unknown)),
    );
    Ok((stream, unknown))
}

impl From<WatchError> for Problem {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::TooMuchWatched => Self::too_many_streams(),
            // The reader has logged the cause once for all streams.
            WatchError::LedgerUnavailable => crate::counts::ReadError::LedgerUnavailable.into(),
            WatchError::Closing => crate::counts::ReadError::Closing.into(),
        }
    }
}
