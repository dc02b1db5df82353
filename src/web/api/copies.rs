//! `POST /v1/polls/{id}/copy`: creates a poll with the choices and the rules of another one.

use actix_web::{HttpResponse, web};
use utoipa::ToSchema;

use crate::domain::{Item, ItemKey, ItemName, Moment, NewPoll, Poll};
use crate::web::access::Admin;
use crate::web::api::fields::{key, name, open_and_close};
use crate::web::api::polls;
use crate::web::api::polls::PollBody;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::Problem;
use crate::web::request::{Json, PathPollReference, form};

form! {
    /// The body of a poll's copy. All of it may be left out.
    #[derive(ToSchema)]
    #[schema(as = PollCopy, examples(json!({ "key": "lunch-2", "closes_at": "2030-01-31T18:00:00Z" })))]
    pub struct PollCopyBody {
        /// Defaults to the other poll's title.
        #[schema(value_type = Option<values::Name>)]
        title: Option<String>,
        /// Your own key of the new poll. It is unique and never changes.
        #[schema(value_type = Option<values::Key>)]
        key: Option<String>,
        /// The time at which voting opens (RFC 3339). It is not copied.
        #[schema(value_type = Option<values::Time>)]
        opens_at: Option<String>,
        /// The time at which voting closes (RFC 3339). It is not copied. A poll whose results are hidden until it closes
        /// needs one.
        #[schema(value_type = Option<values::Time>)]
        closes_at: Option<String>,
    }
}

/// What a copy has of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct NewCopy {
    pub title: Option<ItemName>,
    pub key: Option<ItemKey>,
    pub opens_at: Option<Moment>,
    pub closes_at: Option<Moment>,
}

impl PollCopyBody {
    /// Returns what the body asks for, if every field is allowed.
    pub(in crate::web) fn into_copy(self) -> Result<NewCopy, Problem> {
        let (opens_at, closes_at) = open_and_close(self.opens_at, self.closes_at)?;
        Ok(NewCopy {
            title: self.title.map(|title| name("title", title)).transpose()?,
            key: key(self.key)?,
            opens_at,
            closes_at,
        })
    }
}

impl NewCopy {
    /// Returns the new poll, with what it has of the other one.
    fn of(self, poll: Poll, choices: &[Item]) -> Result<NewPoll, Problem> {
        if !poll.shows_results && self.closes_at.is_none() {
            let detail =
                "closes_at is missing; it takes a time, because the poll hides its results until it closes.";
            return Err(Problem::invalid("closes_at", detail));
        }
        let stored = |name: &str| ItemName::parse(name.to_owned()).map_err(|_| Problem::internal());
        Ok(NewPoll {
            title: match self.title {
                Some(title) => title,
                None => stored(&poll.title)?,
            },
            key: self.key,
            choices: choices
                .iter()
                .map(|choice| stored(&choice.name))
                .collect::<Result<_, _>>()?,
            max_choices: poll.max_choices,
            opens_at: self.opens_at,
            closes_at: self.closes_at,
            shows_results: poll.shows_results,
            by_ballot: poll.by_ballot,
            is_secret: poll.is_secret,
        })
    }
}

/// Create a poll from another one.
///
/// The new poll has the title, the choices and the rules of the other one, which may have closed. It has no votes, no
/// ballots and no key of the other one, is in lists, and opens and closes when the body says. If an equal poll has the
/// same key, the answer is that poll.
#[utoipa::path(
    post,
    path = "/v1/polls/{id}/copy",
    operation_id = "copyPoll",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1))),
    request_body(content = PollCopyBody, example = json!({ "closes_at": "2030-01-31T18:00:00Z" })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The poll was created.", body = PollBody, headers(("Location" = String)),
            example = json!(examples::poll())),
        (status = 200, description = "An equal poll has your key already.", body = PollBody,
            example = json!(examples::poll())),
        CreateProblems,
    )
)]
pub async fn create(
    by: Admin,
    state: web::Data<AppState>,
    id: PathPollReference,
    body: Json<PollCopyBody>,
) -> Result<HttpResponse, Problem> {
    let copy = body.0.into_copy()?;
    let made = async {
        let other = state.references.poll(&id.0).await?.id;
        let poll = state.ledger.poll(other).await?;
        let poll = poll.ok_or_else(|| Problem::unknown_poll(&id.0))?;
        let new = copy.of(poll, &state.ledger.choices(other).await?)?;
        polls::make(&state, by.0, &new).await
    };
    state.ledger.in_one_run(true, made).await
}

problems!(
    CreateProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, KeyTaken, OtherCell, UnknownPoll, OlderServers
);
