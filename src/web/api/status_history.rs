//! `/v1/status/history`: the server's figures of the last hour.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::web::access::Admin;
use crate::web::api::state::AppState;
use crate::web::describe::problems;
use crate::web::problem::Problem;
use crate::web::request::{Query, form};
use crate::web::status::{CURVES, SAMPLE_EVERY_SECONDS, SAMPLES_LIMIT, Sample};

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct HistoryQuery {
        /// Only samples after this time, in seconds since 1970. Usually the time of the client's last sample.
        #[param(minimum = 0, maximum = 4294967295i64)]
        after: Option<i64>,
    }
}

impl HistoryQuery {
    /// Returns the time after which samples are wanted, in seconds since 1970.
    pub(in crate::web) fn into_after(self) -> Result<u32, Problem> {
        let after = self.after.unwrap_or(0);
        u32::try_from(after).map_err(|_| {
            let detail = format!(
                "after is {after}; it takes 0 to {}, seconds since 1970.",
                u32::MAX
            );
            Problem::invalid("after", detail)
        })
    }
}

/// The last hour of a server.
#[derive(Serialize, ToSchema)]
#[schema(as = History)]
struct HistoryBody {
    /// The time between two samples, unless the server was held up.
    #[schema(minimum = 1)]
    every_seconds: u32,
    /// The most samples that are kept.
    #[schema(minimum = 1)]
    limit: usize,
    /// The time of each sample, in seconds since 1970. The oldest comes first.
    #[schema(value_type = Vec<i64>)]
    at: Vec<u32>,
    curves: Vec<CurveBody>,
}

/// A curve.
#[derive(Serialize, ToSchema)]
#[schema(as = Curve)]
struct CurveBody {
    name: &'static str,
    unit: &'static str,
    /// The curve's title, for people.
    title: &'static str,
    normal: NormalBody,
    /// One value for each sample. Null if there was none, such as the latency of votes when nobody voted.
    values: Vec<Option<f32>>,
}

/// The normal range of a curve. Without bounds, everything is normal.
#[derive(Serialize, ToSchema)]
#[schema(as = Normal)]
struct NormalBody {
    #[schema(required)]
    least: Option<f64>,
    #[schema(required)]
    most: Option<f64>,
    /// Why this is normal.
    why: &'static str,
}

/// Retrieve the status of the last hour.
///
/// The server takes a sample every five seconds, and keeps it in memory until it stops. Samples have rates,
/// the latency of votes, queues, and what the workers and the stores reported. Each curve has its normal
/// range.
#[utoipa::path(
    get,
    path = "/v1/status/history",
    operation_id = "showHistory",
    tag = "Operating",
    params(HistoryQuery),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The last hour.", body = HistoryBody, headers(("Cache-Control" = String)),
            example = json!({
                "every_seconds": 5, "limit": 720, "at": [1_896_112_800, 1_896_112_805],
                "curves": [{
                    "name": "latency_p99", "unit": "seconds", "title": "Vote latency, p99",
                    "normal": { "least": null, "most": 0.2, "why": "The p99 is 30 to 45 ms at half load. Five times that means a slow disk, a lock or a full queue." },
                    "values": [0.03, null]
                }]
            })),
        HistoryProblems,
    )
)]
pub async fn show(
    _: Admin,
    state: web::Data<AppState>,
    query: Query<HistoryQuery>,
) -> Result<HttpResponse, Problem> {
    let samples: Vec<Sample> = state.status.samples_after(query.0.into_after()?);
    let curves = CURVES.iter().enumerate().map(|(at, curve)| CurveBody {
        name: curve.name,
        unit: curve.unit,
        title: curve.title,
        normal: NormalBody {
            least: curve.normal.least,
            most: curve.normal.most,
            why: curve.normal.why,
        },
        values: samples.iter().map(|sample| sample.value(at)).collect(),
    });
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(HistoryBody {
            every_seconds: SAMPLE_EVERY_SECONDS,
            limit: SAMPLES_LIMIT,
            at: samples.iter().map(|sample| sample.at).collect(),
            curves: curves.collect(),
        }))
}

problems!(HistoryProblems: ADDRESSES, CALLERS, STORES);
