//! Traces: spans that are sent to a collector over OTLP, where one is set. There is a span for each batch and for
//! each pass of a job, and none for a vote: at 20,000 votes a second nobody would read those, and each takes
//! microseconds (docs/operating/traces.md).
//!
//! They are not made from `tracing`'s spans. These also go to the log, and have to be asked of every subscriber.

use std::fmt::Display;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::{Program, trouble};

/// How long the collector may take for some hundred spans. Meanwhile others wait in the library's queue of 2,048
/// spans; further ones are dropped.
const SEND_LIMIT: Duration = Duration::from_secs(5);
/// How long the last spans may hold up a program that stops.
const LAST_SPANS_LIMIT: Duration = Duration::from_secs(2);
/// The most that is read of a collector's answer. It says at most how many spans it did not take.
const ANSWER_LIMIT_BYTES: usize = 64 << 10;

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Sends spans, until it is ended.
#[derive(Debug)]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Begins to send the spans of this program to a collector. `endpoint`: its address, without the path; `None`:
    /// there is none, and a span is nothing. Must be called within a Tokio runtime.
    ///
    /// What else there is to set, the library reads from the standard variables (`OTEL_SERVICE_NAME`,
    /// `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS` …; OpenTelemetry's "Environment Variable Specification").
    ///
    /// # Errors
    /// When one of these variables is wrong.
    pub fn start(endpoint: Option<&str>, program: Program) -> anyhow::Result<Self> {
        let is_disabled =
            std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty() && !is_disabled) else {
            return Ok(Self(None));
        };
        let collector = Collector {
            client: reqwest::Client::builder().timeout(SEND_LIMIT).build()?,
            runtime: Handle::current(),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .build()
            .context("OTEL_EXPORTER_OTLP_… is wrong")?;
        let mut resource = Resource::builder();
        if std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty()) {
            // The library has taken it.
        } else {
            resource = resource.with_service_name(match program {
                Program::Server => "tally-server",
                Program::Worker => "tally-worker",
            });
        }
        let resource = resource.with_attribute(KeyValue::new("service.version", super::version()));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        // A second one in one process would send nothing: programs have one.
        let _ = TRACER.set(provider.tracer("tally"));
        Ok(Self(Some(provider)))
    }

    /// Sends the last spans, for a short time.
    pub async fn end(self) {
        let Some(provider) = self.0 else { return };
        let ended = spawn_blocking(move || provider.shutdown_with_timeout(LAST_SPANS_LIMIT)).await;
        if let Ok(Err(error)) = ended {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

/// A span, from here until it is dropped. Without a collector it is nothing.
#[derive(Debug)]
pub(crate) struct Span(Option<opentelemetry_sdk::trace::Span>);

impl Span {
    /// Begins a trace.
    pub fn begin(name: &'static str) -> Self {
        Self(TRACER.get().map(|tracer| {
            let builder = tracer.span_builder(name).with_kind(SpanKind::Internal);
            tracer.build_with_context(builder, &Context::new())
        }))
    }

    /// Begins a part of this one, which waits for a store.
    pub fn call(&self, name: &'static str) -> Self {
        use opentelemetry::trace::Span as _;
        let parts = TRACER.get().zip(self.0.as_ref());
        Self(parts.map(|(tracer, whole)| {
            let parent = Context::new().with_remote_span_context(whole.span_context().clone());
            let builder = tracer.span_builder(name).with_kind(SpanKind::Client);
            tracer.build_with_context(builder, &parent)
        }))
    }

    pub fn set(&mut self, attribute: &'static str, value: impl Into<Value>) {
        use opentelemetry::trace::Span as _;
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(attribute, value));
        }
    }

    /// A number of votes, counts or items.
    pub fn set_number(&mut self, attribute: &'static str, number: usize) {
        self.set(attribute, i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Notes that it failed.
    pub fn fail(&mut self, error: &impl Display) {
        use opentelemetry::trace::Span as _;
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(error.to_string()));
        }
    }
}

/// Sends what the library gives it. The library's own way needs a second version of reqwest, or a runtime in a
/// thread that has none.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sending = send(self.client.clone(), request);
        let sent = self.runtime.spawn(sending).await?;
        if let Err(error) = &sent {
            trouble!(warn, %error; "spans were not sent to the collector; Tally goes on without");
        }
        sent.map_err(Into::into)
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, reqwest::Error> {
    // The address may hold a password.
    let mut answer = client
        .execute(request.try_into()?)
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        let left = ANSWER_LIMIT_BYTES.saturating_sub(body.len());
        body.extend_from_slice(&chunk[..chunk.len().min(left)]);
        if left == 0 {
            break;
        }
    }
    Ok(Response::new(Bytes::from(body)))
}
