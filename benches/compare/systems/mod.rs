//! The systems that are compared: Tally, five baselines that store votes in other ways, and nginx, which stores none.
//! A baseline answers the same requests through the same HTTP server as Tally's
//! (`tally::web::start`). Its process is this program, started again.

mod batched;
pub mod locking;
pub mod nginx;
mod no_op;
mod recipe;
mod transaction;

pub use recipe::key as recipe_key;
pub use testkit::benchmark::System;

use std::net::TcpListener;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use anyhow::{Context, anyhow, bail};
use sqlx::PgExecutor;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tally::counts::ItemCount;
use tally::domain::{Item, ItemId, NewVote, PollId, StoredVote, Value, VoteId, VoterId};
use tally::telemetry;
use tally::votes::Cast;
use tally::web::limits::CONNECTIONS_LIMIT;
use tally::web::{
    ChangeBody, ClientLimits, Drain, Json, PathItem, PathPoll, PathVoter, Problem, SelectionBody, VoteBody,
    item_answer, selection_answer, vote_answer,
};

/// The variable that tells this program, started again, which system to be.
pub const VARIABLE: &str = "TALLY_BENCH_SYSTEM";
/// The variable that says where it listens, the same as Tally's.
pub const LISTEN: &str = "TALLY_LISTEN";

/// The variable that says how many servers share Postgres' connections.
pub const SERVERS: &str = "TALLY_BENCH_SERVERS";
/// Postgres connections of all servers together, for a system that uses one for each vote.
/// More made it no faster.
const CONNECTIONS: u32 = 64;
/// How long a vote may wait for one of them.
const CONNECTION_WAIT_LIMIT: Duration = Duration::from_secs(60);

/// What a system says that only adds votes.
const UNKNOWN: &str = "this system only adds votes";

/// A way of storing votes.
trait VoteStore: 'static {
    /// Stores and counts a vote. In a durable system, the vote is durable once this returns.
    fn cast(&self, vote: NewVote) -> impl Future<Output = anyhow::Result<Cast>>;

    /// Changes a vote that is held.
    async fn change(&self, _: ItemId, _: &VoterId, _: Value) -> anyhow::Result<Cast> {
        bail!("{UNKNOWN}")
    }

    /// Moves a voter's vote in a poll to this choice. Returns whether it was on another one.
    async fn choose(&self, _: PollId, _: &VoterId, _: ItemId) -> anyhow::Result<bool> {
        bail!("{UNKNOWN}")
    }

    /// An item, and its live count if that is not in the item.
    fn item(&self, id: ItemId) -> impl Future<Output = anyhow::Result<(Item, Option<i64>)>>;
}

/// Runs as a system until it is killed.
pub async fn serve(name: &str) {
    telemetry::start(telemetry::LogFormat::Text, &[]).expect("a filter");
    // As `tally serve` does: the server measures each request.
    telemetry::init_metrics(&telemetry::Program::ALL).expect("the first recorder");
    match System::named(name) {
        Some(System::NoOp) => answer_with(|| no_op::NoOp).await,
        Some(System::Transaction) => {
            let store = transaction::Transaction {
                pool: connect().await,
            };
            answer_with(move || store.clone()).await;
        }
        Some(System::LockingTransaction) => {
            let store = locking::LockingTransaction {
                pool: connect().await,
            };
            answer_with(move || store.clone()).await;
        }
        Some(System::BatchedTransaction) => {
            let pool = batched::connect().await;
            answer_with(move || batched::BatchedTransaction::start(&pool)).await;
        }
        Some(System::Recipe) => {
            let store = recipe::Recipe::connect().await;
            answer_with(move || store.clone()).await;
        }
        Some(System::Nginx | System::Tally) | None => {
            panic!("{VARIABLE}: {name} is no system of this program")
        }
    }
}

/// `store` is called once on each thread that serves.
async fn answer_with<S: VoteStore>(store: impl Fn() -> S + Clone + Send + 'static) {
    let listen = std::env::var(LISTEN).expect(LISTEN);
    let listener = TcpListener::bind(listen).expect("a free port");
    tally::web::start(
        listener,
        ClientLimits::with_connections(CONNECTIONS_LIMIT),
        Duration::from_secs(1),
        &Drain::default(),
        move |app| {
            // In the order of Tally's own routes.
            app.app_data(web::Data::new(store()))
                .service(web::resource("/v1/items/{id}/votes").route(web::post().to(cast::<S>)))
                .service(web::resource("/v1/items/{id}/votes/{voter_id}").route(web::put().to(change::<S>)))
                .service(web::resource("/v1/items/{id}").route(web::get().to(item::<S>)))
                .service(web::resource("/v1/polls/{id}/votes/{voter_id}").route(web::put().to(choose::<S>)));
        },
    )
    .expect("a server")
    .await
    .expect("a server");
}

async fn cast<S: VoteStore>(
    store: web::Data<S>,
    id: PathItem,
    body: Json<VoteBody>,
) -> Result<HttpResponse, Problem> {
    let vote = body.0.into_vote(id.0)?;
    let (item_id, voter_id) = (vote.item_id, vote.voter_id.clone());
    match store.cast(vote).await {
        Ok(cast) => vote_answer(item_id, voter_id.as_ref(), cast),
        Err(error) => Ok(failed(&error)),
    }
}

async fn change<S: VoteStore>(
    store: web::Data<S>,
    id: PathItem,
    voter: PathVoter,
    body: Json<ChangeBody>,
) -> Result<HttpResponse, Problem> {
    let value = body.0.into_value()?;
    match store.change(id.0, &voter.0, value).await {
        Ok(cast) => vote_answer(id.0, Some(&voter.0), cast),
        Err(error) => Ok(failed(&error)),
    }
}

async fn choose<S: VoteStore>(
    store: web::Data<S>,
    id: PathPoll,
    voter: PathVoter,
    body: Json<SelectionBody>,
) -> Result<HttpResponse, Problem> {
    let items = body.0.into_items()?;
    let [choice] = items[..] else {
        return Ok(failed(&anyhow!(
            "a selection of one choice, and no other, is asked for"
        )));
    };
    Ok(match store.choose(id.0, &voter.0, choice).await {
        Ok(is_changed) => selection_answer(id.0, &voter.0, items, !is_changed),
        Err(error) => failed(&error),
    })
}

async fn item<S: VoteStore>(store: web::Data<S>, id: PathItem) -> HttpResponse {
    match store.item(id.0).await {
        Ok((item, live)) => item_answer(&ItemCount {
            item: item.into(),
            live_count: live.map(Into::into),
            is_current: true,
        }),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> HttpResponse {
    HttpResponse::InternalServerError().body(format!("{error:#}"))
}

/// This server's part of the connections.
fn connections() -> u32 {
    let servers: u32 = std::env::var(SERVERS)
        .ok()
        .and_then(|text| text.parse().ok())
        .expect(SERVERS);
    CONNECTIONS.div_ceil(servers)
}

fn database_url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL")
}

/// A pool of this server's connections, all of them made.
async fn connect() -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections())
        .min_connections(connections())
        .test_before_acquire(false)
        .acquire_timeout(CONNECTION_WAIT_LIMIT)
        .connect(&database_url())
        .await
        .expect("a connection")
}

/// Stores a vote.
async fn insert(postgres: impl PgExecutor<'_>, vote: &NewVote) -> anyhow::Result<StoredVote> {
    let id = sqlx::query_scalar(
        "insert into vote (item_id, voter_id, value) values ($1, $2, $3)
         on conflict (item_id, voter_id, change_number) where voter_id is not null do nothing
         returning id",
    )
    .bind(vote.item_id.get())
    .bind(vote.voter_id.as_ref().map(VoterId::as_str))
    .bind(vote.value.get())
    .fetch_optional(postgres)
    .await?
    .context("a repeated vote, which the bench never casts")?;
    Ok(StoredVote {
        number: None,
        id: VoteId::new(id),
        value: vote.value.get(),
    })
}

/// An item from its row, for the systems whose count is there.
async fn item_row(pool: &PgPool, id: ItemId) -> anyhow::Result<(Item, Option<i64>)> {
    let (name, saved_count): (String, i64) =
        sqlx::query_as("select name, vote_count from item where id = $1")
            .bind(id.get())
            .fetch_one(pool)
            .await?;
    let item = Item {
        rules: None,
        key: None,
        is_hidden: false,
        id,
        name: name.into(),
        saved_count: saved_count.into(),
        counted_at: None,
    };
    Ok((item, None))
}
