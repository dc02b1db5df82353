//! `PATCH` of items and polls.

use actix_web::{HttpResponse, web};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use utoipa::ToSchema;

use crate::domain::{Actor, Edit, Moment, TimeEdits, VotedOn};
use crate::web::access::Admin;
use crate::web::api::fields::{moment, name};
use crate::web::api::items::{ItemBody, item_answer};
use crate::web::api::named;
use crate::web::api::named::Named;
use crate::web::api::polls;
use crate::web::api::polls::PollBody;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathItemReference, PathPollReference, form};

/// A field of an edit. Absent means unchanged. Null removes a time, and is refused for other fields.
type Edited<T> = Option<Option<T>>;

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(reader: D) -> Result<Edited<T>, D::Error> {
    Option::deserialize(reader).map(Some)
}

/// Returns the new value of a field that can be changed but not removed.
fn not_null<T>(field: &'static str, value: Edited<T>, takes: &str) -> Result<Option<T>, Problem> {
    match value {
        Some(None) => {
            let detail = format!("{field} is null; it takes {takes}, or leave it out to keep it.");
            Err(Problem::invalid(field, detail))
        }
        Some(value) => Ok(value),
        None => Ok(None),
    }
}

fn time(field: &'static str, text: Edited<String>) -> Result<Option<Option<Moment>>, Problem> {
    text.map(|text| moment(field, text)).transpose()
}

/// Reads the fields that items and polls share. `name_field` is what clients call the name.
fn edit(
    name_field: &'static str,
    new_name: Edited<String>,
    hidden: Edited<bool>,
    opens_at: Edited<String>,
    closes_at: Edited<String>,
) -> Result<Edit, Problem> {
    let new_name = not_null(name_field, new_name, "text")?;
    Ok(Edit {
        name: new_name.map(|text| name(name_field, text)).transpose()?,
        is_hidden: not_null("hidden", hidden, "true or false")?,
        times: TimeEdits {
            opens_at: time("opens_at", opens_at)?,
            closes_at: time("closes_at", closes_at)?,
        },
    })
}

form! {
    /// The body of an item's edit. Fields that are left out do not change.
    #[derive(ToSchema)]
    #[schema(as = ItemEdit, examples(json!({ "hidden": true })))]
    pub struct ItemEditBody {
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = values::Name, required = false)]
        name: Edited<String>,
        /// Whether lists leave the item out.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = bool, required = false)]
        hidden: Edited<bool>,
        /// The time at which voting opens. Null removes it.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = Option<values::Time>)]
        opens_at: Edited<String>,
        /// The time at which voting closes. Null removes it.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = Option<values::Time>)]
        closes_at: Edited<String>,
        // Fields that never change. They are read so that the refusal can say why.
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        key: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        down_votes: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        max_votes: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        numbered: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        by_ballot: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        poll_id: Edited<IgnoredAny>,
    }
}

/// Why a key never changes.
const KEY: &str = "servers remember keys";
/// Why a rule never changes.
const RULE: &str = "votes were cast under it, and servers remember it; create another one";

/// Refuses fields that never change.
fn refuse(fields: &[(&'static str, &Edited<IgnoredAny>, &str)]) -> Result<(), Problem> {
    match fields.iter().find(|(_, value, _)| value.is_some()) {
        Some((field, _, why)) => Err(Problem::never_changes(field, why)),
        None => Ok(()),
    }
}

impl ItemEditBody {
    /// Returns the edit, if every field is allowed.
    pub(in crate::web) fn into_edit(self) -> Result<Edit, Problem> {
        refuse(&[
            ("key", &self.key, KEY),
            ("down_votes", &self.down_votes, RULE),
            ("max_votes", &self.max_votes, RULE),
            ("numbered", &self.numbered, RULE),
            ("by_ballot", &self.by_ballot, RULE),
            ("poll_id", &self.poll_id, RULE),
        ])?;
        edit("name", self.name, self.hidden, self.opens_at, self.closes_at)
    }
}

form! {
    /// The body of a poll's edit. Fields that are left out do not change.
    #[derive(ToSchema)]
    #[schema(as = PollEdit, examples(json!({ "title": "Dinner?" })))]
    pub struct PollEditBody {
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = values::Name, required = false)]
        title: Edited<String>,
        /// Whether lists leave the poll out.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = bool, required = false)]
        hidden: Edited<bool>,
        /// The time at which voting opens. Null removes it.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = Option<values::Time>)]
        opens_at: Edited<String>,
        /// The time at which voting closes. Null removes it.
        #[serde(default, deserialize_with = "present")]
        #[schema(value_type = Option<values::Time>)]
        closes_at: Edited<String>,
        // Fields that never change, as for an item.
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        key: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        choices: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        max_choices: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        results_before_close: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        by_ballot: Edited<IgnoredAny>,
        #[serde(default, deserialize_with = "present")]
        #[schema(ignore)]
        secret: Edited<IgnoredAny>,
    }
}

impl PollEditBody {
    /// Returns the edit, if every field is allowed.
    pub(in crate::web) fn into_edit(self) -> Result<Edit, Problem> {
        refuse(&[
            ("key", &self.key, KEY),
            (
                "choices",
                &self.choices,
                "voters have chosen among them; POST /v1/polls/{id}/choices adds one",
            ),
            ("max_choices", &self.max_choices, RULE),
            (
                "results_before_close",
                &self.results_before_close,
                "voters have relied on it",
            ),
            ("by_ballot", &self.by_ballot, RULE),
            ("secret", &self.secret, "voters have relied on it"),
        ])?;
        edit("title", self.title, self.hidden, self.opens_at, self.closes_at)
    }
}

/// Returns the field that a refused edit of times names.
fn times_field(times: &TimeEdits) -> &'static str {
    match times.opens_at {
        Some(_) => "opens_at",
        None => "closes_at",
    }
}

/// Stores an edit, and answers with the item or poll.
async fn store(state: &AppState, by: Actor, named: Named<'_>, edit: &Edit) -> Result<HttpResponse, Problem> {
    let edited = async {
        let edited = named.ledger.edit(by, named.of, edit).await?;
        edited
            .map_err(|refusal| Problem::not_edited(refusal, times_field(&edit.times), || named.unknown()))?;
        match named.of {
            VotedOn::Item(item) => {
                let read = state.counts.one(item).await?;
                Ok(item_answer(&read.ok_or_else(|| named.unknown())?))
            }
            VotedOn::Poll(poll) => polls::shown(state, poll).await,
        }
    };
    state.ledger.in_one_run(named.is_by_key, edited).await
}

/// Update an item.
///
/// Times can be changed only if the item was created with a rule, and only until it closes.
#[utoipa::path(
    patch,
    path = "/v1/items/{id}",
    operation_id = "editItem",
    tag = "Items",
    params(("id" = values::ItemReference, Path, example = json!(1))),
    request_body(content = ItemEditBody, example = json!({ "hidden": true })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The item.", body = ItemBody, example = json!(examples::item())),
        ItemProblems,
    )
)]
pub async fn item(
    by: Admin,
    state: web::Data<AppState>,
    id: PathItemReference,
    body: Json<ItemEditBody>,
) -> Result<HttpResponse, Problem> {
    let edit = body.0.into_edit()?;
    store(&state, by.0, named::item(&state, &id.0).await?, &edit).await
}

problems!(
    ItemProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, OtherCell, UnknownItem, Closed, NeverChanges, OlderServers
);

/// Update a poll.
///
/// Times can be changed until the poll closes.
#[utoipa::path(
    patch,
    path = "/v1/polls/{id}",
    operation_id = "editPoll",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1))),
    request_body(content = PollEditBody, example = json!({ "title": "Dinner?" })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 200, description = "The poll.", body = PollBody, example = json!(examples::poll())),
        PollProblems,
    )
)]
pub async fn poll(
    by: Admin,
    state: web::Data<AppState>,
    id: PathPollReference,
    body: Json<PollEditBody>,
) -> Result<HttpResponse, Problem> {
    let edit = body.0.into_edit()?;
    store(&state, by.0, named::poll(&state, &id.0).await?, &edit).await
}

problems!(
    PollProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, OtherCell, UnknownPoll, Closed, NeverChanges, OlderServers
);
