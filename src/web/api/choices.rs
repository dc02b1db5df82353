//! `POST /v1/polls/{id}/choices`: adds a choice to a poll that has not closed.

use actix_web::http::header;
use actix_web::{HttpResponse, web};
use utoipa::ToSchema;

use crate::domain::{AddedChoice, CHOICES_LIMIT_ITEMS, ChoiceRefusal, ItemName, PollId, Reference};
use crate::web::access::Admin;
use crate::web::api::fields::name;
use crate::web::api::polls;
use crate::web::api::polls::PollBody;
use crate::web::api::state::AppState;
use crate::web::describe::{examples, problems, values};
use crate::web::problem::{Kind, Problem};
use crate::web::request::{Json, PathPollReference, form};

form! {
    /// The body of a new choice.
    #[derive(ToSchema)]
    #[schema(as = NewChoice, examples(json!({ "name": "stew" })))]
    pub struct NewChoiceBody {
        /// It must not look like the name of another choice of the poll.
        #[schema(value_type = values::Name)]
        name: String,
    }
}

impl NewChoiceBody {
    /// Returns the name of the choice, if it is allowed.
    pub(in crate::web) fn into_name(self) -> Result<ItemName, Problem> {
        name("name", self.name)
    }
}

/// Add a choice to a poll.
///
/// Until the poll closes. The choice comes last. Votes that are cast stay as they are; voters may choose anew, but not
/// with ballots that are spent. If a choice has exactly this name already, nothing is added.
#[utoipa::path(
    post,
    path = "/v1/polls/{id}/choices",
    operation_id = "addChoice",
    tag = "Polls",
    params(("id" = values::PollReference, Path, example = json!(1))),
    request_body(content = NewChoiceBody, example = json!({ "name": "stew" })),
    security(("apiKey" = ["admin"]), ()),
    extensions(("x-open" = json!(["admin"]))),
    responses(
        (status = 201, description = "The poll, with the new choice. Location has the choice's item.", body = PollBody,
            headers(("Location" = String)), example = json!(examples::poll())),
        (status = 200, description = "The poll, which has a choice of this name already.", body = PollBody,
            example = json!(examples::poll())),
        AddProblems,
    )
)]
pub async fn add(
    by: Admin,
    state: web::Data<AppState>,
    id: PathPollReference,
    body: Json<NewChoiceBody>,
) -> Result<HttpResponse, Problem> {
    let name = body.0.into_name()?;
    let added = async {
        let poll = state.references.poll(&id.0).await?;
        let ledger = state.ledger.only_in(poll.run);
        let added = ledger.add_choice(by.0, poll.id, &name).await?;
        let added = added.map_err(|refusal| not_added(refusal, &id.0))?;
        let mut answer = match added {
            AddedChoice::New(item) => {
                let mut created = HttpResponse::Created();
                created.insert_header((header::LOCATION, format!("/v1/items/{item}")));
                created
            }
            AddedChoice::There => HttpResponse::Ok(),
        };
        Ok(answer.json(polls::read(&state, poll.id).await?))
    };
    state.ledger.in_one_run(id.0.is_key(), added).await
}

problems!(
    AddProblems: WRITES, ADDRESSES, BODIES, CALLERS, STORES;
    BodyTooLarge, OtherCell, UnknownPoll, Closed
);

fn not_added(refusal: ChoiceRefusal, poll: &Reference<PollId>) -> Problem {
    match refusal {
        ChoiceRefusal::Unknown => Problem::unknown_poll(poll),
        ChoiceRefusal::Closed => Problem::new(
            Kind::Closed,
            "Voting has closed and the results are final; a poll takes new choices until it closes.",
        ),
        ChoiceRefusal::SameChoice => Problem::invalid(
            "name",
            "name looks like that of another choice of the poll; it takes another name.",
        ),
        ChoiceRefusal::Many => Problem::invalid(
            "name",
            format!("name: the poll has {CHOICES_LIMIT_ITEMS} choices, the most that a poll has."),
        ),
    }
}
