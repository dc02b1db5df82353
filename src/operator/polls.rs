//! `tally poll`.

use reqwest::Method;
use serde_json::json;

use super::api::Api;
use super::{edit_body, show};
use crate::config::polls::Poll;

/// Runs `tally poll`. Returns whether all was well. Fails when the server does not answer, or refuses.
pub async fn poll(command: Poll) -> anyhow::Result<bool> {
    let (remote, poll) = match command {
        Poll::Make(make) => {
            let body = json!({
                "title": make.title,
                "choices": make.choices,
                "key": make.key,
                "max_choices": make.max_choices,
                "opens_at": make.times.opens_at,
                "closes_at": make.times.closes_at,
                "results_before_close": make.hide_results.then_some(false),
                "by_ballot": make.by_ballot.then_some(true),
                "secret": make.secret.then_some(true),
            });
            let api = Api::new(&make.remote)?;
            let made = api.ask(Method::POST, &["v1", "polls"], Some(&body)).await?;
            (make.remote, made.1)
        }
        Poll::Show(wanted) => {
            let api = Api::new(&wanted.remote)?;
            let shown = api.ask(Method::GET, &["v1", "polls", &wanted.id], None).await?;
            (wanted.remote, shown.1)
        }
        Poll::Access(access) => {
            let api = Api::new(&access.remote)?;
            let open = super::ask_access(&api, "polls", &access).await?;
            (access.remote, open)
        }
        Poll::Edit(edit) => {
            let body = edit_body(("title", edit.title.as_ref()), &edit.edits);
            let api = Api::new(&edit.remote)?;
            let edited = api
                .ask(Method::PATCH, &["v1", "polls", &edit.id], Some(&body))
                .await?;
            (edit.remote, edited.1)
        }
        Poll::AddChoice(add) => {
            let api = Api::new(&add.remote)?;
            let (path, body) = (["v1", "polls", &add.id, "choices"], json!({ "name": add.name }));
            let added = api.ask(Method::POST, &path, Some(&body)).await?;
            (add.remote, added.1)
        }
        Poll::Copy(copy) => {
            let api = Api::new(&copy.remote)?;
            let body = json!({
                "title": copy.title,
                "key": copy.key,
                "opens_at": copy.times.opens_at,
                "closes_at": copy.times.closes_at,
            });
            let path = ["v1", "polls", &copy.id, "copy"];
            let made = api.ask(Method::POST, &path, Some(&body)).await?;
            (copy.remote, made.1)
        }
    };
    show(&poll, remote.json);
    Ok(true)
}
