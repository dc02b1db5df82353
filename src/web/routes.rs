//! The one table of routes.
//!
//! A route is written at its handler, where `#[utoipa::path]` has its method and its path, and in one line
//! here. Everything else comes from this table: the router, Allow, HEAD, the description, the words that logs
//! may show, the label in the metrics, and the administrative acts.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use actix_web::http::{Method, StatusCode};
use actix_web::web;
use utoipa::OpenApi as _;

use crate::domain::ActKind;
use crate::web::access::Act;
use crate::web::api::{
    access, api_keys, audits, ballots, batches, choices, copies, edits, feed, health, held_votes, history,
    items, lists, poll_lists, polls, receipts, selections, status, status_history, streams, top, trail,
    voidings, voter, voter_edits, votes, votes_of,
};
use crate::web::openapi;
use crate::web::openapi::Description;
use crate::web::pages::{assets, docs, embed, frames, oembed, operator, problems, voting};
use crate::web::problem::{method_not_allowed, not_found};
use crate::web::transport::kept::Kept;
use crate::web::transport::observe;

/// A method of a path, with its handler.
pub struct Route {
    method: Method,
    path: String,
    /// `None`: the route is not described.
    operation_id: Option<String>,
    act: Option<ActKind>,
    handler: fn() -> actix_web::Route,
    /// Describes this route alone.
    document: Option<fn() -> utoipa::openapi::OpenApi>,
}

impl Route {
    /// The method. HEAD has no route of its own: every GET route takes it.
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// The path, with its variables in braces.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of the operation. `None`: the route is not described.
    pub fn operation_id(&self) -> Option<&str> {
        self.operation_id.as_deref()
    }

    /// The administrative act of a request to this route.
    pub fn act(&self) -> Option<ActKind> {
        self.act
    }
}

/// Each line is a `handler`, followed by `act Kind` if the request is an administrative act. A route without
/// a description is written as `"path" METHOD => handler`.
macro_rules! table {
    (@act) => { None };
    (@act $act:ident) => { Some(ActKind::$act) };
    (@route [$($handler:ident)::+] $($act:ident)?) => {{
        #[derive(utoipa::OpenApi)]
        #[openapi(paths($($handler)::+))]
        struct Only;
        described(Only::openapi, || web::to($($handler)::+), table!(@act $($act)?))
    }};
    (@route $path:literal $method:ident [$($handler:ident)::+]) => {
        Some(Route {
            method: Method::$method,
            path: $path.to_owned(),
            operation_id: None,
            act: None,
            handler: || web::to($($handler)::+),
            document: None,
        })
    };
    ($($($path:literal $method:ident =>)? $($handler:ident)::+ $(, act $act:ident)?;)+) => {
        [$(table!(@route $($path $method)? [$($handler)::+] $($act)?)),+]
    };
}

/// Every route, in the order of the page that shows the description. Calling the operations in this order
/// works: each finds what the calls before it created.
static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let routes = table! {
        items::create, act ItemCreate;
        lists::list;
        top::show;
        items::show;
        history::of_item;
        edits::item, act ItemEdit;

        votes::cast;
        votes::held;
        votes::change;
        votes::take_back;
        batches::cast;
        held_votes::list;
        feed::show;
        receipts::show;
        votes_of::of_item;
        votes_of::of_poll;

        polls::create, act PollCreate;
        poll_lists::list;
        polls::show;
        history::of_poll;
        edits::poll, act PollEdit;
        choices::add, act ChoiceCreate;
        copies::create, act PollCreate;
        selections::select;
        selections::selected;
        selections::take_back;

        ballots::of_item, act BallotsCreate;
        ballots::of_poll, act BallotsCreate;

        streams::of_item;
        streams::of_poll;
        streams::some;

        access::of_item;
        access::set_item, act ItemAccess;
        access::of_poll;
        access::set_poll, act PollAccess;

        voter::create;
        voter::show;
        voter::forget;

        api_keys::create, act ApiKeyCreate;
        api_keys::list;
        api_keys::rotate, act ApiKeyRotate;
        api_keys::revoke, act ApiKeyRevoke;

        status::show;
        status_history::show;
        audits::ask, act AuditAsk;
        voidings::new::create, act VoidingCreate;
        voidings::list;
        voidings::show;
        voidings::resume, act VoidingRun;
        voidings::undo, act VoidingUndo;
        voter_edits::new::create, act VoterEditCreate;
        voter_edits::list;
        voter_edits::show;
        voter_edits::resume, act VoterEditRun;
        trail::list;

        problems::list;
        problems::show;

        health::live;
        health::ready;
        health::metrics;

        voting::home;
        voting::item;
        voting::poll;
        frames::item;
        frames::poll;
        oembed::show;
        embed::page;
        operator::page;
        openapi::document;
        docs::page;
        "/embed.js" GET => embed::elements;
        "/assets/{name}" GET => assets::show;
    };
    routes.into_iter().flatten().collect()
});

/// The busiest resources, in the order in which they are tried. The first match wins. All other resources
/// come after them.
const BUSIEST: [&str; 7] = [
    "/v1/items/{id}/votes",
    "/v1/items/{id}/votes/{voter_id}",
    // Before the items: "top" is no id.
    "/v1/items/top",
    "/v1/items/{id}",
    "/v1/items",
    "/v1/polls/{id}/votes/{voter_id}",
    "/v1/polls/{id}",
];

/// The methods of a path, in the order of the Allow header.
const METHODS: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// Returns the route of a handler with a description. `None`: its method is not in [`METHODS`], which fails a
/// test of the table.
fn described(
    document: fn() -> utoipa::openapi::OpenApi,
    handler: fn() -> actix_web::Route,
    act: Option<ActKind>,
) -> Option<Route> {
    let (path, mut item) = document().paths.paths.into_iter().next()?;
    let (method, operation) = [
        (Method::GET, item.get.take()),
        (Method::POST, item.post.take()),
        (Method::PUT, item.put.take()),
        (Method::PATCH, item.patch.take()),
        (Method::DELETE, item.delete.take()),
    ]
    .into_iter()
    .find_map(|(method, operation)| Some((method, operation?)))?;
    Some(Route {
        method,
        path,
        operation_id: operation.operation_id,
        act,
        handler,
        document: Some(document),
    })
}

/// A path and its routes.
struct Resource {
    path: &'static str,
    /// The Allow header.
    allow: String,
    routes: Vec<&'static Route>,
}

/// Every path, in the order in which it is tried.
static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    let mut resources: Vec<Resource> = Vec::new();
    for route in ROUTES.iter() {
        match resources.iter_mut().find(|resource| resource.path == route.path) {
            Some(resource) => resource.routes.push(route),
            None => resources.push(Resource {
                path: &route.path,
                allow: String::new(),
                routes: vec![route],
            }),
        }
    }
    for resource in &mut resources {
        let place = |route: &&Route| METHODS.iter().position(|method| *method == route.method);
        resource.routes.sort_by_key(place);
        let methods = resource.routes.iter().flat_map(|route| methods_of(route));
        let methods: Vec<&str> = methods.map(Method::as_str).collect();
        resource.allow = methods.join(", ");
    }
    resources.sort_by_key(|resource| {
        let rank = BUSIEST.iter().position(|path| *path == resource.path);
        // A path without variables comes before a path with variables: "top" is not an id.
        (rank.unwrap_or(BUSIEST.len()), resource.path.matches('{').count())
    });
    resources
});

/// The methods that a route takes.
fn methods_of(route: &Route) -> &'static [Method] {
    let at = METHODS.iter().position(|method| *method == route.method);
    // HEAD uses the handler of GET: actix-web leaves the body out.
    match at {
        Some(0) => &METHODS[..2],
        Some(at) => &METHODS[at..=at],
        None => &[],
    }
}

/// The fixed parts of all paths.
static WORDS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let parts = ROUTES.iter().flat_map(|route| route.path.split('/'));
    let words: BTreeSet<&str> = parts.filter(|part| !part.starts_with('{')).collect();
    words.into_iter().collect()
});

/// The description of all operations.
static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| Description::of(&document()));
/// The page that shows it.
static DOCS: LazyLock<Kept> = LazyLock::new(|| docs::page_of(&document()));

fn document() -> utoipa::openapi::OpenApi {
    openapi::joined(ROUTES.iter().filter_map(|route| Some(route.document?())))
}

/// Every route, in the order of the description.
pub fn all() -> &'static [Route] {
    &ROUTES
}

/// The description of the HTTP API: OpenAPI 3.1, as JSON.
pub fn description() -> &'static str {
    DESCRIPTION.text()
}

/// Makes the description and its page before the first request. This takes some milliseconds.
pub(super) fn prepare() {
    LazyLock::force(&DESCRIPTION);
    LazyLock::force(&DOCS);
}

/// Returns the requests that are administrative acts.
pub(super) fn acts() -> Vec<Act> {
    let acts = ROUTES.iter().filter_map(|route| {
        Some(Act {
            method: route.method.clone(),
            path: &route.path,
            kind: route.act?,
        })
    });
    acts.collect()
}

/// Adds every route.
pub(super) fn add(app: &mut web::ServiceConfig) {
    app.app_data(observe::Words(&WORDS));
    app.app_data(openapi::Served(&DESCRIPTION));
    app.app_data(docs::Served(&DOCS));
    for Resource { path, allow, routes } in RESOURCES.iter() {
        let times = observe::RouteTimes::new(path, StatusCode::OK);
        let mut resource = web::resource(*path).app_data(times);
        for route in routes {
            for method in methods_of(route) {
                resource = resource.route((route.handler)().method(method.clone()));
            }
        }
        let others = web::to(move || async move { method_not_allowed(allow) });
        app.service(resource.default_service(others));
    }
    app.default_service(web::to(not_found));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_route() {
        let lines = include_str!("routes.rs").lines().map(str::trim);
        let lines = lines.skip_while(|line| !line.ends_with("= table! {")).skip(1);
        let lines = lines.take_while(|line| *line != "};");
        assert_eq!(ROUTES.len(), lines.filter(|line| line.ends_with(';')).count());
    }

    #[test]
    fn plain_votes_are_tried_first() {
        assert_eq!(RESOURCES[0].path, "/v1/items/{id}/votes");
        let paths: Vec<&str> = RESOURCES.iter().map(|resource| resource.path).collect();
        assert_eq!(paths[..BUSIEST.len()], BUSIEST);
    }

    #[test]
    fn no_path_is_taken_by_one_that_is_tried_before_it() {
        let takes = |pattern: &str, path: &str| {
            let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
            pattern.len() == path.len()
                && pattern
                    .iter()
                    .zip(path)
                    .all(|(part, of_path)| part.starts_with('{') || *part == of_path)
        };
        for (at, resource) in RESOURCES.iter().enumerate() {
            for before in &RESOURCES[..at] {
                assert!(
                    !takes(before.path, resource.path),
                    "{} {}",
                    before.path,
                    resource.path
                );
            }
        }
    }

    #[test]
    fn each_path_says_which_methods_it_takes() {
        let allow = |path: &str| {
            let found = RESOURCES.iter().find(|resource| resource.path == path);
            found.map(|resource| resource.allow.as_str())
        };
        for (path, methods) in [
            ("/v1/items/{id}/votes", "GET, HEAD, POST"),
            ("/v1/items/{id}/votes/{voter_id}", "GET, HEAD, PUT, DELETE"),
            ("/v1/items/{id}", "GET, HEAD, PATCH"),
            ("/v1/items/{id}/access", "GET, HEAD, PUT"),
            ("/v1/voter", "GET, HEAD, POST, DELETE"),
            ("/v1/api-keys/{id}", "DELETE"),
            ("/embed.js", "GET, HEAD"),
            ("/health/live", "GET, HEAD"),
        ] {
            assert_eq!(allow(path), Some(methods), "{path}");
        }
    }

    #[test]
    fn the_words_of_paths_are_those_that_logs_may_show() {
        for word in ["", "v1", "items", "api-keys", "embed.js", "openapi.json", "ready"] {
            assert!(WORDS.contains(&word), "{word}: {:?}", *WORDS);
        }
        assert!(!WORDS.iter().any(|word| word.contains('{')), "{:?}", *WORDS);
    }
}
