//! Draws edits of items and polls.

use reqwest::Method;
use serde_json::{Value, json};

use super::answers::{Expected, Refused, refused};
use super::draw::{Draw, Request};
use super::making::check_order;
use super::model::{Model, Time};

/// A time to set; the inner `None` removes it.
type TimeEdit = Option<Option<Time>>;

/// The field that a refusal of these times names.
fn times_field(opens_at: TimeEdit) -> &'static str {
    if opens_at.is_some() {
        "opens_at"
    } else {
        "closes_at"
    }
}

impl Model {
    fn edit_times(&mut self, rule: usize, opens_at: TimeEdit, closes_at: TimeEdit) -> Result<(), Refused> {
        if opens_at.is_none() && closes_at.is_none() {
            return Ok(());
        }
        let mut edited = self.rules[rule].clone();
        if edited.closes_at.is_some_and(Time::has_passed) {
            return Err(refused("closed"));
        }
        edited.opens_at = opens_at.unwrap_or(edited.opens_at);
        // A time in the past closes it now.
        edited.closes_at = closes_at.map_or(edited.closes_at, |closes| {
            closes.map(|time| time.max(Time::Edited))
        });
        check_order(&edited).map_err(|_| refused("invalid-value").on(times_field(opens_at)))?;
        self.rules[rule] = edited;
        Ok(())
    }
}

impl Draw {
    pub fn edit_item(&mut self) -> Request {
        let target = self.item();
        let path = format!("/v1/items/{}", target.path);
        if self.one_in(8) {
            let never = [
                "key",
                "down_votes",
                "max_votes",
                "numbered",
                "by_ballot",
                "poll_id",
            ];
            return self.never_changes(path, &never);
        }
        let mut body = json!({});
        let (opens_at, closes_at) = self.times(&mut body);
        let hidden = self.one_in(2).then(|| self.any(&[true, false]));
        let name = self.one_in(3).then(|| self.name());
        add_fields(&mut body, "name", name.as_deref(), hidden);
        let expected = target.at.ok_or(refused("unknown-item")).and_then(|at| {
            let sets_times = opens_at.is_some() || closes_at.is_some();
            let item = &self.model.items[at];
            match item.rule {
                None if sets_times => return Err(refused("never-changes").on(times_field(opens_at))),
                Some(_) if sets_times && item.poll.is_some() => {
                    return Err(refused("never-changes").on(times_field(opens_at)));
                }
                Some(rule) => self.model.edit_times(rule, opens_at, closes_at)?,
                None => {}
            }
            let item = &mut self.model.items[at];
            item.name = name.unwrap_or(item.name.clone());
            item.is_hidden = hidden.unwrap_or(item.is_hidden);
            Ok(Expected::new(200, self.model.item_body(at)))
        });
        Request::new(
            Method::PATCH,
            path,
            Some(body),
            expected.unwrap_or_else(Expected::from),
        )
    }

    pub fn edit_poll(&mut self) -> Request {
        let target = self.poll();
        let path = format!("/v1/polls/{}", target.path);
        if self.one_in(8) {
            let never = [
                "key",
                "choices",
                "max_choices",
                "results_before_close",
                "by_ballot",
                "secret",
            ];
            return self.never_changes(path, &never);
        }
        let mut body = json!({});
        let (opens_at, closes_at) = self.times(&mut body);
        let hidden = self.one_in(2).then(|| self.any(&[true, false]));
        let title = self.one_in(3).then(|| self.name());
        add_fields(&mut body, "title", title.as_deref(), hidden);
        let expected = target.at.ok_or(refused("unknown-poll")).and_then(|at| {
            let rule = self.model.polls[at].rule;
            if closes_at == Some(None) && !self.model.polls[at].shows_results {
                return Err(refused("invalid-value").on("closes_at"));
            }
            self.model.edit_times(rule, opens_at, closes_at)?;
            let poll = &mut self.model.polls[at];
            poll.title = title.unwrap_or(poll.title.clone());
            poll.is_hidden = hidden.unwrap_or(poll.is_hidden);
            Ok(Expected::new(200, self.model.poll_body(at)))
        });
        Request::new(
            Method::PATCH,
            path,
            Some(body),
            expected.unwrap_or_else(Expected::from),
        )
    }

    /// An edit of fields that never change. It stores nothing.
    fn never_changes(&mut self, path: String, fields: &[&'static str]) -> Request {
        let field = self.any(fields);
        let body = json!({ field: 1, "hidden": true });
        Request::new(
            Method::PATCH,
            path,
            Some(body),
            refused("never-changes").on(field).into(),
        )
    }

    /// Times to set. Few of them close at once, because that is final.
    fn times(&mut self, body: &mut Value) -> (TimeEdit, TimeEdit) {
        let opens_at = self
            .one_in(3)
            .then(|| self.any(&[None, Some(Time::Past), Some(Time::Past), Some(Time::Future)]));
        let closes = [
            None,
            Some(Time::Future),
            Some(Time::Later),
            Some(Time::Later),
            Some(Time::Past),
        ];
        let closes_at = self.one_in(4).then(|| self.any(&closes));
        for (name, time) in [("opens_at", opens_at), ("closes_at", closes_at)] {
            if let Some(time) = time {
                body[name] = json!(time.and_then(Time::text));
            }
        }
        (opens_at, closes_at)
    }
}

fn add_fields(body: &mut Value, field: &str, name: Option<&str>, hidden: Option<bool>) {
    if let Some(name) = name {
        body[field] = json!(name);
    }
    if let Some(hidden) = hidden {
        body["hidden"] = json!(hidden);
    }
}
