//! The route table.

use actix_web::http::StatusCode;
use actix_web::web;

use crate::web::api::{
    access, api_keys, audits, ballots, batches, edits, health, held_votes, history, items, lists, poll_lists,
    polls, problems, receipts, selections, status, status_history, streams, top, trail, voidings, voter,
    votes,
};
use crate::web::openapi;
use crate::web::pages;
use crate::web::pages::assets;
use crate::web::pages::voting;
use crate::web::problem::{method_not_allowed, not_found};
use crate::web::transport::observe;

/// Adds every route.
pub(super) fn add(app: &mut web::ServiceConfig) {
    // HEAD has the handler of GET: actix-web leaves the body out.
    macro_rules! resource {
        ($path:literal, allow = $allow:literal, $($method:ident => $handler:path),+ $(,)?) => {
            app.service(
                web::resource($path)
                    .app_data(observe::Route::new($path, StatusCode::OK))
                    $(.route(web::$method().to($handler)))+
                    .default_service(web::to(|| async { method_not_allowed($allow) })),
            );
        };
    }
    // The first that matches is taken, so the busiest routes come first.
    resource!("/v1/items/{id}/votes", allow = "POST", post => votes::cast);
    resource!(
        "/v1/items/{id}/votes/{voter_id}",
        allow = "GET, HEAD, PUT, DELETE",
        get => votes::held,
        head => votes::held,
        put => votes::change,
        delete => votes::take_back,
    );
    // Before the items: "top" is no id.
    resource!("/v1/items/top", allow = "GET, HEAD", get => top::show, head => top::show);
    resource!("/v1/items/{id}", allow = "GET, HEAD, PATCH", get => items::show, head => items::show, patch => edits::item);
    resource!("/v1/items/{id}/access", allow = "GET, HEAD, PUT", get => access::of_item, head => access::of_item, put => access::set_item);
    resource!("/v1/items/{id}/ballots", allow = "POST", post => ballots::of_item);
    resource!("/v1/items", allow = "GET, HEAD, POST", get => lists::list, head => lists::list, post => items::create);
    resource!(
        "/v1/polls/{id}/votes/{voter_id}",
        allow = "GET, HEAD, PUT, DELETE",
        get => selections::selected,
        head => selections::selected,
        put => selections::select,
        delete => selections::take_back,
    );
    resource!("/v1/polls/{id}", allow = "GET, HEAD, PATCH", get => polls::show, head => polls::show, patch => edits::poll);
    resource!("/v1/polls/{id}/access", allow = "GET, HEAD, PUT", get => access::of_poll, head => access::of_poll, put => access::set_poll);
    resource!("/v1/polls/{id}/ballots", allow = "POST", post => ballots::of_poll);
    resource!("/v1/items/{id}/history", allow = "GET, HEAD", get => history::of_item, head => history::of_item);
    resource!("/v1/polls/{id}/history", allow = "GET, HEAD", get => history::of_poll, head => history::of_poll);
    resource!("/v1/stream", allow = "GET, HEAD", get => streams::some, head => streams::some);
    resource!("/v1/items/{id}/stream", allow = "GET, HEAD", get => streams::of_item, head => streams::of_item);
    resource!("/v1/polls/{id}/stream", allow = "GET, HEAD", get => streams::of_poll, head => streams::of_poll);
    resource!("/v1/votes", allow = "GET, HEAD, POST", get => held_votes::list, head => held_votes::list, post => batches::cast);
    resource!("/v1/votes/{id}", allow = "GET, HEAD", get => receipts::show, head => receipts::show);
    resource!("/v1/voter", allow = "GET, HEAD, POST, DELETE", get => voter::show, head => voter::show, post => voter::create, delete => voter::forget);
    resource!("/v1/api-keys", allow = "GET, HEAD, POST", get => api_keys::list, head => api_keys::list, post => api_keys::create);
    resource!("/v1/api-keys/{id}/rotate", allow = "POST", post => api_keys::rotate);
    resource!("/v1/api-keys/{id}", allow = "DELETE", delete => api_keys::revoke);
    resource!("/v1/polls", allow = "GET, HEAD, POST", get => poll_lists::list, head => poll_lists::list, post => polls::create);
    resource!("/v1/status", allow = "GET, HEAD", get => status::show, head => status::show);
    resource!("/v1/status/history", allow = "GET, HEAD", get => status_history::show, head => status_history::show);
    resource!("/v1/audits", allow = "POST", post => audits::ask);
    resource!("/v1/voidings", allow = "GET, HEAD, POST", get => voidings::list, head => voidings::list, post => voidings::new::create);
    resource!("/v1/voidings/{id}", allow = "GET, HEAD", get => voidings::show, head => voidings::show);
    resource!("/v1/voidings/{id}/resume", allow = "POST", post => voidings::resume);
    resource!("/v1/voidings/{id}/undo", allow = "POST", post => voidings::undo);
    resource!("/v1/trail", allow = "GET, HEAD", get => trail::list, head => trail::list);
    resource!("/", allow = "GET, HEAD", get => voting::home, head => voting::home);
    resource!("/items/{id}", allow = "GET, HEAD", get => voting::item, head => voting::item);
    resource!("/polls/{id}", allow = "GET, HEAD", get => voting::poll, head => voting::poll);
    resource!("/assets/{name}", allow = "GET, HEAD", get => assets::show, head => assets::show);
    resource!("/embed", allow = "GET, HEAD", get => pages::embed_html, head => pages::embed_html);
    resource!("/embed.js", allow = "GET, HEAD", get => pages::elements, head => pages::elements);
    resource!("/ops", allow = "GET, HEAD", get => pages::operator_html, head => pages::operator_html);
    resource!("/openapi.json", allow = "GET, HEAD", get => openapi::document, head => openapi::document);
    resource!("/docs", allow = "GET, HEAD", get => openapi::page, head => openapi::page);
    resource!("/problems", allow = "GET, HEAD", get => problems::list, head => problems::list);
    resource!("/problems/{slug}", allow = "GET, HEAD", get => problems::show, head => problems::show);
    resource!("/health/live", allow = "GET, HEAD", get => health::live, head => health::live);
    resource!("/health/ready", allow = "GET, HEAD", get => health::ready, head => health::ready);
    resource!("/metrics", allow = "GET, HEAD", get => health::metrics, head => health::metrics);
    app.default_service(web::to(not_found));
}
