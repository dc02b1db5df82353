//! `tally dev`: all of Tally with one command, on its own Postgres and Redis.
//!
//! - `stores`: its Postgres and Redis, or those that were given.

mod stores;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use futures_util::future::{join_all, try_join_all};
use tokio::sync::watch;

use self::stores::DevStores;
use super::greeting::{self, Greeting};
use super::wiring::{self, StoreUrls};
use crate::config::{self, Topology};
use crate::dev::{PrivateProxy, free_port};
use crate::domain::{Actor, ItemName, NewPoll, Who};
use crate::ledger::{Listing, Role, ServerLedger};
use crate::store_url::StoreUrl;
use crate::sync::{self, Schedule};
use crate::web::access::{Networks, Open};
use crate::web::{Server, ServerOptions};
use crate::{shutdown, telemetry};

/// The items that the first start adds, so that there is something to vote on.
const DEMO_ITEMS: [&str; 4] = [
    "Tabs",
    "Spaces",
    "Both, on the same line",
    "Whatever the formatter says",
];

/// The servers, and the workers, of a topology that survives the loss of one.
const PROGRAMS: usize = 2;

/// The poll that the first start adds, with its choices.
const DEMO_POLL: (&str, [&str; 3]) = (
    "Where shall we eat on Friday?",
    ["The noodle bar", "Pizza by the river", "Something new"],
);

/// Runs everything until Ctrl-C or SIGTERM, then stops everything.
pub async fn run(settings: config::Dev) -> anyhow::Result<()> {
    let _reporting = tokio::spawn(telemetry::keep_reporting());
    let metrics = telemetry::init_metrics(&telemetry::Program::ALL)?;
    let endpoint = settings.traces.otel_exporter_otlp_endpoint.as_deref();
    let traces = telemetry::Traces::start(endpoint, telemetry::Program::Server)?;
    // Listen for signals from here on, not from when the task first runs. Then a Ctrl-C while the stores
    // start stops them too.
    let (requested, hung_up) = (shutdown::requested_or_deaf(), shutdown::hung_up()?);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            () = requested => {}
            () = hung_up => {}
        }
        stop.send_replace(true);
    });
    let stores = {
        let mut stopped = stopped.clone();
        tokio::select! {
            stores = DevStores::start(&settings) => stores?,
            // Dropping the stores kills what has been started.
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        }
    };
    let started = serve(&settings, &stores, metrics, stopped).await;
    traces.end().await;
    // No process is left behind, whatever happened.
    stores.stop().await;
    started
}

async fn serve(
    settings: &config::Dev,
    stores: &DevStores,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    wiring::migrate(&stores.database_url, "tally dev migrate").await?;
    // As in production, the server and the worker have only the permissions that each needs.
    let logins = stores.log_in().await?;
    let urls = |role: Role, database_url: &str| StoreUrls {
        database_url: database_url.into(),
        redis_url: stores.redis_login_url(role).into(),
        key_prefix: settings.keys.key_prefix.clone(),
    };
    let (of_server, of_worker) = (
        urls(Role::Server, &logins.server_url),
        urls(Role::Worker, &logins.worker_url),
    );
    add_demo(&logins.server_url).await?;
    let mut options = ServerOptions::from(&settings.server);
    wiring::check_for_server(&of_server, "tally dev server", None, options.cells).await?;
    if settings.server.open.is_none() && settings.server.listen.ip().is_loopback() {
        options.access.open = Open::ALL;
    }
    let open = options.access.open;
    let operator_url = settings.server.operator_database_url.as_ref();
    let operator_url = operator_url.map_or(logins.operator_url.as_str(), StoreUrl::as_str);
    let operator = wiring::operator(operator_url, "tally dev operator")?;
    let key = if open == Open::ALL {
        None
    } else {
        let file = stores.are_private().then(|| stores.folder.join("api-key"));
        Some(greeting::api_key(&operator, &logins.server_url, file.as_deref()).await?)
    };
    options.operator = Some(operator);
    let programs = match settings.topology {
        Topology::Single => 1,
        Topology::Sentinel | Topology::Cluster => PROGRAMS,
    };
    let is_behind_proxy = programs > 1 && PrivateProxy::is_installed();
    if is_behind_proxy && options.access.proxies.networks.is_empty() {
        options.access.proxies.networks = Networks::of_this_machine();
    }
    let listen = options.listen;
    let mut servers = Vec::new();
    for number in 0..programs {
        if is_behind_proxy || number > 0 {
            options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        }
        let server = wiring::server(&of_server, options.clone(), "tally dev server", metrics.clone())?;
        servers.push(server);
    }
    let addresses = servers
        .iter()
        .map(Server::address)
        .collect::<Result<Vec<_>, _>>()?;
    let proxy = if is_behind_proxy {
        let at = if listen.port() == 0 {
            SocketAddr::new(listen.ip(), free_port()?)
        } else {
            listen
        };
        let folder = stores.folder.join("haproxy");
        let proxy = PrivateProxy::start(&folder, at, &addresses);
        let proxy = proxy.await.context("TALLY_LISTEN")?;
        Some((proxy, at))
    } else {
        None
    };
    let (stop_workers, workers_stopped) = watch::channel(false);
    let mut workers = Vec::new();
    for _ in 0..programs {
        let worker = wiring::worker(&of_worker, (&settings.worker).into(), "tally dev worker")?;
        let schedule = Schedule::from(&settings.worker);
        let stopped = until(workers_stopped.clone());
        workers.push(tokio::spawn(async move {
            sync::run(worker, &schedule, stopped).await
        }));
    }

    let address = proxy.as_ref().map_or(addresses[0], |(_, at)| *at);
    let greeting = Greeting {
        address,
        servers: &addresses,
        open,
        key,
        psql: &logins.psql,
        redis_cli: stores.redis_cli(),
        folder: stores.are_private().then_some(stores.folder.as_path()),
    };
    greeting.print();
    let serving = servers
        .into_iter()
        .map(|server| server.run(until(stopped.clone())));
    let served = try_join_all(serving).await;
    if let Some((proxy, _)) = proxy {
        proxy.stop().await;
    }
    // The servers stop first, so that the workers' last flush has all votes.
    stop_workers.send_replace(true);
    // All of them, also if one failed: the stores stop next.
    for ended in join_all(workers).await {
        ended??;
    }
    served.map(|_| ())
}

/// Waits until it is to stop.
async fn until(mut stopped: watch::Receiver<bool>) {
    // A dropped sender means stop, too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Adds the demo items and the demo poll to a database without items.
async fn add_demo(server_url: &str) -> anyhow::Result<()> {
    let ledger = ServerLedger::new(server_url, "tally dev")?;
    if ledger.items(0, 1, Listing::All).await?.0.is_empty() {
        for name in DEMO_ITEMS {
            ledger
                .create_item(&ItemName::parse(name.to_owned())?.into())
                .await?;
        }
        let (title, choices) = DEMO_POLL;
        let choices = choices.map(|name| ItemName::parse(name.to_owned()));
        let poll = NewPoll {
            title: ItemName::parse(title.to_owned())?,
            key: None,
            choices: choices.into_iter().collect::<Result<_, _>>()?,
            max_choices: Some(1),
            opens_at: None,
            closes_at: None,
            shows_results: true,
            by_ballot: false,
            is_secret: false,
        };
        let actor = Actor {
            who: Who::Anyone,
            address: None,
        };
        ledger.create_poll(actor, &poll).await?;
    }
    ledger.close().await;
    Ok(())
}
