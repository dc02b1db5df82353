//! What is seen of a request from outside its handler: its id, its log line, its
//! time.

use std::cell::RefCell;
use std::rc::Rc;

use actix_web::Error;
use actix_web::HttpMessage;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use tokio::time::Instant;
use tracing::Span;
use tracing_actix_web::{RequestId, RootSpanBuilder};

use super::connection::Activity;
use crate::telemetry::name;

/// The request's id, in the answer and in every log line of it.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Adds the request's id to its answer, and measures it.
pub async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let started = Instant::now();
    // Until it is answered, its connection may be silent.
    let _under_way = request.conn_data::<Rc<Activity>>().map(Activity::begin);
    let id = request.extensions().get::<RequestId>().copied();
    let mut response = next.call(request).await?;
    if let Some(id) = id {
        let mut text = uuid::Uuid::encode_buffer();
        if let Ok(id) = HeaderValue::from_str(id.as_hyphenated().encode_lower(&mut text)) {
            response.headers_mut().insert(REQUEST_ID.clone(), id);
        }
    }
    let status = response.status();
    if status.is_server_error() {
        // The cause is logged where it was met, maybe once for a whole batch.
        let (method, path) = (response.request().method(), response.request().path());
        let id = id.map(|id| id.to_string()).unwrap_or_default();
        tracing::warn!(request_id = id, %method, path, status = status.as_u16(), "a request was not served");
    }
    if let Some(route) = response.request().app_data::<Route>() {
        route.answered(status, started);
    }
    Ok(response)
}

/// A route's name for the metrics: its pattern, not the path, for a label must not
/// grow with the items. With what was measured of it, looked up once for each status.
pub struct Route {
    pattern: &'static str,
    seconds: RefCell<Vec<(StatusCode, metrics::Histogram)>>,
}

impl Route {
    pub fn new(pattern: &'static str) -> Self {
        Self {
            pattern,
            seconds: RefCell::default(),
        }
    }

    fn answered(&self, status: StatusCode, started: Instant) {
        let mut seconds = self.seconds.borrow_mut();
        let at = seconds
            .iter()
            .position(|(of, _)| *of == status)
            .unwrap_or_else(|| {
                let histogram = metrics::histogram!(
                    name::HTTP_SECONDS, "route" => self.pattern, "status" => status.as_u16().to_string()
                );
                seconds.push((status, histogram));
                seconds.len() - 1
            });
        seconds[at].1.record(started.elapsed().as_secs_f64());
    }
}

/// The span that every log line of a request stands in. At `debug`, so that a
/// vote costs no span unless someone wants to see it.
pub struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        let id = request.extensions().get::<RequestId>().copied();
        tracing::debug_span!(
            "request",
            id = %id.map(|id| id.to_string()).unwrap_or_default(),
            method = %request.method(),
            path = request.path(),
            status = tracing::field::Empty,
        )
    }

    fn on_request_end<B: MessageBody>(span: Span, outcome: &Result<ServiceResponse<B>, Error>) {
        let status = match outcome {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        span.record("status", status.as_u16());
        tracing::debug!(parent: &span, status = status.as_u16(), "answered");
    }
}
