//! What every request has, whatever its handler: an id, a log line, a latency.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_web::Error;
use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use tokio::time::Instant;
use tracing::{Instrument, Span};
use uuid::Uuid;

use crate::telemetry::{name, trouble};
use crate::web::transport::activity::{Activity, UnderWay};

/// The most digits of an id.
const ID_LIMIT_DIGITS: usize = 19;

/// The header with the request's id. The request's log lines have the same id.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Adds the request's id to its answer, and measures the latency.
pub async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + Unpin>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let started = Instant::now();
    // The connection may be silent until the request is answered.
    let under_way = request.conn_data::<Rc<Activity>>().map(Activity::begin);
    let id = Uuid::new_v4();
    let span = span(&request, id);
    let answering = next.call(request);
    let mut response = if span.is_disabled() {
        answering.await?
    } else {
        answering.instrument(span.clone()).await?
    };
    let mut text = Uuid::encode_buffer();
    if let Ok(id) = HeaderValue::from_str(id.as_hyphenated().encode_lower(&mut text)) {
        response.headers_mut().insert(REQUEST_ID.clone(), id);
    }
    if under_way.as_ref().is_some_and(UnderWay::is_last) {
        response
            .response_mut()
            .head_mut()
            .set_connection_type(ConnectionType::Close);
    }
    let status = response.status();
    if !span.is_disabled() {
        span.record("status", status.as_u16());
        tracing::debug!(parent: &span, status = status.as_u16(), "answered");
    }
    if status.is_server_error() {
        // The cause was logged where it arose, only once for a batch.
        let request = response.request();
        let (method, path) = (
            request.method(),
            loggable(request.uri().path(), request.app_data()),
        );
        // With the route: one that fails again and again must not hide another one.
        let route = response.request().app_data::<RouteTimes>();
        let cause = format!(
            "{} {}",
            status.as_u16(),
            route.map_or("unknown", |route| route.pattern)
        );
        trouble!(
            warn, %cause, request_id = id.to_string(), method = method.as_str(), path = path;
            "a request was not served"
        );
    }
    if let Some(route) = response.request().app_data::<RouteTimes>() {
        route.answered(status, started);
    }
    Ok(response.map_body(|_, body| Answer {
        body,
        _under_way: under_way,
    }))
}

/// The body of an answer. actix-http drops it when it has the whole answer ready to be written.
struct Answer<Body> {
    body: Body,
    _under_way: Option<UnderWay>,
}

impl<Body: MessageBody + Unpin> MessageBody for Answer<Body> {
    type Error = Body::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

/// The fixed parts of the paths in the route table, as app data. Any other part of a path may name a voter or
/// be a secret, in any encoding.
#[derive(Clone, Copy)]
pub struct Words(pub &'static [&'static str]);

/// Paths that browsers and crawlers request from any server. Logs may show them too.
const OF_ANY_SERVER: [&str; 4] = [".", "..", "favicon.ico", "robots.txt"];

/// Returns a path as logs may show it: words of the route table and ids. Everything else is left out.
fn loggable(path: &str, words: Option<&Words>) -> String {
    let words = words.map_or(&[][..], |words| words.0);
    let mut is_shown = true;
    let parts = path.split('/').map(|part| {
        let is_id = part.len() <= ID_LIMIT_DIGITS && part.bytes().all(|byte| byte.is_ascii_digit());
        is_shown &= is_id || words.contains(&part) || OF_ANY_SERVER.contains(&part);
        let shown = if is_shown { part } else { "…" };
        // What follows is a voter, or a vote's id.
        is_shown &= part != "votes";
        shown
    });
    let parts: Vec<&str> = parts.collect();
    parts.join("/")
}

/// A route's histograms, one for each status, each looked up once. The label is the route's pattern, not the
/// path, so that labels do not grow with the items.
pub struct RouteTimes {
    pattern: &'static str,
    seconds: RefCell<Vec<(StatusCode, metrics::Histogram)>>,
}

impl RouteTimes {
    /// Registers the route's usual status, so that it is in the metrics from the start.
    pub fn new(pattern: &'static str, usual: StatusCode) -> Self {
        Self {
            pattern,
            seconds: RefCell::new(vec![(usual, histogram(pattern, usual))]),
        }
    }

    fn answered(&self, status: StatusCode, started: Instant) {
        let mut seconds = self.seconds.borrow_mut();
        let at = seconds
            .iter()
            .position(|(of, _)| *of == status)
            .unwrap_or_else(|| {
                seconds.push((status, histogram(self.pattern, status)));
                seconds.len() - 1
            });
        seconds[at].1.record(started.elapsed().as_secs_f64());
    }
}

fn histogram(pattern: &'static str, status: StatusCode) -> metrics::Histogram {
    metrics::histogram!(name::HTTP_SECONDS, "route" => pattern, "status" => status.as_u16().to_string())
}

/// The span around a request's log lines. It is at `debug`, so a vote costs a span only if someone wants to
/// see it.
fn span(request: &ServiceRequest, id: Uuid) -> Span {
    tracing::debug_span!(
        "request",
        id = %id,
        method = %request.method(),
        path = %loggable(request.uri().path(), request.app_data()),
        status = tracing::field::Empty,
    )
}

#[cfg(test)]
mod tests {
    use super::{Words, loggable};

    const WORDS: Words = Words(&["", "v1", "items", "votes", "health", "ready"]);

    #[test]
    fn a_logged_path_has_words_of_the_route_table_and_ids_and_nothing_else() {
        for (path, shown) in [
            ("/v1/items/5/votes", "/v1/items/5/votes"),
            ("/v1/items/5/votes/ada", "/v1/items/5/votes/…"),
            ("/v1/items/5/votes/12345", "/v1/items/5/votes/…"),
            ("/v1/items/5/%76otes/ada", "/v1/items/5/…/…"),
            ("/v1/items/5/%76otes/12345", "/v1/items/5/…/…"),
            ("/v1/items/5%2fvotes%2fada", "/v1/items/…"),
            ("/v1/items/key:tally_0", "/v1/items/…"),
            ("/health/ready", "/health/ready"),
            ("/", "/"),
        ] {
            assert_eq!(loggable(path, Some(&WORDS)), shown);
        }
    }
}
