//! `/v1/trail`: administrative acts.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::domain::{Act, ActKind, Moment, TrailFilter};
use crate::web::access::Admin;
use crate::web::api::fields::moment;
use crate::web::api::state::AppState;
use crate::web::describe::{problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Query, form, page};

/// Acts on a page by default.
const TRAIL_DEFAULT_ACTS: i64 = 100;
/// The most acts on a page.
pub const TRAIL_LIMIT_ACTS: i64 = 1000;
/// The longest `who`. The trail has none that is longer (migrations/0004_access.sql).
const WHO_LIMIT_CHARACTERS: usize = 100;

form! {
    #[derive(IntoParams)]
    #[into_params(parameter_in = Query)]
    pub struct TrailQuery {
        /// Only acts at this time or later (RFC 3339), by the database's clock.
        #[param(value_type = Option<values::Time>)]
        since: Option<String>,
        /// Only acts before this time (RFC 3339).
        #[param(value_type = Option<values::Time>)]
        until: Option<String>,
        /// Only acts that were noted before the act with this id: the `next_before` of a page.
        #[param(value_type = Option<values::Id>)]
        before: Option<i64>,
        /// Only acts of this actor, such as `api_key:3`, `login:ada` or `anyone`.
        #[param(min_length = 1, max_length = 100)]
        who: Option<String>,
        /// Only acts of this kind, such as `item.create`.
        #[param(value_type = Option<values::ActKind>, example = json!("item.create"))]
        what: Option<String>,
        /// The most acts on the page. Defaults to 100.
        #[param(minimum = 1, maximum = 1000)]
        limit: Option<i64>,
    }
}

impl TrailQuery {
    /// Returns the filter of the query, and how many acts the page has.
    pub(in crate::web) fn into_filter(self) -> Result<(TrailFilter, i64), Problem> {
        let limit = page::limit(self.limit, TRAIL_DEFAULT_ACTS, TRAIL_LIMIT_ACTS)?;
        let before = page::before(self.before)?;
        if let Some(who) = &self.who {
            let characters = who.chars().count();
            if !(1..=WHO_LIMIT_CHARACTERS).contains(&characters) || who.contains('\0') {
                let detail = "who takes 1 to 100 characters, like api_key:3, login:ada or anyone.";
                return Err(Problem::invalid("who", detail));
            }
        }
        if let Some(what) = &self.what
            && !ActKind::ALL.iter().any(|kind| kind.name() == what)
        {
            let names: Vec<&str> = ActKind::ALL.iter().map(|kind| kind.name()).collect();
            let detail = format!("what takes one of {}.", names.join(", "));
            return Err(Problem::invalid("what", detail));
        }
        let filter = TrailFilter {
            since: moment("since", self.since)?,
            until: moment("until", self.until)?,
            before_id: before,
            who: self.who,
            what: self.what,
        };
        Ok((filter, limit))
    }
}

/// An administrative act.
#[derive(Serialize, ToSchema)]
#[schema(as = Act)]
struct ActBody {
    #[schema(value_type = values::Id)]
    id: i64,
    #[schema(value_type = values::Time)]
    acted_at: Moment,
    /// `api_key:3`, `login:ada` on the command line, or `anyone` where administration is open to anyone.
    who: String,
    /// The kind of act. Programs of other versions may note other kinds.
    what: String,
    /// What the act was on, such as `item:5`. Null if it is not known, or there is nothing.
    #[schema(required)]
    target: Option<String>,
    #[schema(value_type = ActOutcomeName)]
    outcome: String,
    /// The type of the problem that says why the act was refused or failed.
    #[schema(required)]
    problem: Option<String>,
    /// `http`, or a program of the command line.
    tool: String,
    /// The client's address.
    #[schema(required)]
    address: Option<String>,
    /// The Postgres login that noted the act.
    login: String,
    /// The id of the act that notes the beginning, if the act took long.
    #[schema(required, value_type = Option<values::Id>)]
    begun_id: Option<i64>,
    /// Further details of the act.
    #[schema(required, value_type = Option<Object>)]
    details: Value,
}

/// The outcome of an act: the names in its schema.
#[derive(ToSchema)]
#[schema(as = ActOutcome, rename_all = "lowercase")]
#[expect(dead_code, reason = "it is here for its schema")]
enum ActOutcomeName {
    Begun,
    Done,
    Refused,
    Failed,
}

impl From<Act> for ActBody {
    fn from(act: Act) -> Self {
        Self {
            id: act.id,
            acted_at: act.acted_at,
            who: act.who,
            what: act.what,
            target: act.target,
            outcome: act.outcome,
            problem: act.problem,
            tool: act.tool,
            address: act.address,
            login: act.login,
            begun_id: act.begun_id,
            details: act.details,
        }
    }
}

/// A page of the trail.
#[derive(Serialize, ToSchema)]
#[schema(as = Trail)]
struct TrailBody {
    /// The acts, with the newest first.
    acts: Vec<ActBody>,
    /// The `before` of the next page. Null on the last page.
    #[schema(required, value_type = Option<values::Id>)]
    next_before: Option<i64>,
}

/// List administrative acts.
///
/// The trail says who did what. The newest act comes first. This needs a server with an operator's login
/// (`TALLY_OPERATOR_DATABASE_URL`).
#[utoipa::path(
    get,
    path = "/v1/trail",
    operation_id = "listTrail",
    tag = "Operating",
    params(TrailQuery),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "A page of the trail.", body = TrailBody, headers(("Cache-Control" = String)),
            example = json!({
                "acts": [{
                    "id": 7, "acted_at": "2030-01-31T18:00:00.123456Z", "who": "api_key:3", "what": "item.create",
                    "target": "item:5", "outcome": "done", "problem": null, "tool": "http",
                    "address": "203.0.113.7", "login": "web", "begun_id": null, "details": { "name": "A post" }
                }],
                "next_before": null
            })),
        ListProblems,
    )
)]
pub async fn list(
    by: Admin,
    state: web::Data<AppState>,
    query: Query<TrailQuery>,
) -> Result<HttpResponse, Problem> {
    let (filter, limit) = query.0.into_filter()?;
    let ledger = state.operator.ledger_of(by.0, "tally trail")?;
    let acts = ledger.trail(&filter, limit).await.map_err(Problem::of_operator)?;
    let is_full = i64::try_from(acts.len()) == Ok(limit);
    let next_before = acts.last().filter(|_| is_full).map(|act| act.id);
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(TrailBody {
            acts: acts.into_iter().map(ActBody::from).collect(),
            next_before,
        }))
}

problems!(ListProblems: ADDRESSES, CALLERS, OPERATORS, STORES);
